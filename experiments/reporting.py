"""Tables of results as text for a terminal, and as Markdown."""

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

ALIKE = ("settings", "gcgp", "torch", "python", "cores")
"""What results must share to stand in one table."""
PARTS = ("data", "fit", "predict")
"""Of a run; results made long ago do not say how long their data took."""
HEAD = ("model", "data", "error", "paper", "NLL", "ECE", "fit", "predict", "memory", "seeds")


@dataclass(frozen=True)
class Line:
    """All runs of one model in one condition."""

    title: str
    condition: str
    paper: float | None
    runs: list[dict[str, Any]]

    def mean(self, name: str) -> float:
        """Of one number over the runs."""
        return float(np.mean([run[name] for run in self.runs]))

    @property
    def interval(self) -> float:
        """Half the width of the 95 % interval of the error: by Student's t over seeds (draws of the
        training data, or of inducing patches) or, if there is but one, that of a share of the test signals.
        """
        errors = np.array([run["error"] for run in self.runs])
        if len(errors) > 1:
            quantile = stats.t.ppf(0.975, len(errors) - 1)
            return float(quantile * errors.std(ddof=1) / len(errors) ** 0.5)
        return float(1.96 * (errors[0] * (1 - errors[0]) / self.runs[0]["test"]) ** 0.5)

    def cells(self, more: Sequence[str] = ()) -> list[str]:
        """As text, in the order of `HEAD`, with further figures."""
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
            *(self._further(name) for name in more),
        ]

    def _further(self, name: str) -> str:
        found = [run["more"][name] for run in self.runs if name in run.get("more", {})]
        return f"{np.mean(found):.4f}" if found else "–"


def lines(content: dict[str, Any]) -> Iterator[Line]:
    """A line for each model and condition that has runs, in the order of the table."""
    runs = list(content["runs"].values())
    conditions = dict.fromkeys(run["condition"] for run in runs)
    for condition in conditions:
        for name, row in TABLES[content["table"]].rows.items():
            own = [run for run in runs if (run["model"], run["condition"]) == (name, condition)]
            if own:
                yield Line(row.title, condition, row.paper.get(condition), own)


def heads(content: dict[str, Any]) -> list[str]:
    """The names of all columns, and those of further figures last."""
    return [*HEAD, *further(content)]


def further(content: dict[str, Any]) -> list[str]:
    """Names of figures that this table alone has."""
    return list(dict.fromkeys(name for run in content["runs"].values() for name in run.get("more", {})))


def remarks(content: dict[str, Any]) -> list[str]:
    """What differs from the paper, each said once with the models it holds for."""
    said: dict[str, dict[str, None]] = {}
    every: dict[str, None] = {}
    for run in content["runs"].values():
        row = TABLES[content["table"]].rows[run["model"]]
        every[row.title] = None
        for remark in filter(None, [*run["differs"], row.differs]):
            said.setdefault(remark, {})[row.title] = None
    return [
        remark if titles == every else f"{'; '.join(titles)}: {remark}" for remark, titles in said.items()
    ]


def choices(content: dict[str, Any]) -> list[str]:
    """Which candidates were chosen, how often, where a model is the best of several."""
    said = []
    for line in lines(content):
        counts = Counter(run["note"]["chosen"] for run in line.runs if "chosen" in run["note"])
        if counts:
            each = (
                f"{name} ({count})" if len(line.runs) > 1 else name for name, count in counts.most_common()
            )
            said.append(f"{line.title}, {line.condition}: {', '.join(each)}")
    return said


def trainings(content: dict[str, Any]) -> list[str]:
    """For how many passes networks were trained, and which ones were kept."""
    said = []
    for line in lines(content):
        notes = [run["note"] for run in line.runs if "best_pass" in run["note"]]
        if notes:
            kept = sorted({note["best_pass"] for note in notes})
            each = str(kept[0]) if len(kept) == 1 else f"{kept[0]} to {kept[-1]}"
            said.append(f"{line.title}, {line.condition}: {each} of {notes[0]['passes']}")
    return said


def durations(content: dict[str, Any]) -> str:
    """How long all runs of each model take, one after another, with the making of their data."""
    seconds: dict[str, float] = {}
    for line in lines(content):
        spent = sum(run.get(f"seconds_{part}", 0.0) for run in line.runs for part in PARTS)
        seconds[line.title] = seconds.get(line.title, 0.0) + spent
    return "; ".join(f"{title}: {_told(spent)}" for title, spent in seconds.items())


def _told(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"


def _notes(content: dict[str, Any]) -> list[str]:
    return [
        f"all runs one after another: {durations(content)}",
        *(f"chosen by held-out training signals: {choice}" for choice in choices(content)),
        *(f"the pass of training that predicted them best was kept: {one}" for one in trainings(content)),
        *(f"differs from the paper: {remark}" for remark in remarks(content)),
    ]


def as_text(content: dict[str, Any]) -> str:
    """For a terminal."""
    rows = [heads(content), *(line.cells(further(content)) for line in lines(content))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([TABLES[content["table"]].title, *(line.rstrip() for line in table), *_notes(content)])


def as_markdown(content: dict[str, Any]) -> str:
    """A section for `docs/results.md`."""
    rows = [f"| {' | '.join(line.cells(further(content)))} |" for line in lines(content)]
    head = heads(content)
    given = [f" --{key.replace('_', '-')} {value}" for key, value in content["settings"].items() if value]
    made = (
        f"`gcgp reproduce {content['table']}{''.join(given)}`, gcgp {content['gcgp']}, "
        f"PyTorch {content['torch']}, {content['cores']} thread{'s' if content['cores'] > 1 else ''}."
    )
    return "\n".join(
        [
            f"## {TABLES[content['table']].title}",
            "",
            made,
            "",
            f"| {' | '.join(head)} |",
            f"|{'---|' * len(head)}",
            *rows,
            "",
            *(f"- {note}" for note in _notes(content)),
            "",
        ]
    )


def contents(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The results in a folder, by table; those of several files with the same settings are one."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text())
        if isinstance(content, dict) and content.get("format") == FORMAT:
            known = found.setdefault(content["table"], [])
            like = [own for own in known if all(own[key] == content[key] for key in ALIKE)]
            if like:
                like[0]["runs"] |= content["runs"]
            else:
                known.append(content)
    return found


def report_of(folder: Path, beside: Path) -> str:
    """All results in a folder as one page, in the order in which tables are known, and its figures.

    `beside` is the folder of the page, from which it refers to pictures.
    """
    found = contents(folder)
    introduction = [
        "# Results",
        "",
        "Written by `gcgp reproduce`, from its JSON files. Errors are on whole test sets, with 95 %",
        "intervals: over seeds (draws of the training data or, where all of them are learned from, of",
        "inducing patches) or, where there is one seed, those of a share of so many test signals. Nothing",
        "was chosen on test data.",
        "",
    ]
    tables = [as_markdown(own) for table in TABLES for own in found.get(table, [])]
    pictures = sorted((folder / "figures").glob("*.png"))
    shown = [f"![{path.stem}]({Path(os.path.relpath(path, beside)).as_posix()})\n" for path in pictures]
    head = ["## Figures", "", "`gcgp reproduce figures` draws them, each also as SVG.", ""] if shown else []
    return "\n".join([*introduction, *tables, *head, *shown])
