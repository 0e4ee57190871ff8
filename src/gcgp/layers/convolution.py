"""Patches of the result of layers: the convolution of a hierarchical model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.domain import Signals
from gcgp.layers.fitted import FittedLayer
from gcgp.patches import Convolution, Patches


@dataclass(frozen=True)
class LayeredConvolution(Convolution):
    """Layers, then a convolution of their result.

    Layers are computed again for each run of signals, so that their results are never stored. A patch belongs
    to the vertex at its center, of those that the strides keep.
    """

    layers: tuple[FittedLayer, ...] = ()

    @property
    def head(self) -> Convolution:
        """The convolution of the result of the layers."""
        return Convolution(**{field.name: getattr(self, field.name) for field in fields(Convolution)})

    @property
    def chart_kinds(self) -> list[str]:
        """See `Convolution`: also those of the layers."""
        return [*(layer.convolution.chart for layer in self.layers), self.chart]

    def columns(self, signals: Signals) -> dict[str, slice]:
        """See `Convolution`; the channels are those of the last layer."""
        return self.head.columns(self._outline(signals))

    def patch_domains(self, signals: Signals) -> Signals:
        """See `Convolution`: without the vertices that strides leave out."""
        return self._coarse(signals)[0]

    def empty_patches(self, signals: Signals) -> Patches:
        """See `Convolution`; vertices are those of the given signals."""
        coarse, kept = self._coarse(signals)
        return replace(self.head.empty_patches(coarse), vertices=torch.from_numpy(kept))

    def patches(
        self,
        signals: Signals,
        chart: Any = None,
        at: Patches | None = None,
        values: Float[Tensor, "total_vertices channels"] | None = None,
    ) -> Patches:
        """See `Convolution`; `chart` is what `make_chart` returns. Layers are differentiable, too."""
        *charts, head_chart = chart or [None] * (len(self.layers) + 1)
        _, kept = self._coarse(signals)
        if at is not None:
            rows = torch.from_numpy(np.searchsorted(kept, at.vertices.numpy()))
            at = replace(at, vertices=rows)
        if values is None:
            values = torch.tensor(signals.values, dtype=self.dtype)
        for layer, layer_charts in zip(self.layers, charts, strict=True):
            values = layer.features(signals, values, layer_charts)
            signals, _ = layer.coarse(signals)
        patches = self.head.patches(signals, head_chart, at, values)
        return replace(patches, vertices=torch.from_numpy(kept)[patches.vertices])

    @property
    def pooled(self) -> bool:
        """See `Convolution`."""
        return any(layer.pool is not None for layer in self.layers)

    @property
    def fixed_vertices(self) -> bool:
        """See `Convolution`."""
        return super().fixed_vertices or any(layer.pool in ("flatten", "grid") for layer in self.layers)

    def make_chart(self, signals: Signals, vertices: Int[np.ndarray, "chosen"] | None = None) -> Any:
        """The charts of all layers, and that of the convolution of their result."""
        charts: list[Any] = []
        if vertices is not None:
            vertices = np.searchsorted(self._coarse(signals)[1], vertices)
        for layer in self.layers:
            charts.append(layer.charts(signals))
            signals, _ = layer.coarse(signals)
        return [*charts, self.head.make_chart(signals, vertices)]

    def prepare(self, signals: Signals) -> None:
        """See `Convolution`."""
        for layer in self.layers:
            layer.convolution.prepare(signals)
            signals, _ = layer.coarse(signals)
        self.head.prepare(signals)

    def bytes_per_signal(self, signals: Signals) -> Float[np.ndarray, "signals"]:
        """Approximate memory for the layers and patches of each signal."""
        outline, cost = signals, np.zeros(len(signals))
        for layer in self.layers:
            cost += layer.bytes_per_signal(outline)
            outline = _with_channels(layer.coarse(outline)[0], layer.channels)
        return cost + self.head.bytes_per_signal(outline)

    def _outline(self, signals: Signals) -> Signals:
        """The result of the layers without its values."""
        return _with_channels(self._coarse(signals)[0], self.layers[-1].channels)

    def _coarse(self, signals: Signals) -> tuple[Signals, Int[np.ndarray, "kept"]]:
        """The domains of the result of the layers, and which vertices of the signals these are."""
        vertices = np.arange(len(signals.values))
        for layer in self.layers:
            signals, kept = layer.coarse(signals)
            vertices = vertices[kept]
        return signals, vertices


def layered(convolution: Convolution, layers: Sequence[FittedLayer]) -> Convolution:
    """The convolution of the result of layers; the given one if there are none."""
    if not layers:
        return convolution
    arguments = {field.name: getattr(convolution, field.name) for field in fields(Convolution)}
    return LayeredConvolution(**arguments, layers=tuple(layers))


def _with_channels(signals: Signals, channels: int) -> Signals:
    """Zero signals with this number of channels on the same domains; a broadcast view, without memory."""
    zeros = np.broadcast_to(np.zeros(1, dtype=np.float32), (int(signals.offsets[-1]), channels))
    return replace(signals, values=zeros)
