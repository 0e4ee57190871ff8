"""The command `gcgp`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gcgp import __version__

if TYPE_CHECKING:
    from experiments.runs import Settings

TABLE_NAMES = ("mnist", "superpixels", "ablation", "faust", "uncertainty")
"""As in `reproduction.tables`, which takes seconds to import."""
FIGURES = "figures"


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(
        prog="gcgp",
        description="Graph convolutional Gaussian processes for images, graphs and meshes.",
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
    _add_reproduce(commands)
    return top


def _add_reproduce(commands: Any) -> None:
    reproduce = commands.add_parser(
        "reproduce",
        help="make a table of the paper anew",
        description="Make a table of Walker & Glocker (2019) on this machine, beside the paper's own "
        "figures, or (figures) draw its pictures and those of the results. Each run is kept as soon as it is "
        "done: a command that was ended goes on where it was.",
    )
    names = (*TABLE_NAMES, FIGURES)
    reproduce.add_argument("table", choices=names, metavar="TABLE", help=", ".join(names))
    reproduce.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="NAME",
        help="only this model, or picture; may be given again",
    )
    reproduce.add_argument(
        "--per-class",
        type=_positive,
        metavar="N",
        help="learn from N signals of each class, for a quick look; of FAUST: N of a person's ten poses",
    )
    reproduce.add_argument(
        "--seeds",
        type=_positive,
        metavar="S",
        help="draws of training data, or of inducing patches if all are used (default: the table's own)",
    )
    reproduce.add_argument(
        "--inducing", type=_positive, metavar="M", help="inducing patches (default: each model's own)"
    )
    reproduce.add_argument(
        "--vertices", type=_positive, metavar="V", help="only meshes of V vertices (default: 500, 1000, 2500)"
    )
    reproduce.add_argument(
        "--jobs",
        type=_positive,
        metavar="J",
        default=1,
        help="runs at a time, each with its share of the cores (default: %(default)s)",
    )
    reproduce.add_argument(
        "--data", metavar="DIR", help="folder of the data (default: the environment variable GCGP_DATA)"
    )
    reproduce.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        default=Path("results"),
        help="folder of results, and of pictures in its subfolder figures (default: %(default)s)",
    )
    reproduce.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="where this table is kept, and found again (default: TABLE.json in the folder of results)",
    )
    reproduce.add_argument(
        "--report", type=Path, metavar="FILE", help="write all that the folder holds to FILE as Markdown"
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parser().parse_args(arguments)
    if options.command == "reproduce":
        if not options.results.parent.is_dir():
            parser().error(f"{options.results}: the folder {options.results.parent} does not exist")
        options.results.mkdir(exist_ok=True)
        options.json = options.json or options.results / f"{options.table}.json"
    for path in (options.json, getattr(options, "picture", None), getattr(options, "report", None)):
        if path is not None and not path.parent.is_dir():
            parser().error(f"{path}: the folder {path.parent} does not exist")
    from gcgp._runtime.processes import RankLost

    try:
        (_reproduce if options.command == "reproduce" else _demo)(options)
    except (ImportError, ValueError, OSError, RuntimeError, RankLost) as error:
        print(f"gcgp: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("gcgp: interrupted", file=sys.stderr)
        return 130
    return 0


def _demo(options: argparse.Namespace) -> None:
    from experiments.demo import run_demo, table

    report = run_demo(options.seed, options.json, options.picture)
    if report is not None:
        print(table(report))
        print(f"  picture: {options.picture}")


def _reproduce(options: argparse.Namespace) -> None:
    from experiments.reporting import report_of
    from experiments.runs import Settings
    from gcgp._runtime.atomic import atomic_write

    settings = Settings(options.data, options.per_class, options.inducing, options.vertices)
    if options.table == FIGURES:
        from experiments.figures import draw_all

        for path in draw_all(options.model, settings, options.results):
            print(f"  {path} and .svg")
    else:
        _make_table(options, settings)
    if options.report is not None:
        with atomic_write(options.report) as part:
            part.write_text(report_of(options.results, options.report.parent))


def _make_table(options: argparse.Namespace, settings: Settings) -> None:
    from experiments.reporting import as_text
    from experiments.runs import Results, carry_out
    from experiments.tables import TABLES, carry_out_one

    runs = TABLES[options.table].runs(options.table, options.model, options.seeds, settings)
    results = Results(options.json, options.table, settings, options.jobs)
    carry_out(runs, results, carry_out_one, jobs=options.jobs)
    print(as_text(results.content))
    print(f"  results: {options.json}")
