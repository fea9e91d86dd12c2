"""The stage that masks a site's sums in jobs with secure sums."""

from dataclasses import dataclass, field, replace

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import BoolArray, Message
from flareclust.evaluation.scores import check_candidates
from flareclust.privacy.policy import Policy
from flareclust.privacy.secure_aggregation.client import SiteSums
from flareclust.privacy.stages import SiteExchange, Stage
from flareclust.protocol.sizes import total_sizes
from flareclust.protocol.steps import COUNTED, REPORTED, Step


def reported_groups(step: Step, arrays: Message) -> BoolArray | None:
    """Return which groups (K,) a site reports masked: all where numbers of rows are asked for, else those that the task names.

    None where no total decides.

    Raises:
        BadMessage: the task does not say it for each group, or has no groups.
    """
    if not (step.counted or step.schema is COUNTED):
        return None
    if "candidates" in arrays:
        check_candidates(arrays)
    elif "centroids" in arrays and arrays["centroids"].ndim != 2:
        raise BadMessage(f"centroids: expected two axes, got {arrays['centroids'].ndim}")
    k = total_sizes(arrays, 0)["K"]
    if step.schema is COUNTED:
        return np.ones(k, dtype=np.bool_)
    reported = arrays.get(REPORTED)
    if reported is None:
        return None
    if reported.dtype != np.int64 or reported.shape != (k,) or not np.isin(reported, (0, 1)).all():
        raise BadMessage(f"{REPORTED}: expected 0 or 1 for each of {k} groups")
    return reported.astype(np.bool_)


@dataclass(frozen=True)
class MaskingStage(Stage):
    """Takes the sites' keys out of the task, and masks the reply with them.

    Attributes:
        sums: what the site remembers of the job's secure sums.
        policy: the site's, if it has one.
        alike: settings of the job that must be the same at all sites for their masks to cancel.
    """

    sums: SiteSums
    policy: Policy | None
    alike: Message = field(default_factory=dict)

    def before(self, exchange: SiteExchange) -> SiteExchange:
        """Split the task into arrays and keys; refuse sums that would leave without a mask."""
        task, step = exchange.task, exchange.step
        secure = self.sums.secure(task.site)
        if secure and step.jobs == "plain":
            raise Refusal(f"takes part in a job with secure sums, which does without the step {task.step}")
        always = step.jobs == "secure" or (self.policy is not None and self.policy.secure_sums)
        arrays, keys = self.sums.taken(
            task.site, task.step, task.arrays, sums=step.maskable, always=always, policy=self.policy
        )
        if keys is None and not secure:
            return exchange
        reported = None if keys is None else reported_groups(step, arrays)
        sites = len(keys.keys) if keys is not None and self.sums.promised else 0
        context = replace(exchange.context, secure=secure, reported=reported, sum_sites=sites)
        return replace(exchange, task=replace(task, arrays=arrays), keys=keys, context=context)

    def after(self, exchange: SiteExchange, reply: Message) -> Message:
        """Mask the reply where keys came."""
        if exchange.keys is None:
            return reply
        task = exchange.task
        question = (task.step, task.round, {**task.arrays, **self.alike})
        return self.sums.hidden(task.site, question, exchange.keys, exchange.step.schema, reply)
