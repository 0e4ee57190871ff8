"""Several processes, each with its part of the signals: how they share these out, and whether they agree."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from gcgp._runtime.cache import digest_of
from gcgp._runtime.processes import ProcessGroup
from gcgp.domain import Signals
from gcgp.estimators.validation import as_signals, check_length, labels_of, object_array
from gcgp.selection.job import domain_arrays

UNRELATED = ("progress", "verbose", "checkpoint")
"""Options that do not change what a fit comes to."""


def shard(X: Any, y: Any) -> tuple[Signals, np.ndarray]:
    """This process's part of signals and labels `[N]`, when `torchrun` has started several.

    Each estimator's `fit` then takes part in one fit of all signals, and comes to the same model in every
    process. Without `torchrun` the one part is everything. A process may as well load its own part alone and
    give that to `fit`, once `torch.distributed` is set up.

    Example:
        >>> import gcgp, numpy as np
        >>> images, labels = np.random.default_rng(0).random((6, 5, 5)), [0, 1, 0, 1, 0, 1]
        >>> X, y = gcgp.shard(images, labels)
        >>> len(X)
        6
    """
    processes = ProcessGroup.initialize()
    signals, labels = as_signals(X), labels_of(y)
    check_length(labels, len(signals))
    if len(signals) < processes.size:
        raise ValueError(f"X: {len(signals)} signals for {processes.size} processes; each needs one at least")
    own = processes.share(len(signals))
    return signals[own], labels[own]


def of_all_ranks(labels: np.ndarray, count: int, processes: ProcessGroup) -> tuple[np.ndarray, int]:
    """The labels, or targets, of the signals of all processes, and their number; `count` are here."""
    check_length(labels, count)
    if processes.size == 1:
        return labels, count
    every = processes.gather(labels)
    if any(part.dtype.kind == "O" for part in every):
        joined = object_array([label for part in every for label in part.tolist()])
    else:
        joined = np.concatenate(every)
    return joined, len(joined)


def check_shards(options: dict[str, Any], signals: Signals, processes: ProcessGroup) -> str:
    """Raise a ValueError where processes do not fit the same model to different signals.

    Returns a digest of options and signals, which tells one run from another; alone only for a checkpoint.
    """
    from gcgp.io.model_values import plain_parameter

    if processes.size == 1 and options.get("checkpoint") is None:
        return ""
    kept = {key: plain_parameter(key, value) for key, value in options.items() if key not in UNRELATED}
    if processes.size > 1 and not isinstance(options.get("random_state"), (int, np.integer)):
        kept.pop("random_state", None)  # the first process's is taken
    settings = json.dumps(kept, sort_keys=True)
    arrays = (*domain_arrays(signals.domains), signals.values, signals.offsets, signals.domain_of)
    content = digest_of(["" if array is None else array for array in arrays])
    kind = f"{signals.channels} channels on {type(signals.domains).__name__.lower()}"
    told = processes.gather((settings, kind, content))
    for rank, (its_settings, its_kind, its_content) in enumerate(told):
        if its_settings != told[0][0]:
            raise ValueError(f"rank {rank} was given other options than rank 0: {its_settings}")
        if its_kind != told[0][1]:
            raise ValueError(f"rank {rank} has {its_kind}, rank 0 has {told[0][1]}")
        twin = [content for _, _, content in told].index(its_content)
        if twin < rank:
            raise ValueError(
                f"processes {twin} and {rank} have the same signals; give each its own part, as "
                "fit(*gcgp.shard(X, y)) does"
            )
    return digest_of([settings, *(content for _, _, content in told)])
