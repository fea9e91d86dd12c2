"""The description of a run on its MLflow page: what ran, warnings first, then metrics and sizes of clusters.

Texts from data and sites are escaped: neither Markdown nor HTML finds anything to obey in them.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from flareclust._foundation.display import measured, rounded
from flareclust._foundation.typing import Array
from flareclust.experiment.config import Experiment
from flareclust.experiment.reports import summary
from flareclust.experiment.reports import table as tables
from flareclust.experiment.results.result import Result
from flareclust.experiment.sweeps.report import StudySummary
from flareclust.preparation.scaling import scaling_of
from flareclust.tracking.origin import data_name

#: MLflow's tag of a description.
NOTE_TAG = "mlflow.note.content"

#: Qualities that the first sentence names, where they are known.
_MAIN = ("simplified_silhouette", "ari")
#: So many qualities of a study's cells are listed.
_MOST_MEASURES = 4
#: So many warnings are listed.
_MOST_WARNINGS = 10

#: Beginnings of the names of numbers with a length of the data in them: their unit is another one where columns were scaled.
_LENGTHS = ("inertia", "kprototypes_cost", "shift", "moved", "mean_square")


def describe(result: Result, experiment: Experiment) -> str:
    """Return the description of a run that reached a result."""
    found = summary.summarise(result)
    names = [name.replace("_", " ") for name in in_units(result.ranked_metrics, result.arrays)]
    values = list(zip(names, found.measures.values(), strict=True))
    measures = tables.Table([tables.Cell("measure"), *tables.numbers("value")], values)
    lines = [_title(result, experiment), *_warnings(result.warnings), *_shown(measures)]
    if found.continuity:
        lines.append(escape(found.continuity))
    heads = [tables.Cell("cluster"), *tables.numbers(result.row_name, "share"), tables.Cell("what is special about it")]
    lines += _shown(tables.Table(heads[:-1] if found.profiles is None else heads, _sizes(found)))
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


def in_units(values: Mapping[str, float | None], arrays: Mapping[str, Array]) -> dict[str, float | None]:
    """Return numbers under names that each have one unit: `inertia_scaled` where a result's arrays say that columns were scaled.

    The cost of k-prototypes, which adds up distances and categories, is no inertia: `kprototypes_cost`.
    """
    if "gamma" in arrays:
        values = {name.replace("inertia", "kprototypes_cost"): value for name, value in values.items()}
    scaled = scaling_of(arrays) is not None or bool(arrays.get("standardized", False))
    return {f"{name}_scaled" if scaled and name.startswith(_LENGTHS) else name: v for name, v in values.items()}


def escape(text: str) -> str:
    """Return a text in one line for Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>#|!~&])", r"\\\1", " ".join(text.split()))


def _title(result: Result, experiment: Experiment) -> str:
    """Return what ran and the main numbers in a sentence: MLflow folds a description after a few lines."""
    found = f"{result.centroids_found} of {result.k} centroids from {escape(result.took_part)}"
    known = {name: value for name in _MAIN if (value := result.metrics.get(name)) is not None}
    main = [f"{name.replace('_', ' ')} {measured(name, value, 3)}" for name, value in known.items()]
    named = experiment.title
    return f"{'' if named is None else f'**{escape(named)}** '}**{escape(result.algorithm)}** on {escape(data_name(experiment.data))}: {', '.join([found, *main])}"


def _warnings(warnings: Sequence[str]) -> list[str]:
    if not warnings:
        return []
    shown = [f"> **Warning:** {escape(text)}" for text in warnings[:_MOST_WARNINGS]]
    if more := len(warnings) - len(shown):
        shown.append(f"> and {more} more, in result.json")
    return ["\n>\n".join(shown)]


def _sizes(found: summary.Summary) -> list[tuple[str, ...]]:
    """Return a line per cluster, the largest first; nothing where the sizes are not known."""
    counts = found.sizes
    if counts is None or not counts.sum():
        return []
    order, total = np.argsort(-counts, kind="stable").tolist(), int(counts.sum())
    rows = [
        (
            str(c),
            found.size(c),
            _share(int(counts[c]), total) if counts[c] or not found.floor else "",
            *([] if found.profiles is None else [found.words(c)]),
        )
        for c in order[: summary.MOST_CLUSTERS]
    ]
    if rest := order[summary.MOST_CLUSTERS :]:
        others = int(counts[rest].sum())
        rows.append(
            (f"{len(rest)} others", f"{others:,}", _share(others, total), *([] if found.profiles is None else [""]))
        )
    return rows


def _share(count: int, total: int) -> str:
    return f"{rounded(100 * count / total, 1)} %"


def _shown(table: tables.Table) -> list[str]:
    """Return a table as a paragraph of Markdown; nothing for one without rows."""
    return [tables.markdown(table, escape, right=True).rstrip("\n")] if table.rows else []
