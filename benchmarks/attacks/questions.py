"""Attacks of a server that breaks the rules: it asks a site what it likes, again and again, and subtracts the answers.

As in `differencing` an attack returns what it claims to be rows. `ask` is what a site answers to one exchange of a job, and
None where it refuses.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchmarks.attacks.differencing import Groups, differences, distinct
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.evaluation.scores import stack, values_needed
from flareclust.executors.pooled import PooledExecutor
from flareclust.protocol.task import StepName

#: What a site answers to a step with these arrays.
Ask = Callable[[str, Message], Message | None]

#: What the site's scores are.
_NAMES = tuple(PooledExecutor.steps[StepName.SCORE].schema.fields)


# ---- chosen centroids ----


def sweep(ask: Callable[[FloatArray], Message | None], d: int, exchanges: int, slack: int = 0) -> list[FloatArray]:
    """Claim rows by moving the border between two centroids of one's own choice across a site's rows, one row at a time.

    Args:
        ask: what the site answers to an update of the centroids (2, d); None where it refuses.
        d: number of columns.
        exchanges: how often the site is asked.
        slack: as for `differences`.
    """
    along = np.random.default_rng(0).normal(size=d)
    along /= np.linalg.norm(along)
    seen: dict[float, Groups | None] = {}

    def at(border: float) -> Groups | None:
        """Return what the site sends about its rows on either side of a border; None where it keeps one of them back."""
        if border not in seen:
            sent = np.stack([(border - 1.0) * along, (border + 1.0) * along])
            message = ask(sent)
            seen[border] = None
            if message is not None and len(message["counts"]) == 2:
                seen[border] = Groups(sent, message["cluster"], message["centroids"], message["counts"])
        return seen[border]

    everything = ask(np.stack([-along, along]))
    if everything is None or not len(everything["counts"]):
        return []
    start = float(everything["centroids"].mean(axis=0) @ along)
    middle = at(start)
    width = 4.0 * (float((middle.means[1] - middle.means[0]) @ along) if middle else 1.0)
    between, claims = [(start - width, start), (start, start + width)], []
    while between and len(seen) < exchanges - 1:
        low, high = between.pop(0)
        a, b = at(low), at(high)
        if a is None and b is None:
            continue
        if a is not None and b is not None:
            if np.array_equal(a.means, b.means):
                continue
            if alone := differences([a, b], slack):
                claims += alone
                continue
        if high - low > 1e-9 * width:
            at((low + high) / 2)
            between += [(low, (low + high) / 2), ((low + high) / 2, high)]
    return distinct(claims)


# ---- chosen solutions ----


@dataclass(frozen=True)
class Places:
    """Points from which a site's rows are measured, on one side of all borders across `along`.

    Attributes:
        along: direction in which the border moves (d,), of length 1.
        points: (d + 1, d), the differences of the first to the others at right angles to one another.
    """

    along: FloatArray
    points: FloatArray

    @classmethod
    def about(cls, middle: FloatArray, far: float) -> "Places":
        """Return places that are `far` from the rows' middle (d,) and from each other: that loses the fewest digits."""
        d = len(middle)
        basis = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))[0].T
        return cls(basis[0], middle + far * np.vstack([basis[0], 2 * basis[0], basis[0] + basis[1:]]))

    def solutions(self, border: float) -> list[FloatArray]:
        """Return a solution (2, d) for every place whose first cell is the rows beyond the border: the place, its mirror."""
        return [np.stack([p, p - 2 * (p @ self.along - border) * self.along]) for p in self.points]

    def located(self, distances: FloatArray) -> FloatArray | None:
        """Return the point (d,) that is so far from the places (d + 1,); None where no point is."""
        if (distances < 0).any():
            return None
        first, others = self.points[0], self.points[1:]
        gap = others - first
        right = (distances[0] - distances[1:]) * (distances[0] + distances[1:]) + (gap**2).sum(axis=1)
        point: FloatArray = first + np.linalg.solve(2 * gap, right)
        off = np.abs(np.sqrt(((point - self.points) ** 2).sum(axis=1)) - distances).max()
        return point if off <= 1e-8 * distances.max() else None


def chosen_solutions(ask: Ask, exchanges: int, slack: int = 0) -> list[FloatArray]:
    """Claim rows by having solutions of two centroids scored whose border passes the rows one at a time.

    Where one row lies between two borders, the sums of distances to a place differ by the row's distance, and its
    distances to d + 1 places locate it.

    Args:
        ask: see above; of `pooled`.
        exchanges: how often the site is asked.
        slack: by how much a number of rows may be wrong, where the site rounds it; all that fit are tried.
    """
    own = ask(StepName.CLUSTER, {})
    if own is None or not len(own["counts"]):
        return []
    middle = np.average(own["centroids"], axis=0, weights=own["counts"])
    far = 6 * float(np.sqrt(((own["centroids"] - middle) ** 2).sum(axis=1).mean()) or 1.0)
    places = Places.about(middle, far)
    reported = int(own["counts"].sum()) - slack * len(own["counts"])  # a site answers if it has enough of these
    at_once = 0
    while values_needed(stack(places.solutions(0.0) * (at_once + 1)), _NAMES, len(middle)) <= reported * len(middle):
        at_once += 1
    start = float(middle @ places.along)
    low, high = start - far / 2, start + far / 2
    wanted, seen = list(np.linspace(low, high, max(at_once, 2))), dict[float, tuple[float, FloatArray]]()
    for _ in range(exchanges - 1):
        now, wanted = wanted[:at_once], wanted[at_once:]
        answer = ask(StepName.SCORE, stack([s for border in now for s in places.solutions(border)])) if now else None
        if answer is None:
            break
        counts, sums = (answer[name][::2].reshape(len(now), -1) for name in ("counts", "scatter"))
        seen |= {border: (float(n[0]), s) for border, n, s in zip(now, counts, sums, strict=True)}
        if not wanted:
            wanted = [
                (a + b) / 2 for a, b in pairwise(sorted(seen)) if seen[a][0] - seen[b][0] > 1 and b - a > 1e-9 * far
            ]
    steps = pairwise(sorted(seen))
    return distinct([row for a, b in steps for row in _between(places, seen[a], seen[b], slack)])


def _between(
    places: Places, before: tuple[float, FloatArray], after: tuple[float, FloatArray], slack: int
) -> Iterator[FloatArray]:
    """Yield what one row between two borders can be, for each number of rows that may be beyond the first."""
    (n, sums), (fewer, rest) = before, after
    if not n or not fewer or abs(n - fewer - 1) > 2 * slack:
        return
    for true in n + np.arange(-slack, slack + 1):
        if true > 1 and (row := places.located(sums * (true / n) - rest * ((true - 1) / fewer))) is not None:
            yield row


# ---- own clusters again ----


def clusters_again(ask: Ask, exchanges: int, slack: int = 0) -> list[FloatArray]:
    """Claim the differences of clusters that a site made of its rows by itself, each time from other random starts.

    If one of two clusters has the other's rows and one more, their sums differ by that row.

    Args:
        ask: see above; of `pooled`.
        exchanges: how often the site is asked.
        slack: as for `chosen_solutions`.
    """
    answers: list[Message] = []
    while len(answers) < exchanges and (answer := ask(StepName.CLUSTER, {})) is not None:
        answers.append(answer)
    if not answers:
        return []
    maximum = max(len(a["counts"]) for a in answers)
    means = np.full((len(answers), maximum, answers[0]["centroids"].shape[1]), np.inf)
    counts = np.full((len(answers), maximum), np.iinfo(np.int64).min // 2)
    for a, answer in enumerate(answers):
        means[a, : len(answer["counts"])], counts[a, : len(answer["counts"])] = answer["centroids"], answer["counts"]
    claims = [np.empty((0, means.shape[2]))]
    for a, c in np.argwhere(counts > 0):
        for n in counts[a, c] + np.arange(-slack, slack + 1):
            other, larger = np.nonzero(np.abs(counts - n - 1) <= slack)
            rows = (n + 1) * means[other, larger] - n * means[a, c]
            # A row is in the nearest cluster: in the one answer in this cluster, in the other in another one.
            fits = (_own(rows, means[other]) == larger) & (_own(rows, means[a][None]) != c)
            claims.append(rows[fits])
    return different(np.concatenate(claims))


def _own(rows: FloatArray, means: FloatArray) -> IntArray:
    """Return the nearest of each row's means, rows (r, d) and means (r or 1, k, d)."""
    nearest: IntArray = ((rows[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    return nearest


def different(claims: FloatArray | Sequence[FloatArray]) -> list[FloatArray]:
    """Return the claims, each (d,), without those that say the same again."""
    if not len(claims):
        return []
    claims = np.asarray(claims)
    size = np.abs(claims).max(axis=0, initial=0.0)
    _, first = np.unique(np.rint(claims / np.where(size > 0, size, 1.0) * 1e9), axis=0, return_index=True)
    return list(claims[first])


# ---- what is kept back ----


def kept_back(ask: Ask, slack: int = 0) -> list[FloatArray]:
    """Claim the row that a site left out of its clusters: what all rows add up to, less what the clusters do.

    The scores of single centroids, squared distances to d + 1 points, disclose the sum of all rows.

    Args:
        ask: see above; of `pooled`.
        slack: as for `chosen_solutions`; numbers of rows are then tried of all rows together.
    """
    own = ask(StepName.CLUSTER, {})
    if own is None or not len(own["counts"]):
        return []
    counts: IntArray = own["counts"]
    middle = np.average(own["centroids"], axis=0, weights=counts)
    far = float(np.sqrt(((own["centroids"] - middle) ** 2).sum(axis=1).mean()) or 1.0)
    points: Sequence[FloatArray] = [middle[None], *(middle[None] + far * np.eye(len(middle))[:, None])]
    score = ask(StepName.SCORE, stack(points))
    if score is None or not score["rows"]:
        return []
    known = ((own["centroids"] - middle) * counts[:, None]).sum(axis=0)
    claims = []
    for n in int(score["rows"]) + np.arange(-slack, slack + 1):
        if abs(int(n) - int(counts.sum()) - 1) <= slack * len(counts):
            sse = score["sse"] * (n / score["rows"])
            claims.append(middle + (sse[0] - sse[1:] + n * far**2) / (2 * far) - known)
    return claims
