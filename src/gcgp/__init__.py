"""Graph convolutional Gaussian processes: learn from few labeled signals on images, graphs and meshes.

>>> import gcgp
>>> gcgp.GCGPClassifier(n_inducing=100)
GCGPClassifier(n_inducing=100)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gcgp.datasets.bodies import articulated_bodies
    from gcgp.datasets.mesh_folders import load_faust, load_mesh_folder
    from gcgp.descriptors.spectral import GeometryVectors, HeatKernelSignature, WaveKernelSignature
    from gcgp.domain.signals import Signals
    from gcgp.domain.superpixels import superpixels
    from gcgp.estimators.estimators import GCGPClassifier, GCGPRegressor
    from gcgp.io.model_file import load, save
    from gcgp.mesh.decimation import decimate
    from gcgp.mesh.files.loading import load_mesh
    from gcgp.mesh.mesh import Mesh

_HOMES = {
    "GCGPClassifier": "gcgp.estimators.estimators",
    "GCGPRegressor": "gcgp.estimators.estimators",
    "GeometryVectors": "gcgp.descriptors.spectral",
    "HeatKernelSignature": "gcgp.descriptors.spectral",
    "Mesh": "gcgp.mesh.mesh",
    "Signals": "gcgp.domain.signals",
    "WaveKernelSignature": "gcgp.descriptors.spectral",
    "articulated_bodies": "gcgp.datasets.bodies",
    "decimate": "gcgp.mesh.decimation",
    "load": "gcgp.io.model_file",
    "load_faust": "gcgp.datasets.mesh_folders",
    "load_mesh": "gcgp.mesh.files.loading",
    "load_mesh_folder": "gcgp.datasets.mesh_folders",
    "save": "gcgp.io.model_file",
    "shard": "gcgp.estimators.sharding",
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
