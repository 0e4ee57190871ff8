"""k(ψ, ψ) of signals of many vertices: ours, exact and sampled, against the plain double sum in torch.

    python -m benchmarks.diagonal --json FILE

The plain way makes the matrix of squared distances of a signal's patches, takes exponentials and sums. Errors
are relative to the double sum in float64. The sampled estimate, which training uses, draws `--draws` patches
of each signal; its error is that of the sum over all signals, which is what a bound sees.
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
    parser.add_argument("--draws", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    values = smooth_patches(options.signals, options.vertices, options.dim)
    total = len(values)
    offsets = torch.arange(0, total + 1, options.vertices)
    patches = Patches(values, torch.ones(total), offsets, torch.arange(total))
    kernel = RBFKernel().requires_grad_(False)
    kernel.lengthscale = float(np.sqrt(options.dim) / 2)

    def plain(x: torch.Tensor) -> torch.Tensor:
        scaled = x / kernel.lengthscale.to(x.dtype)
        parts = scaled.split(options.vertices)
        return torch.stack([torch.cdist(own, own).square_().mul_(-0.5).exp_().sum() for own in parts])

    exact = plain(values.double())
    best = best_seconds(
        {
            "plain": lambda: plain(values),
            "ours": lambda: sums.kff_diagonal(kernel, patches),
            "sampled": lambda: sums.kff_diagonal(kernel, patches, draws=options.draws),
        },
        options.rounds,
    )
    sampled = sums.kff_diagonal(kernel, patches, draws=options.draws).double()
    errors = {
        "plain": float((plain(values).double() / exact - 1).abs().max()),
        "ours": float((sums.kff_diagonal(kernel, patches).double() / exact - 1).abs().max()),
        "sampled": float((sampled.sum() / exact.sum() - 1).abs()),
    }
    results = {
        "speedup": best["plain"] / best["ours"],
        "speedup_sampled": best["plain"] / best["sampled"],
        "error": errors["ours"],
        "error_plain": errors["plain"],
        "error_sampled": errors["sampled"],
        "error_sampled_of_one_signal": float((sampled / exact - 1).square().mean().sqrt()),
        "seconds": best,
        "threads": torch.get_num_threads(),
    }
    rows = {
        name: f"{1e3 * best[name] / options.signals:8.2f} ms a signal, relative error {errors[name]:.1e}"
        for name in best
    }
    rows["ours against plain"] = f"{results['speedup']:.1f} ×"
    rows["sampled against plain"] = f"{results['speedup_sampled']:.1f} ×"
    title = (
        f"The diagonal: {options.signals} signals of {options.vertices} vertices, {options.dim} dimensions"
    )
    report(title, rows, results, options.json)


def smooth_patches(signals: int, vertices: int, dim: int) -> torch.Tensor:
    """Patches along random curves, so that neighbors are alike, as those of real signals are."""
    generator = torch.Generator().manual_seed(0)
    along = torch.linspace(0, 2 * np.pi, vertices)
    waves = torch.stack([wave(k * along) for k in range(1, 6) for wave in (torch.sin, torch.cos)], dim=1)
    mixing = torch.randn(signals, waves.shape[1], dim, generator=generator) / np.sqrt(waves.shape[1] / 2)
    return (waves @ mixing).reshape(-1, dim).contiguous()


if __name__ == "__main__":
    main()
