"""Outcomes by final cluster, the server's side: what it asks, and what comes of it.

What could not be had never makes a job fail: it is a warning. Sums are over the sites that answer, a quorum at least.
"""

from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from flareclust._foundation.display import some
from flareclust._foundation.errors import BadMessage, JobFailed
from flareclust._foundation.typing import IntArray, Message
from flareclust.core import shallow_tree
from flareclust.core.disclosure import LEAST_ROWS
from flareclust.core.outcomes import OutcomeForm
from flareclust.federation.exchanges import ExchangeRequest, Exchanges, refusal_texts
from flareclust.federation.executor import ClusteringExecutor
from flareclust.federation.noisy_outcomes import noise_of_totals, possible_arrays, why_unpaid
from flareclust.privacy.dp.settings import PrivateParams
from flareclust.protocol import cluster_arrays as keys
from flareclust.protocol.replies import ALL
from flareclust.protocol.rounds import Round
from flareclust.protocol.sizes import ASKED_OUTCOME
from flareclust.protocol.task import StepName

if TYPE_CHECKING:
    from flareclust.federation.server import ServerJob


#: What a policy does to numbers of rows, and to values, in words that follow the sites.
_ROUNDED = "lets out no small numbers, so fewer rows than the fewest that it lets out count as none or as that many{}; they have no intervals and no test"
_MOVED = (
    "leaves out rows of no group and groups whose values are all alike, and moves values alone in their group towards the others; intervals "
    "and the test do not allow for that, and where many values are alike, such as 0, means may be far off: name a category in their place"
)

#: Rounding errors of a sum, for each of its numbers, in units of the sum.
_ROUNDING = 8 * np.finfo(np.float64).eps

#: So many rounds behind the last one are the latest that profiles and outcomes ask in.
LATEST = shallow_tree.DEPTH + 1


def outcomes_of_clusters(
    exchanges: Exchanges, round_: Round[Any], job: "ServerJob", form: OutcomeForm
) -> tuple[Message, list[str]]:
    """Return arrays about the outcomes of the clusters of a finished round, and warnings, a sentence each."""
    none = "there are no outcomes of the clusters"
    private = job.params if isinstance(job.params, PrivateParams) else None
    if private is not None and (why := why_unpaid(private, form)):
        return {}, [f"{none}: {why}"]
    before, exchanges.undescribed = exchanges.undescribed, {}
    # Behind the profiles, which may have asked meanwhile.
    round_ = replace(round_, index=round_.index + shallow_tree.DEPTH)
    try:
        arrays, replies = (_moments if form.kind == "number" else _counts)(exchanges, round_, job, form)
    except (JobFailed, BadMessage) as error:
        return {}, [f"{none}: {error}"]
    finally:
        refused, exchanges.undescribed = exchanges.undescribed, before
    texts = [f"{text} (in the outcomes)" for text in refusal_texts(refused)]
    if private is not None:
        noise = noise_of_totals(private, round_, replies)
        noisy, sentence = possible_arrays(private, arrays[keys.OUTCOME_COUNTS], form, noise)
        return {keys.OUTCOME_FORM: form.numbers, **noisy}, [*texts, sentence]
    adjusted = min(_adjusted(replies), len(exchanges.sites))
    if adjusted:
        sites = "a site" if adjusted == 1 else f"{adjusted} sites"
        times = ", and events at a time near theirs" if form.kind == "time" else ""
        what = _MOVED if form.kind == "number" else _ROUNDED.format(times)
        texts.append(f"outcomes are not exact: the policy of {sites} {what}")
    assessed = exchanges.assessed or {ALL: exchanges.totals}
    sizes = {site: reply["counts"] for site, reply in assessed.items() if reply}
    # The assessment has rows by nearest centroid; where labels go by another rule, only all rows of a site can be compared.
    if whole := job.aggregator.executor.labels is not ClusteringExecutor.labels:
        sizes = {site: counts.sum(keepdims=True) for site, counts in sizes.items()}
    k, apart = 1 if whole else len(round_.task["centroids"]), not whole and ALL not in replies
    left_out, unknown = _not_counted(replies, sizes, k, apart=apart)
    rows = sum(sizes.values(), np.zeros_like(left_out))
    if unknown.any():
        some_rows = _of_clusters(unknown, rows)
        texts.append(f"the outcome of {some_rows} is unknown; curves, shares, means and tests are of the others")
    texts += [_incomplete(left_out, rows, job.least_rows(), apart=apart)] if left_out.any() else []
    about = {keys.OUTCOME_ADJUSTED: np.array(adjusted)} | ({} if whole else {keys.OUTCOME_NOT_COUNTED: left_out})
    return {keys.OUTCOME_FORM: form.numbers, **arrays, **about}, texts


def _not_counted(
    replies: Mapping[str, Message], sizes: Mapping[str, IntArray], k: int, *, apart: bool
) -> tuple[IntArray, IntArray]:
    """Return how many rows (k,) of each cluster are in no outcome, of the sites whose policy changes no numbers; k=1 for all clusters.

    First those of sites that do not count the cluster, then those of other sites, whose outcome is unknown; all are among the
    first where replies and rows by cluster (k,) in the assessment, `sizes`, do not tell them `apart`: totals over sites or clusters.
    """
    few, unknown = np.zeros((2, k), dtype=np.int64)
    for site, reply in replies.items():
        if site in sizes and not reply["adjusted"]:
            rows = reply["rows"] if "rows" in reply else reply["counts"].sum(axis=(0, 2))
            missing = np.maximum(sizes[site] - (rows.sum() if k == 1 else rows), 0)
            # A site that counts some rows of a cluster leaves out those alone whose outcome is unknown.
            of_unknown = missing * (rows > 0) if apart else np.zeros_like(missing)
            few, unknown = few + missing - of_unknown, unknown + of_unknown
    return few, unknown


def _of_clusters(some_rows: IntArray, sizes: IntArray) -> str:
    """Return how many rows (k,) of clusters of these sizes (k,) they are, and of which: "3 of 50 rows (3 of 20 in cluster 1)"."""
    which = [f"{some_rows[c]:,} of {sizes[c]:,} in cluster {c}" for c in np.flatnonzero(some_rows)]
    return f"{some_rows.sum():,} of {sizes.sum():,} rows" + f" ({some(which, 5)})" * (len(sizes) > 1)


def _incomplete(left_out: IntArray, sizes: IntArray, least: int, *, apart: bool) -> str:
    """Return a sentence about rows that are in no outcome, of clusters of these sizes (k,)."""
    why = f"a cluster in which a site has fewer than {least} rows with a known outcome counts as empty there"
    advice = "ask for fewer clusters" + (", or a smaller min_count" if least > LEAST_ROWS else "")
    if not apart:
        why = f"their outcome is unknown{', they are in no cluster' * (len(sizes) == 1)}, or {why}"
        advice = f"flareclust site check says at each site how many are unknown; where that is not the reason, {advice}"
    found = f"outcomes leave out {_of_clusters(left_out, sizes)}"
    return f"{found}, so curves, shares, means and tests may differ from those of all rows: {why}; {advice}"


def _counts(
    exchanges: Exchanges, round_: Round[Any], job: "ServerJob", form: OutcomeForm
) -> tuple[Message, Mapping[str, Message]]:
    kinds, times = form.shape
    replies = _ask(exchanges, round_, job, StepName.OUTCOME_COUNTS, form, {"o": kinds, "t": times})
    arrays: Message = {keys.OUTCOME_COUNTS: np.sum([reply["counts"] for reply in replies.values()], axis=0)}
    if ALL not in replies and not isinstance(job.params, PrivateParams):
        arrays[keys.OUTCOME_SITES] = np.array(list(replies), dtype=np.str_)
        arrays[keys.OUTCOME_SITE_COUNTS] = np.array([reply["counts"] for reply in replies.values()])
    return arrays, replies


def _moments(
    exchanges: Exchanges, round_: Round[Any], job: "ServerJob", form: OutcomeForm
) -> tuple[Message, Mapping[str, Message]]:
    origin, before = 0.0, None
    for again in range(2):  # squares about the mean lose no digits
        asked = replace(round_, index=round_.index + again, task={**round_.task, "origin": np.array(origin)})
        replies = _ask(exchanges, asked, job, StepName.OUTCOME_SUMS, form, {})
        rows, total, squares = (sum(reply[name] for reply in replies.values()) for name in ("rows", "total", "squares"))
        if before is not None and not np.array_equal(before, rows):
            raise JobFailed("sites sent other numbers of rows when they were asked again, so sums do not go together")
        before = rows
        if not np.any(rows):
            alike = ", or its values are all alike in each group of a policy" * bool(_adjusted(replies))
            raise JobFailed(f"no site has enough rows with a known outcome in any cluster{alike}")
        origin += float(np.sum(total) / np.sum(rows))
    n = np.maximum(rows, 1)
    shift = total / n
    spread = squares - n * shift**2
    spread[spread <= n * _ROUNDING * squares] = (
        0.0  # values that are all alike have no other spread than that of rounding
    )
    moments = np.array([rows, asked.task["origin"] + shift, spread])
    return {keys.OUTCOME_MOMENTS: moments}, replies


def _adjusted(replies: Mapping[str, Message]) -> int:
    """Return at how many sites numbers were changed, as they say; no site counts more than once."""
    return sum(
        int(reply["adjusted"]) if site == ALL else min(int(reply["adjusted"]), 1) for site, reply in replies.items()
    )


def _ask(
    exchanges: Exchanges, round_: Round[Any], job: "ServerJob", step: str, form: OutcomeForm, sizes: Mapping[str, int]
) -> Mapping[str, Message]:
    """Return the replies to a step, or their total, and write down the exchange."""
    asked = replace(round_, step=step, task={**round_.task, ASKED_OUTCOME: form.numbers})
    sizes = {"k": len(round_.task["centroids"]), **sizes}
    replies, started = exchanges.describe(ExchangeRequest(job.schema(step), step, asked, [], sizes)), perf_counter()
    exchanges.record(step, replies, round_.index, perf_counter() - started, {})
    return replies
