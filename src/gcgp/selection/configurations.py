"""Configurations: the structure of a model, and which structures are compared on which kind of domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gpytorch.kernels import Kernel

from gcgp.domain import Domains, Signals
from gcgp.domain.base import chart_kind
from gcgp.selection.layers import candidate_layers, head_weightings
from gcgp.selection.options import Chain, ModelOptions, Patch
from gcgp.selection.weightings import candidate_weightings, resolve_weightings
from gcgp.weighting import Weighting

MIN_CHANNEL_RATIO = 1.5
"""Channels are scaled only if the spread of one is this many times that of another."""
CANDIDATE_KERNELS = {"fast": ("rbf", "matern12"), "thorough": ("rbf", "matern12", "matern32", "matern52")}

Choices = Mapping[str, Sequence[Mapping[str, Any]]]
"""For each choice by name, changes of fields of a configuration."""


@dataclass(frozen=True)
class Configuration:
    """All choices that define the terms of a model but lengthscales and inducing patches."""

    weightings: tuple[Weighting, ...]
    charts: tuple[str, ...]
    """One per weighting."""
    bin_counts: bool
    position: bool
    area_weighted: bool
    scale_channels: bool
    kernel: str | Kernel
    aggregate: str
    layers: tuple[Chain, ...] = ()
    """Layers before each weighting; empty: none."""

    def describe(self) -> dict[str, str]:
        """The choices as text, by name."""
        names = {
            "weighting": " + ".join(map(repr, self.weightings)),
            "chart": " + ".join(dict.fromkeys(self.charts)),
            "kernel": self.kernel if isinstance(self.kernel, str) else type(self.kernel).__name__,
            "aggregate": self.aggregate,
        }
        if self.layers:
            names["layers"] = " + ".join(" → ".join(map(repr, chain)) or "none" for chain in self.layers)
        flags = ("position", "bin_counts", "scale_channels")
        return names | {name: "yes" if getattr(self, name) else "no" for name in flags}


def is_pooled(configuration: Configuration) -> bool:
    """Whether all terms have one patch per signal."""
    chains = configuration.layers
    return bool(chains) and all(any(layer.pool for layer in chain) for chain in chains)


def simplified(configuration: Configuration) -> Configuration:
    """The same model, without choices that make no difference to it."""
    layers = configuration.layers
    if is_pooled(configuration):
        configuration = replace(
            configuration, bin_counts=False, position=False, area_weighted=False, aggregate="mean"
        )
    if layers and all(layers):
        configuration = replace(configuration, scale_channels=False)
    return configuration


def default_configuration(options: ModelOptions, signals: Signals) -> Configuration:
    """What is used without a search: defaults that suit the domains for what the user left open."""
    domains, patch = signals.domains, options.patch
    tunable = isinstance(options.kernel.kind, str)
    has_positions, has_areas = domains.position_dimensions > 0, domains.measure is not None
    chart = chart_kind(domains, options.chart)  # the same for all signals to predict
    weightings = tuple(resolve_weightings(options.weighting, domains, chart))
    if options.layers and _weighting_is_open(options):
        weightings = tuple(_head_weighting(chain, domains, chart, options) for chain in options.layers)
    elif options.search is not None and _weighting_is_open(options) and domains.one_chart:
        weightings = candidate_weightings(domains, chart, options.search)[0]
    weightings, chains = _matched(weightings, options.layers or ())
    kernel = options.kernel.kind
    if _is_auto(kernel):
        # Labels of vertices are often categorical: patches are then counts, and few of them are close.
        categorical = options.search is not None and not has_positions and not has_areas
        kernel = "matern12" if categorical else "rbf"
    configuration = Configuration(
        weightings,
        (chart,) * len(weightings),
        _resolved(patch.bin_counts, not has_positions and not has_areas and tunable),
        _resolved(patch.position, has_positions and tunable),
        _resolved(patch.area_weighted, has_areas),
        _resolved(patch.scale_channels, False),
        kernel,
        "mean" if options.aggregate.kind == "auto" else options.aggregate.kind,
        chains,
    )
    if is_pooled(configuration):
        _check_pooled(patch)
    return simplified(configuration)


def _head_weighting(chain: Chain, domains: Domains, chart: str, options: ModelOptions) -> Weighting:
    """The default weighting after these layers."""
    search = options.search or "fast"
    heads = head_weightings(domains, chart, search) if chain else candidate_weightings(domains, chart, search)
    return heads[0][0]


def _matched(
    weightings: tuple[Weighting, ...], chains: tuple[Chain, ...]
) -> tuple[tuple[Weighting, ...], tuple[Chain, ...]]:
    """One weighting and one chain of layers per term; a single one serves all terms."""
    if not chains or len(chains) == len(weightings):
        return weightings, chains
    if len(chains) == 1:
        return weightings, chains * len(weightings)
    if len(weightings) == 1:
        return weightings * len(chains), chains
    raise ValueError(f"layers: {len(chains)} lists of layers, but weighting has {len(weightings)} items")


def _check_pooled(patch: Patch) -> None:
    """Raise a ValueError that names what the user wants to be part of patches, if no vertices are left."""
    for name in ("position", "bin_counts"):
        value = getattr(patch, name)
        if _is_wanted(value):
            raise ValueError(
                f"patch: {name}={value!r}, but the layers pool all vertices of a signal into one"
            )


def _is_wanted(option: Any) -> bool:
    return not isinstance(option, str) and bool(option)


def alternatives(options: ModelOptions, signals: Signals) -> Choices:
    """For each choice that the user left open, the changes of a configuration that are compared.

    The order is that of the search. `position` is not among them: it is compared with the lengthscales.
    """
    domains, search = signals.domains, options.search
    if search is None:
        return {}
    result: dict[str, list[dict[str, Any]]] = {}
    tunable = isinstance(options.kernel.kind, str)
    if options.patch.scale_channels == "auto" and tunable and _spreads_differ(signals):
        result["scale_channels"] = [{"scale_channels": flag} for flag in (False, True)]
    if options.aggregate.kind == "auto" and np.ptp(signals.vertex_counts) > 0:
        result["aggregate"] = [{"aggregate": kind} for kind in ("mean", "sum")]
    if _weighting_is_open(options) and _heads_differ(options.layers):
        result["weighting"] = _weighting_changes(options, domains, search)
    # On images an RBF kernel is rarely far from the best, and Matérn kernels take several times as long.
    if options.kernel.kind == "auto" and (search == "thorough" or not domains.one_chart):
        result["kernel"] = [{"kernel": kind} for kind in CANDIDATE_KERNELS[search]]
    if options.patch.bin_counts == "auto" and tunable and not domains.one_chart:
        result["bin_counts"] = [{"bin_counts": flag} for flag in (False, True)]
    return result


def _weighting_changes(options: ModelOptions, domains: Domains, search: str) -> list[dict[str, Any]]:
    """Weightings, with the chart and the layers of each."""
    kinds = domains.chart_kinds if options.chart == "auto" else (chart_kind(domains, options.chart),)
    if domains.costly_charts and search == "fast":
        kinds = kinds[:1]
    chain = options.layers[0] if options.layers else ()
    weightings = head_weightings if chain else candidate_weightings
    changes = [
        {
            "weightings": scales,
            "charts": (kind,) * len(scales),
            "layers": (chain,) * len(scales) if chain else (),
        }
        for kind in kinds
        for scales in weightings(domains, kind, search)
    ]
    if {"euclidean", "hops"} <= set(kinds) and not chain:
        # A sum of kernels, one of coordinates and one of edges.
        parts = [(kind, candidate_weightings(domains, kind, search)[0]) for kind in ("euclidean", "hops")]
        changes.append(
            {
                "weightings": tuple(weighting for _, scales in parts for weighting in scales),
                "charts": tuple(kind for kind, scales in parts for _ in scales),
                "layers": (),
            }
        )
    if options.layers is None:
        vertices_matter = _is_wanted(options.patch.position) or _is_wanted(options.patch.bin_counts)
        for terms in candidate_layers(domains, kinds[0], search):
            if vertices_matter and any(layer.pool for _, layers in terms for layer in layers):
                continue
            changes.append(
                {
                    "weightings": tuple(weighting for weighting, _ in terms),
                    "charts": (kinds[0],) * len(terms),
                    "layers": tuple(layers for _, layers in terms),
                }
            )
    return changes


def _heads_differ(chains: tuple[Chain, ...] | None) -> bool:
    """Whether weightings are compared: without layers, or after one chain of them that leaves vertices."""
    return not chains or (len(chains) == 1 and not any(layer.pool for layer in chains[0]))


def _spreads_differ(signals: Signals) -> bool:
    spread = signals.values.std(axis=0, dtype=np.float64)
    spread = spread[spread > 0]
    return len(spread) > 1 and float(spread.max()) > MIN_CHANNEL_RATIO * float(spread.min())


def _weighting_is_open(options: ModelOptions) -> bool:
    """Whether weightings are compared: not with vertex weights, for which every vertex needs a patch."""
    return _is_auto(options.weighting) and options.aggregate.vertex_weights is None


def _is_auto(option: Any) -> bool:
    return isinstance(option, str) and option == "auto"


def _resolved(option: Any, default: bool) -> bool:
    return default if isinstance(option, str) else bool(option)
