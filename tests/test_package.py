"""The package as a whole: its public names, the order of its folders, and limits of size and style."""

import ast
import subprocess
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pytest

import gcgp

PACKAGE = Path(gcgp.__file__).parent
ORDER = [
    "_runtime",
    "_numerics",
    "mesh",
    "domain",
    "descriptors",
    "datasets",
    "weighting",
    "patches",
    "layers",
    "kernel",
    "inference",
    "io",
    "selection",
    "estimators",
    "plot",
]
"""A folder imports only from itself and from folders before it."""
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 80
MAX_IDENTICAL_LINES = 5
NUMBA_DECORATORS = {"njit", "parallel_njit", "intrinsic"}
SHARED_CONSTANT_NAMES: set[str] = set()
DOMAIN_CLASSES = {"Grids", "Graphs", "Meshes"}

TREES = {
    file.relative_to(PACKAGE).as_posix(): ast.parse(file.read_text())
    for file in sorted(PACKAGE.rglob("*.py"))
}


def nodes(kind, files=TREES):
    """All nodes of a kind in these files, each with its address."""
    for name in files:
        for node in ast.walk(TREES[name]):
            if isinstance(node, kind):
                yield f"{name}:{node.lineno}", node


def name_of(node):
    """The last part of a name: `njit` for `njit`, `numba.njit` and `numba.njit(...)`."""
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)


def test_version_is_the_installed_one():
    assert gcgp.__version__ == version("gcgp")


def test_every_public_name_exists():
    assert all(getattr(gcgp, name) is not None for name in gcgp.__all__)
    assert set(gcgp.__all__) <= set(dir(gcgp))
    with pytest.raises(AttributeError, match="attribute nothing"):
        gcgp.nothing  # noqa: B018


def test_every_public_name_is_listed_once_in_the_stub():
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text())
    imports = [node for node in ast.walk(stub) if isinstance(node, ast.ImportFrom)]
    listed = Counter(alias.asname or alias.name for node in imports for alias in node.names)
    assert set(listed) == set(gcgp.__all__)
    assert set(listed.values()) == {1}


def test_importing_gcgp_loads_no_heavy_package():
    code = "import sys, gcgp; print({'sklearn', 'numba', 'torch', 'matplotlib', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


WITHOUT_UNIX = """
import os, pathlib, pkgutil, sys

import gpytorch, joblib, matplotlib.pyplot, numba, numpy, scipy.optimize, sklearn.pipeline, torch  # for Linux

for name in ("resource", "fcntl", "pwd", "grp", "termios"):
    sys.modules[name] = None  # importing it raises ImportError
for name in ("register_at_fork", "fork", "sched_getaffinity", "getuid"):
    if hasattr(os, name):
        delattr(os, name)
import gcgp

for module in pkgutil.walk_packages(gcgp.__path__, "gcgp."):
    __import__(module.name)
from experiments import metrics

metrics.PROCESS_STATUS = pathlib.Path("absent")
images = numpy.random.default_rng(0).random((10, 5, 5))
model = gcgp.GCGPClassifier(
    n_inducing=4, kernel=gcgp.PatchKernel(lengthscale=0.4), patch=gcgp.Patch(position=False)
)
model.fit(images, [0, 1] * 5).save(sys.argv[1])
assert (gcgp.load(sys.argv[1]).predict(images) == model.predict(images)).all()
print(metrics.peak_memory())
"""


def test_no_module_needs_those_of_unix(tmp_path):
    command = [sys.executable, "-c", WITHOUT_UNIX, str(tmp_path / "model.gcgp")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "nan"


def imported_modules(file, node):
    """Full names of the modules that an import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        folders = ["gcgp", *file.split("/")[:-1]]
        base = ".".join([*folders[: len(folders) - node.level + 1], *filter(None, [base])])
    # `from gcgp import domain` imports the folder `gcgp.domain`.
    return [f"{base}.{alias.name}" if base == "gcgp" else base for alias in node.names]


def test_the_order_names_all_folders():
    folders = {file.split("/")[0] for file in TREES if "/" in file}
    assert folders == set(ORDER)


@pytest.mark.parametrize("folder", ORDER)
def test_a_folder_imports_only_from_folders_before_it(folder):
    allowed = set(ORDER[: ORDER.index(folder) + 1])
    for file in TREES:
        if not file.startswith(f"{folder}/"):
            continue
        for address, node in nodes((ast.Import, ast.ImportFrom), [file]):
            for module in imported_modules(file, node):
                package, _, rest = module.partition(".")
                if package == "gcgp" and rest != "__version__":
                    assert rest.split(".")[0] in allowed, f"{address} imports {module}"


def test_only_the_stub_imports_from_all_folders():
    top_level = [file for file in TREES if "/" not in file]
    assert top_level == ["__init__.py"]
    assert [name_of(node) for _, node in nodes((ast.Import, ast.ImportFrom), top_level)] == [None]
    (node,) = (node for _, node in nodes(ast.Import, top_level))
    assert [alias.name for alias in node.names] == ["lazy_loader"]


def test_no_file_is_too_long():
    lengths = {file: len((PACKAGE / file).read_text().splitlines()) for file in TREES}
    assert {file: length for file, length in lengths.items() if length > MAX_FILE_LINES} == {}


def test_no_function_is_too_long_except_compiled_loops():
    too_long = {
        address: f"{node.name} has {node.end_lineno - node.lineno + 1} lines"
        for address, node in nodes((ast.FunctionDef, ast.AsyncFunctionDef))
        if node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
        and not NUMBA_DECORATORS & set(map(name_of, node.decorator_list))
    }
    assert too_long == {}


def statement_lines(file):
    """Line numbers and text of a file without blank lines, imports and signatures (of overridden methods)."""
    skipped = set()
    for _, node in nodes((ast.Import, ast.ImportFrom, ast.FunctionDef), [file]):
        end = node.body[0].lineno - 1 if isinstance(node, ast.FunctionDef) else node.end_lineno
        skipped |= set(range(node.lineno, end + 1))
    lines = enumerate((PACKAGE / file).read_text().splitlines(), start=1)
    return [(number, line.strip()) for number, line in lines if line.strip() and number not in skipped]


def test_no_lines_are_repeated_elsewhere():
    places = {}
    for file in TREES:
        lines = statement_lines(file)
        for start in range(len(lines) - MAX_IDENTICAL_LINES):
            window = lines[start : start + MAX_IDENTICAL_LINES + 1]
            text = "\n".join(line for _, line in window)
            places.setdefault(text, []).append(f"{file}:{window[0][0]}")
    assert [where for where in places.values() if len(where) > 1] == []


def constants(tree):
    """Names of the constants that a module defines."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(part, ast.Name) and part.id.isupper():
                    yield part.id


def test_names_of_constants_are_unique_in_the_package():
    files = {}
    for file, tree in TREES.items():
        for name in set(constants(tree)):
            files.setdefault(name.lstrip("_"), []).append(file)
    shared = {name: where for name, where in files.items() if len(where) > 1}
    assert shared.keys() == SHARED_CONSTANT_NAMES, shared


def test_only_domains_distinguish_kinds_of_domains():
    outside = [file for file in TREES if not file.startswith("domain/")]
    for address, node in nodes((ast.Call, ast.Compare), outside):
        if isinstance(node, ast.Compare) or name_of(node) in ("isinstance", "issubclass"):
            names = {name_of(part) for part in ast.walk(node)}
            assert not DOMAIN_CLASSES & names, address


def test_nothing_is_printed():
    assert [address for address, node in nodes(ast.Call) if name_of(node) in ("print", "pprint")] == []


def is_frozen(node):
    return any(
        isinstance(decorator, ast.Call)
        and name_of(decorator) == "dataclass"
        and any(word.arg == "frozen" and getattr(word.value, "value", False) for word in decorator.keywords)
        for decorator in node.decorator_list
    )


def test_frozen_dataclasses_are_not_changed():
    """Their constructors may convert arguments."""
    for file, tree in TREES.items():
        constructors = [node for _, node in nodes(ast.FunctionDef, [file]) if node.name == "__post_init__"]
        allowed = {part for constructor in constructors for part in ast.walk(constructor)}
        for node in set(ast.walk(tree)) - allowed:
            bypass = isinstance(node, ast.Attribute) and node.attr == "__setattr__"
            assert not bypass or name_of(node.value) != "object", f"{file}:{node.lineno}: object.__setattr__"
    for address, node in nodes(ast.ClassDef):
        if is_frozen(node):
            attributes = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
            assert "__dict__" not in attributes, f"{address}: {node.name} uses its __dict__"
