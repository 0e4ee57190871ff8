"""Shapes in signatures are checked while testing."""

import os
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores, so each uses one thread
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"

import pytest
from jaxtyping import install_import_hook

os.environ["GCGP_CACHE"] = "off"  # tests do not touch the cache of the user

SOURCES = Path(__file__).parents[1] / "src"
UNCHECKED = {
    "gcgp.datasets.bodies",
    "gcgp.descriptors.base",
    "gcgp.descriptors.spectral",
    "gcgp.estimators.base",
    "gcgp.estimators.options",
    "gcgp.mesh.geodesics.distances",
    "gcgp.mesh.mesh",
    "gcgp.mesh.scale",
    "gcgp.mesh.spectrum",
    "gcgp.selection.options",
}
"""Modules whose functions accept values of any type, in order to raise errors of their own."""
WARNING_STACK = {"gcgp.estimators.classifier", "gcgp.estimators.fit", "gcgp.selection.diagnostics"}
"""Modules between the user's call and a warning: checks would add frames to the stack that it counts."""


def checked_modules():
    """All modules of the package except those, and except compiled loops, which are not annotated."""
    for file in SOURCES.rglob("*.py"):
        module = ".".join(file.relative_to(SOURCES).with_suffix("").parts)
        if (
            file.name != "__init__.py"
            and module not in UNCHECKED | WARNING_STACK
            and "njit" not in file.read_text()
        ):
            yield module


install_import_hook([*checked_modules(), "experiments.demo", "experiments.metrics"], "shapes.typechecker")


@pytest.fixture
def full_disk():
    """Files of this process may be only 100 bytes long, so that writing fails as on a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
