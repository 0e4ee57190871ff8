"""What classifier and regressor share: building the terms, collecting statistics, predicting."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from tqdm import tqdm

from gcgp._runtime.cache import digest_of
from gcgp._runtime.checkpoint import Checkpoint
from gcgp._runtime.errors import unknown_option
from gcgp._runtime.processes import ProcessGroup
from gcgp.domain import Graphs, Grids, Signals
from gcgp.estimators.fitting import DTYPES, Fitted, Fitting
from gcgp.estimators.sharding import check_shards
from gcgp.estimators.validation import as_bytes, as_device, as_signals, check_same_graphs
from gcgp.estimators.value_range import check_magnitudes, check_not_tiny, largest_magnitude
from gcgp.inference import Features, Posterior, Statistics
from gcgp.inference.features import Chunk
from gcgp.inference.search import ScoringBatch, SearchPoint, SelectedModel
from gcgp.kernel.base import NAMES as KERNELS
from gcgp.kernel.convolutional import AGGREGATES
from gcgp.kernel.inducing import METHODS
from gcgp.patches.convolution import runs
from gcgp.selection.job import Job
from gcgp.selection.learning import OBJECTIVES, names_to_learn, step_logger
from gcgp.selection.optimizer import OPTIMIZERS, History, Step

FLOAT64_EVALUATIONS = 20_000_000
"""Number of kernel values per pass up to which `dtype="auto"` means float64.

Rounding of float32 can change which of two equally good models a search chooses. With few signals, where
such ties are common, float64 takes little time.
"""


@dataclass(frozen=True)
class VertexEvidence:
    """What each vertex says for each class (or for the regression function).

    Rows are the vertices of all signals, one signal after the other. `mean` and `std` are those of the
    vertex's own share of the latent function: of g at its patch for `aggregate="sum"`, of g over the number
    of patches for `"mean"`, and an equal share of the constant if the kernel has one. The means of a
    signal's vertices sum to its latent mean.
    """

    mean: Float[np.ndarray, "total_vertices C"]
    std: Float[np.ndarray, "total_vertices C"]
    offsets: Int[np.ndarray, "signals_plus_1"]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, signal: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation `[V, C]` of one signal's vertices."""
        number = range(len(self))[signal]
        rows = slice(self.offsets[number], self.offsets[number + 1])
        return self.mean[rows], self.std[rows]


class ConvolutionalGP(BaseEstimator):
    """What classifier and regressor share: building the terms, collecting statistics, predicting."""

    weighting: Any
    chart: str
    position: bool | float | str
    bin_counts: bool | str
    area_weighted: bool | str
    pool_rotations: bool | str
    kernel: str | Kernel
    lengthscale: float | str
    aggregate: str
    vertex_weights: Any
    n_inducing: int
    inducing: str
    variance: float | str
    learn: Any
    objective: str
    optimizer: str
    max_iter: int
    verbose: bool
    inference: str
    batch_size: int
    learning_rate: float
    checkpoint: Any
    dtype: str
    memory_limit: int | str
    device: str
    random_state: Any
    progress: bool

    features_: Features
    posterior_: Posterior
    history_: list[Step]
    n_iter_: int

    _likelihood: Callable[[Any], Any]
    _likelihood_parameter: str
    _inferences: Sequence[str]

    def predict_latent(self, X: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Posterior mean `[N, C]` of the latent functions and, if asked for, their standard deviation.

        These are the moments that predictions are made of. With `inference="refined"` the means have been
        moved, and the standard deviations are those of the closed form.
        """
        mean, variance = self._latent(self._input(X), diagonal=return_std)
        return (mean.numpy(), variance.sqrt().numpy()) if return_std else mean.numpy()

    def evidence(self, X: Any) -> VertexEvidence:
        """What every vertex contributes to every latent function, with its standard deviation.

        The means of a signal's vertices sum to its latent mean. With `inference="refined"` the standard
        deviations are those of the closed form.
        """
        signals = self._input(X)
        means, deviations = [], []
        rows = signals.vertex_counts * self.features_.size * 8.0 * 4
        for run in runs(rows + self.features_.bytes_per_signal(signals), as_bytes(self.memory_limit)):
            features, residual = self.features_.at_vertices(signals[run])
            mean, variance = self.posterior_.predict(features, residual)
            numbers = np.arange(run.start, run.stop)
            check_finite_latents(mean, variance, np.repeat(numbers, signals.vertex_counts[run]))
            means.append(mean.numpy())
            deviations.append(variance.sqrt().numpy())
        return VertexEvidence(np.concatenate(means), np.concatenate(deviations), signals.offsets)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file; `gcgp.load` reads it. An existing file is replaced whole."""
        from gcgp.io.model_file import save

        check_is_fitted(self, "posterior_")
        save(self, path)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags

    def _choose(
        self,
        statistics: Statistics,
        sample: ScoringBatch,
        start: SearchPoint,
        steps: Sequence[SearchPoint],
        processes: ProcessGroup,
    ) -> SelectedModel[Any]:
        """The likelihood and GP variance that fit best."""
        raise NotImplementedError

    def _validate_options(self) -> None:
        for name, value, known in (
            ("aggregate", self.aggregate, AGGREGATES),
            ("inducing", self.inducing, METHODS),
            ("dtype", self.dtype, ("auto", *DTYPES)),
            ("objective", self.objective, OBJECTIVES),
            ("optimizer", self.optimizer, (*OPTIMIZERS, "paper")),
            ("inference", self.inference, self._inferences),
        ):
            if not isinstance(value, str) or value not in known:
                raise unknown_option(name, value, known)
        named = isinstance(self.kernel, str) and self.kernel in KERNELS
        if not named and not isinstance(self.kernel, Kernel):
            raise unknown_option("kernel", self.kernel, (*KERNELS, "any gpytorch.kernels.Kernel"))
        if self.optimizer == "paper" and self.inference != "variational":
            raise ValueError("optimizer='paper' is a way of variational inference: inference='variational'")
        if self.checkpoint is not None and not isinstance(self.random_state, (int, np.integer)):
            raise ValueError(
                f"random_state={self.random_state!r}: with a checkpoint it must be a whole number, "
                "so that a fit begun again draws the same"
            )
        if self.checkpoint is not None and not Path(self.checkpoint).absolute().parent.is_dir():
            raise ValueError(f"checkpoint={str(self.checkpoint)!r}: there is no such folder")
        if isinstance(self.learning_rate, str):
            raise ValueError(f"learning_rate={self.learning_rate!r}: expected a positive number")
        check_positive("learning_rate", self.learning_rate)
        for name in ("n_inducing", "max_iter", "batch_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{name}={value!r} must be a whole number of at least 1")
        names_to_learn(self.learn, self._likelihood_parameter)
        for name in ("lengthscale", "variance"):
            check_positive(name, getattr(self, name))
        if not isinstance(self.position, (bool, np.bool_)):
            check_positive("position", self.position)
        for name in ("lengthscale", "position"):
            check_representable(name, getattr(self, name), self.dtype)
        for name in ("bin_counts", "area_weighted", "pool_rotations"):
            value = getattr(self, name)
            if not isinstance(value, (str, int, np.bool_)) or value not in (True, False, "auto"):
                raise unknown_option(name, getattr(self, name), ("auto", "True", "False"))
        as_bytes(self.memory_limit)
        as_device(self.device)

    def _input(self, X: Any) -> Signals:
        """Signals to predict, checked against those of training."""
        check_is_fitted(self, "posterior_")
        signals = as_signals(X)
        if type(signals.domains).__name__ != self.domain_:
            raise ValueError(
                f"X: signals on {type(signals.domains).__name__.lower()}, "
                f"but training had {self.domain_.lower()}"
            )
        if signals.channels != self.channels_:
            raise ValueError(f"X: {signals.channels} channels, but training had {self.channels_}")
        if isinstance(signals.domains, Graphs):
            paths = any(term.convolution.chart == "path" for term in self.features_.terms)
            check_same_graphs(signals.domains, self.n_coordinates_, self.edge_lengths_ if paths else None)
        check_magnitudes(signals, self.largest_value_)
        if self.image_shape_ is not None and isinstance(signals.domains, Grids):
            wrong = np.flatnonzero((signals.domains.shapes != self.image_shape_).any(axis=1))
            if len(wrong):
                n = int(np.argmax(signals.domain_of == wrong[0]))
                raise ValueError(
                    f"X: image {n} has shape {signals.domains.shapes[wrong[0]].tolist()}, but training had "
                    f"{list(self.image_shape_)}, which matters with position or vertex_weights"
                )
        return signals

    def _fit(
        self,
        signals: Signals,
        group: Int[np.ndarray, "N"],
        targets: Float[np.ndarray, "N"],
        groups: int,
        processes: ProcessGroup,
    ) -> Fitted:
        """Build the terms, collect the statistics of all signals, and choose likelihood and variance.

        `group` says to which of the `groups` a signal belongs: its class, or 0 in regression. Signals are
        those of this process, group and targets those of all.
        """
        if self.vertex_weights is not None and len(signals.domains) > 1:
            n = int(np.argmax(signals.domain_of != signals.domain_of[0]))
            raise ValueError(f"signal {n}: not on the domain of signal 0, as vertex_weights need it to be")
        largest_value = largest_magnitude(self.dtype)
        check_magnitudes(signals, largest_value)
        check_not_tiny(signals, self.dtype)
        name = check_shards(self.get_params(deep=False), signals, processes)
        seeds = processes.gather(check_random_state(self.random_state).randint(2**31, size=4))[0]
        checkpoint = None
        if self.checkpoint is not None:
            checkpoint = Checkpoint(self.checkpoint, digest_of([name, group, targets]), processes=processes)
        count = len(group)
        first = sum(processes.gather(len(signals))[: processes.rank])
        own = slice(first, first + len(signals))
        job = Job(
            signals,
            torch.from_numpy(group[own]),
            torch.from_numpy(targets[own]),
            groups,
            as_bytes(self.memory_limit),
            np.random.default_rng(seeds),
            History(tell=step_logger(self.verbose and processes.rank == 0)),
            checkpoint,
            processes,
            first,
            count,
            as_device(self.device),
            self._resolved_dtype(len(signals.values), processes),
        )
        with self._bar(len(signals), shown=processes.rank == 0) as bar:
            fitted = Fitting(self, job, bar).run()
        self.features_, self.posterior_, self.bound_ = fitted.features, fitted.posterior, fitted.bound
        self.variance_ = float(fitted.posterior.variance)
        if fitted.start_weightings is not None:
            self.start_weightings_ = fitted.start_weightings
        self.history_ = job.history.steps
        self.n_iter_ = max(1, len(self.history_))
        self.domain_ = type(signals.domains).__name__
        self.channels_ = signals.channels
        self.largest_value_ = largest_value
        self.constant_ = fitted.features.constant
        self.n_coordinates_, self.edge_lengths_ = 0, False
        if isinstance(signals.domains, Graphs):
            self.n_coordinates_ = signals.domains.dimensions
            self.edge_lengths_ = signals.domains.edge_lengths is not None
        fixed = self.vertex_weights is not None or self.features_.terms[0].convolution.position
        self.image_shape_ = None
        if fixed and isinstance(signals.domains, Grids) and len(signals.domains) == 1:
            self.image_shape_ = tuple(signals.domains.shapes[0].tolist())
        return fitted

    def _resolved_dtype(self, vertices: int, processes: ProcessGroup) -> torch.dtype:
        """The dtype of patches and kernels: float64 where that costs little."""
        evaluations = sum(processes.gather(vertices)) * int(self.n_inducing)
        if self.dtype == "auto":
            return torch.float64 if evaluations <= FLOAT64_EVALUATIONS else torch.float32
        return DTYPES[self.dtype]

    def _chunks(self, signals: Signals, diagonal: bool) -> Iterator[Chunk]:
        with self._bar(len(signals)) as bar:
            bar.set_description("predicting")
            features = replace(self.features_, device=as_device(self.device))
            yield from features.chunks(signals, diagonal=diagonal, progress=bar.update)

    @torch.no_grad()
    def _latent(
        self, signals: Signals, diagonal: bool = True
    ) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N C"]]:
        """Posterior means and variances; without the diagonal the variances are left at zero."""
        means, variances = [], []
        for chunk in self._chunks(signals, diagonal):
            if diagonal:
                mean, variance = self.posterior_.predict(chunk.features, chunk.residual)
            else:
                mean = self.posterior_.mean(chunk.features)
                variance = torch.zeros_like(mean)
            check_finite_latents(mean, variance, np.arange(chunk.run.start, chunk.run.stop))
            means.append(mean)
            variances.append(variance)
        return torch.cat(means), torch.cat(variances)

    def _bar(self, total: int, shown: bool = True) -> Any:
        """A bar on a terminal, nothing in a pipe; it appears once the work takes longer than a second."""
        shown = shown and self.progress
        return tqdm(total=total, unit=" signals", delay=1, disable=None if shown else True)


def check_finite_latents(
    mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"], signals: Int[np.ndarray, "n"]
) -> None:
    """Raise a ValueError that names the first signal with a prediction that is not finite."""
    finite = (torch.isfinite(mean) & torch.isfinite(variance)).all(dim=1)
    if not finite.all():
        n = int(torch.argmin(finite.int()))
        raise ValueError(
            f"X: signal {signals[n]}: the latent mean is {mean[n].tolist()} and its variance "
            f"{variance[n].tolist()}; the kernel cannot be evaluated at these values"
        )


def check_representable(name: str, value: Any, dtype: str) -> None:
    """Raise unless a number is within the range of the dtype (for "auto", of float32)."""
    if isinstance(value, (str, bool, np.bool_)):
        return
    limits = np.finfo("float32" if dtype == "auto" else dtype)
    if not float(limits.tiny) <= float(value) <= float(limits.max):
        raise ValueError(
            f"{name}={value!r}: expected a number from {limits.tiny:.3g} to {limits.max:.3g}, "
            f"the range of dtype={dtype!r}"
        )


def check_positive(name: str, value: Any) -> None:
    """Raise unless the option is `"auto"` or a positive number."""
    if value == "auto" and isinstance(value, str):
        return
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not 0 < value <= sys.float_info.max:  # integers may be larger than any float
        raise ValueError(f"{name}={value!r}: expected 'auto' or a positive number")
