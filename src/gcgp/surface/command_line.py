"""The command `gcgp`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gcgp import __version__


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(
        prog="gcgp",
        description="Graph convolutional Gaussian processes for images and graphs.",
    )
    top.add_argument("--version", action="version", version=f"gcgp {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="classify real digits as superpixel graphs",
        description="Fit a classifier to 4,000 real digits as graphs of 75 superpixels, test it on 1,000 "
        "others, print the scores, and draw some digits with the evidence of each vertex. Under torchrun "
        "(torchrun --nproc-per-node 2 -m gcgp demo) several processes learn together.",
    )
    demo.add_argument("--json", type=Path, metavar="FILE", help="write the scores to FILE as JSON")
    demo.add_argument(
        "--picture",
        type=Path,
        metavar="FILE",
        default=Path("demo.png"),
        help="where the picture goes (default: %(default)s)",
    )
    demo.add_argument(
        "--seed", type=int, default=0, help="seed of the split and the model (default: %(default)s)"
    )
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parser().parse_args(arguments)
    for path in (options.json, options.picture):
        if path is not None and not path.parent.is_dir():
            parser().error(f"{path}: the folder {path.parent} does not exist")
    from gcgp.inference.ranks import RankLost
    from gcgp.surface.demo import run_demo, table

    try:
        report = run_demo(options.seed, options.json, options.picture)
    except (ImportError, ValueError, OSError, RankLost) as error:
        print(f"gcgp: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("gcgp: interrupted", file=sys.stderr)
        return 130
    if report is not None:
        print(table(report))
        print(f"  picture: {options.picture}")
    return 0
