"""Search for the structure of a model: weighting, chart, kernel, aggregation and the contents of patches.

Choices that the user left open are compared by leave-one-out likelihood. All are compared on few signals,
with few patches and inducing patches; the best of them on more, so that poor candidates stay cheap
(successive halving).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.domain import Domains
from gcgp.inference.context import FitContext
from gcgp.inference.search import DEFAULT_START, SearchPoint
from gcgp.inference.training_set import TrainingSet
from gcgp.layers import FittedLayer, fit_layers
from gcgp.selection.configurations import (
    Choices,
    Configuration,
    alternatives,
    default_configuration,
    is_pooled,
    simplified,
)
from gcgp.selection.lengthscales import FIRST_OCTAVES, Candidate, search_lengthscales
from gcgp.selection.options import ModelOptions
from gcgp.selection.term_specs import MAX_TRIAL_PATCHES, build_term_specs, constant_variance
from gcgp.selection.trial import Trial

MIN_GAIN_OF_CHANGE = 0.003
"""A choice is changed for this gain (nats per signal), not for noise."""
SMALL_GRAPH_VERTICES = 15_000
"""Signals with few vertices are cheap: the first rungs have as many of them, but not more than 600."""
SWEEPS = 2
"""Rounds over all choices: the best weighting may depend on the aggregation, for example."""
MIN_TOTAL_GAIN_OF_CHANGE = 2.0
"""The gain of all scored signals together must exceed this, which matters if they are few."""


@dataclass(frozen=True)
class Rung:
    """The effort per candidate at one stage of the search."""

    signals: int
    patches: int
    """Per signal."""
    inducing: int
    """Per scale."""
    steps: SearchPoint
    """Octaves between lengthscales that are compared."""
    kept: int
    """Candidates that go on to the next rung."""
    layered_steps: SearchPoint | None = None
    """Octaves if there are layers: their lengthscales depend on the number of inducing patches."""


ALL_SIGNALS = 10**9
LAST_RUNG = Rung(ALL_SIGNALS, MAX_TRIAL_PATCHES, 300, (0.5, 1.0), 1)
RUNGS = {
    None: (LAST_RUNG,),
    "fast": (
        Rung(300, 60, 120, (1.0, 1.0), 4),
        Rung(600, 100, 200, (0.5, 1.0), 2),
        Rung(ALL_SIGNALS, 150, 300, (0.5, 0.5), 1),
    ),
    "thorough": (
        Rung(500, 120, 200, (1.0, 1.0), 8),
        Rung(1_000, 200, 300, (0.5, 1.0), 3),
        LAST_RUNG,
    ),
}
IMAGE_RUNGS = {
    None: (LAST_RUNG,),
    "fast": (Rung(600, 100, 200, (1.0, 1.0), 2), Rung(600, 300, 600, (0.0, 0.0), 1, (1.0, 0.0))),
    "thorough": RUNGS["thorough"],
}
"""Images have few candidates, which differ in how many inducing patches they need."""


MESH_RUNGS = {
    None: (LAST_RUNG,),
    "fast": (Rung(200, MAX_TRIAL_PATCHES, 200, (1.0, 1.0), 2), LAST_RUNG),
    "thorough": (Rung(500, MAX_TRIAL_PATCHES, 300, (1.0, 1.0), 3), LAST_RUNG),
}
"""Meshes are few, and a sample of few vertices of each would make losses noisy."""


def rungs_of(search: str | None, domains: Domains) -> tuple[Rung, ...]:
    """The rungs of a search on this kind of domain."""
    return (IMAGE_RUNGS if domains.one_chart else MESH_RUNGS if domains.costly_charts else RUNGS)[search]


@dataclass(frozen=True)
class Evaluation:
    """A configuration with its best lengthscales on one rung."""

    configuration: Configuration
    candidate: Candidate
    trial: Trial
    rung: int
    seconds: float


@dataclass(frozen=True)
class SearchResult:
    """The outcome of a search, on the last rung."""

    best: Evaluation
    default: Evaluation
    """The configuration that is used without a search."""


@dataclass
class SearchTable:
    """All configurations that were compared, in the order of the search; `search_` of a fitted estimator.

    `str` gives a table, `to_pandas` a `DataFrame`. The loss is the leave-one-out loss in nats per signal on
    the signals of the rung: only losses of one rung are comparable.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    common: dict[str, Any] = field(default_factory=dict)
    """Columns of all rows to come."""
    rungs: int = 0
    """Rungs before those of the search of configurations: one, if descriptors were compared."""

    def to_pandas(self) -> Any:
        """The rows as a `pandas.DataFrame`."""
        import pandas

        return pandas.DataFrame(self.rows)

    def __str__(self) -> str:
        if not self.rows:
            return "nothing was searched"
        names = list({name: None for row in self.rows for name in row})
        text = [names, *([_text(row.get(name, "")) for name in names] for row in self.rows)]
        widths = [max(len(line[i]) for line in text) for i in range(len(names))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in text
        )


def _better(current: Evaluation, other: Evaluation) -> Evaluation:
    """The other evaluation if its gain exceeds noise, otherwise the current one."""
    scored = current.candidate.specs[0].scored
    margin = max(MIN_GAIN_OF_CHANGE, MIN_TOTAL_GAIN_OF_CHANGE / scored)
    return other if other.candidate.loss < current.candidate.loss - margin else current


def _ranked(evaluated: Sequence[Evaluation], best: Evaluation) -> list[Evaluation]:
    """The default, which is the first, then the best evaluation, then the others by their loss."""
    default = evaluated[0]
    rest = sorted(evaluated[1:], key=lambda evaluation: evaluation.candidate.loss)
    first = [default] if best is default else [default, best]
    return [*first, *(evaluation for evaluation in rest if evaluation is not best)]


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass
class ModelSearch:
    """The search on the trial signals of a fit."""

    data: TrainingSet
    """The trial signals, all of them in every process."""
    trial_template: Trial
    options: ModelOptions
    scored: int
    vertex_weights: Float[Tensor, "vertices"] | None
    context: FitContext
    table: SearchTable = field(default_factory=SearchTable)
    fitted: dict[str, FittedLayer] = field(default_factory=dict)
    """Fitted layers by the description of them and those before them."""

    def run(self) -> SearchResult:
        """The best configuration and the default, with their lengthscales, on the last rung."""
        rungs = rungs_of(self.options.search, self.data.signals.domains)
        default = default_configuration(self.options, self.data.signals)
        open_choices = alternatives(self.options, self.data.signals)
        if not open_choices:
            evaluation = self.evaluate(default, len(rungs) - 1, rungs[-1])
            return SearchResult(evaluation, evaluation)
        evaluated, best = self._sweep(default, open_choices, rungs[0])
        for number, rung in enumerate(rungs[1:], 1):
            last = number == len(rungs) - 1
            evaluated = [
                self._evaluate_again(previous, number, rung, reconsidered=last and default.position)
                for previous in _ranked(evaluated, best)[: rungs[number - 1].kept]
            ]
            best = reduce(_better, evaluated)
        return SearchResult(best, evaluated[0])

    def _sweep(
        self, default: Configuration, open_choices: Choices, rung: Rung
    ) -> tuple[list[Evaluation], Evaluation]:
        """Change one choice at a time as long as that helps, twice over.

        All evaluations, the default first, and the best of them.
        """
        best = self.evaluate(default, 0, rung)
        evaluated = {str(best.configuration.describe()): best}
        for sweep in range(SWEEPS):
            if sweep > 0 and is_pooled(best.configuration):
                break  # other choices make no difference to it, and its own would be poor for other models
            for changes in open_choices.values():
                base = best
                for change in changes:
                    configuration = simplified(replace(base.configuration, **change))
                    key = str(configuration.describe())
                    if key not in evaluated:
                        evaluated[key] = self.evaluate(
                            configuration, 0, rung, base.candidate.start, base.candidate.at, decided=True
                        )
                        best = _better(best, evaluated[key])
        return list(evaluated.values()), best

    def _evaluate_again(
        self, previous: Evaluation, number: int, rung: Rung, *, reconsidered: bool
    ) -> Evaluation:
        """Evaluate a configuration on the next rung.

        `reconsidered`: whether position counts is compared again if it did not, because with few inducing
        patches it seems to be worse than it is.
        """
        configuration, candidate = previous.configuration, previous.candidate
        again = reconsidered and not configuration.position and self.options.patch.position == "auto"
        if again:
            configuration = replace(configuration, position=True)
        return self.evaluate(configuration, number, rung, candidate.start, candidate.at, decided=not again)

    def evaluate(
        self,
        configuration: Configuration,
        number: int,
        rung: Rung,
        start: SearchPoint = DEFAULT_START,
        first: SearchPoint = FIRST_OCTAVES,
        *,
        decided: bool = False,
    ) -> Evaluation:
        """Search the lengthscales of a configuration on a rung and record the result.

        `decided`: whether position counts is not compared again.
        """
        began = time.perf_counter()
        vertices = max(float(self.data.signals.vertex_counts.mean()), 1.0)
        rows, scored = self._rows(max(rung.signals, int(min(SMALL_GRAPH_VERTICES / vertices, 600))))
        data = self.data if len(rows) == len(self.data.signals) else self.data.gathered(rows)
        specs = build_term_specs(
            configuration,
            data.signals,
            scored,
            self.options,
            self.vertex_weights,
            self.context,
            rung.patches,
            [
                fit_layers(chain, self.data.signals, self.context.dtype, self.fitted)
                for chain in configuration.layers
            ],
        )
        constant = constant_variance(specs, data.signals) if self.options.method.constant_term else 0.0
        trial = replace(
            self.trial_template,
            data=data,
            n_inducing=min(self.options.inducing_per_scale(len(specs)), rung.inducing),
            constant=constant,
        )
        position: Any = self.options.patch.position
        if decided and position == "auto":
            position = configuration.position
        candidate = search_lengthscales(
            trial,
            specs,
            self.options.kernel.lengthscale,
            position,
            self.context.rng,
            first=first,
            steps=rung.layered_steps if configuration.layers and rung.layered_steps else rung.steps,
            start=start,
            compared=self.options.search is not None,
        )
        configuration = replace(configuration, position="position" in candidate.specs[0].columns)
        evaluation = Evaluation(configuration, candidate, trial, number, time.perf_counter() - began)
        if self.options.search is not None:
            self._record(evaluation, len(rows))
        return evaluation

    def _rows(self, signals: int) -> tuple[Int[np.ndarray, "n"], int]:
        """The trial signals of a rung, those that are scored first, and how many these are."""
        total = len(self.data.signals)
        if signals >= total:
            return np.arange(total), self.scored
        scored = max(1, round(self.scored * signals / total))
        rest = np.arange(self.scored, total) if self.scored < total else np.arange(scored, total)
        return np.concatenate([np.arange(scored), rest[: signals - scored]]), scored

    def _record(self, evaluation: Evaluation, signals: int) -> None:
        candidate = evaluation.candidate
        description = evaluation.configuration.describe()
        description["position"] = "yes" if "position" in candidate.specs[0].columns else "no"
        self.table.rows.append(
            {
                "rung": self.table.rungs + evaluation.rung,
                "signals": signals,
                **self.table.common,
                **description,
                "lengthscale": float(2 ** candidate.at[0]),
                "loss": float(candidate.loss),
                "seconds": evaluation.seconds,
            }
        )
