"""One training step of a convolutional SVGP: gcgp against GPflow, at the size of the paper.

    python -m benchmarks.gpflow --json FILE

28 × 28 digits, 5 × 5 patches with a weight per position, batches of 200, 750 inducing patches, ten classes,
the robust-max likelihood; Adam on q, inducing patches, weights, lengthscale and variance. GPflow needs its
own environment, which the first run creates (`.venv-gpflow`). All contestants start from the same numbers,
so that their losses are comparable. Each is a process; rounds alternate between them, and the fastest step
of each counts. Peak memory is that of the whole process, including libraries.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import command_line, report
from gcgp.datasets.images import load_digits

HERE = Path(__file__).parent
JITTER = 1e-4
"""GPflow's default of 1e-6 is not enough in float32 for 750 inducing patches."""


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--environment", type=Path, default=HERE.parent / ".venv-gpflow", metavar="FOLDER")
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--inducing", type=int, default=750)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help="timed steps per round")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    gpflow = gpflow_interpreter(options.environment)
    contestants = {
        "gpflow float64": [gpflow, str(HERE / "peers" / "gpflow_step.py"), "float64"],
        "gpflow float32": [gpflow, str(HERE / "peers" / "gpflow_step.py"), "float32"],
        "gcgp float64": [sys.executable, "-m", "benchmarks.peers.our_step", "float64"],
        "gcgp float32": [sys.executable, "-m", "benchmarks.peers.our_step", "float32"],
    }
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in contestants}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        arrays: dict[str, Any] = problem(options.batch, options.inducing, options.seed)
        np.savez(path, **arrays)
        for number in range(options.rounds):
            for name, command in contestants.items():
                runs[name].append(timed_steps([*command, str(path), str(options.steps)]))
                best = min(runs[name][-1]["seconds"])
                print(f"round {number + 1}, {name}: {best:.3f} s per step", flush=True)
    seconds = {name: min(min(run["seconds"]) for run in rounds) for name, rounds in runs.items()}
    memory = {name: max(run["peak_gb"] for run in rounds) for name, rounds in runs.items()}
    loss = {name: rounds[0]["loss"] for name, rounds in runs.items()}
    theirs = loss["gpflow float64"]
    results = {
        "speedup_f64": seconds["gpflow float64"] / seconds["gcgp float32"],
        "speedup_f32": seconds["gpflow float32"] / seconds["gcgp float32"],
        "speedup_f64_of_our_f64": seconds["gpflow float64"] / seconds["gcgp float64"],
        "memory_ratio": memory["gpflow float64"] / memory["gcgp float32"],
        "loss_relative_difference": abs(loss["gcgp float32"] / theirs - 1),
        "loss_relative_difference_of_our_f64": abs(loss["gcgp float64"] / theirs - 1),
        "seconds": seconds,
        "peak_gb": memory,
        "loss": loss,
        "batch": options.batch,
        "inducing": options.inducing,
        "cores": os.cpu_count(),
    }
    rows = {
        name: f"{seconds[name]:.3f} s per step, {memory[name]:.2f} GB, loss {loss[name]:.4f}"
        for name in contestants
    }
    rows["float32, against GPflow's float64"] = f"{results['speedup_f64']:.1f} × faster"
    rows["float32, against GPflow's float32"] = f"{results['speedup_f32']:.1f} × faster"
    rows["memory of GPflow's float64 over ours"] = f"{results['memory_ratio']:.1f}"
    rows["relative difference of the losses"] = f"{results['loss_relative_difference']:.1e}"
    report("One training step, convolutional SVGP", rows, results, options.json)


def gpflow_interpreter(environment: Path) -> str:
    """The interpreter of GPflow's environment, which is created if it does not exist."""
    python = environment / "bin" / "python"
    ready = environment / ".ready"
    if not ready.exists():
        print(f"installing GPflow in {environment}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        requirements = HERE / "peers" / "gpflow_requirements.txt"
        subprocess.run([str(python), "-m", "pip", "install", "-q", "-r", str(requirements)], check=True)
        ready.touch()
    return str(python)


def timed_steps(command: list[str]) -> dict[str, Any]:
    """The JSON in the last line of a contestant's output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def problem(batch: int, inducing: int, seed: int) -> dict[str, np.ndarray]:
    """Digits, and a state of the model in the middle of training."""
    rng = np.random.default_rng(seed)
    digits = load_digits()
    chosen = rng.permutation(len(digits.labels))[:batch]
    images = digits.images[chosen].astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(images, (5, 5), axis=(1, 2)).reshape(-1, 25)
    distinct = np.unique(windows, axis=0)
    lower = np.tril(0.01 * rng.normal(size=(10, inducing, inducing)), -1)
    return {
        "images": images,
        "labels": digits.labels[chosen].astype(np.float64),
        "inducing": distinct[rng.permutation(len(distinct))[:inducing]],
        "means": rng.normal(size=(10, inducing)),
        "factors": 0.5 * np.eye(inducing) + lower,
        "lengthscale": np.array(1.0),
        "variance": np.array(10.0),
        "jitter": np.array(JITTER),
        "patch_side": np.array(5),
    }


if __name__ == "__main__":
    main()
