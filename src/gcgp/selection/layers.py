"""Layers and the weightings after them that are compared, derived from the kind of domain."""

from __future__ import annotations

from typing import Any

from gcgp.domain import Domains
from gcgp.layers import Layer
from gcgp.selection.weightings import DEFAULT_ANGLES, candidate_weightings, spacing
from gcgp.weighting import Box, Polar, Radial, Weighting

SINGLE_VERTEX_WIDTH = 0.1
"""Width of a bin at radius 0, relative to the spacing, in which neighbors do not count."""
PATCH_SCALE = 0.8
"""Radii of a layer relative to those of a flat model: the local average enlarges the neighborhood."""
SMALL_IMAGE = 16
"""Images of fewer pixels per side have smaller patches and no strides."""

LayeredTerms = tuple[tuple[Weighting, tuple[Layer, ...]], ...]
"""For each term, a weighting and the layers before it."""


def head_weightings(domains: Domains, chart: str, search: str) -> list[tuple[Weighting, ...]]:
    """The weightings that are compared after layers: the vertex alone, and its neighbors.

    Their distances are those of the domains that strides have left.
    """
    if domains.one_chart and domains.offers("offset"):
        sides = (1, 3) if search == "fast" else (1, 3, 5)
        return [(Box(side, inside=side == 1),) for side in sides]
    others = candidate_weightings(domains, chart, search)
    return [(single_vertex(domains, chart),), *others[: None if search == "thorough" else 1]]


def single_vertex(domains: Domains, chart: str) -> Weighting:
    """A weighting with one bin that holds the vertex itself."""
    if domains.one_chart and domains.offers("offset"):
        return Box(1)
    return Radial([0.0], SINGLE_VERTEX_WIDTH * spacing(domains, chart))


def candidate_layers(domains: Domains, chart: str, search: str) -> list[LayeredTerms]:
    """The hierarchical models that are compared with flat ones.

    Images of one size: a function of the whole result of one layer, and its sum with one of the result of two
    layers. Images of several sizes: 5 × 5 pixels, averaged over about 5 × 5, with stride 2. Domains with
    two-dimensional coordinates: polar bins, then a function of the sums in the cells of a grid. Others:
    neighborhoods of vertices as sharp patterns (a soft Weisfeiler–Lehman step), a sum of terms of up to two
    such steps, and functions of the sum or mean of the patterns of two or three steps. A thorough search adds
    fewer layers or more angles, and sums over vertices.
    """
    single = single_vertex(domains, chart)
    if domains.one_chart and domains.offers("offset"):
        return [tuple((single, chain) for chain in chains) for chains in _image_layers(domains, search)]
    if domains.position_dimensions == 2 and chart == "euclidean":
        return [((single, (layer,)),) for layer in _planar_layers(domains, chart, search)]
    distance = spacing(domains, chart)

    def pattern(n_anchors: int = 256, *, skip: bool = False, pool: str | None = None) -> Layer:
        return Layer(
            Radial([0.0, distance], distance / 2, normalize=False),
            n_anchors=n_anchors,
            kernel="rbf",
            lengthscale=0.25,
            chart=chart,
            skip=skip,
            pool=pool,
        )

    near = Radial([0.0, distance], distance / 2)
    steps: LayeredTerms = ((single, ()), (single, (pattern(),)), (single, (pattern(), pattern())))
    whole: list[LayeredTerms] = [
        ((single, (*[pattern(1_024, skip=True)] * (depth - 1), pattern(1_024, skip=True, pool=pool))),)
        for depth, pool in ((2, "sum"), (3, "sum"), (2, "mean"))
    ]
    return [((near, (pattern(),)),), steps, *whole]


def _planar_layers(domains: Domains, chart: str, search: str) -> list[Layer]:
    radii = [PATCH_SCALE * radius for radius in domains.default_radii(3)[0]]
    width = (radii[1] - radii[0]) / 2

    def polar(n_anchors: int, lengthscale: float, angles: int = DEFAULT_ANGLES, **options: Any) -> Layer:
        bins = Polar(radii, angles, width)
        return Layer(bins, n_anchors=n_anchors, lengthscale=lengthscale, chart=chart, **options)

    layers = [polar(512, 0.4, pool="grid", normalized=True)]
    if search == "thorough":
        layers += [
            polar(512, 0.4, 3 * DEFAULT_ANGLES // 2, pool="grid", normalized=True),
            polar(256, 0.5),
            polar(256, 0.5, average=domains.spacing()),
        ]
    return layers


def _image_layers(domains: Domains, search: str) -> list[tuple[tuple[Layer, ...], ...]]:
    """The chains of layers of each model, one per term."""
    whole = len(domains) == 1
    if domains.extent() < SMALL_IMAGE:
        local = Layer(Box(3, inside=False), n_anchors=64, average=1.0)
        side_by_side = Layer(Box(3, inside=False), n_anchors=64, average=1.0, pool="flatten", normalized=True)
        return [((local,),), *([((side_by_side,),)] if whole else [])]
    local = Layer(n_anchors=128, average=2.0, stride=2)
    larger = Layer(Box(7, inside=False), n_anchors=128, average=2.0, stride=2)
    if not whole:
        return [((local,),)] if search == "fast" else [((local,),), ((larger,),)]
    one = Layer(n_anchors=256, lengthscale=0.4, average=3.5, stride=4, pool="flatten", normalized=True)
    first = Layer(n_anchors=64, average=1.0, stride=2)
    second = Layer(
        Box(3, inside=False),
        n_anchors=256,
        lengthscale=0.5,
        average=2.0,
        stride=3,
        skip=True,
        pool="flatten",
        normalized=True,
    )
    models: list[tuple[tuple[Layer, ...], ...]] = [((one,),), ((one,), (first, second))]
    if search == "thorough":
        models += [((first, second),), ((local,),), ((larger,),)]
    return models
