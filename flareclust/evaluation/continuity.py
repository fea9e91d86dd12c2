"""Which clusters of a new result are those of an earlier one: kept, new, gone, split or merged, and how far they have drifted.

Everything is computed from centroids, spreads and shares; no rows are needed.

A new cluster continues an old one if its centroid is within the old one's reach: the smaller of its within-cluster spread
and half the distance to the nearest other old centroid. Rows with spread s around a centroid that moved by m have the mean
squared distance s² + m² to the old one. So up to the spread the old centroid describes the new rows with at most twice
their squared error, and up to half the distance no other old centroid is nearer. Pairs are a linear assignment:
as many as possible, and of these the nearest in units of the reach.

What continues nothing, and is nearest to an old cluster, is a part of it if both together explain the old cluster better
than its largest part does: their shares add up to its share more nearly, and their mean is within its reach. That is a
split; a merge is the same with old and new exchanged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np

from flareclust._foundation.display import all_of
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.evaluation.metrics._arrays import ratios
from flareclust.evaluation.profile_words import percent

#: The old cluster that each new one continues.
_Pairs: TypeAlias = dict[int, int]

#: Fields that are by number of a cluster.
_BY_NUMBER = ("parts", "joined")


#: From which part of its reach on a centroid has drifted, beyond what it moves by chance. Half of it means that the old
#: centroid describes the cluster's rows with a quarter more squared error.
_FAR_MOVED = 0.5

#: From which share of the rows on the clusters' shares have drifted, beyond what they change by chance.
_MANY_ROWS = 0.1


@dataclass(frozen=True)
class Clusters:
    """The clusters of one result, in the space in which two are compared.

    Attributes:
        centroids: (k, d).
        rows: of each cluster (k,); None where they are not known.
        spread: root mean square distance of each cluster's rows to its centroid (k,); None where it is not known.
    """

    centroids: FloatArray
    rows: IntArray | None = None
    spread: FloatArray | None = None

    @property
    def shares(self) -> FloatArray | None:
        """Return the share of the rows in each cluster (k,); None where it is not known."""
        return None if self.rows is None or not self.rows.sum() else self.rows / self.rows.sum()


@dataclass(frozen=True)
class Continuity:
    """What became of the clusters of an earlier result.

    Attributes:
        order: which cluster of the new result, as it was numbered, gets each number (k,).
        was: the old cluster that each new one continues, by its new number (k,); None for those that continue none, and for
            those that old ones were merged into.
        moved: how far its centroid moved, as a part of the old one's reach (k,); None likewise.
        parts: of each old cluster that was split, the new ones.
        joined: of each new cluster that old ones were merged into, these.
        new: new clusters that are neither.
        gone: old clusters that are neither.
        moved_most: the largest of `moved`; None where nothing is continued.
        moved_by_chance: how far that centroid moves between two samples of such sizes; 0 where these are not known.
        shares_moved: share of the rows that is in other clusters than the old shares say, where the parts of a split cluster
            count as one, and so do clusters that were merged; None where shares are not known.
        shares_by_chance: how large that is on average between two samples of such sizes.
        before: shares of the old clusters; None where they are not known.
    """

    order: list[int]
    was: list[int | None]
    moved: list[float | None]
    parts: dict[int, list[int]]
    joined: dict[int, list[int]]
    new: list[int]
    gone: list[int]
    moved_most: float | None = None
    moved_by_chance: float = 0.0
    shares_moved: float | None = None
    shares_by_chance: float = 0.0
    before: list[float] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values, whose keys are texts."""
        texts = {name: {str(r): own for r, own in getattr(self, name).items()} for name in _BY_NUMBER}
        return asdict(self) | texts

    def changes(self, name: str) -> list[str]:
        """Return what changed of the clusters of the earlier result `name`, a sentence each; nothing where all went on."""
        said = [f"cluster {a} of {name} was split into the clusters {all_of(own)}" for a, own in self.parts.items()]
        said += [f"cluster {r} is clusters {all_of(own)} of {name} together" for r, own in self.joined.items()]
        said += [f"cluster {a} of {name} is gone" for a in self.gone]
        said += [f"cluster {r} is new since {name}" for r in self.new]
        others = [(r, a) for r, a in enumerate(self.was) if a is not None and a != r]
        said += [
            f"cluster {r} was cluster {a} in {name}: with fewer clusters, its number is no longer used"
            for r, a in others
        ]
        return said

    def drift(self, name: str, rows: str = "rows") -> list[str]:
        """Return how far the clusters have drifted since the earlier result `name`, a sentence each; nothing where they have not.

        `rows` is what rows are called.
        """
        said, most = [], self.moved_most
        if most is not None and most > _FAR_MOVED + self.moved_by_chance:
            farthest = max(range(len(self.moved)), key=lambda r: self.moved[r] or 0.0)
            said.append(
                f"drift: the centroid of cluster {farthest} has moved far since {name}: {percent(most)} of the distance at which it "
                "would be a new cluster"
            )
        shares = self.shares_moved
        if shares is not None and shares > _MANY_ROWS + self.shares_by_chance:
            said.append(
                f"drift: the shares of the clusters differ from those of {name} by {percent(shares)} of the {rows}"
            )
        return said

    def summary(self, name: str, rows: str = "rows") -> str:
        """Return in one sentence how the clusters are numbered by the earlier result `name`, and how far they, and the `rows`, have moved."""
        same = sum(a is not None for a in self.was)
        said = [f"{same} of {len(self.was)} {'goes' if same == 1 else 'go'} on"]
        if together := len(self.joined):
            said.append(f"{together} {'is' if together == 1 else 'are'} several earlier ones together")
        if self.moved_most is not None:
            said.append(f"their centroids moved at most {percent(self.moved_most)} of the way to another cluster")
        if self.shares_moved is not None:
            said.append(f"their shares differ by {percent(self.shares_moved)} of the {rows}")
        return f"clusters are numbered as in {name}: {', '.join(said)}"

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Continuity":
        """Return what `to_json` gave; TypeError or ValueError for anything else."""
        numbers = {name: {int(r): list(own) for r, own in dict(values[name]).items()} for name in _BY_NUMBER}
        return cls(**dict(values) | numbers)


def compare(old: Clusters, new: Clusters) -> Continuity:
    """Return what became of the old clusters (k, d) in the new result (k', d), and the numbers of its clusters.

    A cluster that continues an old one has its number; so has the nearest part of a split one, and one that others were
    merged into has that of the largest of these whose number is still used. Others get the numbers that are free, first those
    that no old cluster had. Where there are fewer clusters than before, the numbers end earlier, and clusters with higher ones
    get free ones, too.
    """
    limits, distances = reach(old), _distances(new.centroids, old.centroids)
    moved = ratios(distances, limits)
    pairs = _pairs(moved)
    parts = _splits(old, new, pairs, limits)
    taken = {b for own in parts.values() for b in own}
    joined = _merges(old, new, pairs, taken, set(parts))
    # What others were merged into continues none of them alone.
    pairs = {b: a for b, a in pairs.items() if b not in joined}
    wanted, before = _wanted(pairs, parts, joined, distances, old.shares), len(old.centroids)
    kept = {b: a for b, a in wanted.items() if a < len(moved)}
    free = iter(sorted({*range(len(moved))} - {*kept.values()}, key=lambda number: (number < before, number)))
    numbers = [kept[b] if b in kept else next(free) for b in range(len(moved))]
    order, known = [int(b) for b in np.argsort(numbers)], {*pairs, *taken, *joined}
    ended = {*pairs.values(), *parts, *(a for own in joined.values() for a in own)}
    return Continuity(
        order=order,
        was=[pairs.get(b) for b in order],
        moved=[float(moved[b, pairs[b]]) if b in pairs else None for b in order],
        parts={a: sorted(numbers[b] for b in own) for a, own in parts.items()},
        joined={numbers[b]: own for b, own in joined.items()},
        new=[r for r, b in enumerate(order) if b not in known],
        gone=[a for a in range(len(old.centroids)) if a not in ended],
        before=None if old.shares is None else old.shares.tolist(),
        **_moved(old, new, pairs, moved, limits),
        **_shifted(old, new, {b: [a] for b, a in pairs.items()} | joined, parts),
    )


def reach(old: Clusters) -> FloatArray:
    """Return how far from each centroid (k,) that of the same cluster can be at most; infinite where nothing says it."""
    apart = _distances(old.centroids, old.centroids)
    np.fill_diagonal(apart, np.inf)
    half = apart.min(axis=1) / 2
    return np.asarray(half if old.spread is None else np.minimum(half, old.spread))


def _distances(A: FloatArray, B: FloatArray) -> FloatArray:
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(A, B))


def _pairs(moved: FloatArray) -> _Pairs:
    """Return the old cluster that each new one continues, by how far centroids moved (k', k)."""
    from scipy.optimize import linear_sum_assignment

    within = moved <= 1
    # A pair out of reach costs more than any set of pairs within, so that it never takes the place of one of these.
    rows, columns = linear_sum_assignment(np.where(within, moved**2, 1.0 + min(moved.shape)))
    return {int(b): int(a) for b, a in zip(rows, columns, strict=True) if within[b, a]}


def _splits(old: Clusters, new: Clusters, pairs: _Pairs, limits: FloatArray) -> dict[int, list[int]]:
    """Return the parts, as numbered before, of each old cluster that was split."""
    shares, before = new.shares, old.shares
    if shares is None or before is None:
        return {}
    nearest, found = _distances(new.centroids, old.centroids).argmin(axis=1), {}
    for a, share in enumerate(before):
        parts = [b for b, near in enumerate(nearest) if pairs.get(b, int(near)) == a]
        if _explained(a, share, parts, old.centroids, new.centroids, shares, float(limits[a])):
            found[a] = parts
    return found


def _merges(old: Clusters, new: Clusters, pairs: _Pairs, taken: set[int], split: set[int]) -> dict[int, list[int]]:
    """Return the old clusters that were merged into new ones, these as numbered before and none of those `taken`."""
    shares, before = new.shares, old.shares
    if shares is None or before is None:
        return {}
    nearest = _distances(old.centroids, new.centroids).argmin(axis=1)
    continued, found = {a: b for b, a in pairs.items()}, {}
    for b, share in enumerate(shares):
        own = [a for a, near in enumerate(nearest) if continued.get(a, int(near)) == b and a not in split]
        if b in taken or len(own) < 2:
            continue
        limit = _reach_together(old, own, before)
        if _explained(b, share, own, new.centroids, old.centroids, before, limit):
            found[b] = own
    return found


def _explained(
    one: int, share: float, parts: Sequence[int], ones: FloatArray, others: FloatArray, shares: FloatArray, limit: float
) -> bool:
    """Return whether parts together are a cluster `one` of this share, more nearly than the largest part alone is."""
    weights = shares[list(parts)]
    if len(parts) < 2 or not weights.sum() > 0:
        return False
    middle = np.average(others[list(parts)], axis=0, weights=weights)
    together = abs(float(weights.sum()) - share) < abs(float(weights.max()) - share)
    return together and float(np.linalg.norm(middle - ones[one])) <= limit


def _reach_together(old: Clusters, own: Sequence[int], shares: FloatArray) -> float:
    """Return the reach of several old clusters as if they were one."""
    weights = shares[list(own)]
    if not weights.sum() > 0:
        return 0.0
    middle = np.average(old.centroids[list(own)], axis=0, weights=weights)
    others = np.delete(old.centroids, list(own), axis=0)
    half = float(_distances(middle[None], others).min()) / 2 if len(others) else np.inf
    if old.spread is None:
        return half
    squares = old.spread[list(own)] ** 2 + ((old.centroids[list(own)] - middle) ** 2).sum(axis=1)
    return min(half, float(np.sqrt(np.average(squares, weights=weights))))


def _wanted(
    pairs: _Pairs,
    parts: dict[int, list[int]],
    joined: dict[int, list[int]],
    distances: FloatArray,
    shares: FloatArray | None,
) -> dict[int, int]:
    """Return the number of an old cluster that new ones are to have."""
    wanted = dict(pairs)
    for a, own in parts.items():
        if a not in pairs.values():
            wanted[min(own, key=lambda b: float(distances[b, a]))] = a
    for b, olds in joined.items():
        there = [a for a in olds if a < len(distances)] or olds
        wanted[b] = max(there, key=lambda a: 0.0 if shares is None else float(shares[a]))
    return wanted


def _moved(old: Clusters, new: Clusters, pairs: _Pairs, moved: FloatArray, limits: FloatArray) -> dict[str, float]:
    """Return how far the centroid moved that moved farthest, and how far that is by chance."""
    if not pairs:
        return {}
    b, a = max(pairs.items(), key=lambda pair: float(moved[pair]))
    found = {"moved_most": float(moved[b, a])}
    if old.rows is not None and new.rows is not None and old.spread is not None and limits[a] > 0:
        variance = 1 / max(int(old.rows[a]), 1) + 1 / max(int(new.rows[b]), 1)
        found["moved_by_chance"] = float(old.spread[a] * np.sqrt(variance) / limits[a])
    return found


def _shifted(
    old: Clusters, new: Clusters, continued: Mapping[int, Sequence[int]], parts: Mapping[int, Sequence[int]]
) -> dict[str, float]:
    """Return the total variation distance of the shares, and its mean for two samples of such sizes.

    `continued` are the old clusters that new ones continue, alone or together; parts are those of each old one.
    """
    before, q = old.shares, new.shares
    if before is None or q is None or old.rows is None or new.rows is None:
        return {}
    p, now = before.copy(), np.zeros(len(before))
    for b, own in continued.items():
        p[own[0]], p[own[1:]] = before[own].sum(), 0.0
        now[own[0]] = q[b]
    for a, own in parts.items():
        now[a] = q[own].sum()
    variance = p * (1 - p) * (1 / old.rows.sum() + 1 / new.rows.sum())
    # Shares that increased add up to those that decreased, once new clusters count as an increase from 0.
    return {
        "shares_moved": float(np.maximum(p - now, 0).sum()),
        "shares_by_chance": float(np.sqrt(2 / np.pi * variance).sum() / 2),
    }
