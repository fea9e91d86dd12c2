"""The description of a run on its MLflow page: what ran, warnings first, then metrics and sizes of clusters.

Texts from data and sites are escaped: neither Markdown nor HTML finds anything to obey in them.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flareclust.experiment.config import Experiment
from flareclust.experiment.reports import summary
from flareclust.experiment.reports.table import Cell, Table, markdown, numbers
from flareclust.experiment.results.result import Result
from flareclust.experiment.sweeps.report import StudySummary
from flareclust.tracking.origin import data_name
from flareclust.tracking.run_numbers import in_units

#: MLflow's tag of a description.
NOTE_TAG = "mlflow.note.content"

#: Qualities that the first sentence names, where they are known.
_MAIN = ("simplified_silhouette", "ari")
#: So many qualities of a study's cells are listed.
_MOST_MEASURES = 4
#: So many warnings are listed.
_MOST_WARNINGS = 10


def describe(result: Result, experiment: Experiment) -> str:
    """Return the description of a run that reached a result."""
    found = summary.summarise(result)
    names = [name.replace("_", " ") for name in in_units(result.metrics, result.arrays)]
    lines = [
        _title(result, experiment),
        *_warnings(result.warnings),
        *_shown(Table([Cell("measure"), *numbers("value")], list(zip(names, found.measures.values(), strict=True)))),
    ]
    if found.continuity:
        lines.append(escape(found.continuity))
    heads = [Cell("cluster"), *numbers("rows", "share"), Cell("what is special about it")]
    lines += _shown(Table(heads[:-1] if found.profiles is None else heads, _sizes(found)))
    folder = "" if result.centroids_file is None else f" Files: `{Path(result.centroids_file).parent}`"
    lines.append(f"Engine {result.engine}, seed {result.seed}, {result.seconds['total']:.1f} s.{folder}")
    return "\n\n".join(lines)


def describe_failure(reason: str, *, stopped: bool) -> str:
    """Return the description of a run that reached no result: its reason, in words."""
    return f"**{'Stopped' if stopped else 'Failed'}:** {escape(reason)}"


def describe_study(found: StudySummary) -> str:
    """Return the description of a study's parent run: failures first, then the main qualities of each cell."""
    failed = [f"**{found.failure}:** {escape(found.reasons[0][0])}"] if found.failed else []
    about = f"{len(found.done)} trials in {len(found.cells)} cells; compare.html has their means side by side."
    table = found.table(found.measures[:_MOST_MEASURES], summary.MOST_CLUSTERS)
    return "\n\n".join([*failed, about, *_shown(table)])


def escape(text: str) -> str:
    """Return a text in one line for Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>#|!~&])", r"\\\1", " ".join(text.split()))


def _title(result: Result, experiment: Experiment) -> str:
    """Return what ran and the main numbers in a sentence: MLflow folds a description after a few lines."""
    found = f"{result.centroids_found} of {result.k} centroids from {escape(result.took_part)}"
    main = [
        f"{name.replace('_', ' ')} {value:.3f}" for name in _MAIN if (value := result.metrics.get(name)) is not None
    ]
    return f"**{escape(result.algorithm)}** on {escape(data_name(experiment.data))}: {', '.join([found, *main])}"


def _warnings(warnings: Sequence[str]) -> list[str]:
    if not warnings:
        return []
    shown = [f"> **Warning:** {escape(text)}" for text in warnings[:_MOST_WARNINGS]]
    if more := len(warnings) - len(shown):
        shown.append(f"> and {more} more, in result.json")
    return ["\n>\n".join(shown)]


def _sizes(found: summary.Summary) -> list[tuple[str, ...]]:
    """Return a line per cluster, the largest first; nothing where the sizes are not known."""
    counts = found.result.cluster_rows
    if counts is None or not counts.sum():
        return []
    order, total = np.argsort(-counts, kind="stable").tolist(), int(counts.sum())
    rows = [
        (str(c), *_rows(int(counts[c]), total), *([] if found.profiles is None else [found.words(c)]))
        for c in order[: summary.MOST_CLUSTERS]
    ]
    if rest := order[summary.MOST_CLUSTERS :]:
        others = _rows(int(counts[rest].sum()), total)
        rows.append((f"{len(rest)} others", *others, *([] if found.profiles is None else [""])))
    return rows


def _rows(count: int, total: int) -> tuple[str, str]:
    return f"{count:,}", f"{100 * count / total:.1f} %"


def _shown(table: Table) -> list[str]:
    """Return a table as a paragraph of Markdown; nothing for one without rows."""
    return [markdown(table, escape, right=True).rstrip("\n")] if table.rows else []
