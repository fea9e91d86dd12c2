"""Attacks of a server on one site, each as a function of what the site answers: (victim, exchanges) -> claims.

The same functions run in this process and, in `malicious_server`, against provisioned sites.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count, pairwise, product
from typing import Any, get_args

import numpy as np

from benchmarks.attacks.differencing import differences, rounds_of, tapped
from benchmarks.attacks.places import distances_from_places
from benchmarks.attacks.questions import Ask, clusters_again, different
from benchmarks.attacks.victim import Victim
from flareclust._foundation.typing import FloatArray, Message
from flareclust.core.microaggregation import grouped, in_order
from flareclust.core.mixtures import Covariance
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.executors.ffcm import FUZZY
from flareclust.executors.gmm import FIT, FIT_DIAGONAL
from flareclust.federation.refinement import UPDATE
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import Algorithm, get
from flareclust.protocol.task import StepName
from flareclust.testing.tools import exchanges as exchanged

#: Up to so many columns all signs of deviations are tried.
_MOST_SIGNS = 6


def borders(ask: Ask, d: int, exchanges: int, direction: int = 0, *, every_row: bool = False) -> list[FloatArray]:
    """Move the border between two centroids across the rows, by updates of Lloyd's algorithm, and subtract the replies.

    The two borders with the fewest rows between them are looked at first, until it is one row.

    Args:
        ask: what the site answers.
        d: number of columns.
        exchanges: how often the site is asked.
        direction: number of one at random; the odd ones are the reverse of those before.
        every_row: whether the rows on the other side of the middle count as well.
    """
    along = np.random.default_rng(direction // 2).normal(size=d)
    along *= (1 - 2 * (direction % 2)) / np.linalg.norm(along)
    every = ask(UPDATE, {"centroids": np.zeros((1, d))})
    if every is None or not len(every["counts"]):
        return []
    middle = every["centroids"][0]
    width = 1e-3 * (1.0 + float(np.abs(middle).max()))

    def beyond(border: float) -> tuple[float, FloatArray]:
        """Return how many rows are reported on the far side of a border, and their sum."""
        at = middle + border * along
        reply = ask(UPDATE, {"centroids": np.stack([at - width * along, at + width * along])})
        if reply is None or 1 not in reply["cluster"]:
            return 0.0, np.zeros(d)
        g = int(np.flatnonzero(reply["cluster"] == 1)[0])
        return float(reply["counts"][g]), reply["counts"][g] * reply["centroids"][g]

    left, claims, number = exchanges - 2, list[FloatArray](), count()
    reach, low = width, beyond(0.0)
    while left > 0 and (high := beyond(reach))[0] > 0:
        left, reach = left - 1, 2 * reach
    between = [(low[0], next(number), 0.0, reach, low, high)] if left > 0 else []
    if every_row:
        between.append((every["counts"][0], next(number), -reach, 0.0, beyond(-reach), low))
    while between and left > 0:
        rows, _, start, end, first, last = heappop(between)
        if rows == 1 and first[0] > 1:
            claims.append(first[1] - last[1])
        if rows <= 1 or end - start <= 1e-12 * reach:
            continue
        half, left = (start + end) / 2, left - 1
        split = beyond(half)
        heappush(between, (abs(first[0] - split[0]), next(number), start, half, first, split))
        heappush(between, (abs(split[0] - last[0]), next(number), half, end, split, last))
    # What is known of the last borders counts as well.
    claims += [first[1] - last[1] for rows, *_, first, last in between if rows == 1]
    return different(claims)


def fuzzy_borders(ask: Ask, d: int, exchanges: int) -> list[FloatArray]:
    """Move a border as `borders` does, by the fuzzy centroids of a job whose fuzzifier makes them hard ones."""

    def update(step: str, arrays: Message) -> Message | None:
        reply = ask(FUZZY, arrays)
        return None if reply is None else _as_groups(reply)

    return borders(update, d, exchanges)


def places(ask: Ask, d: int, exchanges: int) -> list[FloatArray]:
    """Measure small cells from chosen places, by scores, and solve for their rows."""
    return distances_from_places(ask, exchanges) if d == 2 else []


def two_executors(ask: Ask, d: int, exchanges: int) -> list[FloatArray]:
    """Subtract the clusters that one executor makes and those that another one makes of the same centroids."""
    messages: list[Message] = []
    for _ in range(exchanges // 2):
        own = ask(StepName.CLUSTER, {})
        if own is None or not len(own["centroids"]):
            continue
        moved = ask(UPDATE, {"centroids": own["centroids"]})
        messages += [own] if moved is None else [own, moved]
    return by_one_row(messages, d)


def clusters_of_other_k(victim: Victim, ks: Sequence[int]) -> list[FloatArray]:
    """Subtract the clusters that a site makes by itself in jobs with different k."""
    numbers = iter(ks)

    def ask(step: str, arrays: Message) -> Message | None:
        victim.again(next(numbers))
        return victim.ask(step, arrays)

    return clusters_again(ask, len(ks))


def largest_value(ask: Ask, d: int, exchanges: int) -> list[FloatArray]:
    """Claim the largest value of a single column: the border beyond which a site has no cluster to report, by bisection."""
    own = ask(UPDATE, {"centroids": np.zeros((1, 1))})
    if own is None or not len(own["counts"]):
        return []
    low = float(own["centroids"][0, 0])
    far = 1e3 * (1.0 + abs(low))
    high = low + far
    for _ in range(exchanges - 1):
        middle = (low + high) / 2
        reply = ask(UPDATE, {"centroids": np.array([[middle - far], [middle + far]])})
        beyond = reply is not None and 1 in reply["cluster"]
        low, high = (middle, high) if beyond else (low, middle)
    return [np.array([low]), np.array([high])]


# ---- honest but curious ----


def curious(
    name: str, rows: FloatArray, policy: Policy | None, k: int, params: Mapping[str, Any]
) -> tuple[list[FloatArray], int]:
    """Subtract what a site sends in the rounds of an honest job; return the claims and the number of rounds."""
    others = {site: rows + rows.std(axis=0) * (i + 1) / 7 for i, site in enumerate(("other", "third"))}
    options = JobOptions(k=k, min_sites=1)
    with tapped() as seen:
        run_inprocess(get(name), {"min_count": 1, **params}, {"victim": rows, **others}, options, policy=policy)
    messages = [_as_groups(replies.get("victim", {})) for _, _, replies in seen]
    return different(differences(rounds_of(seen, "victim")) + by_one_row(messages, rows.shape[1])), len(seen)


def _as_groups(message: Message) -> Message:
    """Return a message in which the weights of fuzzy clusters stand for numbers of rows, where they are whole."""
    if "support" not in message:
        return message
    whole = np.abs(message["support"] - np.rint(message["support"])) < 1e-6
    counts = np.where(whole, np.rint(message["support"]), 0).astype(np.int64)
    return {name: value for name, value in message.items() if name != "support"} | {"counts": counts}


# ---- everything that can be asked ----


def every_step(
    rows: FloatArray, policy: Policy | None, each: int, algorithms: Iterable[Algorithm]
) -> tuple[list[FloatArray], int, int]:
    """Ask algorithms every step of their usual jobs, with centroids of one's own choice; return claims, answers, refusals.

    Those that are not federated, or have differential privacy, are left out. The tasks are those of an honest job. Where they bring centroids, two take their place, whose border moves.
    """
    claims, answers, refusals = [], 0, 0
    sites = {site: rows[i::3] + 1e-3 * rows.std(axis=0) * i for i, site in enumerate("abc")}
    for algorithm in algorithms:
        if not algorithm.federated or algorithm.executor_class().private:
            continue
        minimum: dict[str, Any] = {"min_count": 2} if "min_count" in algorithm.parameters() else {}
        tasks = {one.task.step: one.task.arrays for one in exchanged(algorithm, sites, 2, assess=True, **minimum)}
        for step, arrays in tasks.items():
            victim = Victim(rows, policy, algorithm.name, k=2)
            messages = [_as_groups(reply) for one in _moved(arrays, rows, each) if (reply := victim.ask(step, one))]
            claims += by_one_row(messages, rows.shape[1])
            answers, refusals = answers + victim.answers, refusals + len(victim.refusals)
    return different(claims), answers, refusals


def _moved(arrays: Message, rows: FloatArray, each: int) -> list[Message]:
    """Return a task as often as `each`, with other centroids every time."""
    d = rows.shape[1]
    named = next((name for name in ("centroids", "candidates") if name in arrays), None)
    if named is None or arrays[named].ndim != 2 or arrays[named].shape[1] != d:
        return [arrays] * min(each, 30)
    along = np.random.default_rng(1).normal(size=d)
    along /= np.linalg.norm(along)
    reach = np.sort(rows @ along)
    low, high = map(float, np.quantile(reach, (0.2, 0.8)))
    at = np.linspace(low, high, each)
    width: float = float(reach[-1]) - float(reach[0])
    moved = []
    for border in at:
        sent = np.array(arrays[named])
        steps = np.linspace(-width, width, len(sent))
        sent[:] = rows.mean(axis=0) + ((border - rows.mean(axis=0) @ along + steps)[:, None] * along)
        moved.append({**arrays, named: sent})
    return moved


def by_one_row(messages: Sequence[Mapping[str, Any]], d: int) -> list[FloatArray]:
    """Claim whatever has as many values as a row, and the differences of sums that differ by one row in number."""
    claims: list[FloatArray] = []
    sums: list[tuple[FloatArray, FloatArray]] = []
    for message in messages:
        wide = [v for v in message.values() if isinstance(v, np.ndarray) and v.ndim == 2 and v.shape[1] == d]
        claims += [row for value in wide for row in value]
        counts = message.get("counts")
        if counts is not None and "centroids" in message and len(counts) == len(message["centroids"]):
            sums.append((np.asarray(counts), message["centroids"] * counts[:, None]))
    for (n, one), (m, other) in pairwise(sums):
        off = np.argwhere(np.abs(n[:, None] - m[None]) == 1)
        claims += [float(n[i] - m[j]) * (one[i] - other[j]) for i, j in off]
    return claims


def own_mixtures(rows: FloatArray, policy: Policy | None, ks: Sequence[int]) -> tuple[list[FloatArray], int, int]:
    """Ask a site for mixtures of its own rows, in jobs with other k and other covariances; return claims, answers, refusals.

    Both steps are asked in jobs with any covariances, whichever of them the job would have. What is claimed: the means; the pairs of
    points that have the mean and the variances of a component, by column and along its axes; and what components, and all of them
    together, differ by between two jobs.
    """
    claims, answers, refusals = [], 0, 0
    for covariance, step in product(get_args(Covariance), (FIT, FIT_DIAGONAL)):
        settings: dict[str, Any] = {"start": "mixtures", "covariance": covariance, "n_init": 1}
        victim, before = Victim(rows, policy, "gmm", k=ks[0], **settings), None
        for k in ks:
            victim.again(k)
            if (reply := victim.ask(step, {})) is None:
                continue
            weights, means = reply["weights"], reply["centroids"]
            for weight, mean, m2 in zip(weights, means, reply["m2"], strict=True):
                claims += pairs_of(mean, m2 / weight)
            sums = np.append(weights, weights.sum()), np.vstack([weights[:, None] * means, weights @ means])
            if before is not None:
                fewer = sums[0][:, None] - before[0]
                for i, j in np.argwhere(np.abs(np.abs(fewer) - 1) < 0.01):
                    claims.append((sums[1][i] - before[1][j]) / fewer[i, j])
            before = sums
        answers, refusals = answers + victim.answers, refusals + len(victim.refusals)
    return different(claims), answers, refusals


def pairs_of(mean: FloatArray, spread: FloatArray) -> list[FloatArray]:
    """Claim the mean (d,), and the pairs of rows that can have it and these variances (d,), or covariances (d, d)."""
    d, full = len(mean), spread.ndim == 2
    deviations = np.sqrt(np.maximum(np.diag(spread) if full else spread, 0.0))
    signs = np.array(list(product((-1.0, 1.0), repeat=d))) if d <= _MOST_SIGNS else np.zeros((1, d))
    steps = [*(signs * deviations)]
    if full:
        values, vectors = np.linalg.eigh(spread)
        steps += [sign * step for step in (vectors * np.sqrt(np.maximum(values, 0.0))).T for sign in (-1.0, 1.0)]
    return [mean, *(mean + step for step in steps)]


def groups_known(rows: FloatArray, policy: Policy | None) -> list[FloatArray]:
    """Claim what follows from all that can be learned: the rows that jobs see, the mean and the sum of every group.

    Groups are given to the attack, as if a server had asked until it knew all of them.
    """
    victim = Victim(rows, policy, "lloyd", k=1)
    if victim.held is None or policy is None:
        return list(rows)
    sums, sizes = group_sums(rows, policy.min_count)
    claims = [*victim.held.session.microaggregated(victim.table).X, *sums, *(sums / sizes[:, None]), *alone(sums)]
    return different(claims)


def group_sums(rows: FloatArray, floor: int) -> tuple[FloatArray, FloatArray]:
    """Return the sums (g, d) and the sizes (g,) of the groups that a site makes of a table of less than a chunk."""
    shown, labels = grouped(in_order(rows), floor)
    groups = [shown[labels == g] for g in range(labels.max() + 1)]
    sums = np.array([group.sum(axis=0) for group in groups]).reshape(-1, rows.shape[1])
    return sums, np.array([float(len(group)) for group in groups])


def alone(sums: FloatArray) -> list[FloatArray]:
    """Claim a row for each group and column in which it has a sum: this sum, and 0 in all other columns."""
    some = np.abs(sums) > 1e-9 * np.abs(sums).max(axis=0, initial=0.0)
    return [
        np.where(np.arange(len(one)) == j, one, 0.0)
        for one, has in zip(sums, some, strict=True)
        for j in np.flatnonzero(has)
    ]
