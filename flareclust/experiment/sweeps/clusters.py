"""The part of compare.html about clusters: those of comparable cells side by side, matched to the clusters of the best one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flareclust.evaluation.continuity import Continuity, compare, reach
from flareclust.evaluation.continuity_words import changes
from flareclust.evaluation.metrics.centroids import match_centroids
from flareclust.evaluation.profile_words import number, percent
from flareclust.experiment.reports.charts import tinted
from flareclust.experiment.reports.html_parts import Html, joined, table, tag
from flareclust.experiment.sweeps.cluster_means import ClusterMeans
from flareclust.experiment.sweeps.trials import Cell, TrialRun

#: So many cells are side by side, the best ones; so many clusters and columns have lines of their own.
_MOST_CELLS, _MOST_CLUSTERS, _MOST_COLUMNS = 8, 30, 8

STYLE = (
    "table{border-collapse:collapse;font-size:13px}td,th{padding:2px 7px;text-align:left;vertical-align:top}"
    "td,th{white-space:nowrap}td.long{white-space:normal;min-width:11em}td.n,th.n{text-align:right}div.wide{overflow-x:auto}"
    ".soft{color:#555}"
)


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


def clusters_side_by_side(cells: Sequence[Cell], done: Sequence[TrialRun], ordered: Sequence[str]) -> Html:
    """Return tables of the clusters of cells of the same data and k, which the caller has grouped; nothing for one cell.

    Args:
        cells: the best first.
        done: all trials of the study; of each cell the first seed that has clusters is shown, the same for all where it can be.
        ordered: names of the axes that name a cell here.
    """
    known = [(cell, one) for cell in cells if (one := _first(cell, done)) is not None]
    if len(known) < 2:
        return Html("")
    columns = known[0][1].columns
    same = [(cell, one) for cell, one in known if one.columns == columns][:_MOST_CELLS]
    reference = same[0][1]
    found = [_found(" ".join(cell.cell[axis] for axis in ordered), reference, one) for cell, one in same]
    if len(found) < 2:
        return Html("")
    more = f" The first {len(found)} of {len(cells)} cells." if len(cells) > len(found) else ""
    words = (
        f"Clusters of the first seed, matched to those of {found[0].name} by the means of their rows, each column in its standard "
        f"deviations.{more} Moved: part of the distance from which on it is another cluster; of others the nearest is shown."
    )
    return joined(
        [tag("h3", "The same clusters in each cell"), tag("p", words, class_="note"), _matched(found), _profiles(found)]
    )


def _first(cell: Cell, done: Sequence[TrialRun]) -> ClusterMeans | None:
    own = [one for one in done if one.trial.cell == cell.cell and one.measured is not None]
    return next((one.measured.clusters for one in own if one.measured and one.measured.clusters is not None), None)


def _matched(found: Sequence[_Found]) -> Html:
    """Return a table with a line per cluster of the reference: its share in each cell, and how far its mean moved."""
    reference = found[0].clusters
    rows: list[list[object]] = []
    for c in range(min(len(reference.rows), _MOST_CLUSTERS)):
        rows.append([f"cluster {c}", *(_share(one, c, first=one is found[0]) for one in found)])
    words = [
        [text for text in changes(one.since, found[0].name) if "split" in text or "merged" in text] for one in found
    ]
    if any(words):
        rows.append(
            ["split, merged", *(tag("td", *(tag("div", text) for text in own), class_="long") for own in words)]
        )
    return table(("share of the rows", *(tag("th", one.name, class_="n") for one in found)), rows)


def _share(one: _Found, cluster: int, *, first: bool) -> Html:
    """Return which share of the rows a cluster of the reference has in a cell, and how far it is from it."""
    if cluster not in one.places:
        return tag("td", "none", class_="n")
    r, moved = one.places[cluster]
    share = percent(one.clusters.rows[r] / sum(one.clusters.rows))
    far = f"moved {moved:.0%}".replace("%", " %") if moved <= 1 else "another cluster"
    return tag("td", share, "" if first else tag("div", far, class_="soft"), class_="n")


def _profiles(found: Sequence[_Found]) -> Html:
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
    more = f" The {len(columns)} columns of {len(differs)} that differ most." if len(differs) > len(columns) else ""
    words = f"Means of the rows of each cluster. Red is above and blue below the mean of all rows.{more}"
    head = ("cluster", "column", *(tag("th", one.name, class_="n") for one in found))
    return joined([tag("p", words, class_="note"), table(head, lines)])


def _mean(one: _Found, r: int | None, j: int) -> Html:
    if r is None:
        return tinted("", float("nan"))
    return tinted(number(one.clusters.means[r][j], one.clusters.deviation[j]), float(one.clusters.z[r, j]))
