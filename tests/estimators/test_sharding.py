"""One fit by several processes under torchrun, against the same fit by one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import gcgp
from gcgp._runtime.processes import ProcessGroup

FITS = """
    import os, sys
    import numpy as np
    from sklearn.datasets import load_digits
    import gcgp
    from gcgp import GCGPClassifier, GCGPRegressor, Signals
    from gcgp._runtime.processes import ProcessGroup
    from gcgp.weighting import Radial

    data = load_digits(n_class=3)
    images, labels = data.images[:41] / 16, data.target[:41]
    names = np.array(["zero", "one", "two"])[labels]
    unseen = data.images[50:60] / 16
    rng = np.random.default_rng(0)
    sensors = Signals.on_graph(rng.standard_normal((30, 8)), [[v, (v + 1) % 8] for v in range(8)])
    readings = sensors.values.reshape(30, 8).max(axis=1)
    options = dict(n_inducing=10, dtype="float64", random_state=1)
    bins = Radial([0.0, 1.0], 0.7)
    quick = dict(position=False, lengthscale=1.0)
    variational = dict(inference="variational", **quick)
    fits = {
        "closed": (GCGPClassifier(bins, **options), images, names, unseen),
        "refined": (GCGPClassifier(bins, inference="refined", **quick, **options), images, labels, unseen),
        "learned": (
            GCGPClassifier(bins, learn=True, max_iter=3, **quick, **options),
            images, labels, unseen,
        ),
        "bound": (
            GCGPClassifier(bins, learn=["radii"], objective="bound", max_iter=3, **quick, **options),
            images, labels, unseen,
        ),
        "natural": (GCGPClassifier(bins, **variational, **options), images, labels, unseen),
        "paper": (
            GCGPClassifier(bins, optimizer="paper", max_iter=2, batch_size=9, **variational, **options),
            images, labels, unseen,
        ),
        "regression": (GCGPRegressor(**options), sensors, readings, sensors[:5]),
        "regression by steps": (
            GCGPRegressor(
                inference="variational", learn=["lengthscale"], max_iter=2, noise=0.1, variance=1.0, **options
            ),
            sensors, readings, sensors[:5],
        ),
    }
    results = {}
    for name, (model, X, y, new) in fits.items():
        model.fit(*gcgp.shard(X, y))
        mean, deviation = model.predict_latent(new, return_std=True)
        results |= {f"{name} mean": mean, f"{name} deviation": deviation, f"{name} bound": model.bound_}
        results[f"{name} values"] = [s.value for s in model.history_ if s.stage != "natural"]
    assert fits["closed"][0].classes_.tolist() == ["one", "two", "zero"]
    processes = ProcessGroup.current()
    if processes.size > 1:
        mine = images[20 * processes.rank :][:20]
        for message, X, changed in (
            ("processes 0 and 1 have the same signals", images, {}),
            ("rank 1 was given other options", mine, {"n_inducing": 9 + processes.rank}),
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
        Radial([0.0, 1.0], 0.7), n_inducing=10, position=False, lengthscale=1.0, inference="variational",
        learn=True, max_iter=3, checkpoint=os.path.join(folder, "run"), random_state=0,
    ).fit(*gcgp.shard(data.images[:40] / 16, data.target[:40]))
    if ProcessGroup.current().rank == 0:
        probabilities = model.predict_proba(data.images[50:60] / 16)
        np.savez(os.path.join(folder, "results.npz"), p=probabilities, saves=saves)
"""


def launch(script, folder, arguments=(), processes=2):
    """Run a script in so many processes, one thread each; returns what became of it."""
    folder.mkdir(exist_ok=True)
    (folder / "fit.py").write_text(textwrap.dedent(script))
    program = [sys.executable]
    if processes > 1:
        program += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        program += ["--monitor-interval", "2"]  # else it may end the others before they say what they miss
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    command = [*program, str(folder / "fit.py"), str(folder), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_two_processes_come_to_what_one_does(tmp_path):
    for processes in (1, 2):
        done = launch(FITS, tmp_path, processes=processes)
        assert done.returncode == 0, done.stderr
    alone = dict(np.load(tmp_path / "0 of 1.npz"))
    for rank in range(2):
        together = dict(np.load(tmp_path / f"{rank} of 2.npz"))
        assert set(together) == set(alone)
        for name, expected in alone.items():
            np.testing.assert_allclose(together[name], expected, rtol=1e-6, atol=1e-6, err_msg=name)


def test_the_loss_of_a_process_is_told_and_the_fit_goes_on(tmp_path):
    straight = launch(KILLED, tmp_path / "straight", [0])
    assert straight.returncode == 0, straight.stderr
    expected = dict(np.load(tmp_path / "straight" / "results.npz"))
    killed = launch(KILLED, tmp_path / "killed", [int(expected["saves"]) - 3])
    assert killed.returncode != 0
    assert "rank 0 of 2 has lost contact with the others" in killed.stderr
    assert not (tmp_path / "killed" / "results.npz").exists()
    resumed = launch(KILLED, tmp_path / "killed", [0])
    assert resumed.returncode == 0, resumed.stderr
    found = dict(np.load(tmp_path / "killed" / "results.npz"))
    assert int(found["saves"]) < int(expected["saves"])
    np.testing.assert_array_equal(found["p"], expected["p"])


def test_without_torchrun_the_one_part_is_everything():
    images, labels = np.random.default_rng(0).random((6, 5, 5)), list("ababab")
    signals, kept = gcgp.shard(images, labels)
    assert len(signals) == 6
    assert kept.tolist() == labels
    with pytest.raises(ValueError, match="5 labels for 6 signals"):
        gcgp.shard(images, labels[:5])


@pytest.mark.parametrize("count", [0, 1, 2, 7])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_shares_are_everything_once_and_in_order(count, size):
    shares = [ProcessGroup(rank, size).share(count) for rank in range(size)]
    assert [n for share in shares for n in range(count)[share]] == list(range(count))
