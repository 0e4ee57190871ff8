"""A small run of `python -m benchmarks.layers`."""

import json

from benchmarks.layers import main


def test_a_small_run(tmp_path):
    main(["--images", "4", "--anchors", "8", "--rounds", "1", "--json", str(tmp_path / "layers.json")])
    timing = json.loads((tmp_path / "layers.json").read_text())["8 anchors"]
    assert timing["ratio"] > 0
