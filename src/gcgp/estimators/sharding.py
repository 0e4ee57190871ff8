"""Several processes that fit one model, each with a part of the signals."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from gcgp._runtime.cache import digest_of
from gcgp._runtime.processes import ProcessGroup
from gcgp.domain import Signals, as_signals
from gcgp.estimators.labels import check_length, labels_of, object_array
from gcgp.estimators.options import Runtime
from gcgp.io.values import plain_parameter


def shard(X: Any, y: Any) -> tuple[Signals, np.ndarray]:
    """The part of signals and labels `[N]` that belongs to this process, when `torchrun` has started several.

    `fit` of an estimator then fits one model to the signals of all processes, and every process gets the
    same model. Without `torchrun` the part is everything. A process may also load only its own part and give
    it to `fit`, once `torch.distributed` is initialized.

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
        raise ValueError(f"X: {len(signals)} signals for {processes.size} processes; each needs at least one")
    local = processes.share(len(signals))
    return signals[local], labels[local]


def labels_of_all_processes(labels: np.ndarray, count: int, processes: ProcessGroup) -> np.ndarray:
    """The labels, or targets, of the signals of all processes; `count` signals are in this one."""
    check_length(labels, count)
    if processes.size == 1:
        return labels
    parts = processes.gather(labels)
    if any(part.dtype.kind == "O" for part in parts):
        return object_array([label for part in parts for label in part.tolist()])
    return np.concatenate(parts)


def check_shards(
    parameters: dict[str, Any], runtime: Runtime, signals: Signals, processes: ProcessGroup
) -> str:
    """Raise a ValueError unless all processes fit the same model to different signals.

    Returns a digest of options and signals, which identifies the fit; without several processes only if there
    is a checkpoint.
    """
    if processes.size == 1 and runtime.checkpoint is None:
        return ""
    # Neither progress nor the place of the checkpoint changes the result.
    relevant = parameters | {"runtime": Runtime(runtime.dtype, runtime.device, runtime.memory_limit)}
    if processes.size > 1 and not isinstance(parameters.get("random_state"), (int, np.integer)):
        relevant.pop("random_state", None)  # that of the first process is used
    settings = json.dumps(
        {key: plain_parameter(key, value) for key, value in relevant.items()}, sort_keys=True
    )
    arrays = (*signals.domains.arrays(), signals.values, signals.offsets, signals.domain_of)
    content = digest_of(["" if array is None else array for array in arrays])
    kind = f"{signals.channels} channels on {type(signals.domains).__name__.lower()}"
    shards = processes.gather((settings, kind, content))
    contents = [shard_content for _, _, shard_content in shards]
    for rank, (rank_settings, rank_kind, rank_content) in enumerate(shards):
        if rank_settings != shards[0][0]:
            raise ValueError(f"rank {rank} has other options than rank 0: {rank_settings}")
        if rank_kind != shards[0][1]:
            raise ValueError(f"rank {rank} has {rank_kind}, rank 0 has {shards[0][1]}")
        duplicate = contents.index(rank_content)
        if duplicate < rank:
            raise ValueError(
                f"ranks {duplicate} and {rank} have the same signals; give each its own part, as "
                "fit(*gcgp.shard(X, y)) does"
            )
    return digest_of([settings, *contents])
