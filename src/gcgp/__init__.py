"""Graph convolutional Gaussian processes: learn from few labelled signals on images, graphs and meshes.

>>> import gcgp
>>> gcgp.GCGPClassifier(n_inducing=100)
GCGPClassifier(n_inducing=100)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gcgp.domain.mesh.decimation import decimate
    from gcgp.domain.mesh.files import load_mesh
    from gcgp.domain.mesh.mesh import Mesh
    from gcgp.domain.signals import Signals
    from gcgp.domain.superpixels import superpixels
    from gcgp.surface.bodies import articulated_bodies
    from gcgp.surface.descriptors import GeometryVectors, HeatKernelSignature, WaveKernelSignature
    from gcgp.surface.estimators import GCGPClassifier, GCGPRegressor
    from gcgp.surface.mesh_folders import load_faust, load_mesh_folder
    from gcgp.surface.model_file import load, save

_HOMES = {
    "GCGPClassifier": "gcgp.surface.estimators",
    "GCGPRegressor": "gcgp.surface.estimators",
    "GeometryVectors": "gcgp.surface.descriptors",
    "HeatKernelSignature": "gcgp.surface.descriptors",
    "Mesh": "gcgp.domain.mesh.mesh",
    "Signals": "gcgp.domain.signals",
    "WaveKernelSignature": "gcgp.surface.descriptors",
    "articulated_bodies": "gcgp.surface.bodies",
    "decimate": "gcgp.domain.mesh.decimation",
    "load": "gcgp.surface.model_file",
    "load_faust": "gcgp.surface.mesh_folders",
    "load_mesh": "gcgp.domain.mesh.files",
    "load_mesh_folder": "gcgp.surface.mesh_folders",
    "save": "gcgp.surface.model_file",
    "shard": "gcgp.surface.sharding",
    "superpixels": "gcgp.domain.superpixels",
}

__all__ = [
    "GCGPClassifier",
    "GCGPRegressor",
    "GeometryVectors",
    "HeatKernelSignature",
    "Mesh",
    "Signals",
    "WaveKernelSignature",
    "__version__",
    "articulated_bodies",
    "decimate",
    "load",
    "load_faust",
    "load_mesh",
    "load_mesh_folder",
    "save",
    "shard",
    "superpixels",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: scikit-learn and Numba together cost seconds."""
    if name not in _HOMES:
        raise AttributeError(f"module 'gcgp' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
