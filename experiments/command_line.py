"""The command line: `python -m experiments TABLE`, `figures` or `demo`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gcgp import __version__

TABLE_DESCRIPTIONS = {
    "mnist": "MNIST images",
    "superpixels": "MNIST as superpixel graphs",
    "ablation": "superpixel graphs, few training digits",
    "faust": "identification of persons by their meshes",
    "uncertainty": "rejection and out-of-distribution detection on MNIST",
    "few-labels": "images and meshes with few labels",
    "graphs": "molecules and proteins, ten folds",
}
"""As in `experiments.tables`, which takes seconds to import."""
TABLES_OF_SUPERPIXELS = ("superpixels", "ablation")


def build_parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="The tables and figures of Walker & Glocker (2019), and a demo.",
    )
    parser.add_argument("--version", action="version", version=f"gcgp {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    options = _table_options()
    for name, description in TABLE_DESCRIPTIONS.items():
        table = commands.add_parser(
            name,
            help=f"table: {description}",
            description=f"Table: {description}, with the errors that the paper reports. Each run is saved "
            "when it finishes; an interrupted command resumes and skips finished runs.",
            parents=[options],
        )
        if name in TABLES_OF_SUPERPIXELS:
            table.add_argument(
                "--graphs",
                metavar="DIR",
                help="folder of PyG's MNISTSuperpixels, whose graphs are used instead of superpixels made "
                "from MNIST; only these results are comparable with other publications",
            )
    commands.add_parser(
        "figures",
        help="all figures",
        description="Figures of the paper and of results, as PNG and SVG.",
        parents=[options],
    )
    demo = commands.add_parser(
        "demo",
        help="classify real digits as superpixel graphs",
        description="Fit a classifier to 4,000 real digits as graphs of 75 superpixels, test it on 1,000 "
        "others, print the scores, and plot some digits with the evidence of each vertex. With several "
        "processes: torchrun --nproc-per-node 2 -m experiments demo.",
    )
    demo.add_argument("--json", type=Path, metavar="FILE", help="write the scores to FILE as JSON")
    demo.add_argument(
        "--picture",
        type=Path,
        metavar="FILE",
        default=Path("demo.png"),
        help="file of the plot (default: %(default)s)",
    )
    demo.add_argument(
        "--seed", type=int, default=0, help="seed of the split and the model (default: %(default)s)"
    )
    return parser


def _table_options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="NAME",
        help="only this model, or this figure; may be repeated",
    )
    parser.add_argument(
        "--per-class",
        type=_positive_integer,
        metavar="N",
        help="train on N signals per class, for a quick look; FAUST: on N of the ten poses of a person",
    )
    parser.add_argument(
        "--seeds",
        type=_positive_integer,
        metavar="S",
        help="number of draws of training data, or of inducing patches if all data are used "
        "(default: depends on the table)",
    )
    parser.add_argument(
        "--inducing", type=_positive_integer, metavar="M", help="inducing patches (default: of each model)"
    )
    parser.add_argument(
        "--vertices", type=_positive_integer, metavar="V", help="vertices per mesh (default: 500, 1000, 2500)"
    )
    parser.add_argument(
        "--jobs",
        type=_positive_integer,
        metavar="J",
        default=1,
        help="runs at a time, which share the cores (default: %(default)s)",
    )
    parser.add_argument("--data", metavar="DIR", help="data folder (default: environment variable GCGP_DATA)")
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        default=Path("results"),
        help="folder of results, with figures in its subfolder figures (default: %(default)s)",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="results file (default: TABLE.json in the folder of results)",
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write all results of the folder to FILE as Markdown"
    )
    return parser


def _positive_integer(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    if options.command != "demo":
        if not options.results.parent.is_dir():
            parser.error(f"{options.results}: the folder {options.results.parent} does not exist")
        options.results.mkdir(exist_ok=True)
        options.json = options.json or options.results / f"{options.command}.json"
    for path in (options.json, getattr(options, "picture", None), getattr(options, "report", None)):
        if path is not None and not path.parent.is_dir():
            parser.error(f"{path}: the folder {path.parent} does not exist")
    try:
        (_run_demo if options.command == "demo" else _run_experiment)(options)
    except (ImportError, ValueError, OSError, RuntimeError) as error:
        print(f"experiments: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("experiments: interrupted", file=sys.stderr)
        return 130
    return 0


def _run_demo(options: argparse.Namespace) -> None:
    from experiments.demo import format_report, run_demo

    report = run_demo(options.seed, options.json, options.picture)
    if report is not None:
        print(format_report(report))
        print(f"  picture: {options.picture}")


def _run_experiment(options: argparse.Namespace) -> None:
    from experiments.reporting import as_text, folder_report
    from experiments.runs import Results, Settings, execute
    from experiments.tables import TABLES, evaluate
    from gcgp._runtime.atomic import atomic_write

    graphs = getattr(options, "graphs", None)
    settings = Settings(options.data, options.per_class, options.inducing, options.vertices, graphs)
    if options.command == "figures":
        from experiments.figures import draw_figures

        for path in draw_figures(options.model, settings, options.results):
            print(f"  {path} and .svg")
    else:
        runs = TABLES[options.command].runs(options.command, options.model, options.seeds, settings)
        results = Results(options.json, options.command, settings, options.jobs)
        execute(runs, results, evaluate, jobs=options.jobs)
        print(as_text(results.content))
        print(f"  results: {options.json}")
    if options.report is not None:
        with atomic_write(options.report) as part:
            part.write_text(folder_report(options.results, options.report.parent))
