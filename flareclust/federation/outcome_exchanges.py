"""Outcomes by final cluster, the server's side: what it asks, and what comes of it.

What could not be had never makes a job fail: it is a warning. Sums are over the sites that answer, a quorum at least.
"""

from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from flareclust._foundation.errors import BadMessage, JobFailed
from flareclust._foundation.typing import Message
from flareclust.core import shallow_tree
from flareclust.core.outcomes import OutcomeForm
from flareclust.federation.exchanges import ExchangeRequest, Exchanges, refusal_texts
from flareclust.federation.outcomes import ClusterOutcomes
from flareclust.protocol import cluster_arrays as keys
from flareclust.protocol.replies import ALL
from flareclust.protocol.rounds import Round
from flareclust.protocol.sizes import ASKED_OUTCOME
from flareclust.protocol.task import StepName

if TYPE_CHECKING:
    from flareclust.federation.server import ServerJob


#: What a policy does to outcomes, in words that follow the sites.
_CHANGES = {
    "time": "lets out no small numbers, so events count at a time near theirs, and fewer than its floor as none or as many as the floor",
    "category": "lets out no small numbers, so fewer rows than its floor count as none or as many as the floor",
    "ordered": "lets out no small numbers, so fewer rows than its floor count as none or as many as the floor",
    "number": "leaves out rows of no group, and moves values that stand alone in their group towards the others",
}


def outcomes_of_clusters(
    exchanges: Exchanges, round_: Round[Any], job: "ServerJob", form: OutcomeForm
) -> tuple[Message, list[str]]:
    """Return arrays about the outcomes of the clusters of a finished round, and warnings, a sentence each."""
    none = "there are no outcomes of the clusters"
    if not ClusterOutcomes.steps.keys() <= job.steps.keys():
        why = "under differential privacy they would need a share of the budget, which jobs do not have yet"
        return {}, [f"{none}: {why}; take an algorithm without it"]
    before, exchanges.undescribed = exchanges.undescribed, {}
    round_ = replace(
        round_, index=round_.index + shallow_tree.DEPTH
    )  # behind the profiles, which may have asked meanwhile
    try:
        arrays = (_moments if form.kind == "number" else _counts)(exchanges, round_, job, form)
    except (JobFailed, BadMessage) as error:
        return {}, [f"{none}: {error}"]
    finally:
        refused, exchanges.undescribed = exchanges.undescribed, before
    texts = [f"{text} (in the outcomes)" for text in refusal_texts(refused)]
    adjusted = min(int(arrays[keys.OUTCOME_ADJUSTED]), len(exchanges.sites))
    arrays[keys.OUTCOME_ADJUSTED] = np.array(adjusted)
    if adjusted:
        sites = "a site" if adjusted == 1 else f"{adjusted} sites"
        texts.append(f"outcomes are not exact: the policy of {sites} {_CHANGES[form.kind]}")
    return {keys.OUTCOME_FORM: form.numbers, **arrays}, texts


def _counts(exchanges: Exchanges, round_: Round[Any], job: "ServerJob", form: OutcomeForm) -> Message:
    kinds, times = form.shape
    replies = _ask(exchanges, round_, job, StepName.OUTCOME_COUNTS, form, {"o": kinds, "t": times})
    adjusted = _adjusted(replies)
    arrays: Message = {
        keys.OUTCOME_COUNTS: np.sum([reply["counts"] for reply in replies.values()], axis=0),
        keys.OUTCOME_ADJUSTED: np.array(adjusted),
    }
    if ALL not in replies:
        arrays[keys.OUTCOME_SITES] = np.array(list(replies), dtype=np.str_)
        arrays[keys.OUTCOME_SITE_COUNTS] = np.array([reply["counts"] for reply in replies.values()])
    return arrays


def _moments(exchanges: Exchanges, round_: Round[Any], job: "ServerJob", form: OutcomeForm) -> Message:
    origin, before = 0.0, None
    for again in range(2):  # squares about the mean lose no digits
        asked = replace(round_, index=round_.index + again, task={**round_.task, "origin": np.array(origin)})
        replies = _ask(exchanges, asked, job, StepName.OUTCOME_SUMS, form, {})
        rows, total, squares = (sum(reply[name] for reply in replies.values()) for name in ("rows", "total", "squares"))
        if before is not None and not np.array_equal(before, rows):
            raise JobFailed(
                "sites sent other numbers of rows when they were asked again, so their sums do not go together"
            )
        before = rows
        if not np.any(rows):
            raise JobFailed("no cluster is large enough at any site")
        origin += float(np.sum(total) / np.sum(rows))
    n = np.maximum(rows, 1)
    shift = total / n
    moments = np.array([rows, asked.task["origin"] + shift, np.maximum(squares - n * shift**2, 0.0)])
    return {keys.OUTCOME_MOMENTS: moments, keys.OUTCOME_ADJUSTED: np.array(_adjusted(replies))}


def _adjusted(replies: Mapping[str, Message]) -> int:
    """Return at how many sites numbers were changed, as they say; no site counts more than once."""
    return sum(
        int(reply["adjusted"]) if site == ALL else min(int(reply["adjusted"]), 1) for site, reply in replies.items()
    )


def _ask(
    exchanges: Exchanges,
    round_: Round[Any],
    job: "ServerJob",
    step: str,
    form: OutcomeForm,
    sizes: Mapping[str, int],
) -> Mapping[str, Message]:
    """Return the replies to a step, or their total, and write down the exchange."""
    asked = replace(round_, step=step, task={**round_.task, ASKED_OUTCOME: form.numbers})
    sizes = {"k": len(round_.task["centroids"]), **sizes}
    replies = exchanges.describe(ExchangeRequest(job.schema(step), step, asked, [], sizes))
    started = perf_counter()
    exchanges.record(step, replies, round_.index, perf_counter() - started, {})
    return replies
