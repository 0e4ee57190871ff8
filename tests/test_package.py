"""The package as a whole: what importing it costs, and that rooms do not know the rooms after them."""

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import gcgp

ROOMS = ["mesh", "domain", "weighting", "patches", "kernel", "inference", "selection", "estimators"]
PACKAGE = Path(gcgp.__file__).parent


def test_version_is_the_installed_one():
    assert gcgp.__version__ == version("gcgp")


def test_every_public_name_is_there():
    assert all(getattr(gcgp, name) is not None for name in gcgp.__all__)
    assert set(gcgp.__all__) <= set(dir(gcgp))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gcgp.nothing  # noqa: B018


def test_importing_gcgp_loads_no_heavy_package():
    code = "import sys, gcgp; print({'sklearn', 'numba', 'torch', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


WITHOUT_UNIX = """
import os, pkgutil, sys

import gpytorch, joblib, matplotlib.pyplot, numba, numpy, scipy.optimize, sklearn.pipeline, torch  # for Linux

for name in ("resource", "fcntl", "pwd", "grp", "termios"):
    sys.modules[name] = None  # importing it raises ImportError
for name in ("register_at_fork", "fork", "sched_getaffinity", "getuid"):
    if hasattr(os, name):
        delattr(os, name)
import gcgp

for module in pkgutil.walk_packages(gcgp.__path__, "gcgp."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
from experiments.metrics import peak_memory

images = numpy.random.default_rng(0).random((10, 5, 5))
model = gcgp.GCGPClassifier(n_inducing=4, lengthscale=0.4, position=False, progress=False)
model.fit(images, [0, 1] * 5).save(sys.argv[1])
assert (gcgp.load(sys.argv[1]).predict(images) == model.predict(images)).all()
print(peak_memory())
"""


def test_nothing_needs_modules_that_only_unix_has(tmp_path):
    command = [sys.executable, "-c", WITHOUT_UNIX, str(tmp_path / "model.gcgp")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "nan"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_knows_none_of_those_after_it(room):
    later = {f"gcgp.{name}" for name in ROOMS[ROOMS.index(room) + 1 :]}
    for file in (PACKAGE / room).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            imported = []
            if isinstance(node, ast.ImportFrom) and node.module:
                imported = [node.module]
            elif isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            for name in imported:
                assert ".".join(name.split(".")[:2]) not in later, f"{file.name} imports {name}"
