"""The package as a whole: what importing it costs, and that rooms do not know the rooms after them."""

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import gcgp

ROOMS = ["domain", "weighting", "patches", "kernel", "inference", "surface"]
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
