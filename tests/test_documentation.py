"""The examples of README and docs run as they stand."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "docs/guide.md", "docs/architecture.md"]


def examples():
    for page in PAGES:
        text = (ROOT / page).read_text()
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL)):
            yield pytest.param(code, id=f"{page}-{number}")


@pytest.mark.parametrize("code", list(examples()))
def test_example_runs(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "example", "exec"), {"__name__": "example"})
    printed = capsys.readouterr().out
    accuracy = re.search(r"accuracy (\S+)", printed)
    assert accuracy is None or float(accuracy[1]) > 0.9


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text()):
            assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}"
