"""A short run of `python -m benchmarks.fuzz`, and its decisions about failures."""

import json
import sys
import warnings
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.fuzz.__main__ import draw_cases, run, summary
from benchmarks.fuzz.judging import Violation, check_close, check_finite, judge
from benchmarks.fuzz.pool import Case, Record
from benchmarks.fuzz.targets import TARGETS, run_case

CASES = dict.fromkeys(TARGETS, 12) | {"defaults": 2, "options": 8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def test_hostile_cases(folder):
    """In another process: in this one, beartype rejects arguments before gcgp does."""
    cases = [Case(target, seed) for target, count in CASES.items() for seed in range(count)]
    record = run(iter(cases), folder, 1, seconds=300, case_seconds=60)
    assert record.failures == []
    assert record.cases == len(cases)
    assert 0 < record.peak_gb < 1


def test_crashes_and_hangs_are_failures(folder, monkeypatch):
    """A worker that crashes or hangs is restarted, and its case is reported."""
    program = (
        "import json, os, sys, time\n"
        "print(json.dumps({'kind': 'ready', 'peak_gb': 0.1}), flush=True)\n"
        "for line in sys.stdin:\n"
        "    seed = json.loads(line)['seed']\n"
        "    print(json.dumps({'kind': 'announcement', 'description': f'case {seed}'}), flush=True)\n"
        "    os.abort() if seed == 1 else time.sleep(60) if seed == 2 else None\n"
        "    print(json.dumps({'kind': 'rejected', 'peak_gb': 2.0 if seed == 3 else 0.1}), flush=True)\n"
    )
    monkeypatch.setattr("benchmarks.fuzz.pool.COMMAND", ["-c", program])
    record = run((Case("fit", seed) for seed in range(5)), folder, 1, seconds=60, case_seconds=1.0)
    assert record.cases == 5
    failures = [
        (failure["case_seed"], failure["kind"], failure["description"]) for failure in record.failures
    ]
    assert failures == [(1, "crash", "case 1"), (2, "hang", "case 2"), (3, "memory", "case 3")]


def raising(error):
    def run():
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("signal 3: values at [0, 0] is nan; it must be finite"), "rejected"),
        (TypeError("X: expected Signals, got int"), "rejected"),
        (
            ValueError("image 0: not a rectangular array (setting an array element with a sequence.)"),
            "rejected",
        ),
        (ValueError(""), "unclear error"),
        (ValueError("cannot reshape array of size 3 into shape (2,)"), "unclear error"),
        (ValueError("setting an array element with a sequence."), "unclear error"),
        (TypeError("'int' object is not iterable"), "unclear error"),
        (UnicodeDecodeError("utf-8", b"a", 0, 1, "no"), "unclear error"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), "exception"),
        (ZeroDivisionError("division by zero"), "exception"),
        (Violation("prediction is not finite"), "wrong result"),
    ],
)
def test_kinds_of_outcomes(error, kind):
    assert judge(raising(error)).kind == kind


def test_warnings_of_numpy_are_failures():
    assert judge(lambda: warnings.warn("overflow", RuntimeWarning, stacklevel=1)).kind == "warning"
    assert judge(lambda: warnings.warn("not used", UserWarning, stacklevel=1)).kind == "accepted"


def test_checks_of_results():
    check_finite("values", [1.0, 2.0])
    with pytest.raises(Violation, match="values is not finite"):
        check_finite("values", [1.0, np.nan])
    check_close("values", [1.0], [1.000001])
    with pytest.raises(Violation, match="apart"):
        check_close("values", [1.0], [1.1])


def test_cases_depend_only_on_the_seed(folder):
    first, repeated, different = (list(islice(draw_cases(seed, None), 50)) for seed in (1, 1, 2))
    assert first == repeated
    assert first != different
    assert {case.target for case in islice(draw_cases(0, "graphs"), 5)} == {"graphs"}
    assert run_case("graphs", 5, folder).description == run_case("graphs", 5, folder).description


def test_the_summary_names_failing_cases():
    record = Record()
    record.add(Case("images", 7), {"kind": "rejected", "peak_gb": 0.5})
    record.add(Case("fit", 8), {"kind": "hang", "detail": "still running", "description": "kind='images'"})
    results = json.loads(json.dumps(summary(record, 3, 1.0)))
    assert (results["cases"], results["failures"], results["peak_gb"]) == (2, 1, 0.5)
    assert results["targets"] == {"images": {"rejected": 1}, "fit": {"failed": 1}}
    assert results["failing_cases"][0] | {"target": "fit", "case_seed": 8} == results["failing_cases"][0]
