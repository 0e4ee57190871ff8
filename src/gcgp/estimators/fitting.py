"""Fitting: from signals and options to features and a posterior.

Lengthscales are tuned on trial signals; then, if that is asked for, weighting and kernel are learned; then
come the features of all signals, their sums, and the closed form; from there its means may be refined, or
variational inference goes on.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Int, Num
from torch import Tensor

from gcgp.domain import Meshes, Signals
from gcgp.domain.base import chart_kind
from gcgp.estimators.value_range import checked_vertex_weights
from gcgp.inference import DirichletClassification, Features, GaussianRegression, Posterior, Statistics, Term
from gcgp.inference.dirichlet import FINE_STEPS
from gcgp.inference.natural_gradient import FeatureDataset
from gcgp.inference.refined import Refinement
from gcgp.inference.search import ScoringBatch, SearchPoint, SelectedModel
from gcgp.inference.softmax import normal_draws
from gcgp.kernel.base import prior_variance
from gcgp.patches import Convolution
from gcgp.selection.content_order import content_order
from gcgp.selection.diagnostics import warn_if_identical
from gcgp.selection.job import Job
from gcgp.selection.learning import DEFAULT, LearnConfig, State, check_names, learn, names_to_learn
from gcgp.selection.term_specs import TermSpec, resolve_weightings
from gcgp.selection.tuning import TrialLoss, tune
from gcgp.selection.variational import fit_natural_gradient, fit_svgp
from gcgp.weighting import Weighting

if TYPE_CHECKING:
    from gcgp.estimators.base import ConvolutionalGP

DTYPES = {"float32": torch.float32, "float64": torch.float64}
TRIAL_SIGNALS = 1_000
"""Training signals on which lengthscales, variance and α_ε are tried; more if they have very few vertices."""
SCORED_SIGNALS = 500
"""How many of these, half at the most, are left out in turn to score a choice."""
FINALLY_SCORED = 2_000
"""Training signals that are left out in turn to choose variance and α_ε of the whole model."""
TRIAL_INDUCING = 300
TRIAL_DRAWS = 128
"""Draws behind a probability while α_ε and the variance are searched; predictions take 512."""
LEARNING_MUST_GAIN = 0.01
"""What was learned is kept if it gains this much (nats a signal)."""
DIAGONAL_DRAWS = 128
"""Patches drawn for a training signal's prior variance where an estimate does; of fewer, all count."""


@dataclass(frozen=True)
class Fitted:
    """What a fit comes to."""

    features: Features
    posterior: Posterior
    bound: float
    choice: SelectedModel[Any]
    """Likelihood and variance of the closed form."""
    start_weightings: Sequence[Weighting] | None = None
    """Those that learning started from."""
    softmax_weight: float = 0.0
    """With which means were refined."""


@dataclass
class Fitting:
    """One fit of a model, which is only asked for its options."""

    model: ConvolutionalGP
    job: Job
    bar: Any
    """Shows how far it is."""

    def run(self) -> Fitted:
        """All stages."""
        job, order = self.job, self._random_order()
        rows = order[: self._trial_size()]
        trial = job.everywhere(rows)
        drafts = self._drafts(trial.signals)
        constant = self._constant(drafts, trial.signals)
        if constant > 0:
            trial = replace(trial, constant=constant)
            return replace(self, job=replace(job, constant=constant))._fitted(order, trial, drafts)
        return self._fitted(order, trial, drafts)

    def _fitted(self, order: Int[np.ndarray, "N"], trial: Job, drafts: list[TermSpec]) -> Fitted:
        """All stages after the drafts of the trial signals, which are the first of the order."""
        job, rng, rows = self.job, self.job.rng, order[: len(trial.signals)]
        if job.processes.rank == 0:
            warn_if_identical(drafts, trial.signals)
        self._stage("lengthscales", unit="models tried")
        loss = self._trial_loss(trial, min(int(self.model.n_inducing), TRIAL_INDUCING))
        tuned = tune(drafts, self.model.lengthscale, self.model.position, loss)
        start = loss.last
        state = State(tuned.drafts, tuned.lengthscales, 1.0, 1.0)
        names = names_to_learn(self.model.learn, self.model._likelihood_parameter)
        paper = self.model.optimizer == "paper"
        weightings = [draft.convolution.weighting for draft in state.drafts]
        begun = copy.deepcopy(weightings) if names or paper else None
        if names:
            check_names(self.model.learn, state, self.model._likelihood_parameter)
        if names and not paper:
            self._stage("learning", unit="models tried")
            # Random numbers of its own: what is not kept of learning then leaves no trace.
            apart = replace(self, job=replace(job, rng=rng.spawn(1)[0]))
            state, start = apart._learned(state, start, loss, trial, rows)
        inducing = state.inducing or [
            draft.inducing(scales, int(self.model.n_inducing), self.model.inducing, rng)
            for draft, scales in zip(state.drafts, state.scales, strict=True)
        ]
        terms = [
            draft.term(scales, patches)
            for draft, scales, patches in zip(state.drafts, state.scales, inducing, strict=True)
        ]
        if paper:
            fitted = self._as_in_the_paper(state, terms, loss)
        else:
            # Signals that gave no inducing patches: some of the trial signals, and those beyond them.
            fresh = np.concatenate([rows[: state.drafts[0].scored], order[len(rows) :]])
            fitted = self._solved(terms, np.sort(fresh[:FINALLY_SCORED]), start)
        return replace(fitted, start_weightings=begun)

    def _stage(self, name: str, total: int | None = None, unit: str = "signals") -> None:
        """Begin a stage in the bar: with a total, it shows how many a second and how long it will take."""
        self.bar.set_description(name, refresh=False)
        self.bar.total, self.bar.unit = total, f" {unit}"
        self.bar.reset(total)

    def _random_order(self) -> Int[np.ndarray, "N"]:
        """A random order of all signals that depends on what they are, not on how they were given."""
        job = self.job
        targets = np.concatenate(job.processes.gather((job.group + job.targets).numpy()))
        ordered = content_order(job.signals, targets, job.processes, int(job.rng.integers(2**31)))
        return ordered[job.rng.permutation(job.count)]

    def _trial_size(self) -> int:
        signals, memory = self.job.signals, self.job.memory
        weightings = resolve_weightings(self.model.weighting, signals)
        width = sum(w.bins * (signals.channels + 1) + 3 for w in weightings) * self.job.dtype.itemsize
        vertices = sum(self.job.processes.gather(len(signals.values))) / self.job.count
        # Those that are not scored give the inducing patches: of signals with few vertices it takes more.
        enough = TRIAL_SIGNALS // 2 + int(2 * self.model.n_inducing / vertices)
        return max(2, min(max(TRIAL_SIGNALS, enough), int(memory / (width * vertices * 4))))

    def _drafts(self, trial: Signals) -> list[TermSpec]:
        """One draft for each weighting, with position and mass as asked for."""
        coordinates = trial.domains.positions is not None
        tunable = isinstance(self.model.kernel, str)
        position = (coordinates and tunable) if self.model.position == "auto" else bool(self.model.position)
        on_meshes = isinstance(trial.domains, Meshes)
        mass = (
            (not coordinates and not on_meshes and tunable)
            if self.model.bin_counts == "auto"
            else bool(self.model.bin_counts)
        )
        areas = on_meshes if self.model.area_weighted == "auto" else bool(self.model.area_weighted)
        dtype = self.job.dtype
        weightings = resolve_weightings(self.model.weighting, trial)
        self._stage("patches to try on", len(trial) * len(weightings))
        chart = chart_kind(trial.domains, self.model.chart)  # the same for all signals to predict
        weights = self.model.vertex_weights
        if weights is not None:
            weights = checked_vertex_weights(weights, dtype)
        return [
            TermSpec.make(
                Convolution(weighting.to(dtype).requires_grad_(False), chart, mass, position, areas, dtype),
                trial,
                max(1, min(SCORED_SIGNALS, len(trial) // 2)),
                self.model.kernel,
                self.model.aggregate,
                weights,
                self._pools(weighting, on_meshes),
                self.job.memory,
                self.job.rng,
                self.bar.update,
            )
            for weighting in weightings
        ]

    def _constant(self, drafts: Sequence[TermSpec], trial: Signals) -> float:
        """The variance of the kernel's constant term, relative to the GP's variance.

        Without it a sum over patches is zero for a signal without patches, and grows with the number of
        vertices. Where that number is the same for all signals, the sum itself can be any constant. The
        paper's inference keeps to the paper's kernel.
        """
        counts = trial.vertex_counts.astype(np.float64)
        if self.model.aggregate != "sum" or self.model.optimizer == "paper" or np.ptp(counts) == 0:
            return 0.0
        with torch.no_grad():
            variances = [
                prior_variance(draft.kernel_with(draft.lengthscales(1.0)), draft.trial.values[:1])[0]
                for draft in drafts
            ]
        return float(np.mean(counts**2)) * float(sum(variances))

    def _pools(self, weighting: Weighting, on_meshes: bool) -> bool:
        """Whether the kernel is averaged over rotations of patches of this weighting."""
        possible = weighting.rotations is not None
        if self.model.pool_rotations is True and not possible:
            raise ValueError(
                f"pool_rotations=True: {weighting!r} has no equally spaced directions to turn by"
            )
        return possible and (
            on_meshes if self.model.pool_rotations == "auto" else bool(self.model.pool_rotations)
        )

    def _trial_loss(self, trial: Job, inducing: int) -> TrialLoss:
        """The loss of a model of the trial signals with so many inducing patches."""
        method = "random" if self.model.inducing == "random" else "k-means++"
        return TrialLoss(
            trial.group,
            trial.targets,
            trial.groups,
            inducing,
            method,
            self.model._choose,
            self.job.rng,
            self.job.processes,
            self.job.device,
            self.bar.update,
            trial.constant,
        )

    def _solved(self, terms: Sequence[Term], scored: Int[np.ndarray, "m"], start: SearchPoint) -> Fitted:
        """The closed form for the given terms, or what is made of it: refined means, or natural steps.

        `scored`, in rising order, are the signals by which variance and α_ε are chosen.
        """
        job = self.job
        features = Features(terms, job.memory, job.device, job.constant)
        self._stage("features", len(job.signals))
        statistics = Statistics.empty(job.groups, features.size)
        observed = None
        if self.model.inference != "closed-form":
            dtype = self.job.dtype
            observed = FeatureDataset.room(
                features.size, self._told(), dtype, job.memory, job.processes, job.first
            )
        seed = int(job.rng.integers(2**31))
        # The closed form needs prior variances for its bound alone; natural steps hang on each signal's own.
        draws = None if self.model.inference == "variational" else DIAGONAL_DRAWS
        mine = scored[(scored >= job.first) & (scored < job.first + len(job.signals))] - job.first
        kept: list[ScoringBatch] = []
        for chunk in features.chunks(
            job.signals, draws=draws, seed=seed, first=job.first, exact=mine, progress=self.bar.update
        ):
            run, group, targets = chunk.run, job.group[chunk.run], job.targets[chunk.run]
            statistics.add(chunk.features, group, targets, chunk.unexplained)
            if observed is not None:
                observed.fill(chunk)
            assert chunk.diagonal is not None
            inside = mine[(mine >= run.start) & (mine < run.stop)] - run.start
            every = ScoringBatch(chunk.features, chunk.unexplained, chunk.diagonal, group, targets)
            kept.append(every.of(torch.from_numpy(inside)))
        statistics.total(job.processes)
        sample = ScoringBatch.concatenate(kept, job.processes, features.size)
        self._stage("variance")
        choice = self.model._choose(statistics, sample, start, FINE_STEPS, job.processes)
        if observed is None:
            posterior, bound = choice.likelihood.solved(statistics, choice.variance)
            return Fitted(features, posterior, float(bound), choice)
        if self.model.inference == "refined":
            return self._refined(features, observed, statistics, choice, scored, sample)
        self._stage("natural gradient steps")
        fit = fit_natural_gradient(
            observed,
            statistics,
            choice.likelihood,
            getattr(self.model, "likelihood", ""),
            choice.variance,
            free_variance=self.model.variance == "auto",
            by_bound=self.model.objective == "bound",
            history=job.history,
            checkpoint=job.checkpoint,
            rng=job.rng,
        )
        return Fitted(features, fit.posterior, fit.bound, choice)

    def _refined(
        self,
        features: Features,
        observed: FeatureDataset,
        statistics: Statistics,
        choice: SelectedModel[DirichletClassification],
        scored: Int[np.ndarray, "m"],
        sample: ScoringBatch,
    ) -> Fitted:
        """The closed form, its means moved by a softmax as far as that helps signals that are held out."""
        self._stage("means")
        self.job.history.stage = "refined"
        refinement = Refinement(observed, statistics, choice.likelihood, choice.variance)
        pull = refinement.chosen(torch.from_numpy(scored), sample, self.job.history.add)
        closed, bound = choice.likelihood.solved(statistics, choice.variance)
        posterior = refinement.of_all(closed, pull)
        return Fitted(features, posterior, float(bound), choice, softmax_weight=pull.weight)

    def _as_in_the_paper(self, state: State, terms: Sequence[Term], loss: TrialLoss) -> Fitted:
        """Adam on everything in batches; what was tuned is where it starts."""
        loss(state.drafts, state.scales)
        assert loss.choice is not None
        job, choice = self.job, loss.choice
        name = self.model._likelihood_parameter
        names = names_to_learn(self.model.learn, name) or (*DEFAULT, name, "position", "inducing")
        batch, bar = min(int(self.model.batch_size), job.count), self.bar
        self._stage("Adam", int(self.model.max_iter) * -(-job.count // batch), "steps")
        found = fit_svgp(
            [(term, draft.columns) for term, draft in zip(terms, state.drafts, strict=True)],
            job,
            self._told(),
            latents=job.groups,
            likelihood=getattr(self.model, "likelihood", None),
            variance=choice.variance,
            noise=getattr(choice.likelihood, name),
            names=self._free(names),
            epochs=int(self.model.max_iter),
            batch=batch,
            learning_rate=float(self.model.learning_rate),
            draws=DIAGONAL_DRAWS,
            seed=int(job.rng.integers(2**31)),
            tell=lambda step: bar.update(step - bar.n),
        )
        if found.noise is not None:
            choice = replace(choice, likelihood=GaussianRegression(found.noise))
        return Fitted(Features(found.terms, job.memory, job.device), found.posterior, found.bound, choice)

    def _free(self, names: Sequence[str]) -> list[str]:
        """The names without those whose value the user has given."""
        fixed = {
            key
            for key in ("variance", self.model._likelihood_parameter)
            if getattr(self.model, key) != "auto"
        }
        return [name for name in names if name not in fixed]

    def _told(self) -> Num[Tensor, "N"]:
        """What was observed of each signal: its target, or its class."""
        return self.job.targets if self.model._likelihood is GaussianRegression else self.job.group

    def _task(self, trial: Int[np.ndarray, "n"], scored: int) -> LearnConfig:
        """What learning is told."""
        name = self.model._likelihood_parameter
        return LearnConfig(
            self.job,
            trial,
            -(-scored // 2),
            self.model._likelihood,
            name,
            normal_draws(self.job.groups, TRIAL_DRAWS),
            self._free(names_to_learn(self.model.learn, name)),
            self.model.objective == "bound",
            self.model.optimizer,
            int(self.model.max_iter),
            int(self.model.n_inducing),
            min(int(self.model.n_inducing), TRIAL_INDUCING),
            self.model.inducing,
            DIAGONAL_DRAWS,
        )

    def _learned(
        self, state: State, start: SearchPoint, loss: TrialLoss, trial: Job, rows: Int[np.ndarray, "n"]
    ) -> tuple[State, SearchPoint]:
        """What learning makes of the tuned drafts, and where the next search for the likelihood starts.

        What it makes is kept if signals that no maximize has scored are predicted better by more than chance.
        """
        job, task = self.job, self._task(rows, state.drafts[0].scored)
        loss.rng = job.rng
        loss(state.drafts, state.scales)
        assert loss.choice is not None
        noise = getattr(loss.choice.likelihood, self.model._likelihood_parameter)
        learned = learn(replace(state, variance=loss.choice.variance, noise=noise), task, loss)
        if learned.inducing is not None:  # which a check with other inducing patches knows nothing of
            loss(learned.drafts, learned.scales)
            return learned, loss.last
        check = self._trial_loss(trial, int(self.model.n_inducing))
        check.last = loss.last
        before, after = (
            check.held_out(model.drafts, model.scales, task.held, task.softmax_draws)
            for model in (state, learned)
        )
        gain = after - before
        chance = float(gain.std(correction=0)) / len(gain) ** 0.5
        worth = float(gain.mean()) > max(LEARNING_MUST_GAIN, chance)
        job.history.stage = "check"
        for logs in (before, after if worth else before):
            job.history.add(float(logs.mean()))
        return (learned, check.last) if worth else (state, start)
