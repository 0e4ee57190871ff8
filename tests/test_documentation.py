"""The examples of the documentation run as they are, and its links and names exist."""

import importlib
import re
from itertools import takewhile
from pathlib import Path

import pytest

import gcgp
from gcgp.domain import Domains
from gcgp.inference.likelihoods import LIKELIHOODS
from gcgp.inference.methods import METHODS

ROOT = Path(__file__).parent.parent
PAGES = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
]
EXAMPLES = [
    pytest.param(code, id=f"{page}-{number}")
    for page in PAGES
    for number, code in enumerate(
        re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    )
]


@pytest.fixture
def registries():
    """Registries of extensions, restored afterwards."""
    tables = (METHODS, LIKELIHOODS, Domains.kinds)
    before = [dict(table) for table in tables]
    yield
    for table, content in zip(tables, before, strict=True):
        table.clear()
        table.update(content)


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("code", EXAMPLES)
def test_example_runs(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "example", "exec"), {"__name__": "example"})
    for accuracy in re.findall(r"accuracy (\S+)", capsys.readouterr().out):
        assert float(accuracy) > 0.9


@pytest.mark.parametrize("page", PAGES)
def test_links_exist(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", (ROOT / page).read_text()):
        if target.startswith("https://"):
            continue
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), f"{page} links to {target}"
        if anchor:
            assert anchor in anchors_of(path.read_text()), f"{page} links to {target}#{anchor}"


def anchors_of(text):
    """Anchors of the headings of a Markdown page, as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", ["docs/architecture.md", "docs/glossary.md", "docs/guide.md", "docs/paper.md"]
)
def test_names_of_the_code_exist(page):
    names = re.findall(r"`((?:gcgp|experiments)(?:\.\w+)+)`", (ROOT / page).read_text())
    missing = [name for name in names if not exists(name)]
    assert names
    assert not missing


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/paper.md"])
def test_paths_exist(page):
    paths = re.findall(
        r"`((?:src|tests|docs|examples|experiments|benchmarks)/[\w/.]*)`", (ROOT / page).read_text()
    )
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert not missing


def exists(name):
    """Whether a dotted name is a module, or an attribute, dataclass field or fitted attribute of one."""
    parts = name.split(".")
    modules = [".".join(parts[: i + 1]) for i in range(len(parts))]
    found = list(takewhile(is_module, modules))
    if not found:
        return False
    value = importlib.import_module(found[-1])
    for part in parts[len(found) :]:
        if not hasattr(value, part):
            return part in getattr(value, "__annotations__", {})
        value = getattr(value, part)
    return True


def is_module(name):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return False
    return True


def test_the_changelog_and_the_citation_have_the_version():
    assert f"## {gcgp.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {gcgp.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_changelog_covers_the_constructor_arguments():
    """The migration table names every present argument of the estimators."""
    table = (ROOT / "CHANGELOG.md").read_text()
    for argument in gcgp.GCGPClassifier().get_params(deep=False):
        assert f"`{argument}" in table
