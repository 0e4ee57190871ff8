"""Tables of results as text for a terminal and as Markdown."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from experiments.runs import FORMAT
from experiments.tables import TABLES

SHARED_FIELDS = ("settings", "gcgp", "torch", "python", "cores")
"""What results must share to be in one table."""
STAGES = ("data", "fit", "predict")
COLUMNS = ("model", "data", "error", "paper", "NLL", "ECE", "fit", "predict", "memory", "seeds")
INTRODUCTION = """# Results

Written by `python -m experiments TABLE --report FILE` from its JSON files. Errors are on whole test sets,
with 95 % intervals: over seeds (draws of the training data or, if all of it is used, of inducing patches) or,
for a single seed, the binomial interval of the test error. Nothing was selected on test data.
"""
FIGURES_HEAD = "## Figures\n\n`python -m experiments figures` draws them, each also as SVG.\n"

Content = dict[str, Any]
"""Content of a results file; see `Results`."""


@dataclass(frozen=True)
class Line:
    """All runs of one model in one condition."""

    title: str
    condition: str
    paper: float | None
    runs: list[dict[str, Any]]

    def mean(self, name: str) -> float:
        """Mean of one quantity over the runs."""
        return float(np.mean([run[name] for run in self.runs]))

    @property
    def interval(self) -> float:
        """Half the 95 % interval of the error: Student's t over seeds, or binomial for one seed."""
        errors = np.array([run["error"] for run in self.runs])
        if len(errors) > 1:
            quantile = stats.t.ppf(0.975, len(errors) - 1)
            return float(quantile * errors.std(ddof=1) / len(errors) ** 0.5)
        return float(1.96 * (errors[0] * (1 - errors[0]) / self.runs[0]["test"]) ** 0.5)

    def cells(self, extra: Sequence[str] = ()) -> list[str]:
        """The text of each column, and of these extra metrics."""
        return [
            self.title,
            self.condition,
            f"{self.mean('error'):.2%} ± {self.interval:.2%}",
            "–" if self.paper is None else f"{self.paper:.1%}",
            f"{self.mean('nll'):.4f}",
            f"{self.mean('ece'):.4f}",
            f"{self.mean('seconds_fit'):.0f} s",
            f"{self.mean('seconds_predict'):.0f} s",
            f"{max(run['peak_memory_gb'] for run in self.runs):.1f} GB",
            str(len(self.runs)),
            *(self._extra_cell(name) for name in extra),
        ]

    def _extra_cell(self, name: str) -> str:
        values = [run["more"][name] for run in self.runs if name in run.get("more", {})]
        return f"{np.mean(values):.4f}" if values else "–"


def lines(content: Content) -> Iterator[Line]:
    """One line per model and condition with runs, in the order of the table."""
    runs = list(content["runs"].values())
    for condition in dict.fromkeys(run["condition"] for run in runs):
        for name, row in TABLES[content["table"]].rows.items():
            matching = [run for run in runs if (run["model"], run["condition"]) == (name, condition)]
            if matching:
                yield Line(row.title, condition, row.paper.get(condition), matching)


def extra_metrics(content: Content) -> list[str]:
    """Names of the metrics that only this table has."""
    return list(dict.fromkeys(name for run in content["runs"].values() for name in run.get("more", {})))


def differences(content: Content) -> list[str]:
    """Differences from the paper, each once, with the models that it concerns."""
    concerned: dict[str, dict[str, None]] = {}
    titles: dict[str, None] = {}
    for run in content["runs"].values():
        row = TABLES[content["table"]].rows[run["model"]]
        titles[row.title] = None
        for difference in filter(None, [*run["differs"], row.differs]):
            concerned.setdefault(difference, {})[row.title] = None
    return [text if of == titles else f"{'; '.join(of)}: {text}" for text, of in concerned.items()]


def selections(content: Content) -> list[str]:
    """For models that are selected: which candidates were selected, and how often."""
    texts = []
    for line in lines(content):
        counts = Counter(run["note"]["chosen"] for run in line.runs if "chosen" in run["note"])
        if counts:
            several = len(line.runs) > 1
            names = [f"{name} ({n})" if several else name for name, n in counts.most_common()]
            texts.append(f"{line.title}, {line.condition}: {', '.join(names)}")
    return texts


def training_lengths(content: Content) -> list[str]:
    """For networks: the epochs whose weights were used, and the number of epochs."""
    texts = []
    for line in lines(content):
        notes = [run["note"] for run in line.runs if "best_epoch" in run["note"]]
        if notes:
            best = sorted({note["best_epoch"] for note in notes})
            span = str(best[0]) if len(best) == 1 else f"{best[0]} to {best[-1]}"
            texts.append(f"{line.title}, {line.condition}: {span} of {notes[0]['epochs']}")
    return texts


def durations(content: Content) -> str:
    """Total time of all runs of each model, including data."""
    seconds: Counter[str] = Counter()
    for line in lines(content):
        # Older results do not have the time for data.
        seconds[line.title] += sum(run.get(f"seconds_{stage}", 0.0) for run in line.runs for stage in STAGES)
    return "; ".join(
        f"{title}: {f'{total / 3600:.1f} h' if total >= 3600 else f'{total / 60:.0f} min'}"
        for title, total in seconds.items()
    )


def _notes(content: Content) -> list[str]:
    return [
        f"total time of all runs: {durations(content)}",
        *(f"selected on held-out training signals: {text}" for text in selections(content)),
        *(f"epoch with the lowest held-out NLL, which is used: {text}" for text in training_lengths(content)),
        *(f"differs from the paper: {text}" for text in differences(content)),
    ]


def as_text(content: Content) -> str:
    """The table for a terminal."""
    extra = extra_metrics(content)
    rows = [[*COLUMNS, *extra], *(line.cells(extra) for line in lines(content))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([TABLES[content["table"]].title, *(line.rstrip() for line in table), *_notes(content)])


def as_markdown(content: Content) -> str:
    """The table as a section of `docs/results.md`."""
    extra = extra_metrics(content)
    head = [*COLUMNS, *extra]
    rows = [head, ["---"] * len(head), *(line.cells(extra) for line in lines(content))]
    options = [f" --{key.replace('_', '-')} {value}" for key, value in content["settings"].items() if value]
    command = f"python -m experiments {content['table']}{''.join(options)}"
    threads = f"{content['cores']} thread{'s' if content['cores'] > 1 else ''}"
    return "\n".join(
        [
            f"## {TABLES[content['table']].title}\n",
            f"`{command}`, gcgp {content['gcgp']}, PyTorch {content['torch']}, {threads}.\n",
            *(f"| {' | '.join(cells)} |" for cells in rows),
            "",
            *(f"- {note}" for note in _notes(content)),
            "",
        ]
    )


def read_results(folder: Path) -> dict[str, list[Content]]:
    """The results in a folder by table; files with the same settings are merged."""
    tables: dict[str, list[Content]] = {}
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text())
        if isinstance(content, dict) and content.get("format") == FORMAT:
            known = tables.setdefault(content["table"], [])
            same = [other for other in known if all(other[key] == content[key] for key in SHARED_FIELDS)]
            if same:
                same[0]["runs"] |= content["runs"]
            else:
                known.append(content)
    return tables


def folder_report(folder: Path, page_folder: Path) -> str:
    """All results in a folder as one Markdown page, which is to be in `page_folder`, with its figures."""
    results = read_results(folder)
    tables = [as_markdown(content) for table in TABLES for content in results.get(table, [])]
    figures = [
        f"![{path.stem}]({Path(os.path.relpath(path, page_folder)).as_posix()})\n"
        for path in sorted((folder / "figures").glob("*.png"))
    ]
    return "\n".join([INTRODUCTION, *tables, *([FIGURES_HEAD] if figures else []), *figures])
