"""compare.html, the page that compares the cells of a study: mean and standard deviation over the seeds, comparable cells side by side.

Cells are comparable if all their axes but the first two (algorithm and partition) agree, so they have the same data and
k; in measures that look at distances also if their columns are scaled alike and their distances are the same. The page needs no
other file and no script.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from flareclust.evaluation import profile_words
from flareclust.evaluation.continuity import Continuity, compare, reach
from flareclust.evaluation.metrics.centroids import match_centroids
from flareclust.experiment.plotting.style import PALETTE
from flareclust.experiment.reports.html import render, tinted
from flareclust.experiment.reports.table import Cell as Shown
from flareclust.experiment.reports.table import Table, numbers
from flareclust.experiment.sweeps.cluster_means import ClusterMeans
from flareclust.experiment.sweeps.report import StudySummary, comparable, series, spread
from flareclust.experiment.sweeps.trials import Cell, TrialRun

COMPARE = "compare.html"

#: Measures that say how good a clustering is, with what is better; others, such as the number of rounds, have no best.
_HIGHER = ("ari", "nmi", "purity", "accuracy", "simplified_silhouette")
_LOWER = ("l2", "mse_matched", "inertia", "davies_bouldin")
#: Measures of distances, which are others where columns are scaled.
_DISTANCES = ("inertia", "simplified_silhouette", "davies_bouldin")

#: Height of a line, and where its bars begin and how wide they are; the template has the latter two, too.
_ROW, _LEFT, _BARS = 22, 230, 330

#: So many cells are side by side, the best ones; so many clusters and columns have lines of their own.
_MOST_CELLS, _MOST_CLUSTERS, _MOST_COLUMNS = 8, 30, 8


def compare_page(name: str, found: StudySummary) -> str:
    """Return the page of a study of this name as HTML."""
    done, cells, ordered, units = found.done, found.cells, found.measures, _units(found.done)
    names, groups = list(dict.fromkeys(map(series, cells))), []
    first = next((name for name in ordered if name in (*_HIGHER, *_LOWER)), "")  # by which the best are first
    for about, members in comparable(cells).items():
        measured = {measure: [cell for cell in members if measure in cell.mean] for measure in ordered}
        charts = [chart for measure, own in measured.items() for chart in _charts(measure, own, units, names)]
        named = list(members[0].cell)[: 2 if len(set(map(_split, members))) > 1 else 1]
        clusters = _side_by_side(sorted(members, key=partial(_loss, measure=first)), done, named)
        groups.append({"about": about, "charts": charts, "clusters": clusters})
    return render("compare.html", name=name, found=found, seeds=len({one.trial.seed for one in done}), groups=groups)


def _loss(cell: Cell, measure: str) -> float:
    """Return a number that is less the better a cell is by a measure; infinity where it has none."""
    mean = cell.mean.get(measure, math.inf)
    return math.inf if not math.isfinite(mean) else -mean if measure in _HIGHER else mean


def _units(done: Sequence[TrialRun]) -> dict[tuple[str, ...], str]:
    """Return how the columns of each cell were scaled, and its distances where they are others than Euclidean, in words."""
    units = {}
    for one in done:
        own = {**one.trial.settled, **(one.trial.params.get("params") or {})}
        scale, metric = own.get("scale", "none"), "k-prototypes" if "gamma" in own else own.get("metric", "euclidean")
        said = [] if scale == "none" else [f"of scaled columns ({scale})"]
        said += [] if metric == "euclidean" else [f"by distances of {metric}"]
        units[tuple(one.trial.cell.values())] = " ".join(said)
    return units


def _charts(
    measure: str, cells: Sequence[Cell], units: Mapping[tuple[str, ...], str], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the charts of a measure: one for all cells, or one for each unit."""
    by_unit: dict[str, list[Cell]] = {}
    for cell in cells:
        unit = units.get(tuple(cell.cell.values()), "") if measure in _DISTANCES else ""
        by_unit.setdefault(unit, []).append(cell)
    better = "; larger is better" if measure in _HIGHER else "; smaller is better" if measure in _LOWER else ""
    return [
        {"heading": " ".join([measure.replace("_", " "), unit]).strip() + better, **_chart(measure, some, names)}
        for unit, some in by_unit.items()
    ]


def _chart(measure: str, cells: Sequence[Cell], names: Sequence[str]) -> dict[str, Any]:
    """Return a drawing with a line per cell: what it is, its mean with a bar of the deviation, both in numbers."""
    low = min(cell.mean[measure] - cell.std[measure] for cell in cells)
    high = max(cell.mean[measure] + cell.std[measure] for cell in cells)
    width, judged = (high - low) or abs(high) or 1.0, len(cells) > 1 and measure in (*_HIGHER, *_LOWER)
    best = min(cells, key=lambda cell: _loss(cell, measure)) if judged else None
    lines, previous, y = [], None, 0.0
    splits = [_split(cell) for cell in cells]
    for cell in sorted(cells, key=lambda cell: splits.index(_split(cell))):
        above = "" if (split := _split(cell)) == previous else split
        y, previous = y + _ROW * (2 if split != previous else 1), split
        name, mean, std = series(cell), cell.mean[measure], cell.std[measure]
        left, middle, right = (
            f"{_LEFT + 8 + (_BARS - 16) * (value - low) / width:.1f}" for value in (mean - std, mean, mean + std)
        )
        lines.append(
            {
                "split": above,
                "split_y": f"{y - _ROW - 6:g}",
                "name": name,
                "short": name if len(name) <= 32 else name[:31] + "…",
                "numbers": spread(cell, measure),
                "trials": cell.n,
                "y": f"{y - _ROW / 2:g}",
                "text_y": f"{y - _ROW / 2 + 4:g}",
                "left": left,
                "mean": middle,
                "right": right,
                "colour": PALETTE[names.index(name) % len(PALETTE)],
                "best": cell is best,
            }
        )
    label = f"{measure.replace('_', ' ')} of {len(cells)} cells"
    return {"label": label, "height": _ROW * (len(cells) + len(set(splits))), "lines": lines}


def _split(cell: Cell) -> str:
    return next(iter(list(cell.cell.values())[1:2]), "all rows")


# --- the clusters of comparable cells, matched to those of the best one ---


class _Found(NamedTuple):
    """The clusters of one cell, and what each cluster of the reference is there.

    Attributes:
        name: of the cell.
        clusters: its own.
        since: which of them are those of the reference.
        places: the nearest of them for each cluster of the reference that has one, and how far that is in its reach.
    """

    name: str
    clusters: ClusterMeans
    since: Continuity
    places: Mapping[int, tuple[int, float]]


def _found(name: str, reference: ClusterMeans, own: ClusterMeans) -> _Found:
    old, new = reference.clusters(), own.clusters()
    since = compare(old, new)
    pairs = {a: b for b, a in zip(since.order, since.was, strict=True) if a is not None}
    # What continues nothing is shown beside the nearest one that is left, and said to be another cluster.
    rest = [a for a in range(len(old.centroids)) if a not in pairs]
    left = [b for b in range(len(new.centroids)) if b not in pairs.values()]
    if rest and left:
        ours, theirs = match_centroids(new.centroids[left], old.centroids[rest])
        pairs |= {rest[a]: left[b] for b, a in zip(ours, theirs, strict=True)}
    limits = reach(old)
    moved = {a: float(np.linalg.norm(new.centroids[b] - old.centroids[a])) for a, b in pairs.items()}
    places = {a: (b, moved[a] / limits[a] if limits[a] > 0 else float(moved[a] > 0)) for a, b in pairs.items()}
    return _Found(name, own, since, places)


def _side_by_side(cells: Sequence[Cell], done: Sequence[TrialRun], ordered: Sequence[str]) -> dict[str, Any] | None:
    """Return tables of the shares and the means of clusters of cells of the same data and k, a column per cell; nothing for one cell.

    Args:
        cells: the best first, to whose clusters those of the others are matched.
        done: all trials of the study; of each cell the first seed that has clusters is shown, the same for all where it can be.
        ordered: names of the axes that name a cell here.
    """
    known = []
    for cell in cells:
        clusters = [one.measured.clusters for one in done if one.trial.cell == cell.cell and one.measured is not None]
        known += [(cell, one) for one in clusters if one is not None][:1]
    same = [(cell, one) for cell, one in known if one.columns == known[0][1].columns][:_MOST_CELLS]
    if len(same) < 2:
        return None
    reference = same[0][1]
    found = [_found(" ".join(cell.cell[axis] for axis in ordered), reference, one) for cell, one in same]
    return {
        "reference": found[0].name,
        "shares": _shares(found),
        "means": _means(found),
        "first": len(found) if len(cells) > len(found) else 0,
        "cells": len(cells),
        "most": _MOST_COLUMNS,
        "columns": len(reference.columns),
    }


def _shares(found: Sequence[_Found]) -> Table:
    """Return a table with a line per cluster of the reference: its share in each cell, and how far its mean moved."""
    rows: list[list[object]] = []
    for c in range(min(len(found[0].clusters.rows), _MOST_CLUSTERS)):
        rows.append([f"cluster {c}", *(_share(one, c, first=one is found[0]) for one in found)])
    changes = [one.since.changes(found[0].name) for one in found]
    words = [[text for text in own if "split" in text or "merged" in text] for own in changes]
    if any(words):
        rows.append(["split, merged", *(Shown("", "long", lines=own) for own in words)])
    return Table([Shown("share of the rows"), *numbers(*(one.name for one in found))], rows)


def _share(one: _Found, cluster: int, *, first: bool) -> str | Shown:
    """Return which share of the rows a cluster of the reference has in a cell, and how far it is from it."""
    if cluster not in one.places:
        return "none"
    r, moved = one.places[cluster]
    far = f"mean moved {moved:.0%}".replace("%", " %") if moved <= 1 else "another cluster"
    share = profile_words.percent(one.clusters.rows[r] / sum(one.clusters.rows))
    return share if first else Shown(share, "n", lines=[far], line_kind="soft")


def _means(found: Sequence[_Found]) -> Table:
    """Return a table of means: a line per cluster and column, tinted by z, and a column per cell."""
    reference = found[0].clusters
    z, rows = reference.z, np.array(reference.rows)
    differs = (rows[:, None] * z**2).sum(axis=0) / rows.sum()
    columns = np.argsort(-differs, kind="stable")[:_MOST_COLUMNS].tolist()
    lines: list[Sequence[object]] = []
    for c in range(min(len(reference.rows), _MOST_CLUSTERS)):
        for place, j in enumerate(columns):
            name = profile_words.plain_name(reference.columns, j)
            cells = [_mean(one, one.places.get(c, (None, 0.0))[0], j) for one in found]
            lines.append([f"cluster {c}" if place == 0 else "", name if len(name) <= 36 else f"{name[:35]}…", *cells])
    return Table([Shown("cluster"), Shown("column"), *numbers(*(one.name for one in found))], lines)


def _mean(one: _Found, r: int | None, j: int) -> Shown:
    if r is None:
        return tinted("", float("nan"))
    unit = one.clusters.units[j] if one.clusters.units else ""
    mean = profile_words.value_text(one.clusters.means[r][j], one.clusters.deviation[j], unit)
    return tinted(mean, float(one.clusters.z[r, j]))
