"""Kfu of an RBF kernel, compared with its parts: matrix product, exponential and sum of blocks in cache.

python -m benchmarks.kernel_sums --json FILE
"""

from __future__ import annotations

import torch
from gpytorch.kernels import RBFKernel

from benchmarks.timing import best_seconds, command_line, report
from gcgp.kernel import sums
from gcgp.patches import Patches


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--signals", type=int, default=32)
    parser.add_argument("--vertices", type=int, default=784)
    parser.add_argument("--dim", type=int, default=24)
    parser.add_argument("--inducing", type=int, default=750)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    total = options.signals * options.vertices
    values = torch.randn(total, options.dim, generator=generator)
    inducing = torch.randn(options.inducing, options.dim, generator=generator)
    offsets = torch.arange(0, total + 1, options.vertices)
    patches = Patches(values, torch.ones(total), offsets, torch.arange(total))
    kernel = RBFKernel().requires_grad_(False)
    kernel.lengthscale = 5.0

    rows = 3 * 2**17 // options.inducing
    starts = range(0, total, rows)
    exponents = torch.full((rows, options.inducing), -1.0)
    block = torch.empty(rows, options.inducing)
    transposed = inducing.T.contiguous()

    def product() -> None:
        for start in starts:
            part = values[start : start + rows]
            torch.mm(part, transposed, out=block[: len(part)])

    def exponential() -> None:
        for start in starts:
            count = min(rows, total - start)
            torch.exp(exponents[:count], out=block[:count])

    def summation() -> None:
        for start in starts:
            block[: min(rows, total - start)].sum(dim=0)

    def bare_loop() -> None:
        for start in starts:
            part = values[start : start + rows]
            torch.mm(part, transposed, out=block[: len(part)]).exp_().sum(dim=0)

    best = best_seconds(
        {
            "Kfu": lambda: sums.kfu(kernel, patches, inducing),
            "matrix product": product,
            "exponential": exponential,
            "sum": summation,
            "the three in one loop": bare_loop,
        },
        options.rounds,
    )
    evaluations = total * options.inducing
    parts = best["matrix product"] + best["exponential"] + best["sum"]
    results = {
        "ratio_to_parts": best["Kfu"] / parts,
        "ratio_to_loop": best["Kfu"] / best["the three in one loop"],
        "nanoseconds_per_evaluation": {name: 1e9 * s / evaluations for name, s in best.items()},
        "threads": torch.get_num_threads(),
    }
    lines = {f"{name}, ns per evaluation": f"{1e9 * s / evaluations:.3f}" for name, s in best.items()}
    lines["Kfu / sum of the parts"] = f"{results['ratio_to_parts']:.2f}"
    lines["Kfu / the three in one loop"] = f"{results['ratio_to_loop']:.2f}"
    title = f"Kfu: {options.signals} signals × {options.vertices} vertices × {options.inducing} inducing"
    report(f"{title}, {options.dim} dimensions, float32", lines, results, options.json)


if __name__ == "__main__":
    main()
