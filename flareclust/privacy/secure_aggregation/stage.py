"""The stage that masks a site's sums in jobs with secure sums."""

from dataclasses import dataclass, replace

from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import Message
from flareclust.privacy.policy import Policy
from flareclust.privacy.secure_aggregation.client import SiteSums
from flareclust.privacy.stages import SiteExchange, Stage


@dataclass(frozen=True)
class MaskingStage(Stage):
    """Takes the sites' keys out of the task, and masks the reply with them.

    Attributes:
        sums: what the site remembers of the job's secure sums.
        policy: the site's, if it has one.
    """

    sums: SiteSums
    policy: Policy | None

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
        context = replace(exchange.context, secure=secure)
        return replace(exchange, task=replace(task, arrays=arrays), keys=keys, context=context)

    def after(self, exchange: SiteExchange, reply: Message) -> Message:
        """Mask the reply where keys came."""
        if exchange.keys is None:
            return reply
        task = exchange.task
        question = (task.step, task.round, task.arrays)
        return self.sums.hidden(task.site, question, exchange.keys, exchange.step.schema, reply)
