"""Who is it? Identity of FAUST's ten persons from meshes in ten poses, over random splits of the poses.

    python -m benchmarks.faust --data FOLDER --vertices 500 1000 2500 --train-poses 7 --json FILE

FOLDER holds your own copy of FAUST's registrations (tr_reg_000 to tr_reg_099). In every split each person's
ten meshes are divided at random: some to learn from, three to test, as in the paper. Estimator defaults; the
weighting is the paper's 16 × 5 bins (`polar`) or its five radial bins alone (`diffusion`). The paper tests
on one split of 30 meshes.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline

from benchmarks.timing import report
from gcgp import GCGPClassifier, GeometryVectors
from gcgp.domain.whole_file import whole_file
from gcgp.surface.assembly import resolve_weightings
from gcgp.surface.mesh_folders import FaustMeshes, load_faust
from gcgp.surface.metrics import Scores, peak_memory

PAPER = {500: 0.233, 1000: 0.10, 2500: 0.033}
TEST_POSES = 3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="of FAUST (default: GCGP_DATA)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--vertices", type=int, nargs="+", default=[500, 1000, 2500])
    parser.add_argument("--weightings", nargs="+", default=["diffusion", "polar"])
    parser.add_argument("--train-poses", type=int, default=7)
    parser.add_argument("--splits", type=int, default=30)
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="keeps each split there, and goes on after those it has"
    )
    options = parser.parse_args()
    rows: dict[str, str] = {}
    results: dict[str, Any] = {"train_poses": options.train_poses, "splits": options.splits, "runs": []}
    for vertices in options.vertices:
        start = time.perf_counter()
        data = load_faust(options.data, vertices)
        print(f"{vertices} vertices: {time.perf_counter() - start:.0f} s to load and decimate", flush=True)
        for weighting in options.weightings:
            run = {"vertices": vertices, "weighting": weighting, "paper_error": PAPER.get(vertices)}
            run |= charting(data, weighting)
            run |= splits(data, weighting, options.splits, options.train_poses, options.resume)
            results["runs"].append(run)
            rows[f"{vertices} vertices, {weighting}"] = (
                f"{run['error']:.2%} ± {run['interval']:.2%}  NLL {run['nll']:.3f}  "
                f"charts {run['seconds_charts']:.0f} s  fit {run['seconds_fit']:.1f} s"
            )
            print(rows[f"{vertices} vertices, {weighting}"], flush=True)
    results["peak_memory_gb"] = peak_memory()
    title = (
        f"FAUST, {options.train_poses} poses a person to learn from, {options.splits} splits: error ± 95 %"
    )
    report(title, rows, results, options.json)


def charting(data: FaustMeshes, weighting: str) -> dict[str, float]:
    """How long the spectra and the charts of all meshes take; a second time they come from the cache."""
    start = time.perf_counter()
    signals = GeometryVectors().fit_transform(data.meshes)
    described = time.perf_counter()
    (chosen,) = resolve_weightings(weighting, signals)
    for signal in signals:
        signal.domains.chart(chosen.coordinates, chosen.reach)
    return {"seconds_spectra": described - start, "seconds_charts": time.perf_counter() - described}


def splits(
    data: FaustMeshes, weighting: str, count: int, train_poses: int, resume: Path | None
) -> dict[str, Any]:
    """Mean error over splits, half the width of its 95 % interval, and the rest."""
    kept: dict[str, Any] = json.loads(resume.read_text()) if resume is not None and resume.exists() else {}
    scores, seconds, confusions = [], [], np.zeros((10, 10), dtype=int)
    for split in range(count):
        size = data.meshes[0].vertices.shape[0]
        name = f"{size} vertices, {weighting}, {train_poses} poses, split {split}"
        if name not in kept:
            kept[name] = one_split(data, weighting, split, train_poses)
            if resume is not None:
                with whole_file(resume) as part:
                    part.write_text(json.dumps(kept, indent=2) + "\n")
        scores.append(Scores(**kept[name]["scores"]))
        seconds.append(kept[name]["seconds"])
        np.add.at(confusions, (kept[name]["truth"], kept[name]["guess"]), 1)
        print(f"  split {split + 1} of {count}: {scores[-1].error:.1%}, fit {seconds[-1]:.0f} s", flush=True)
    errors = np.array([score.error for score in scores])
    return {
        "error": float(errors.mean()),
        "interval": float(1.96 * errors.std(ddof=1) / len(errors) ** 0.5) if count > 1 else float("nan"),
        "errors": errors.tolist(),
        "nll": float(np.mean([score.nll for score in scores])),
        "ece": float(np.mean([score.ece for score in scores])),
        "seconds_fit": float(np.mean(seconds)),
        "confusions": confusions.tolist(),
    }


def one_split(data: FaustMeshes, weighting: str, split: int, train_poses: int) -> dict[str, Any]:
    rng = np.random.default_rng(split)
    order = np.concatenate([10 * person + rng.permutation(10) for person in range(10)]).reshape(10, 10)
    train, test = order[:, :train_poses].ravel(), order[:, -TEST_POSES:].ravel()
    model = make_pipeline(GeometryVectors(), GCGPClassifier(weighting, random_state=split))
    start = time.perf_counter()
    model.fit([data.meshes[i] for i in train], data.labels[train])
    seconds = time.perf_counter() - start
    probabilities = model.predict_proba([data.meshes[i] for i in test])
    return {
        "scores": asdict(Scores.of(probabilities, data.labels[test])),
        "seconds": seconds,
        "truth": data.labels[test].tolist(),
        "guess": probabilities.argmax(axis=1).tolist(),
    }


if __name__ == "__main__":
    main()
