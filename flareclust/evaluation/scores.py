"""How well several solutions fit the same rows: sums that sites may add up, and what they say about each solution.

The candidates travel as one array (t, d) with the number of the solution that each centroid belongs to (t,), so that
solutions may have different numbers of centroids.

A row that is alone near a centroid in several candidates could be located by its distances, so cells with fewer than
`min_count` rows are left out of the sums per centroid. At a site without a policy a further rule applies: where it has so
few rows that an honest server could solve for them from what it sends, it answers as a site without rows would. Neither
stops a server that chooses the candidates. A site with a policy computes the sums from microaggregated rows
(`flareclust.core.microaggregation`), so that no choice of candidates discloses more about few rows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from flareclust._foundation.errors import Aborted, BadMessage
from flareclust._foundation.typing import AbortCheck, FloatArray, IntArray, Message, never_abort
from flareclust.core import assessment
from flareclust.core.arrays import extent
from flareclust.core.disclosure import factor, rounded
from flareclust.core.runtime import one_thread
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Field, Schema, counts
from flareclust.protocol.task import StepName, Task

#: What `score_sums` can compute: over the rows, their number, and for each of the c candidates the sums of squared
#: distances and of simplified silhouettes, and the largest eigenvalue of the residuals' scatter (their squared spectral
#: norm); for each of the t centroids the number of its rows and the sum of their distances.
ALL_SCORES: Mapping[str, str | Field] = {
    "rows": counts(""),
    "sse": "c",
    "silhouette": "c",
    "spread": "c",
    "counts": counts("t"),
    "scatter": "t",
}

_CANDIDATES = Schema(candidates="t d", candidate=counts("t"))

#: What sites are asked for in each step; those without sums by centroid are few numbers.
SCORES_OF: Mapping[str, Mapping[str, str | Field]] = {
    StepName.SCORE: ALL_SCORES,
    StepName.SCORE_INERTIA: {name: ALL_SCORES[name] for name in ("rows", "sse")},
    StepName.SCORE_SILHOUETTE: {name: ALL_SCORES[name] for name in ("rows", "sse", "silhouette")},
}


def stack(candidates: Sequence[FloatArray]) -> Message:
    """Return what a server sends to have solutions (k_i, d) scored: `candidates` (t, d) and `candidate` (t,)."""
    return {
        "candidates": np.concatenate(candidates),
        "candidate": np.repeat(np.arange(len(candidates)), [len(c) for c in candidates]),
    }


def unstack(task: Message) -> list[FloatArray]:
    """Return the solutions in what `stack` returned."""
    ends = np.bincount(task["candidate"]).cumsum().tolist()
    return [task["candidates"][first:end] for first, end in pairwise([0, *ends])]


def values_needed(task: Message, names: Iterable[str], d: int) -> int:
    """Return how many values (rows times d columns) a site needs to answer with the sums called `names`."""
    sizes = np.bincount(task["candidate"])
    return values_needed_for(len(sizes), int(sizes.sum()), int(sizes.max()), names, d)


def values_needed_for(c: int, t: int, largest: int, names: Iterable[str], d: int) -> int:
    """Return how many values (rows times d columns) a site needs to score c solutions with t centroids, at most `largest` each.

    As many as the numbers of the answer, and of the description of its clusters and the assessment, which the same job
    asks for: so never as many equations as unknowns. Further rounds of an algorithm are not counted.
    """
    size = {"rows": 1, "counts": t, "scatter": t}
    return sum(size.get(name, c) for name in names) + 2 * largest * (d + 3)


def score_sums(
    task: Message,
    X: FloatArray,
    names: Iterable[str],
    min_count: int,
    aborted: AbortCheck = never_abort,
    *,
    limited: bool = True,
    repeats: int = 1,
    view: Callable[[FloatArray, FloatArray], FloatArray] | None = None,
) -> Message:
    """Return the sums called `names` over one site's rows (n, d), see `ALL_SCORES`.

    All of them are 0, as if the site had no rows, where it has fewer values than `values_needed`, if that is a limit.

    Args:
        task: what `stack` returns.
        X: the rows.
        names: of the sums.
        min_count: smallest number of rows of a cell that is reported.
        aborted: asked before each candidate.
        limited: whether a site needs `values_needed` values.
        repeats: how often the same row may be among them.
        view: returns the rows as they are compared with the centroids of one candidate; None for as they are.

    Raises:
        BadMessage: the task is not what `stack` returns.
        Aborted: when `aborted` says so.
    """
    check_candidates(task)
    keys, solutions = list(names), unstack(task)
    if (limited and int((~np.isnan(X)).sum()) // repeats < values_needed(task, keys, X.shape[1])) or len(X) < min_count:
        X = X[:0]
    found: dict[str, list[np.ndarray]] = {name: [] for name in ("sse", "silhouette", "spread", "counts", "scatter")}
    for c, centroids in enumerate(solutions):
        if aborted():
            raise Aborted(f"stopped after {c} of {len(solutions)} candidates")
        rows = X if view is None else view(X, centroids)
        labels, sums = assessment.assessment_sums(rows, centroids)
        large = sums["counts"] >= min_count
        found["sse"].append(np.sum(sums["sse"], keepdims=True))
        found["silhouette"].append(np.sum(sums["silhouette"], keepdims=True))
        if "spread" in keys:
            residuals = rows - centroids[labels]
            with one_thread():
                found["spread"].append(np.linalg.eigvalsh(residuals.T @ residuals)[-1:].clip(min=0.0))
        found["counts"].append(np.where(large, sums["counts"], 0))
        found["scatter"].append(np.where(large, sums["scatter"], 0.0))
    arrays: Message = {name: np.concatenate(parts) for name, parts in found.items() if parts}
    arrays["rows"] = np.array(len(X))
    return {name: arrays[name] for name in keys}


def score(task: Task, rows: SiteRows, names: Iterable[str]) -> Message:
    """Return the sums called `names` over a site's rows, as they may leave it: the reply to a step in which solutions are scored."""
    context, arrays = rows.context, task.arrays
    free = not context.grouped
    check_candidates(arrays)
    kept = rows.trimmed(arrays["candidates"])
    sums = score_sums(
        arrays,
        kept.X,
        names,
        context.min_count,
        rows.aborted,
        limited=free and not context.secure,
        repeats=context.repeats,
        view=lambda X, centroids: replace(kept, prepared=X).completed(centroids).X,
    )
    return sums if free else scaled(arrays, sums, context.round_counts, context.min_count)


def scaled(task: Message, sums: Message, multiple: int, floor: int) -> Message:
    """Return the sums of `score_sums` with numbers of rows as multiples, and the sums over these rows scaled with them."""
    of_all = factor(sums["rows"], multiple, floor) if "rows" in sums else np.ones(())
    of_each = factor(sums["counts"], multiple, floor) if "counts" in sums else np.ones(len(task["candidate"]))
    by = {"sse": of_all, "silhouette": of_all, "spread": of_all, "scatter": of_each}
    return {name: value * by[name] if name in by else rounded(value, multiple, floor) for name, value in sums.items()}


def scores(task: Message, total: Message) -> list[dict[str, float | None]]:
    """Return the label-free metrics of each candidate from the total of all sites' `score_sums`.

    Needs `rows` and `sse`. Without `silhouette`, or `counts` and `scatter`, the metrics that are made of these are None. The
    Davies-Bouldin index lacks the rows of cells that sites left out.
    """
    metrics = []
    for c, centroids in enumerate(unstack(task)):
        found: dict[str, float | None] = {"inertia": float(total["sse"][c])}
        found |= {"simplified_silhouette": None, "davies_bouldin": None}
        if "silhouette" in total and len(centroids) > 1:
            found["simplified_silhouette"] = float(total["silhouette"][c] / total["rows"])
        if "scatter" in total:
            own = task["candidate"] == c
            found["davies_bouldin"] = assessment.cells_index(centroids, total["counts"][own], total["scatter"][own])
        metrics.append(found)
    return metrics


def separation_ratios(centroids: FloatArray, rows: IntArray, spread: float) -> FloatArray:
    """Return c_rs for every pair of k >= 2 clusters r < s: how far apart they are against what k-FED's theorem asks for.

    c_rs = |mu_r - mu_s| / (sqrt(m0) (Delta_r + Delta_s)) with Delta_r = k' |A - C| / sqrt(n_r) (Dennis et al. 2021,
    equation 4 and Appendix B.2; the 2 of Definition 3.5 is not in it). Here k' = sqrt(k), as in Corollary 1.1, and m0 = 1.

    The spread is the squared spectral norm of the residuals, or an upper bound of it such as the sum of all sites' own.
    """
    k = len(centroids)
    delta = np.sqrt(k * spread / rows)
    r, s = np.triu_indices(k, 1)
    apart = np.sqrt(((centroids[r] - centroids[s]) ** 2).sum(axis=1))
    return np.asarray(apart / np.maximum(delta[r] + delta[s], 1e-150))  # finite for whatever a message may hold


def check_candidates(task: Message) -> None:
    """Raise BadMessage unless a task has what `stack` returns, whatever else it has."""
    try:
        sizes = _CANDIDATES.check({name: task[name] for name in _CANDIDATES.fields if name in task})
    except BadMessage as error:
        raise BadMessage(f"the candidates to score: {error}") from None
    number = task["candidate"]
    least, largest = extent(number[1:] - number[:-1]) if sizes["t"] > 1 else (0, 0)
    if sizes["t"] == 0 or number[0] != 0 or least < 0 or largest > 1:
        raise BadMessage("the candidates to score: expected numbers 0, 1, ... in order")
