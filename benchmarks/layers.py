"""The cost of a layer, compared with the matrix products that it cannot avoid.

    python -m benchmarks.layers --json FILE

A layer of 5 × 5 pixels on images of 28 × 28, with a local average and stride 2. The lower bound are the
products of patches with anchors and of averaged kernel values with the whitening matrix, on arrays that fit
the cache. Times are the shortest of several rounds, on one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.fit import one_thread, seconds
from benchmarks.timing import command_line, report
from gcgp import Layer, Signals

SIDE, PATCH_PIXELS, STRIDE = 28, 25, 2


@dataclass(frozen=True)
class LayerTiming:
    """CPU milliseconds per image."""

    layer: float
    products: float
    ratio: float


def main(command: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--anchors", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(command)
    images = Signals.from_images(np.random.default_rng(0).random((options.images, SIDE, SIDE)))
    rows: dict[str, str] = {}
    results: dict[str, Any] = {"images": options.images, "rounds": options.rounds}
    for anchors in options.anchors:
        with one_thread():
            timing = measure_layer(images, anchors, options.rounds)
        results[f"{anchors} anchors"] = asdict(timing)
        rows[f"{anchors} anchors"] = (
            f"{timing.layer:.2f} ms per image, products alone {timing.products:.2f} ms, "
            f"ratio {timing.ratio:.1f}"
        )
    report("A layer on one thread", rows, results, options.json)


def measure_layer(images: Signals, anchors: int, rounds: int) -> LayerTiming:
    """The shortest times over some rounds."""
    layer = Layer(n_anchors=anchors, average=2.0, stride=STRIDE).fit(images)
    vertices, kept = SIDE**2, (SIDE // STRIDE) ** 2
    patches, weights = torch.rand(vertices, PATCH_PIXELS), torch.rand(PATCH_PIXELS, anchors)
    averaged, root = torch.rand(kept, anchors), torch.rand(anchors, anchors)

    def products() -> None:
        for _ in range(len(images)):
            patches @ weights
            averaged @ root

    def shortest(action: Callable[[], Any]) -> float:
        return 1e3 * min(seconds(action)[1] for _ in range(rounds)) / len(images)

    mapped, bound = shortest(lambda: layer.transform(images)), shortest(products)
    return LayerTiming(mapped, bound, mapped / bound)


if __name__ == "__main__":
    main()
