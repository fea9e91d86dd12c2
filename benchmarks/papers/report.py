"""Reports on paper: a folder per entry, tables in Markdown, and the page that is made of many of them."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import papers
from benchmarks.papers import figures
from benchmarks.papers.base import Line, Report
from flareclust._foundation.errors import UserError
from flareclust._foundation.version import __version__

SUMMARY, TABLE, FIGURE = "report.json", "table.md", "figure.png"
#: Where the page looks for its figures, beside it.
IMAGES = Path("images") / "reproduction"
#: Longer tables are folded on the page.
LONG = 30

HEADINGS = {
    "feca": "FeCA",
    "kfed": "k-FED",
    "fkm": "Federated k-means (FKM)",
    "dkmpp": "Distributed k-means++",
    "masked": "Partially overlapping columns (masked, proxy)",
}
SOURCES = {
    "feca": "Xu, Chen, Chao, Zhang, *Jigsaw Game: Federated Clustering*, TMLR 2024.",
    "kfed": "Dennis, Li, Smith, *Heterogeneity for the Win: One-Shot Federated Clustering*, ICML 2021.",
    "fkm": "Garst, Reinders, *Federated K-Means Clustering*, 2024.",
    "dkmpp": "Armacki, Kar, *Toward Understanding the Improved Robustness to Initialization in Distributed Clustering*.",
    "masked": "Maritan, Schenato, *Distributed Clustering in Partially Overlapping Feature Spaces*, 2025.",
}


@dataclass(frozen=True)
class Saved:
    """A report as it is kept in a folder: what `Report` has, the figure as a file, and where it comes from.

    Attributes:
        report: without its figure.
        folder: where it is.
        version: of flareclust.
        commit: of the checkout that it was run from; None where it was none.
        command: that made it.
    """

    report: Report
    folder: Path
    version: str
    commit: str | None
    command: str

    @property
    def figure(self) -> Path | None:
        """Return the figure's file, None where there is none."""
        path = self.folder / FIGURE
        return path if path.is_file() else None


# ---- a report ----


def markdown_table(lines: Sequence[Line]) -> str:
    """Return the lines as a Markdown table: the keys of their cells, then paper, ours, reading."""
    keys = list(dict.fromkeys(key for line in lines for key in line.cells))
    rows = [[*keys, "paper", "ours", "reading"], ["---"] * (len(keys) + 3)]
    rows += [[*(line.cells.get(key, "") for key in keys), line.paper, line.ours, line.reading] for line in lines]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows) + "\n"


def to_json(report: Report) -> dict[str, Any]:
    """Return a report without its figure as JSON values."""
    lines = [
        {"cells": dict(line.cells), "paper": line.paper, "ours": line.ours, "reading": line.reading}
        for line in report.lines
    ]
    return {
        "name": report.name,
        "title": report.title,
        "about": report.about,
        "lines": lines,
        "notes": list(report.notes),
        "seeds": report.seeds,
        "seconds": report.seconds,
        "failed": report.failed,
        "quick": report.quick,
    }


def save(report: Report, folder: Path, command: str = "", commit: str | None = None) -> Path:
    """Write report.json, table.md and, where there is a figure, figure.png to `folder/<entry>`; return that folder.

    report.json comes last, so that where it is, all is there.

    Args:
        report: what to write.
        folder: of all reports.
        command: that made it.
        commit: of the code that made it, see `commit_of_checkout`.

    Raises:
        UserError: the folder cannot be written to.
    """
    own = folder / report.name
    try:
        own.mkdir(parents=True, exist_ok=True)
        (own / SUMMARY).unlink(missing_ok=True)
        (own / FIGURE).unlink(missing_ok=True)
        if report.figure is not None:
            figures.save(report.figure, own / FIGURE)
        (own / TABLE).write_text(f"# {report.title}\n\n{markdown_table(report.lines)}", encoding="utf-8")
        about = {"flareclust": __version__, "commit": commit, "command": command}
        text = json.dumps(to_json(report) | about, indent=1, allow_nan=False, ensure_ascii=False)
        (own / SUMMARY).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{own} cannot be written to ({error.strerror}); choose another folder with --out") from None
    return own


def read(folder: Path) -> Saved:
    """Read what `save` wrote.

    Raises:
        UserError: the folder has no complete report.
    """
    try:
        values = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        about = (values.pop("flareclust"), values.pop("commit"), values.pop("command"))
        values["lines"] = [Line(**line) for line in values["lines"]]
        return Saved(Report(**values), folder, *about)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{folder} has no complete report of a paper ({type(error).__name__}); run `python -m benchmarks.papers` again"
        ) from error


def commit_of_checkout() -> str | None:
    """Return `git describe` of the checkout that this code is in, None where it is in none or git is not there."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():  # an installed package may lie in somebody else's checkout
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--tags", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


# ---- the page ----


def read_all(folder: Path) -> list[Saved]:
    """Read all reports in a folder, in the order of the entries; those of entries that are no longer there come last.

    Raises:
        UserError: there are none, or one is damaged.
    """
    saved = [read(path.parent) for path in sorted(folder.glob(f"*/{SUMMARY}"))]
    if not saved:
        raise UserError(f"{folder} has no reports; make some with `python -m benchmarks.papers all --out {folder}`")
    order = {entry.name: number for number, entry in enumerate(papers.ENTRIES)}
    return sorted(saved, key=lambda one: order.get(one.report.name, len(order)))


def write_page(folder: Path, page: Path) -> Path:
    """Write the page of all reports in `folder`, and copies of their figures to `images/reproduction` beside it."""
    saved = read_all(folder)
    images = page.parent / IMAGES
    try:
        images.mkdir(parents=True, exist_ok=True)
        for one in saved:
            if one.figure is not None:
                shutil.copyfile(one.figure, images / f"{one.report.name}.png")
        page.write_text(page_text(saved), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{page} cannot be written ({error.strerror}); choose another file with --page") from None
    return page


def page_text(saved: Sequence[Saved]) -> str:
    """Return the page: how it was made, what does not reproduce, then a section per entry."""
    parts = ["# The papers, re-run", _origin(saved), _overview(saved)]
    for paper in dict.fromkeys(_paper(one) for one in saved):
        own = [one for one in saved if _paper(one) == paper]
        parts += [f"## {HEADINGS.get(paper, paper)}", SOURCES.get(paper, ""), *(_section(one) for one in own)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _paper(saved: Saved) -> str:
    return saved.report.name.partition("-")[0]


def _origin(saved: Sequence[Saved]) -> str:
    seeds = sorted({one.report.seeds for one in saved})
    versions = sorted({f"flareclust {one.version}, " + _where(one) for one in saved})
    commands = dict.fromkeys(one.command for one in saved if one.command)
    minutes = sum(one.report.seconds for one in saved) / 60
    quick = " Some are of the quick form: fewer seeds, smaller data." if any(one.report.quick for one in saved) else ""
    return (
        "This page is generated; change the code instead. Every table has the paper's values beside ours. Nothing was "
        "tuned towards the paper: each reading is the one that the documentation of the algorithm states.\n\n"
        f"Seeds 0 to n - 1 with n = {', '.join(map(str, seeds))}; standard deviations are those of the population. "
        "Two means agree where they differ by no more than two standard errors and what rounding does; else ours is "
        f"said to be lower or higher.{quick}\n\n"
        f"Made by {'; '.join(versions)}; in {minutes:.0f} minutes of computing:\n\n"
        "```console\n" + "".join(f"$ {command}\n" for command in commands) + "```"
    )


def _where(saved: Saved) -> str:
    return f"commit {saved.commit}" if saved.commit else "an installed package"


def _overview(saved: Sequence[Saved]) -> str:
    rows = ["| table or figure | agrees | lower | higher | failed runs |", "| --- | --- | --- | --- | --- |"]
    for one in saved:
        found = counts(one.report.lines)
        cells = [f"[{one.report.title}](#{anchor(one.report.title)})"]
        shown = map(str, found.values()) if any(found.values()) else ("-", "-", "-")  # the paper has no numbers there
        cells += [*shown, str(one.report.failed)]
        rows.append("| " + " | ".join(cells) + " |")
    notes = "\n".join(
        f"- {one.report.title}\n" + "".join(f"    - {note}\n" for note in one.report.notes)
        for one in saved
        if one.report.notes
    )
    return (
        "## At a glance\n\nThe number of values that agree with the paper's, and of those that are lower or higher.\n\n"
        + "\n".join(rows)
        + "\n\n## What does not reproduce, and why\n\n"
        + (notes.rstrip() or "Nothing was noted.")
    )


def counts(lines: Sequence[Line]) -> Mapping[str, int]:
    """Return how many lines agree with the paper, and how many are lower or higher, by the end of their readings."""
    words = [line.reading.rpartition("; ")[2] for line in lines]
    return {word: words.count(word) for word in ("agrees", "lower", "higher")}


def _section(saved: Saved) -> str:
    report = saved.report
    table = markdown_table(report.lines) if len(report.lines) <= LONG else _folded(report.lines)
    picture = f"![{report.title}]({(IMAGES / report.name).as_posix()}.png)" if saved.figure else ""
    made = f"`python -m benchmarks.papers {report.name}`: seeds 0 to {report.seeds - 1}, {report.seconds:.0f} s."
    return "\n\n".join(part for part in (f"### {report.title}", report.about, picture, table.strip(), made) if part)


def _folded(lines: Sequence[Line]) -> str:
    """Return a long table as one folded table per value of the first key."""
    key = next(iter(lines[0].cells))
    parts = {value: [line for line in lines if line.cells.get(key) == value] for value in _values(lines, key)}
    return "\n\n".join(
        f"<details>\n<summary>{key} {value}: {len(own)} lines</summary>\n\n{markdown_table(own)}\n</details>"
        for value, own in parts.items()
    )


def _values(lines: Sequence[Line], key: str) -> list[str | None]:
    return list(dict.fromkeys(line.cells.get(key) for line in lines))


def anchor(heading: str) -> str:
    """Return the link target of a heading, as GitHub makes it."""
    kept = "".join(letter for letter in heading.lower() if letter.isalnum() or letter in "_- ")
    return kept.replace(" ", "-")
