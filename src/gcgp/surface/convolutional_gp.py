"""What classifier and regressor share: building the terms, collecting statistics, predicting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int, Num
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from tqdm import tqdm

from gcgp.domain import Grids, Meshes, Signals
from gcgp.domain.chart import unknown_option
from gcgp.inference import Features, GaussianRegression, Posterior, Statistics, Term
from gcgp.inference.checkpoint import Checkpoint
from gcgp.inference.climbing import OPTIMISERS, History, Step
from gcgp.inference.dirichlet import FINE_STEPS
from gcgp.inference.features import Chunk
from gcgp.inference.selection import Choice, Point, Sample
from gcgp.inference.softmax import normal_draws
from gcgp.inference.variational import Observed
from gcgp.kernel.base import NAMES as KERNELS
from gcgp.kernel.convolutional import AGGREGATES
from gcgp.kernel.inducing import METHODS
from gcgp.patches import Convolution
from gcgp.patches.convolution import runs
from gcgp.surface.assembly import Draft, resolve_weightings
from gcgp.surface.inputs import as_bytes, as_signals
from gcgp.surface.learning import DEFAULT, OBJECTIVES, State, Task, check_names, learn, names_to_learn, teller
from gcgp.surface.tuning import TrialLoss, sample_of, tune
from gcgp.surface.variational import INFERENCES, as_in_the_paper, naturally, run_name
from gcgp.weighting import Weighting

DTYPES = {"float32": torch.float32, "float64": torch.float64}
TRIAL_SIGNALS = 1_000
"""Training signals on which lengthscales, variance and α_ε are tried."""
SCORED_SIGNALS = 500
"""How many of these, half at the most, are left out in turn to score a choice."""
TRIAL_INDUCING = 300
TRIAL_DRAWS = 128
"""Draws behind a probability while α_ε and the variance are searched; predictions take 512."""
LEARNING_MUST_GAIN = 0.01
"""What was learned is kept if it lowers the loss by this much (nats a signal)."""
DIAGONAL_DRAWS = 128
"""Patches of a training signal that are drawn for its prior variance; with fewer patches, all count."""


@dataclass(frozen=True)
class VertexEvidence:
    """What each vertex says for each class (or for the regression function).

    Rows are the vertices of all signals, one signal after the other. `mean` and `std` are those of the
    vertex's own share of the latent function: of g at its patch for `aggregate="sum"`, of g over the number
    of patches for `"mean"`. The means of a signal's vertices sum to its latent mean.
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


@dataclass(frozen=True)
class Job:
    """One fit: its data, its random numbers, and who hears how far it is."""

    signals: Signals
    group: Int[Tensor, "N"]
    """Class of each signal, or 0 in regression."""
    targets: Float[Tensor, "N"]
    """In regression; 1 for classes."""
    groups: int
    rng: np.random.Generator
    history: History
    checkpoint: Checkpoint | None
    bar: Any


class ConvolutionalGP(BaseEstimator):
    """What classifier and regressor share: building the terms, collecting statistics, predicting."""

    weighting: Any
    chart: str
    location: bool | float | str
    mass: bool | str
    areas: bool | str
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
    optimiser: str
    max_iter: int
    verbose: bool
    inference: str
    batch_size: int
    learning_rate: float
    checkpoint: Any
    dtype: str
    memory_limit: int | str
    random_state: Any
    progress: bool

    features_: Features
    posterior_: Posterior
    history_: list[Step]
    n_iter_: int

    _likelihood: Callable[[Any], Any]
    _likelihood_parameter: str

    def predict_latent(self, X: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Posterior mean `[N, C]` of the latent functions and, if asked for, their standard deviation."""
        mean, variance = self._latent(self._input(X), diagonal=return_std)
        return (mean.numpy(), variance.sqrt().numpy()) if return_std else mean.numpy()

    def evidence(self, X: Any) -> VertexEvidence:
        """What every vertex contributes to every latent function, with its standard deviation.

        The means of a signal's vertices sum to its latent mean.
        """
        signals = self._input(X)
        means, deviations = [], []
        rows = signals.vertex_counts * self.features_.size * 8.0 * 4
        for run in runs(rows + self.features_.bytes_per_signal(signals), as_bytes(self.memory_limit)):
            features, residual = self.features_.at_vertices(signals[run])
            mean, variance = self.posterior_.predict(features, residual)
            means.append(mean.numpy())
            deviations.append(variance.sqrt().numpy())
        return VertexEvidence(np.concatenate(means), np.concatenate(deviations), signals.offsets)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file; `gcgp.load` reads it. An existing file is replaced whole."""
        from gcgp.surface.model_file import save

        check_is_fitted(self, "posterior_")
        save(self, path)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags

    def _choose(
        self, statistics: Statistics, sample: Sample, start: Point, steps: Sequence[Point]
    ) -> Choice[Any]:
        """The likelihood and GP variance that fit best."""
        raise NotImplementedError

    def _validate_options(self) -> None:
        for name, value, known in (
            ("aggregate", self.aggregate, AGGREGATES),
            ("inducing", self.inducing, METHODS),
            ("dtype", self.dtype, tuple(DTYPES)),
            ("objective", self.objective, OBJECTIVES),
            ("optimiser", self.optimiser, (*OPTIMISERS, "paper")),
            ("inference", self.inference, INFERENCES),
        ):
            if value not in known:
                raise unknown_option(name, value, known)
        if not isinstance(self.kernel, Kernel) and self.kernel not in KERNELS:
            raise unknown_option("kernel", self.kernel, (*KERNELS, "any gpytorch.kernels.Kernel"))
        if self.optimiser == "paper" and self.inference != "variational":
            raise ValueError("optimiser='paper' is a way of variational inference: inference='variational'")
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
        if not isinstance(self.location, (bool, np.bool_)):
            check_positive("location", self.location)
        for name in ("mass", "areas", "pool_rotations"):
            if getattr(self, name) not in (True, False, "auto"):
                raise unknown_option(name, getattr(self, name), ("auto", "True", "False"))
        as_bytes(self.memory_limit)

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
        if self.image_shape_ is not None and isinstance(signals.domains, Grids):
            wrong = np.flatnonzero((signals.domains.shapes != self.image_shape_).any(axis=1))
            if len(wrong):
                n = int(np.argmax(signals.domain_of == wrong[0]))
                raise ValueError(
                    f"X: image {n} has shape {signals.domains.shapes[wrong[0]].tolist()}, but training had "
                    f"{list(self.image_shape_)}, which matters with location or vertex_weights"
                )
        return signals

    def _fit(
        self, signals: Signals, group: Int[np.ndarray, "N"], targets: Float[np.ndarray, "N"], groups: int
    ) -> Choice[Any]:
        """Build the terms, collect the statistics of all signals, and choose likelihood and variance.

        `group` says to which of the `groups` a signal belongs: its class, or 0 in regression.
        """
        if self.vertex_weights is not None and len(signals.domains) > 1:
            n = int(np.argmax(signals.domain_of != signals.domain_of[0]))
            raise ValueError(f"signal {n}: not on the domain of signal 0, as vertex_weights need it to be")
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31, size=4))
        history = History(tell=teller(self.verbose))
        checkpoint = None
        if self.checkpoint is not None:
            options = self.get_params(deep=False)
            checkpoint = Checkpoint(self.checkpoint, run_name(options, signals, group, targets))
        labels, t = torch.from_numpy(group), torch.from_numpy(targets)
        with self._bar(len(signals)) as bar:
            job = Job(signals, labels, t, groups, rng, history, checkpoint, bar)
            bar.set_description("lengthscales")
            trial = rng.permutation(len(signals))[: self._trial_size(signals)]
            drafts = self._drafts(signals[trial], rng)
            few = min(int(self.n_inducing), TRIAL_INDUCING)
            loss = self._trial_loss(job, trial, few)
            tuned = tune(drafts, self.lengthscale, self.location, loss)
            start = loss.last
            state = State(tuned.drafts, tuned.lengthscales, 1.0, 1.0)
            names = names_to_learn(self.learn, self._likelihood_parameter)
            if names:
                check_names(self.learn, state, self._likelihood_parameter)
            if names and self.optimiser != "paper":
                bar.set_description("learning")
                # Random numbers of its own: what is not kept of learning then leaves no trace.
                apart = replace(job, rng=rng.spawn(1)[0])
                state, start = self._learned(state, start, loss, apart, trial)
            inducing = state.inducing or [
                draft.inducing(scales, int(self.n_inducing), self.inducing, rng)
                for draft, scales in zip(state.drafts, state.scales, strict=True)
            ]
            terms = [
                draft.term(scales, patches)
                for draft, scales, patches in zip(state.drafts, state.scales, inducing, strict=True)
            ]
            if self.optimiser == "paper":
                choice = self._as_in_the_paper(job, state, terms, loss)
            else:
                choice = self._solved(job, terms, trial[: state.drafts[0].scored], start)
        self.history_ = history.steps
        self.n_iter_ = max(1, len(self.history_))
        self.domain_ = type(signals.domains).__name__
        self.channels_ = signals.channels
        fixed = self.vertex_weights is not None or self.features_.terms[0].convolution.location
        self.image_shape_ = None
        if fixed and isinstance(signals.domains, Grids) and len(signals.domains) == 1:
            self.image_shape_ = tuple(signals.domains.shapes[0].tolist())
        return choice

    def _trial_size(self, signals: Signals) -> int:
        memory = as_bytes(self.memory_limit)
        weightings = resolve_weightings(self.weighting, signals)
        width = sum(w.bins * (signals.channels + 1) + 3 for w in weightings) * DTYPES[self.dtype].itemsize
        return max(2, min(TRIAL_SIGNALS, int(memory / (width * signals.vertex_counts.mean() * 4))))

    def _drafts(self, trial: Signals, rng: np.random.Generator) -> list[Draft]:
        """One draft for each weighting, with location and mass as asked for."""
        coordinates = trial.domains.locations is not None
        tunable = isinstance(self.kernel, str)
        location = (coordinates and tunable) if self.location == "auto" else bool(self.location)
        on_meshes = isinstance(trial.domains, Meshes)
        mass = (not coordinates and not on_meshes and tunable) if self.mass == "auto" else bool(self.mass)
        areas = on_meshes if self.areas == "auto" else bool(self.areas)
        dtype = DTYPES[self.dtype]
        weights = self.vertex_weights
        if weights is not None:
            weights = torch.as_tensor(np.asarray(weights), dtype=dtype).reshape(-1)
            if not torch.isfinite(weights).all():
                place = int(torch.argmin(torch.isfinite(weights).int()))
                raise ValueError(f"vertex_weights[{place}] is {float(weights[place])}; it must be finite")
        return [
            Draft.make(
                Convolution(
                    weighting.to(dtype).requires_grad_(False), self.chart, mass, location, areas, dtype
                ),
                trial,
                max(1, min(SCORED_SIGNALS, len(trial) // 2)),
                self.kernel,
                self.aggregate,
                weights,
                self._pools(weighting, on_meshes),
                as_bytes(self.memory_limit),
                rng,
            )
            for weighting in resolve_weightings(self.weighting, trial)
        ]

    def _pools(self, weighting: Weighting, on_meshes: bool) -> bool:
        """Whether the kernel is averaged over rotations of patches of this weighting."""
        possible = weighting.rotations is not None
        if self.pool_rotations is True and not possible:
            raise ValueError(
                f"pool_rotations=True: {weighting!r} has no equally spaced directions to turn by"
            )
        return possible and (on_meshes if self.pool_rotations == "auto" else bool(self.pool_rotations))

    def _trial_loss(self, job: Job, trial: Int[np.ndarray, "n"], inducing: int) -> TrialLoss:
        """The loss of a model of the trial signals with so many inducing patches."""
        method = "random" if self.inducing == "random" else "k-means++"
        return TrialLoss(
            job.group[trial], job.targets[trial], job.groups, inducing, method, self._choose, job.rng
        )

    def _solved(
        self, job: Job, terms: Sequence[Term], scored: Int[np.ndarray, "m"], start: Point
    ) -> Choice[Any]:
        """The closed form for the given terms and, if that is asked for, natural gradient steps from it."""
        memory = as_bytes(self.memory_limit)
        features = Features(terms, memory)
        job.bar.set_description("features")
        statistics = Statistics.empty(job.groups, features.size)
        observed = None
        if self.inference == "variational":
            observed = Observed.room(features.size, self._told(job), DTYPES[self.dtype], memory)
        seed = int(job.rng.integers(2**31))
        for chunk in features.chunks(job.signals, draws=DIAGONAL_DRAWS, seed=seed, progress=job.bar.update):
            statistics.add(chunk.features, job.group[chunk.run], job.targets[chunk.run], chunk.residual)
            if observed is not None:
                observed.fill(chunk)
        job.bar.set_description("variance")
        chunks = list(features.chunks(job.signals[scored]))
        sample = sample_of(chunks, job.group[scored], job.targets[scored])
        choice = self._choose(statistics, sample, start, FINE_STEPS)
        self.features_ = features
        self.variance_ = choice.variance
        if observed is None:
            self.posterior_ = choice.likelihood.posterior(statistics, choice.variance)
            self.bound_ = float(choice.likelihood.bound(statistics, choice.variance))
            return choice
        job.bar.set_description("natural gradient steps")
        fit = naturally(
            observed,
            statistics,
            choice.likelihood,
            getattr(self, "likelihood", ""),
            choice.variance,
            free_variance=self.variance == "auto",
            by_bound=self.objective == "bound",
            history=job.history,
            checkpoint=job.checkpoint,
            rng=job.rng,
        )
        self.posterior_, self.bound_ = fit.posterior, fit.bound
        self.variance_ = float(fit.posterior.variance)
        return choice

    def _as_in_the_paper(self, job: Job, state: State, terms: Sequence[Term], loss: TrialLoss) -> Choice[Any]:
        """Adam on everything in batches; what was tuned is where it starts."""
        loss(state.drafts, state.scales)
        assert loss.choice is not None
        choice = loss.choice
        name = self._likelihood_parameter
        self.start_weightings_ = [draft.convolution.weighting for draft in state.drafts]
        names = names_to_learn(self.learn, name) or (*DEFAULT, name, "location", "inducing")
        batch, bar = min(int(self.batch_size), len(job.signals)), job.bar
        bar.set_description("Adam")
        bar.total, bar.unit = int(self.max_iter) * -(-len(job.signals) // batch), " steps"
        found = as_in_the_paper(
            [(term, draft.columns) for term, draft in zip(terms, state.drafts, strict=True)],
            job.signals,
            self._told(job),
            latents=job.groups,
            likelihood=getattr(self, "likelihood", None),
            variance=choice.variance,
            noise=getattr(choice.likelihood, name),
            names=self._free(names),
            epochs=int(self.max_iter),
            batch=batch,
            learning_rate=float(self.learning_rate),
            memory=as_bytes(self.memory_limit),
            draws=DIAGONAL_DRAWS,
            seed=int(job.rng.integers(2**31)),
            history=job.history,
            checkpoint=job.checkpoint,
            tell=lambda step: bar.update(step - bar.n),
        )
        self.features_ = Features(found.terms, as_bytes(self.memory_limit))
        self.posterior_, self.bound_ = found.posterior, found.bound
        self.variance_ = float(found.posterior.variance)
        if found.noise is not None:
            return replace(choice, likelihood=GaussianRegression(found.noise))
        return choice

    def _free(self, names: Sequence[str]) -> list[str]:
        """The names without those whose value the user has given."""
        fixed = {key for key in ("variance", self._likelihood_parameter) if getattr(self, key) != "auto"}
        return [name for name in names if name not in fixed]

    def _told(self, job: Job) -> Num[Tensor, "N"]:
        """What was observed of each signal: its target, or its class."""
        return job.targets if self._likelihood is GaussianRegression else job.group

    def _task(self, job: Job, trial: Int[np.ndarray, "n"]) -> Task:
        """What learning is told."""
        name = self._likelihood_parameter
        return Task(
            job.signals,
            job.group,
            job.targets,
            job.groups,
            trial,
            self._likelihood,
            name,
            normal_draws(job.groups, TRIAL_DRAWS),
            self._free(names_to_learn(self.learn, name)),
            self.objective == "bound",
            self.optimiser,
            int(self.max_iter),
            int(self.n_inducing),
            min(int(self.n_inducing), TRIAL_INDUCING),
            self.inducing,
            as_bytes(self.memory_limit),
            DIAGONAL_DRAWS,
            job.history,
            job.rng,
            job.checkpoint,
        )

    def _learned(
        self, state: State, start: Point, loss: TrialLoss, job: Job, trial: Int[np.ndarray, "n"]
    ) -> tuple[State, Point]:
        """What learning makes of the tuned drafts, and where the next search for the likelihood starts.

        What it makes is kept if it is better on the trial signals, with inducing patches from all of them:
        a climb takes these from some signals and is scored on others, and few signals are not enough for it.
        """
        task = self._task(job, trial)
        loss.rng = job.rng
        loss(state.drafts, state.scales)
        assert loss.choice is not None
        self.start_weightings_ = [draft.convolution.weighting for draft in state.drafts]
        noise = getattr(loss.choice.likelihood, self._likelihood_parameter)
        learned = learn(replace(state, variance=loss.choice.variance, noise=noise), task, loss)
        check = self._trial_loss(job, trial, int(self.n_inducing))
        check.last = loss.last
        before = check(state.drafts, state.scales)
        after = check(learned.drafts, learned.scales)
        if learned.inducing is not None:  # these the check does not know
            return learned, check.last
        worth = after < before - LEARNING_MUST_GAIN
        job.history.stage = "check"
        for value in (before, after if worth else before):
            job.history.add(-value)
        return (learned, check.last) if worth else (state, start)

    def _chunks(self, signals: Signals, diagonal: bool) -> Iterator[Chunk]:
        with self._bar(len(signals)) as bar:
            bar.set_description("predicting")
            yield from self.features_.chunks(signals, diagonal=diagonal, progress=bar.update)

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
            means.append(mean)
            variances.append(variance)
        return torch.cat(means), torch.cat(variances)

    def _bar(self, total: int) -> Any:
        """A bar on a terminal, nothing in a pipe; it appears once the work takes longer than a second."""
        return tqdm(total=total, unit=" signals", delay=1, disable=None if self.progress else True)


def check_positive(name: str, value: Any) -> None:
    """Raise unless the option is `"auto"` or a positive number."""
    if value == "auto" and isinstance(value, str):
        return
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not np.isfinite(value) or value <= 0:
        raise ValueError(f"{name}={value!r}: expected 'auto' or a positive number")
