"""Execution of runs and reports of their results."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import pytest
import scipy.linalg
import torch
from threadpoolctl import threadpool_info

from experiments.reporting import Line, as_text, folder_report, selections, training_lengths
from experiments.runs import Results, Run, Settings, execute
from experiments.tables import TABLES
from run_results import run_result

QUICK = Settings(per_class=3, inducing=7)


def test_finished_runs_are_skipped(tmp_path, capsys):
    runs = TABLES["ablation"].runs("ablation", ["gcgp"], 3, QUICK)
    assert [run.name for run in runs] == [f"gcgp | 3 per class | seed {seed}" for seed in range(3)]
    seen = []

    def work(run):
        seen.append(run.seed)
        if len(seen) == 2:
            raise RuntimeError("killed")
        return run_result()

    path = tmp_path / "ablation.json"
    with pytest.raises(RuntimeError, match="killed"):
        execute(runs, Results(path, "ablation", QUICK), work, separate=False)
    execute(runs, Results(path, "ablation", QUICK), work, separate=False)
    assert seen == [0, 1, 1, 2]
    progress = capsys.readouterr().err
    assert "1 of 3 runs are finished" in progress
    assert "run 2 of 2: gcgp | 3 per class | seed 2" in progress
    saved = json.loads(path.read_text())["runs"]
    assert [run["seed"] for run in saved.values()] == [0, 1, 2]
    assert sum(line.startswith('    "gcgp | 3 per class') for line in path.read_text().splitlines()) == 3


def threads_and_time(run):
    """The threads, process, start and end of a run."""
    started = time.time()
    time.sleep(1.0)
    if run.seed == 3:
        raise RuntimeError("seed 3 fails")
    scipy.linalg.eigh(np.eye(3))
    libraries = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    facts = {
        "threads": torch.get_num_threads(),
        "numba": numba.get_num_threads(),
        "blas": max(libraries, default=1),
        "process": os.getpid(),
    }
    return run_result(more=facts | {"started": started, "ended": time.time()})


def test_several_runs_at_a_time_share_the_cores(tmp_path, capsys):
    runs = TABLES["ablation"].runs("ablation", ["gcgp"], 3, QUICK)
    results = Results(tmp_path / "ablation.json", "ablation", QUICK, jobs=2)
    execute(runs, results, threads_and_time, jobs=2)
    runs_facts = [results.runs[run.name]["more"] for run in runs]
    threads = max(1, torch.get_num_threads() // 2)
    assert {facts["threads"] for facts in runs_facts} == {results.content["cores"]} == {threads}
    assert {facts["numba"] for facts in runs_facts} == {min(threads, numba.get_num_threads())}
    assert {facts["blas"] for facts in runs_facts} <= set(range(1, threads + 1))
    assert len({facts["process"] for facts in runs_facts}) == 2
    assert runs_facts[2]["started"] >= min(facts["ended"] for facts in runs_facts[:2])
    assert "  gcgp | 3 per class | seed 1: error 10.00%" in capsys.readouterr().err


def test_a_failure_keeps_other_results(tmp_path):
    runs = TABLES["ablation"].runs("ablation", ["gcgp"], 100, QUICK)[2:]
    results = Results(tmp_path / "ablation.json", "ablation", QUICK, jobs=2)
    with pytest.raises(RuntimeError, match="seed 3 fails"):
        execute(runs, results, threads_and_time, jobs=2)
    assert runs[0].name in results.runs
    assert runs[1].name not in results.runs
    assert runs[-1].name not in results.runs  # never started


LONG_RUN = """
import sys, time
from pathlib import Path
from experiments.runs import Results, Run, Settings, execute

def work(run):
    for beat in range(200):
        Path(sys.argv[1], "beats").write_text(str(beat))
        time.sleep(0.1)
    Path(sys.argv[1], "beats").write_text("still running")

if __name__ == "__main__":
    run = Run("mnist", "gcgp", "all", 0, Settings())
    execute([run], Results(Path(sys.argv[1], "mnist.json"), "mnist", Settings()), work)
"""


def test_a_run_ends_when_the_command_is_killed(tmp_path):
    script, beats = tmp_path / "long.py", tmp_path / "beats"
    script.write_text(LONG_RUN)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = subprocess.Popen([sys.executable, script, tmp_path], stderr=subprocess.DEVNULL, env=environment)
    while not beats.exists():
        assert command.poll() is None
        time.sleep(0.05)
    command.kill()
    command.wait()
    before = None
    while beats.read_text() != before:
        before = beats.read_text()
        time.sleep(2)
    assert before != "still running"


def test_results_of_different_settings_are_not_mixed(tmp_path):
    path = tmp_path / "mnist.json"
    run = Run("mnist", "gcgp", "all", 0, QUICK)
    Results(path, "mnist", QUICK).add(run, run_result())
    with pytest.raises(ValueError, match=r"mnist.json: contains results for settings .*7.*, not .*8"):
        Results(path, "mnist", replace(QUICK, inducing=8))
    with pytest.raises(ValueError, match="contains results for table 'mnist', not 'superpixels'"):
        Results(path, "superpixels", QUICK)
    path.write_text("[]")
    with pytest.raises(ValueError, match="not a results file"):
        Results(path, "mnist", QUICK)


def test_intervals():
    one = Line("GCGP", "all", None, [run_result(0.1, test=900)])
    assert one.interval == pytest.approx(1.96 * 0.01)
    errors = [0.1, 0.12, 0.14]
    several = Line("GCGP", "all", None, [run_result(error) for error in errors])
    assert several.mean("error") == pytest.approx(0.12)
    assert several.interval == pytest.approx(4.302653 * 0.02 / 3**0.5)


def test_the_report_contains_all_results_of_a_folder(tmp_path):
    for table, model, condition in (("superpixels", "gcgp", "all"), ("mnist", "rbf-gp", "all")):
        results = Results(tmp_path / f"{table}.json", table, Settings())
        results.add(Run(table, model, condition, 0, Settings()), run_result())
    (tmp_path / "other.json").write_text("{}")
    report = folder_report(tmp_path, tmp_path)
    assert report.index("## MNIST\n") < report.index("## MNIST as superpixel graphs")
    assert "| GCGP, 3 × 8 bins | all | 10.00% ± 5.88% | 4.2% | 0.3000 |" in report
    assert "- differs from the paper: other data" in report
    text = as_text(results.content)
    assert text.splitlines()[0] == "MNIST"
    assert "RBF GP, 784 inputs  all" in text


def test_the_report_contains_the_epochs_of_networks():
    runs = {
        f"monet {seed}": {"model": "monet", "condition": "100 per class", "seed": seed}
        | run_result(note={"epochs": 70, "best_epoch": 68 - seed, "held_out_nll": 0.5})
        for seed in range(2)
    }
    content = {"table": "ablation", "runs": runs}
    assert training_lengths(content) == ["MoNet, 100 per class: 67 to 68 of 70"]
    assert "67 to 68 of 70" in as_text(content)


def test_the_report_contains_the_total_time():
    runs = {
        f"{model} {size} {seed}": {"model": model, "condition": f"{size} per class", "seed": seed}
        | run_result(seconds_fit=fit, **({"seconds_data": data} if data else {}))
        for model, data, fit in (("monet", None, 59.0), ("gcgp", 1800.0, 1799.0))
        for size in (100, 500)
        for seed in range(2)
    }
    content = {"table": "ablation", "runs": runs}
    expected = "total time of all runs: MoNet: 4 min; GCGP, 3 × 8 bins: 4.0 h"
    assert expected in as_text(content).splitlines()


def test_the_report_contains_selected_candidates():
    runs = {
        str(seed): {"model": "gcgp-best", "condition": "100 per class", "seed": seed}
        | run_result(note={"chosen": "defaults" if seed else "two scales"})
        for seed in range(3)
    }
    texts = selections({"table": "ablation", "runs": runs})
    assert texts == ["GCGP, best, refined means, 100 per class: defaults (2), two scales (1)"]


def test_results_of_several_files_are_merged(tmp_path):
    for model in ("monet", "gcgp"):
        results = Results(tmp_path / f"{model}.json", "ablation", QUICK)
        results.add(Run("ablation", model, "3 per class", 0, QUICK), run_result())
    other = Results(tmp_path / "other.json", "ablation", Settings())
    other.add(Run("ablation", "gcgp", "100 per class", 0, Settings()), run_result())
    report = folder_report(tmp_path, tmp_path)
    assert report.count("## Superpixel graphs, few training digits") == 2
    first = report[report.index("--per-class 3 --inducing 7") :]
    assert first.index("| MoNet | 3 per class") < first.index("| GCGP, 3 × 8 bins | 3 per class")


def test_extra_metrics_are_columns(tmp_path):
    results = Results(tmp_path / "uncertainty.json", "uncertainty", Settings())
    for seed, area in enumerate((0.9, 0.8)):
        run = Run("uncertainty", "cnn", "all", seed, Settings())
        results.add(run, run_result(more={"AUROC, noise": area}))
    results.add(Run("uncertainty", "gcgp", "all", 0, Settings()), run_result())
    head, first, second = as_text(results.content).splitlines()[1:4]
    assert head.endswith("seeds  AUROC, noise")
    assert first.endswith("–")
    assert second.endswith("0.8500")


def test_the_published_report_is_that_of_the_published_results():
    docs = Path(__file__).parents[2] / "docs"
    assert (docs / "results.md").read_text() == folder_report(docs / "results", docs)
