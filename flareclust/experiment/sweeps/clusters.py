"""The part of compare.html about clusters: those of comparable cells side by side, matched to the clusters of the best one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flareclust.evaluation.continuity import Continuity, compare, reach
from flareclust.evaluation.metrics.centroids import match_centroids
from flareclust.evaluation.profile_words import number, percent
from flareclust.experiment.reports.html import tinted
from flareclust.experiment.reports.table import Cell as Shown
from flareclust.experiment.reports.table import Table, numbers
from flareclust.experiment.sweeps.cluster_means import ClusterMeans
from flareclust.experiment.sweeps.trials import Cell, TrialRun

#: So many cells are side by side, the best ones; so many clusters and columns have lines of their own.
_MOST_CELLS, _MOST_CLUSTERS, _MOST_COLUMNS = 8, 30, 8


@dataclass(frozen=True)
class _ClustersSideBySide:
    """The clusters of comparable cells: their shares, and the means of their rows.

    Attributes:
        reference: the name of the cell to whose clusters those of the others are matched.
        shares, means: tables with a column per cell.
        cells_left_out, columns_left_out: what is said of those that are not shown.
    """

    reference: str
    shares: Table
    means: Table
    cells_left_out: str
    columns_left_out: str


@dataclass(frozen=True)
class _Found:
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


def clusters_side_by_side(
    cells: Sequence[Cell], done: Sequence[TrialRun], ordered: Sequence[str]
) -> _ClustersSideBySide | None:
    """Return tables of the clusters of cells of the same data and k, which the caller has grouped; nothing for one cell.

    Args:
        cells: the best first.
        done: all trials of the study; of each cell the first seed that has clusters is shown, the same for all where it can be.
        ordered: names of the axes that name a cell here.
    """
    known = [(cell, one) for cell in cells if (one := _first(cell, done)) is not None]
    same = [(cell, one) for cell, one in known if one.columns == known[0][1].columns][:_MOST_CELLS]
    if len(same) < 2:
        return None
    reference = same[0][1]
    found = [_found(" ".join(cell.cell[axis] for axis in ordered), reference, one) for cell, one in same]
    means, of = _means(found), len(reference.columns)
    return _ClustersSideBySide(
        found[0].name,
        _shares(found),
        means,
        f" The first {len(found)} of {len(cells)} cells." if len(cells) > len(found) else "",
        f" The {_MOST_COLUMNS} columns of {of} that differ most." if of > _MOST_COLUMNS else "",
    )


def _first(cell: Cell, done: Sequence[TrialRun]) -> ClusterMeans | None:
    own = [one for one in done if one.trial.cell == cell.cell and one.measured is not None]
    return next((one.measured.clusters for one in own if one.measured and one.measured.clusters is not None), None)


def _shares(found: Sequence[_Found]) -> Table:
    """Return a table with a line per cluster of the reference: its share in each cell, and how far its mean moved."""
    rows: list[list[object]] = []
    for c in range(min(len(found[0].clusters.rows), _MOST_CLUSTERS)):
        rows.append([f"cluster {c}", *(_share(one, c, first=one is found[0]) for one in found)])
    words = [
        [text for text in one.since.changes(found[0].name) if "split" in text or "merged" in text] for one in found
    ]
    if any(words):
        rows.append(["split, merged", *(Shown("", "long", lines=own) for own in words)])
    return Table([Shown("share of the rows"), *numbers(*(one.name for one in found))], rows)


def _share(one: _Found, cluster: int, *, first: bool) -> str | Shown:
    """Return which share of the rows a cluster of the reference has in a cell, and how far it is from it."""
    if cluster not in one.places:
        return "none"
    r, moved = one.places[cluster]
    far = f"moved {moved:.0%}".replace("%", " %") if moved <= 1 else "another cluster"
    share = percent(one.clusters.rows[r] / sum(one.clusters.rows))
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
            name = reference.columns[j]
            cells = [_mean(one, one.places.get(c, (None, 0.0))[0], j) for one in found]
            lines.append([f"cluster {c}" if place == 0 else "", name if len(name) <= 36 else f"{name[:35]}…", *cells])
    return Table([Shown("cluster"), Shown("column"), *numbers(*(one.name for one in found))], lines)


def _mean(one: _Found, r: int | None, j: int) -> Shown:
    if r is None:
        return tinted("", float("nan"))
    return tinted(number(one.clusters.means[r][j], one.clusters.deviation[j]), float(one.clusters.z[r, j]))
