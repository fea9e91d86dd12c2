"""Profiles of the final clusters, the server's side: what it asks, and what comes of it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from flareclust._foundation.errors import BadMessage, JobFailed
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core import profiles as profile_sums
from flareclust.core import shallow_tree
from flareclust.core.missing import profiles as known_profiles
from flareclust.evaluation.batch_effects import site_shares
from flareclust.federation.exchanges import ExchangeRequest, Exchanges
from flareclust.federation.profiles import MOST_NUMBERS, profiling_steps
from flareclust.protocol import cluster_arrays
from flareclust.protocol.replies import ALL
from flareclust.protocol.rounds import Round
from flareclust.protocol.task import StepName

if TYPE_CHECKING:
    from flareclust.federation.server import ServerJob


def describe_clusters(exchanges: Exchanges, round_: Round[Any], job: "ServerJob") -> tuple[Message, list[str]]:
    """Return arrays that describe the clusters of a finished round, and warnings, a sentence each; none without profiles."""
    steps = profiling_steps(job.params, secure=exchanges.secure)
    if not steps or not all(step in job.steps for step in steps):
        return {}, []
    try:
        arrays = _moments(exchanges, round_, job)
    except (JobFailed, BadMessage) as error:
        return {}, [f"the clusters have no profile: {error}"]
    if not arrays[cluster_arrays.ROWS].any():
        return arrays, ["the clusters have no profile: none is large enough to be described"]
    if exchanges.secure:  # moments only: further counts would be of other rows
        return arrays, []
    warnings = []
    try:
        for part in _grown(exchanges, round_, job, arrays):
            arrays |= part
    except (JobFailed, BadMessage) as error:
        warnings.append(f"the profiles lack quantiles, or levels of their tree: {error}")
    others = [text for text in exchanges.new_refusals() if text not in " ".join(warnings)]
    return arrays, [*warnings, *(f"{text} (in the profiles)" for text in others)]


def _moments(exchanges: Exchanges, round_: Round[Any], job: "ServerJob") -> Message:
    k, d = round_.task["centroids"].shape
    step = StepName.PROFILE_TOTALS if exchanges.secure else profiling_steps(job.params)[0]
    request = ExchangeRequest(job.schema(step), step, replace(round_, step=step), [], {"K": k, "d": d})
    replies, started = exchanges.describe(request), perf_counter()
    rows, cells, means, m2 = added_up(replies.values(), k, d)
    arrays: Message = {cluster_arrays.ROWS: rows, cluster_arrays.MEANS: means, cluster_arrays.SQUARES: m2}
    if (cells != rows[:, None]).any():
        arrays[cluster_arrays.CELLS] = cells
    if ALL not in replies:
        own = {site: reply for site, reply in replies.items() if len(reply["cluster"])}
        table = np.zeros((len(own), k), dtype=np.int64)
        for i, reply in enumerate(own.values()):
            table[i, reply["cluster"]] = _rows(reply)
        arrays |= {cluster_arrays.SITES: np.array(list(own), dtype=np.str_), cluster_arrays.SITE_ROWS: table}
        arrays[cluster_arrays.SITE_MEANS] = np.array([_mean(reply) for reply in own.values()]).reshape(-1, d)
        if cluster_arrays.CELLS not in arrays:
            of_sites = np.zeros((len(own), k, d))
            for i, reply in enumerate(own.values()):
                of_sites[i, reply["cluster"]] = reply["centroids"]
            within = np.sum([reply["m2"].sum(axis=0) for reply in own.values()], axis=0)
            arrays[cluster_arrays.SITE_SHARES] = site_shares(table, of_sites, within)
    _record(exchanges, step, replies, round_.index, started)
    return arrays


def added_up(replies: Iterable[Message], k: int, d: int) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Return rows (k,) of clusters over all sites, and known cells (k, d), means (k, d) and squared deviations (k, d).

    After Chan, Golub, LeVeque (1983), in each column over its known cells; these are all rows where replies do not say.
    """
    rows, cells = np.zeros(k, dtype=np.int64), np.zeros((k, d), dtype=np.int64)
    means, m2 = np.zeros((k, d)), np.zeros((k, d))
    for reply in replies:
        own, n = reply["cluster"], reply["counts"]
        n = n if n.ndim == 2 else n[:, None]
        total = cells[own] + n
        part, step = n / np.maximum(total, 1), reply["centroids"] - means[own]
        m2[own] += reply["m2"] + step**2 * (cells[own] * part)
        means[own] += step * part
        cells[own] = total
        rows[own] += _rows(reply)
    return rows, cells, means, m2


def _mean(reply: Message) -> FloatArray:
    """Return the means (d,) of all cells that a reply describes; NaN for columns without any."""
    n = reply["counts"]
    n = n if n.ndim == 2 else n[:, None]
    total = np.broadcast_to(n, reply["centroids"].shape).sum(axis=0)
    return np.where(total > 0, (n * reply["centroids"]).sum(axis=0) / np.maximum(total, 1), np.nan)


def _rows(reply: Message) -> IntArray:
    """Return the rows (c,) of the clusters of a reply."""
    return reply["rows" if "rows" in reply else "counts"]


def _grown(exchanges: Exchanges, round_: Round[Any], job: "ServerJob", arrays: Message) -> Iterable[Message]:
    """Give the counts in bins, and then the tree, which grows by a level with each exchange."""
    means, m2 = arrays[cluster_arrays.MEANS], arrays[cluster_arrays.SQUARES]
    k, d = means.shape
    if cluster_arrays.CELLS in arrays:
        edges = known_profiles.edges_of_known(arrays[cluster_arrays.CELLS], means, m2, profile_sums.BINS)
    else:
        edges = profile_sums.edges_between(arrays[cluster_arrays.ROWS], means, m2)
    _, step = profiling_steps(job.params)
    schema = job.schema(step)
    tree, nodes = shallow_tree.Tree.root(k), np.array([0], dtype=np.int64)
    for level in range(shallow_tree.DEPTH):
        if not len(nodes) or len(nodes) * k * d * profile_sums.BINS > MOST_NUMBERS:
            break
        splits = {"split_column": tree.column + 1, "split_edge": tree.edge}
        task, index = {**round_.task, "edges": edges, **splits, "leaves": nodes}, round_.index + level
        asked = replace(round_, step=step, index=index, task=task)
        sizes = {"l": len(nodes), "k": k, "d": d, "h": profile_sums.BINS}
        replies = exchanges.describe(ExchangeRequest(schema, step, asked, [], sizes))
        started, counts = perf_counter(), np.sum([reply["bins"] for reply in replies.values()], axis=0)
        nodes = tree.grow(nodes, _of_all_rows(counts, replies, round_.columns.fill, edges))
        _record(exchanges, step, replies, index, started)
        if level == 0:
            yield {cluster_arrays.BIN_EDGES: edges, cluster_arrays.BIN_COUNTS: counts[0]}
        yield _arrays(tree, edges)


def _of_all_rows(
    counts: IntArray, replies: Mapping[str, Message], fill: FloatArray | None, edges: FloatArray
) -> IntArray:
    """Return counts of known cells with the rows that lack one where the tree has them; others as they are."""
    if fill is None or not all("rows" in reply for reply in replies.values()):
        return counts
    rows = np.sum([reply["rows"] for reply in replies.values()], axis=0)
    return known_profiles.with_missing(counts, rows, profile_sums.in_bins(fill[None], edges)[0])


def _arrays(tree: shallow_tree.Tree, edges: FloatArray) -> Message:
    """Return a tree as arrays of the result, without the splits that tell nothing apart."""
    kept = shallow_tree.Tree(tree.column.copy(), tree.edge, tree.rows.copy())
    kept.prune()
    at = np.where(kept.column >= 0, edges[kept.column, kept.edge], 0.0)
    names = cluster_arrays.TREE_COLUMN, cluster_arrays.TREE_EDGE, cluster_arrays.TREE_ROWS
    return dict(zip(names, (kept.column, at, kept.rows), strict=True))


def _record(exchanges: Exchanges, step: str, replies: Mapping[str, Message], index: int, started: float) -> None:
    seconds = perf_counter() - started
    exchanges.seconds_merge += seconds
    exchanges.record(step, replies, index, seconds, {})
