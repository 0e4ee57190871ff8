"""k(ψ, ψ) of signals with many vertices, compared with the plain double sum in torch.

    python -m benchmarks.diagonal --json FILE

The plain double sum is the sum of exp(−½ d²) over the matrix of distances d between the patches of a signal.
Errors are relative to the double sum in float64.
"""

from __future__ import annotations

import numpy as np
import torch
from gpytorch.kernels import RBFKernel

from benchmarks.timing import best_seconds, command_line, report
from gcgp.kernel import sums
from gcgp.patches import Patches


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--signals", type=int, default=8)
    parser.add_argument("--vertices", type=int, default=2500)
    parser.add_argument("--dim", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    values = smooth_patches(options.signals, options.vertices, options.dim)
    total = len(values)
    offsets = torch.arange(0, total + 1, options.vertices)
    patches = Patches(values, torch.ones(total), offsets, torch.arange(total))
    kernel = RBFKernel().requires_grad_(False)
    kernel.lengthscale = float(np.sqrt(options.dim) / 2)

    def plain(x: torch.Tensor) -> torch.Tensor:
        parts = (x / kernel.lengthscale.to(x.dtype)).split(options.vertices)
        return torch.stack([torch.cdist(z, z).square_().mul_(-0.5).exp_().sum() for z in parts])

    contestants = {"plain": lambda: plain(values), "ours": lambda: sums.kff_diagonal(kernel, patches)}
    exact = plain(values.double())
    best = best_seconds(contestants, options.rounds)
    errors = {name: float((run().double() / exact - 1).abs().max()) for name, run in contestants.items()}
    results = {
        "speedup": best["plain"] / best["ours"],
        "error": errors["ours"],
        "error_plain": errors["plain"],
        "seconds": best,
        "threads": torch.get_num_threads(),
    }
    rows = {
        name: f"{1e3 * best[name] / options.signals:8.2f} ms per signal, relative error {errors[name]:.1e}"
        for name in best
    }
    rows["speedup"] = f"{results['speedup']:.1f} ×"
    title = f"Diagonal: {options.signals} signals of {options.vertices} vertices, {options.dim} dimensions"
    report(title, rows, results, options.json)


def smooth_patches(signals: int, vertices: int, dim: int) -> torch.Tensor:
    """Patches along random curves: neighbors are similar, as in real signals."""
    generator = torch.Generator().manual_seed(0)
    along = torch.linspace(0, 2 * np.pi, vertices)
    waves = torch.stack([wave(k * along) for k in range(1, 6) for wave in (torch.sin, torch.cos)], dim=1)
    mixing = torch.randn(signals, waves.shape[1], dim, generator=generator) / np.sqrt(waves.shape[1] / 2)
    return (waves @ mixing).reshape(-1, dim).contiguous()


if __name__ == "__main__":
    main()
