"""Results of tables: each run kept as soon as it is done, and what the terminal and the page tell of them."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import numba
import numpy as np
import pytest
import scipy.linalg
import torch
from threadpoolctl import threadpool_info

from experiments.reporting import Line, as_text, choices, report_of, trainings
from experiments.runs import Results, Run, Settings, carry_out
from experiments.tables import TABLES
from outcomes import outcome

QUICK = Settings(per_class=3, inducing=7)


def test_runs_that_are_done_are_not_done_again(tmp_path, capsys):
    runs = TABLES["ablation"].runs("ablation", ["gcgp"], 3, QUICK)
    assert [run.name for run in runs] == [f"gcgp | 3 a class | seed {seed}" for seed in range(3)]
    seen = []

    def work(run):
        seen.append(run.seed)
        if len(seen) == 2:
            raise RuntimeError("killed")
        return outcome()

    path = tmp_path / "ablation.json"
    with pytest.raises(RuntimeError, match="killed"):
        carry_out(runs, Results(path, "ablation", QUICK), work, apart=False)
    carry_out(runs, Results(path, "ablation", QUICK), work, apart=False)
    assert seen == [0, 1, 1, 2]
    told = capsys.readouterr().err
    assert "1 of 3 runs are in" in told
    assert "run 2 of 2: gcgp | 3 a class | seed 2" in told
    kept = json.loads(path.read_text())["runs"]
    assert [run["seed"] for run in kept.values()] == [0, 1, 2]
    assert sum(line.startswith('    "gcgp | 3 a class') for line in path.read_text().splitlines()) == 3


def threads_and_time(run):
    """What a run in another process sees: its threads, and the time when it began and ended."""
    begun = time.time()
    time.sleep(1.0)
    if run.seed == 3:
        raise RuntimeError("seed 3 fails")
    scipy.linalg.eigh(np.eye(3))
    libraries = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    here = {
        "threads": torch.get_num_threads(),
        "numba": numba.get_num_threads(),
        "algebra": max(libraries, default=1),
        "process": os.getpid(),
    }
    return outcome(more=here | {"begun": begun, "ended": time.time()})


def test_several_runs_at_a_time_share_the_cores(tmp_path, capsys):
    runs = TABLES["ablation"].runs("ablation", ["gcgp"], 3, QUICK)
    results = Results(tmp_path / "ablation.json", "ablation", QUICK, jobs=2)
    carry_out(runs, results, threads_and_time, jobs=2)
    seen, threads = [results.runs[run.name]["more"] for run in runs], max(1, torch.get_num_threads() // 2)
    assert {one["threads"] for one in seen} == {results.content["cores"]} == {threads}
    assert {one["numba"] for one in seen} == {min(threads, numba.get_num_threads())}
    assert {one["algebra"] for one in seen} <= set(range(1, threads + 1))
    assert len({one["process"] for one in seen}) == 2
    assert seen[2]["begun"] >= min(one["ended"] for one in seen[:2])
    assert "  gcgp | 3 a class | seed 1: error 10.00%" in capsys.readouterr().err


def test_runs_beside_one_that_fails_are_kept(tmp_path):
    runs = TABLES["ablation"].runs("ablation", ["gcgp"], 100, QUICK)[2:]
    results = Results(tmp_path / "ablation.json", "ablation", QUICK, jobs=2)
    with pytest.raises(RuntimeError, match="seed 3 fails"):
        carry_out(runs, results, threads_and_time, jobs=2)
    assert runs[0].name in results.runs
    assert runs[1].name not in results.runs
    assert runs[-1].name not in results.runs  # never begun


LONG_RUN = """
import sys, time
from pathlib import Path
from experiments.runs import Results, Run, Settings, carry_out

def work(run):
    for beat in range(200):
        Path(sys.argv[1], "beats").write_text(str(beat))
        time.sleep(0.1)
    Path(sys.argv[1], "beats").write_text("outlived the command")

if __name__ == "__main__":
    run = Run("mnist", "gcgp", "all", 0, Settings())
    carry_out([run], Results(Path(sys.argv[1], "mnist.json"), "mnist", Settings()), work)
"""


def test_a_run_ends_when_the_command_is_killed(tmp_path):
    script, beats = tmp_path / "long.py", tmp_path / "beats"
    script.write_text(LONG_RUN)
    command = subprocess.Popen([sys.executable, script, tmp_path], stderr=subprocess.DEVNULL)
    while not beats.exists():
        assert command.poll() is None
        time.sleep(0.05)
    command.kill()
    command.wait()
    before = None
    while beats.read_text() != before:
        before = beats.read_text()
        time.sleep(2)
    assert before != "outlived the command"


def test_results_of_other_settings_are_not_mixed(tmp_path):
    path = tmp_path / "mnist.json"
    run = Run("mnist", "gcgp", "all", 0, QUICK)
    Results(path, "mnist", QUICK).add(run, outcome())
    with pytest.raises(ValueError, match=r"mnist.json: holds results with settings .*7.*asked for is .*8"):
        Results(path, "mnist", replace(QUICK, inducing=8))
    with pytest.raises(ValueError, match="holds results with table 'mnist'"):
        Results(path, "superpixels", QUICK)
    path.write_text("[]")
    with pytest.raises(ValueError, match="not a file of results"):
        Results(path, "mnist", QUICK)


def test_intervals():
    one = Line("GCGP", "all", None, [outcome(0.1, test=900)])
    assert one.interval == pytest.approx(1.96 * 0.01)
    errors = [0.1, 0.12, 0.14]
    several = Line("GCGP", "all", None, [outcome(error) for error in errors])
    assert several.mean("error") == pytest.approx(0.12)
    assert several.interval == pytest.approx(4.302653 * 0.02 / 3**0.5)


def test_the_page_has_all_results_of_a_folder(tmp_path):
    for table, model, condition in (("superpixels", "gcgp", "all"), ("mnist", "rbf-gp", "all")):
        results = Results(tmp_path / f"{table}.json", table, Settings())
        results.add(Run(table, model, condition, 0, Settings()), outcome())
    (tmp_path / "other.json").write_text("{}")
    page = report_of(tmp_path, tmp_path)
    assert page.index("## MNIST\n") < page.index("## MNIST as superpixel graphs")
    assert "| GCGP, 3 × 8 bins | all | 10.00% ± 5.88% | 4.2% | 0.3000 |" in page
    assert "- differs from the paper: data remade" in page
    text = as_text(results.content)
    assert text.splitlines()[0] == "MNIST"
    assert "RBF GP, 784 inputs  all" in text


def test_the_page_says_how_networks_were_trained():
    runs = {
        f"monet {seed}": {"model": "monet", "condition": "100 a class", "seed": seed}
        | outcome(note={"passes": 70, "best_pass": 68 - seed, "held_out_nll": 0.5})
        for seed in range(2)
    }
    content = {"table": "ablation", "runs": runs}
    assert trainings(content) == ["MoNet, 100 a class: 67 to 68 of 70"]
    assert "67 to 68 of 70" in as_text(content)


def test_the_page_says_how_long_all_runs_take():
    runs = {
        f"{model} {size} {seed}": {"model": model, "condition": f"{size} a class", "seed": seed}
        | outcome(seconds_fit=fit, **({"seconds_data": data} if data else {}))
        for model, data, fit in (("monet", None, 59.0), ("gcgp", 1800.0, 1799.0))
        for size in (100, 500)
        for seed in range(2)
    }
    content = {"table": "ablation", "runs": runs}
    said = "all runs one after another: MoNet: 4 min; GCGP, 3 × 8 bins: 4.0 h"
    assert said in as_text(content).splitlines()


def test_the_page_says_what_was_chosen():
    runs = {
        str(seed): {"model": "gcgp-best", "condition": "100 a class", "seed": seed}
        | outcome(note={"chosen": "defaults" if seed else "two scales"})
        for seed in range(3)
    }
    said = choices({"table": "ablation", "runs": runs})
    assert said == ["GCGP, best, means refined, 100 a class: defaults (2), two scales (1)"]


def test_results_of_several_files_are_one_table(tmp_path):
    for model in ("monet", "gcgp"):
        results = Results(tmp_path / f"{model}.json", "ablation", QUICK)
        results.add(Run("ablation", model, "3 a class", 0, QUICK), outcome())
    other = Results(tmp_path / "other.json", "ablation", Settings())
    other.add(Run("ablation", "gcgp", "100 a class", 0, Settings()), outcome())
    page = report_of(tmp_path, tmp_path)
    assert page.count("## Superpixel graphs, few training digits") == 2
    first = page[page.index("--per-class 3 --inducing 7") :]
    assert first.index("| MoNet | 3 a class") < first.index("| GCGP, 3 × 8 bins | 3 a class")


def test_further_figures_are_columns_of_their_own(tmp_path):
    results = Results(tmp_path / "uncertainty.json", "uncertainty", Settings())
    for seed, area in enumerate((0.9, 0.8)):
        run = Run("uncertainty", "cnn", "all", seed, Settings())
        results.add(run, outcome(more={"AUROC, noise": area}))
    results.add(Run("uncertainty", "gcgp", "all", 0, Settings()), outcome())
    head, first, second = as_text(results.content).splitlines()[1:4]
    assert head.endswith("seeds  AUROC, noise")
    assert first.endswith("–")
    assert second.endswith("0.8500")
