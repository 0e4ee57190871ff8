"""One model fitted by several processes under torchrun, compared with the same fit by one process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import gcgp
from gcgp import Runtime, Signals
from gcgp._runtime.processes import ProcessGroup
from gcgp.estimators.sharding import check_shards

FITS = """
    import os, sys
    import numpy as np
    from sklearn.datasets import load_digits
    import gcgp
    from gcgp import (
        SVGP, Gaussian, GCGPClassifier, GCGPRegressor, Layer, Learn, Patch, PatchKernel, Runtime, Signals
    )
    from gcgp._runtime.processes import ProcessGroup
    from gcgp.weighting import Box, Radial

    data = load_digits(n_class=3)
    images, labels = data.images[:41] / 16, data.target[:41]
    names = np.array(["zero", "one", "two"])[labels]
    unseen = data.images[50:60] / 16
    rng = np.random.default_rng(0)
    sensors = Signals.on_graph(rng.standard_normal((30, 8)), [[v, (v + 1) % 8] for v in range(8)])
    readings = sensors.values.reshape(30, 8).max(axis=1)
    options = dict(n_inducing=10, runtime=Runtime(dtype="float64"), random_state=1)
    bins = Radial([0.0, 1.0], 0.7)
    quick = dict(patch=Patch(position=False), kernel=PatchKernel(lengthscale=1.0))
    fits = {
        "closed": (GCGPClassifier(bins, **options), images, names, unseen),
        "layers": (
            GCGPClassifier(
                Box(1), layers=Layer(Box(3, inside=False), n_anchors=4, average=1.0, stride=2), **options
            ),
            images, labels, unseen,
        ),
        "refined": (GCGPClassifier(bins, inference="refined", **quick, **options), images, labels, unseen),
        "learned": (
            GCGPClassifier(bins, learn=Learn(max_iter=3), **quick, **options),
            images, labels, unseen,
        ),
        "bound": (
            GCGPClassifier(bins, learn=Learn("radii", objective="bound", max_iter=3), **quick, **options),
            images, labels, unseen,
        ),
        "natural-gradient": (
            GCGPClassifier(bins, inference="natural-gradient", **quick, **options), images, labels, unseen,
        ),
        "svgp": (
            GCGPClassifier(bins, inference=SVGP(batch_size=9, epochs=2), **quick, **options),
            images, labels, unseen,
        ),
        "regression": (GCGPRegressor(**options), sensors, readings, sensors[:5]),
        "learned regression": (
            GCGPRegressor(
                inference="natural-gradient", learn=Learn("lengthscale", max_iter=2),
                likelihood=Gaussian(noise=0.1), kernel=PatchKernel(variance=1.0), **options
            ),
            sensors, readings, sensors[:5],
        ),
    }
    results = {}
    for name, (model, X, y, new) in fits.items():
        model.fit(*gcgp.shard(X, y))
        mean, std = model.predict_latent(new, return_std=True)
        results |= {f"{name} mean": mean, f"{name} std": std, f"{name} bound": model.bound_}
        results[f"{name} values"] = [s.value for s in model.history_ if s.stage != "natural-gradient"]
    assert fits["closed"][0].classes_.tolist() == ["one", "two", "zero"]
    processes = ProcessGroup.current()
    if processes.size > 1:
        part = images[20 * processes.rank :][:20]
        for message, X, changed in (
            ("ranks 0 and 1 have the same signals", images, {}),
            ("rank 1 has other options than rank 0", part, {"n_inducing": 9 + processes.rank}),
            ("rank 1 has 2 channels", np.stack([images] * (1 + processes.rank), axis=-1), {}),
        ):
            try:
                GCGPClassifier(bins, **{**options, **changed}).fit(X, labels[: len(X)])
            except ValueError as error:
                assert message in str(error), error
            else:
                raise AssertionError(message)
    np.savez(os.path.join(sys.argv[1], f"{processes.rank} of {processes.size}.npz"), **results)
"""

KILLED = """
    import os, signal, sys
    import numpy as np
    from sklearn.datasets import load_digits
    import gcgp
    from gcgp._runtime.checkpoint import Checkpoint
    from gcgp._runtime.processes import ProcessGroup
    from gcgp.weighting import Radial

    folder, die_at = sys.argv[1], int(sys.argv[2])
    saves = 0

    def save(self, stage, state, save=Checkpoint.save):
        global saves
        saves += 1
        if saves == die_at and ProcessGroup.current().rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        save(self, stage, state)

    Checkpoint.save, Checkpoint.due = save, lambda self, stage: True
    data = load_digits(n_class=3)
    model = gcgp.GCGPClassifier(
        Radial([0.0, 1.0], 0.7), n_inducing=10, patch=gcgp.Patch(position=False),
        kernel=gcgp.PatchKernel(lengthscale=1.0), inference="natural-gradient", learn=gcgp.Learn(max_iter=3),
        runtime=gcgp.Runtime(checkpoint=os.path.join(folder, "run")), random_state=0,
    ).fit(*gcgp.shard(data.images[:40] / 16, data.target[:40]))
    if ProcessGroup.current().rank == 0:
        probabilities = model.predict_proba(data.images[50:60] / 16)
        np.savez(os.path.join(folder, "results.npz"), p=probabilities, saves=saves)
"""


def launch(script, folder, arguments=(), processes=2):
    """Run a script in several processes with one thread each."""
    folder.mkdir(exist_ok=True)
    (folder / "fit.py").write_text(textwrap.dedent(script))
    program = [sys.executable]
    if processes > 1:
        program += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        program += ["--monitor-interval", "2"]  # otherwise it may end the others before they report
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    command = [*program, str(folder / "fit.py"), str(folder), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_two_processes_give_the_result_of_one(tmp_path):
    for processes in (1, 2):
        done = launch(FITS, tmp_path, processes=processes)
        assert done.returncode == 0, done.stderr
    single = dict(np.load(tmp_path / "0 of 1.npz"))
    for rank in range(2):
        together = dict(np.load(tmp_path / f"{rank} of 2.npz"))
        assert set(together) == set(single)
        for name, expected in single.items():
            np.testing.assert_allclose(together[name], expected, rtol=1e-6, atol=1e-6, err_msg=name)


def test_the_loss_of_a_process_is_reported_and_the_fit_resumes(tmp_path):
    straight = launch(KILLED, tmp_path / "straight", [0])
    assert straight.returncode == 0, straight.stderr
    expected = dict(np.load(tmp_path / "straight" / "results.npz"))
    killed = launch(KILLED, tmp_path / "killed", [int(expected["saves"]) - 3])
    assert killed.returncode != 0
    assert "rank 0 of 2 has lost contact with the others" in killed.stderr
    assert not (tmp_path / "killed" / "results.npz").exists()
    resumed = launch(KILLED, tmp_path / "killed", [0])
    assert resumed.returncode == 0, resumed.stderr
    results = dict(np.load(tmp_path / "killed" / "results.npz"))
    assert int(results["saves"]) < int(expected["saves"])
    np.testing.assert_array_equal(results["p"], expected["p"])


def test_without_torchrun_the_only_part_is_everything():
    images, labels = np.random.default_rng(0).random((6, 5, 5)), list("ababab")
    signals, part = gcgp.shard(images, labels)
    assert len(signals) == 6
    assert part.tolist() == labels
    with pytest.raises(ValueError, match="5 labels for 6 signals"):
        gcgp.shard(images, labels[:5])


@pytest.mark.parametrize("count", [0, 1, 2, 7])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_shares_partition_all_signals_in_order(count, size):
    shares = [ProcessGroup(rank, size).share(count) for rank in range(size)]
    assert [n for share in shares for n in range(count)[share]] == list(range(count))


def test_the_digest_of_a_fit_depends_on_options_and_graphs():
    values, edges = [[1.0, 2.0, 3.0]], [[[0, 1], [1, 2]]]
    runtime = Runtime(checkpoint="file")

    def digest(learn, edges, runtime=runtime):
        return check_shards({"learn": learn}, runtime, Signals.from_graphs(values, edges), ProcessGroup())

    digests = {digest(learn, e) for e in (edges, [[[0, 1], [0, 2]]]) for learn in (True, False)}
    assert len(digests) == 4
    assert digest(True, edges) in digests
    elsewhere = Runtime(checkpoint="another file", progress=False)
    assert digest(True, edges, elsewhere) == digest(True, edges)
    assert digest(True, edges, Runtime(checkpoint="file", dtype="float64")) not in digests
    assert digest(True, edges, Runtime()) == ""
