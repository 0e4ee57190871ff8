"""What classifier and regressor share: the constructor, the fit, latent predictions and evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

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
from gcgp._runtime.compilation import compilation_shown
from gcgp._runtime.errors import check_choice, check_integer, check_representable
from gcgp._runtime.history import History, Step
from gcgp._runtime.memory import as_bytes, runs
from gcgp._runtime.options import resolve_option
from gcgp._runtime.processes import ProcessGroup
from gcgp.descriptors import SpectralDescriptor
from gcgp.domain import Mesh, Signals, as_signals
from gcgp.estimators.evidence import VertexEvidence
from gcgp.estimators.fit import FittedModel, fit_model
from gcgp.estimators.inference import resolve_inference, resolve_likelihood
from gcgp.estimators.options import Runtime, as_device, resolve_runtime
from gcgp.estimators.sharding import check_shards
from gcgp.estimators.value_range import (
    check_magnitudes,
    check_not_tiny,
    checked_vertex_weights,
    largest_magnitude,
)
from gcgp.inference import Features, Posterior
from gcgp.inference.context import FitContext, Progress
from gcgp.inference.features import Chunk
from gcgp.inference.likelihoods import LIKELIHOODS, Likelihood
from gcgp.inference.training_set import TrainingSet
from gcgp.kernel.inducing import INDUCING_METHODS
from gcgp.layers import FittedLayer
from gcgp.selection.descriptors import (
    Described,
    described_candidates,
    resolve_descriptors,
    select_descriptor,
)
from gcgp.selection.options import (
    Learn,
    ModelOptions,
    default_inducing,
    resolve_aggregate,
    resolve_kernel,
    resolve_layers,
    resolve_learn,
    resolve_patch,
)
from gcgp.selection.search import RUNGS, SearchTable
from gcgp.weighting import Weighting


class ConvolutionalGP(BaseEstimator):
    """Base class of `GCGPClassifier` and `GCGPRegressor`."""

    task: ClassVar[str]
    _expansions: ClassVar[dict[str, Callable[[Any], Any]]] = {
        "patch": resolve_patch,
        "kernel": resolve_kernel,
        "aggregate": resolve_aggregate,
        "inference": resolve_inference,
        "likelihood": lambda value: resolve_option("likelihood", value, Likelihood, LIKELIHOODS),
        "learn": lambda value: resolve_learn(value) or Learn(),
        "runtime": resolve_runtime,
    }

    features_: Features
    posterior_: Posterior
    likelihood_: Any
    descriptor_: SpectralDescriptor | None
    history_: list[Step]
    n_iter_: int

    def __init__(
        self,
        weighting: Any = "auto",
        *,
        chart: str = "auto",
        patch: Any = "auto",
        kernel: Any = "auto",
        aggregate: Any = "auto",
        n_inducing: int | str = "auto",
        inducing: str = "k-means++",
        likelihood: Any = "auto",
        inference: Any = "closed-form",
        search: str | None = "fast",
        layers: Any = None,
        descriptor: Any = "auto",
        learn: Any = None,
        runtime: Runtime | None = None,
        random_state: Any = 0,
    ) -> None:
        self.weighting = weighting
        self.chart = chart
        self.patch = patch
        self.kernel = kernel
        self.aggregate = aggregate
        self.n_inducing = n_inducing
        self.inducing = inducing
        self.likelihood = likelihood
        self.inference = inference
        self.search = search
        self.layers = layers
        self.descriptor = descriptor
        self.learn = learn
        self.runtime = runtime
        self.random_state = random_state

    def set_params(self, **params: Any) -> Self:
        """Set parameters; `kernel__lengthscale` and the like also work where the argument is a shorthand."""
        for key in list(params):
            name, separator, field = key.partition("__")
            value = params.get(name, getattr(self, name, None))
            if not separator or hasattr(value, "set_params"):
                continue
            if name not in self._expansions:
                raise ValueError(
                    f"{key}: {name}={value!r} has no parameter {field!r}; pass an object that has"
                )
            expanded = self._expansions[name](value)
            if name in params:
                params[name] = expanded
            else:
                setattr(self, name, expanded)
        return super().set_params(**params)

    @property
    def weightings_(self) -> list[Weighting]:
        """The fitted weighting of each term."""
        return [term.convolution.weighting for term in self._fitted_features().terms]

    @property
    def layers_(self) -> list[tuple[FittedLayer, ...]]:
        """The fitted layers before the weighting of each term; without layers, empty tuples."""
        return [term.convolution.layers for term in self._fitted_features().terms]

    @property
    def kernels_(self) -> list[Kernel]:
        """The fitted kernel between patches of each term; `variance_` multiplies it."""
        return [term.kernel.base for term in self._fitted_features().terms]

    def _fitted_features(self) -> Features:
        if "features_" not in self.__dict__:
            raise AttributeError(f"this {type(self).__name__} is not fitted yet")
        return self.features_

    def predict_latent(self, X: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Posterior mean `[N, C]` of the latent functions and, if requested, their standard deviation.

        Predictions are computed from these. With `inference="refined"` the standard deviations are those of
        the closed form.
        """
        mean, variance = self._latent(self._input(X), diagonal=return_std)
        return (mean.numpy(), variance.sqrt().numpy()) if return_std else mean.numpy()

    def evidence(self, X: Any) -> VertexEvidence:
        """The contribution of every vertex to every latent function, with its standard deviation.

        The means of the vertices of a signal sum to its latent mean. With `inference="refined"` the standard
        deviations are those of the closed form.
        """
        signals, features = self._input(X), self.features_
        memory = as_bytes(resolve_runtime(self.runtime).memory_limit)
        vertex_bytes = signals.vertex_counts * features.size * 8.0 * 4
        means, deviations = [], []
        for run in runs(vertex_bytes + features.bytes_per_signal(signals), memory):
            mean, variance = self.posterior_.predict(*features.at_vertices(signals[run]))
            indices = np.arange(run.start, run.stop)
            check_finite_latents(mean, variance, np.repeat(indices, signals.vertex_counts[run]))
            means.append(mean.numpy())
            deviations.append(variance.sqrt().numpy())
        shapes = [signals.domains.vertex_shape(int(domain)) for domain in signals.domain_of]
        return VertexEvidence(np.concatenate(means), np.concatenate(deviations), signals.offsets, shapes)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file, which `gcgp.load` reads; an existing file is replaced."""
        from gcgp.estimators.persistence import save

        check_is_fitted(self, "posterior_")
        save(self, path)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags

    def _resolve_options(self, count: int = 0) -> tuple[ModelOptions, Runtime]:
        """All constructor arguments, validated; `n_inducing="auto"` depends on the number of signals."""
        runtime, learn = resolve_runtime(self.runtime), resolve_learn(self.learn)
        method = resolve_inference(self.inference)
        check_choice("inducing", self.inducing, INDUCING_METHODS)
        if not (isinstance(self.n_inducing, str) and self.n_inducing == "auto"):
            check_integer("n_inducing", self.n_inducing)
        if self.search is not None:
            check_choice("search", self.search, tuple(name for name in RUNGS if name is not None))
        options = ModelOptions(
            self.weighting,
            self.chart,
            resolve_patch(self.patch),
            resolve_kernel(self.kernel),
            resolve_aggregate(self.aggregate),
            default_inducing(count, self.search) if self.n_inducing == "auto" else int(self.n_inducing),
            self.inducing,
            resolve_likelihood(self.likelihood, method, self.task),
            method,
            learn,
            self.search,
            self.n_inducing == "auto",
            resolve_descriptors(self.descriptor),
            resolve_layers(self.layers),
        )
        check_representable("lengthscale", options.kernel.lengthscale, runtime.dtype)
        check_representable("position", options.patch.position, runtime.dtype)
        if learn is not None and method.learns_jointly:
            changed = set(learn.get_params()) - {"parameters"}
            ignored = [name for name in changed if getattr(learn, name) != getattr(Learn(), name)]
            if ignored:
                raise ValueError(
                    f"learn={learn!r}: {sorted(ignored)[0]} has no effect with inference={method!r}, "
                    "which learns the parameters itself"
                )
        if runtime.checkpoint is not None and not isinstance(self.random_state, (int, np.integer)):
            raise ValueError(
                f"random_state={self.random_state!r}: with a checkpoint it must be an integer, "
                "so that a resumed fit draws the same random numbers"
            )
        return options, runtime

    def _input(self, X: Any) -> Signals:
        """Signals to predict, checked against those of training."""
        check_is_fitted(self, "posterior_")
        if self.descriptor_ is not None and not isinstance(X, Signals):
            X = self.descriptor_.transform(X)
        signals = as_signals(X)
        domain = type(signals.domains).__name__
        if domain != self.domain_:
            raise ValueError(f"X: signals on {domain.lower()}, but training had {self.domain_.lower()}")
        if signals.channels != self.n_features_in_:
            raise ValueError(f"X: {signals.channels} channels, but training had {self.n_features_in_}")
        signals.domains.check_signature(self.domain_signature_, signals.domain_of)
        check_magnitudes(signals, self.largest_value_)
        return signals

    def _fit(
        self,
        X: Signals | list[Mesh],
        group: Int[np.ndarray, "N"],
        targets: Float[np.ndarray, "N"],
        groups: int,
        processes: ProcessGroup,
    ) -> FittedModel:
        """Fit the model and set the attributes that classifier and regressor share.

        `group` is the class of each signal, or 0 in regression. Signals or meshes are those of this process,
        group and targets those of all processes.
        """
        options, runtime = self._resolve_options(len(group))
        candidates = described_candidates(X, options, processes)
        signals = candidates[0].signals
        weights = options.aggregate.vertex_weights
        if weights is not None and len(signals.domains) > 1:
            n = int(np.argmax(signals.domain_of != signals.domain_of[0]))
            raise ValueError(f"signal {n}: not on the domain of signal 0, which vertex_weights require")
        largest_value = largest_magnitude(runtime.dtype)
        check_magnitudes(signals, largest_value)
        check_not_tiny(signals, runtime.dtype)
        fit_digest = check_shards(self.get_params(deep=False), runtime, signals, processes)
        seeds = processes.gather(check_random_state(self.random_state).randint(2**31, size=4))[0]
        checkpoint = None
        if runtime.checkpoint is not None:
            digest = digest_of([fit_digest, group, targets])
            checkpoint = Checkpoint(runtime.checkpoint, digest, processes=processes)
        first = sum(processes.gather(len(signals))[: processes.rank])
        local = slice(first, first + len(signals))
        data = TrainingSet(
            signals,
            torch.from_numpy(group[local]),
            torch.from_numpy(targets[local]),
            groups,
            processes,
            first,
            len(group),
        )
        evaluations = sum(processes.gather(len(signals.values))) * options.n_inducing
        dtype = runtime.torch_dtype(evaluations)
        vertex_weights = None if weights is None else checked_vertex_weights(weights, dtype)
        with self._bar(len(signals), shown=processes.rank == 0) as bar, compilation_shown(bar):
            context = FitContext(
                np.random.default_rng(seeds),
                as_bytes(runtime.memory_limit),
                dtype,
                as_device(runtime.device),
                History(log=processes.rank == 0),
                checkpoint,
                Progress(bar),
            )
            table, selected = SearchTable(), candidates[0]
            if len(candidates) > 1:
                selected = select_descriptor(candidates, data, options, context, table)
            selected.signals.domains.check_training(selected.signals.domain_of)
            data = replace(data, signals=selected.signals)
            fitted = fit_model(data, options, vertex_weights, context, table)
        self._set_fitted(fitted, selected, context.history)
        self.largest_value_ = largest_value
        return fitted

    def _set_fitted(self, fitted: FittedModel, described: Described, history: History) -> None:
        result, signals = fitted.inference, described.signals
        self.descriptor_ = described.descriptor
        for name, value in result.attributes.items():
            setattr(self, name, value)
        self.features_, self.posterior_, self.bound_ = result.features, result.posterior, result.bound
        self.likelihood_ = result.likelihood
        self.variance_ = float(result.posterior.variance)
        self.constant_ = result.features.constant
        if fitted.start_weightings is not None:
            self.start_weightings_ = list(fitted.start_weightings)
        elif hasattr(self, "start_weightings_"):
            del self.start_weightings_
        self.search_ = fitted.search
        self.history_ = history.steps
        self.n_iter_ = max(1, len(self.history_))
        self.n_features_in_ = signals.channels
        self.domain_ = type(signals.domains).__name__
        terms = result.features.terms
        fixed_vertices = any(
            t.kernel.vertex_weights is not None or t.convolution.fixed_vertices for t in terms
        )
        charts = [kind for term in terms for kind in term.convolution.chart_kinds]
        self.domain_signature_ = signals.domains.signature(charts, fixed_vertices)

    def _chunks(self, signals: Signals, diagonal: bool) -> Iterator[Chunk]:
        with self._bar(len(signals)) as bar:
            bar.set_description("predicting")
            features = replace(self.features_, device=as_device(resolve_runtime(self.runtime).device))
            yield from features.chunks(signals, diagonal=diagonal, progress=bar.update)

    @torch.no_grad()
    def _latent(
        self, signals: Signals, diagonal: bool = True
    ) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N C"]]:
        """Posterior means and variances; without the diagonal the variances are zero."""
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
        shown = shown and bool(resolve_runtime(self.runtime).progress)
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
