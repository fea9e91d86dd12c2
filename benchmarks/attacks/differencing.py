"""Attacks of a server that follows the protocol, and of one that does not, on what it gets from a site.

An attack sees what a server sees, and returns what it claims to be rows. `number_recovered` counts those that are rows; it knows
the site's data. Nothing here is needed to use flareclust; `reconstruction.py` runs it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.federation.server import ServerJob
from flareclust.protocol.replies import by_name
from flareclust.protocol.rounds import Round

#: A claim is a row if no value of it is farther from the row's than this many standard deviations of its column.
CLOSE = 1e-6
#: Two computations of one row agree to this, in units of the largest value that went into them.
_AGREE = 1e-10
#: Most groups that are tried together, and most that changed for which threes are tried.
_TOGETHER, _MANY = 3, 14


@dataclass(frozen=True)
class Groups:
    """What a site sent in one round about the rows nearest to each of the centroids that it received.

    Attributes:
        sent: centroids as the server sent them (K, d).
        cluster: which of them each group belongs to (c,).
        means: of the groups' rows (c, d).
        counts: numbers of rows, as they were sent (c,).
    """

    sent: FloatArray
    cluster: IntArray
    means: FloatArray
    counts: IntArray


@contextmanager
def tapped() -> Iterator[list[Any]]:
    """Give what the servers of this process get in rounds meanwhile: (step, what was sent, replies by name)."""
    seen: list[Any] = []
    advance = ServerJob.advance

    def listening(job: ServerJob, round_: Round[Any], replies: Mapping[str, Message]) -> Round[Any]:
        if round_.step in job.aggregator.executor.steps:
            seen.append((round_.step, round_.sent, by_name(replies)))
        return advance(job, round_, replies)

    with patch.object(ServerJob, "advance", listening):
        yield seen


def number_recovered(claims: Sequence[FloatArray], rows: FloatArray) -> int:
    """Return how many of the rows (n, d) are among the claims, each (d,)."""
    if not len(claims):
        return 0
    deviation = rows.std(axis=0)
    unit = np.where(deviation > 0, deviation, 1.0)
    gaps = cdist(rows / unit, np.array(claims) / unit, "chebyshev").min(axis=1)
    return int((gaps <= CLOSE).sum())


def distinct(claims: Sequence[FloatArray]) -> list[FloatArray]:
    """Return the claims without those that say the same again."""
    kept: list[FloatArray] = []
    for claim in claims:
        if not any(np.allclose(claim, other, rtol=1e-7, atol=1e-9) for other in kept):
            kept.append(claim)
    return kept


# ---- one message ----


def pairs_in_one_column(message: Message, unit: float) -> list[FloatArray]:
    """Claim the two rows of every cluster of two in data of one column: the centroid, and the radius to either side.

    A radius that was raised to the next number of two digits is tried as it is, and as all that it can have been where
    values are multiples of `unit`; what only one value fits is claimed.
    """
    claims = []
    for centroid, radius in zip(message["centroids"], message["radii"], strict=True):
        step = 10.0 ** (np.floor(np.log10(max(radius, 1e-300))) - 1)
        first, beyond = (np.ceil(end / (unit / 2) - 1e-6) for end in (radius - step, radius))
        half = np.arange(first, beyond) * (unit / 2)
        whole = np.abs((centroid + half) / unit - np.rint((centroid + half) / unit)) < 1e-6
        for one in (radius, *half[whole]) if whole.sum() == 1 else (radius,):
            claims += [centroid - one, centroid + one]
    return claims


# ---- two rounds ----


def rounds_of(seen: Sequence[Any], name: str) -> list[Groups]:
    """Return what a site sent in the updates of a federation, in their order."""
    found = []
    for _, task, replies in seen:
        message = replies.get(name, {})
        if "shifts" in message:
            message = from_noise(message, task)
        sent = task.get("centroids", task.get("candidates"))
        if sent is None or "counts" not in message or not len(message["counts"]):
            continue
        # A group's rows are nearest to its centroid, and so is their mean.
        cluster = message["cluster"] if "cluster" in message else cdist(message["centroids"], sent).argmin(axis=1)
        found.append(Groups(sent, cluster, message["centroids"], message["counts"]))
    return found


def from_noise(message: Message, task: Message) -> Message:
    """Return what an update of differentially private sums would be without the noise, as near as anybody can estimate it."""
    present = np.flatnonzero(message["rows"] >= 1)
    rows, radii = message["rows"][present], task["radii"][present]
    means = task["centroids"][present] + radii[:, None] * message["shifts"][present] / rows[:, None]
    return {"centroids": means, "counts": np.rint(rows).astype(np.int64), "cluster": present}


def differences(rounds: Sequence[Groups], slack: int = 0) -> list[FloatArray]:
    """Claim the rows that changed their groups between two rounds, alone or in threes of groups.

    Args:
        rounds: of one site, in their order.
        slack: by how much a number of rows may be wrong, where the site rounds it; all that fit are tried.
    """
    claims: list[FloatArray] = []
    for before, after in pairwise(rounds):
        claims += _rounded(before, after, slack) if slack else _exact(before, after)
    return distinct(claims)


def _exact(before: Groups, after: Groups) -> list[FloatArray]:
    """Add up the changes of some groups: where they have one row more or fewer together, the sum is that row."""
    old, new = _matched(before, after)
    delta = after.counts[new] - before.counts[old]
    moved = after.counts[new, None] * after.means[new] - before.counts[old, None] * before.means[old]
    scale = float(np.abs(before.counts[:, None] * before.means).max())
    changed = np.flatnonzero((np.abs(moved).max(axis=1) > _AGREE * scale) | (delta != 0))
    claims = []
    for size in range(1, _TOGETHER + (len(changed) <= _MANY)):
        for some in map(list, combinations(changed, size)):
            if abs(total := int(delta[some].sum())) == 1:
                row = total * moved[some].sum(axis=0)
                if _crossed(row, before, after, old[some], new[some], entering=total > 0):
                    claims.append(row)
    return claims


def _rounded(before: Groups, after: Groups, slack: int) -> list[FloatArray]:
    """Try all numbers of rows that fit the rounded ones: what one group lost must be what others gained, in every column."""
    old, new = _matched(before, after)
    scale = float(np.abs(before.means).max() * before.counts.max())
    changed = [
        g
        for g in range(len(old))
        if np.abs(after.means[new[g]] - before.means[old[g]]).max() > _AGREE * scale / max(1, before.counts[old[g]])
    ]

    def moved(g: int, by: int) -> FloatArray:
        """Return the change of the group's sum for each number of rows that it may have had (s, d), `by` rows more now."""
        n = int(before.counts[old[g]]) + np.arange(-slack, slack + 1)
        n = n[(n > 0) & (n + by > 0)][:, None]
        found: FloatArray = (n + by) * after.means[new[g]] - n * before.means[old[g]]
        return found

    claims = []
    for i, j in product(changed, repeat=2):
        if i == j:
            continue
        lost, gained = -moved(i, -1), moved(j, +1)
        claims += [lost[a] for a in np.flatnonzero(cdist(lost, gained, "chebyshev").min(axis=1) <= _AGREE * scale)]
    for j in changed if len(changed) <= _MANY else []:  # two rows to one group, each from another; or the reverse
        for i, other in combinations([g for g in changed if g != j], 2):
            for sign in (-1, +1):
                one, two, both = sign * moved(i, sign), sign * moved(other, sign), -sign * moved(j, -2 * sign)
                sums = (one[:, None] + two[None]).reshape(-1, one.shape[1])
                for where in np.flatnonzero(cdist(sums, both, "chebyshev").min(axis=1) <= _AGREE * scale):
                    claims += [one[where // len(two)], two[where % len(two)]]
    return claims


def _matched(before: Groups, after: Groups) -> tuple[IntArray, IntArray]:
    """Return which groups of two rounds are the same cluster: by its number, or where numbers change, by nearness."""
    if len(before.sent) == len(after.sent) and np.array_equal(
        _nearest(before.sent, after.sent), np.arange(len(before.sent))
    ):
        common = np.intersect1d(before.cluster, after.cluster)
        return (
            np.array([int(np.flatnonzero(before.cluster == c)[0]) for c in common], dtype=np.int64),
            np.array([int(np.flatnonzero(after.cluster == c)[0]) for c in common], dtype=np.int64),
        )
    old, new = linear_sum_assignment(cdist(before.means, after.means))
    return old.astype(np.int64), new.astype(np.int64)


def _nearest(points: FloatArray, centroids: FloatArray) -> IntArray:
    nearest: IntArray = cdist(points, centroids).argmin(axis=1).astype(np.int64)
    return nearest


def _crossed(row: FloatArray, before: Groups, after: Groups, old: IntArray, new: IntArray, *, entering: bool) -> bool:
    """Return whether a row would have entered or left the groups, by the centroids that were sent."""
    was = int(_nearest(row[None], before.sent)[0]) in before.cluster[old]
    now = int(_nearest(row[None], after.sent)[0]) in after.cluster[new]
    return now and not was if entering else was and not now


# ---- many rounds ----


def samples(seen: Sequence[Any], name: str, seed: int, first_round: int = 1) -> list[FloatArray]:
    """Claim all rows of mini-batch k-means, whose samples anybody can repeat who has the job's seed and the site's name.

    In each round a group's sum is a sum of the site's rows, each as often as it was drawn. Which rows are in which group
    follows from the numbers of rows, and then the rows from the sums, once there are more rounds than rows. The rounds
    in which rows still changed their groups spoil it, so the last ones are taken.
    """
    heard = [
        (t, task, replies[name]) for t, (_, task, replies) in enumerate(seen) if t >= first_round and name in replies
    ]
    if not heard:
        return []
    n = max(int(message["counts"].sum()) for _, _, message in heard)
    drawn = np.array([np.bincount(stream(seed, t, name).integers(n, size=n), minlength=n) for t, _, _ in heard])
    claims: list[FloatArray] = []
    for c in range(len(heard[0][1]["centroids"])):
        present = [i for i, (_, _, message) in enumerate(heard) if c in message["cluster"]][-(n + 5) :]
        if len(present) < n:
            continue
        at = [int(np.flatnonzero(heard[i][2]["cluster"] == c)[0]) for i in present]
        sizes = np.array([heard[i][2]["counts"][g] for i, g in zip(present, at, strict=True)], dtype=np.float64)
        sums = np.array(
            [heard[i][2]["counts"][g] * heard[i][2]["centroids"][g] for i, g in zip(present, at, strict=True)]
        )
        member = np.linalg.lstsq(drawn[present].astype(np.float64), sizes, rcond=None)[0]
        own = np.abs(member - 1) < 1e-6
        if own.any() and (own | (np.abs(member) < 1e-6)).all():
            claims += list(np.linalg.lstsq(drawn[present][:, own].astype(np.float64), sums, rcond=None)[0])
    return claims
