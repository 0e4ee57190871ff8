"""Shapes in signatures are checked while testing; not in modules with compiled loops, nor where
wrong types are met with errors of our own (options and inputs)."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:  # one thread for each of the workers, which share the cores
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"

import pytest
from jaxtyping import install_import_hook

os.environ["GCGP_CACHE"] = "off"  # tests leave the cache of whoever runs them alone

CHECKED = [
    "gcgp._numerics.segments",
    "gcgp._runtime.memory",
    "gcgp.domain.adapters",
    "gcgp.domain.base",
    "gcgp.domain.graphs",
    "gcgp.domain.grids",
    "gcgp.domain.reading",
    "gcgp.domain.signals",
    "gcgp._runtime.cache",
    "gcgp._runtime.cache_file",
    "gcgp.domain.mesh_charts",
    "gcgp.domain.meshes",
    "gcgp.mesh.report",
    "gcgp.patches.bin_sums",
    "gcgp.weighting.base",
    "gcgp.weighting.box",
    "gcgp.weighting.gaussian_bins",
    "gcgp.weighting.mixture",
    "gcgp.weighting.polar",
    "gcgp.patches.convolution",
    "gcgp.patches.patches",
    "gcgp.kernel.base",
    "gcgp.kernel.engine.blocks",
    "gcgp.kernel.convolutional",
    "gcgp.io.kernels",
    "gcgp.kernel.engine.rbf_sums",
    "gcgp.kernel.inducing",
    "gcgp.kernel.rotation_average",
    "gcgp.kernel.sums",
    "gcgp.kernel.engine.rotation_sums",
    "gcgp.inference",
    "gcgp.selection.term_specs",
    "gcgp.estimators.base",
    "gcgp.datasets.images",
    "experiments.demo",
    "gcgp.estimators.fitting",
    "gcgp.plot.meshes",
    "experiments.metrics",
    "gcgp.io.model_check",
    "gcgp.io.model_file",
    "gcgp.io.model_rebuild",
    "gcgp.plot.signals",
    "gcgp.selection.tuning",
]

install_import_hook(CHECKED, "shapes.typechecker")


@pytest.fixture
def full_disk():
    """Files of this process may be only 100 bytes long, so that writing fails as on a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
