"""A malicious server, and sites that give it their keys, against the masked sums of another site.

The server adds what its accomplices' masks are, with zeros for their numbers, so that the total of a table of keys without
further honest sites is the victim's own. Sites whose keys it does not have add numbers that it does not know.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.attacks.server import borders
from flareclust._foundation.errors import FlareclustError
from flareclust._foundation.typing import FloatArray, Message, never_abort
from flareclust.data.tables import Table
from flareclust.executors.lloyd import LloydExecutor
from flareclust.federation.refinement import UPDATE
from flareclust.privacy.job_sums import SecureSums
from flareclust.privacy.policy import Policy
from flareclust.privacy.secure_aggregation import fixed_point
from flareclust.privacy.secure_aggregation.identity import Identity
from flareclust.privacy.secure_aggregation.masking import KeyTable, SiteMasks, key_of, total
from flareclust.privacy.secure_aggregation.totals import LARGEST_SENT, Layout
from flareclust.privacy.session import SiteSession
from flareclust.protocol.sizes import total_sizes
from flareclust.protocol.task import StepName, Task

#: What the victim answers to a step with these arrays in this round; a FlareclustError where it refuses.
AskVictim = Callable[[str, Message, int], Message]

#: The job that all keys are for, in this process.
JOB = "a job"


class Coalition:
    """The server and its accomplices.

    Args:
        victim: the site's name.
        ask: what it answers.
        masks: of all other sites. The server knows those of its accomplices; it uses the others' for what they send.
        d: number of columns.
    """

    def __init__(self, victim: str, ask: AskVictim, masks: Mapping[str, SiteMasks], d: int) -> None:
        self.victim, self.ask, self.masks, self.d = victim, ask, dict(masks), d
        self.refusals: list[str] = []
        self.key = key_of(ask(StepName.KEYS, {}, 0)["key"])
        self.exchanges = 1

    def sums(self, others: Sequence[str], task: Message, honest: Mapping[str, Message] | None = None) -> Message | None:
        """Return what the total over the victim and others says of an update; None if the victim refuses.

        Args:
            others: whose keys are in the table; they add zeros unless they are honest.
            task: what is asked.
            honest: what honest sites answer to it, by their names.
        """
        keys = {self.victim: self.key, **{site: self.masks[site].public for site in others}}
        table = KeyTable(dict(sorted(keys.items())))
        self.exchanges += 1
        round_ = self.exchanges
        try:
            masked = self.ask(UPDATE, {**task, **table.sent()}, round_)["masked"]
        except FlareclustError as reason:
            self.refusals.append(str(reason))
            return None
        layout = Layout(LloydExecutor.steps[UPDATE].schema, total_sizes(task, self.d))
        zeros = np.zeros((fixed_point.WORDS, layout.width), dtype=np.uint64)
        words = {site: layout.words(honest[site]) if honest and site in honest else zeros for site in others}
        added = [self.masks[site].hide(words[site], UPDATE, round_, task, table) for site in others]
        try:
            return layout.reply(total([masked, *(one.view(np.int64) for one in added)]))
        except FlareclustError as reason:
            self.refusals.append(str(reason))
            return None

    def rows(
        self, others: Sequence[str], exchanges: int, honest: Mapping[str, FloatArray] | None = None
    ) -> list[FloatArray]:
        """Claim rows: what the total loses or gains while a border moves, over a table with these sites."""
        executor = LloydExecutor(k=2, min_count=1)

        def ask(step: str, arrays: Message) -> Message | None:
            own = {
                site: executor.answer(Task(step, 0, dict(arrays), site), rows, never_abort).arrays
                for site, rows in (honest or {}).items()
            }
            return self.sums(others, arrays, own)

        return borders(ask, self.d, exchanges)


def tables(accomplices: Sequence[str], strangers: Sequence[str]) -> list[list[str]]:
    """Return the tables of keys that a server tries beside that of all sites: small ones, with accomplices if it has any."""
    others = [*accomplices, *strangers]
    minimum = max(2, len(accomplices))
    small = [list(pair) for pair in combinations(accomplices or others, 2)][:3] if len(accomplices) != 1 else []
    small += [[*accomplices[:1], strangers[0]]] if accomplices and strangers else []
    return small + [others[:n] for n in range(minimum, len(others))]


class SecureSite:
    """A site that takes part in masked sums, in this process.

    Args:
        name: of the site.
        rows: the site's (n, d).
        policy: the site's.
        job: what the job holds the server to.
        startup: the site's folder of that name.
        folder: of the job at the site.
    """

    def __init__(
        self, name: str, rows: FloatArray, policy: Policy | None, job: SecureSums | None, startup: Path, folder: Path
    ) -> None:
        self.name, self.table = name, Table(rows)
        self.executor = LloydExecutor(k=2, min_count=1)
        self.executor.hold_to(job)
        self.executor.sums.is_at(startup, JOB, folder)
        self.terms = None if policy is None else SiteSession(policy, JOB)

    def answer(self, step: str, arrays: Message, round_: int) -> Message:
        """Answer one question."""
        return self.executor.answer(
            Task(step, round_, dict(arrays), self.name), self.table, never_abort, self.terms
        ).arrays


def masks_of(startups: Mapping[str, Path], victim: str) -> dict[str, SiteMasks]:
    """Return the masks of all sites but the victim."""
    return {site: SiteMasks(site, Identity.of(at), JOB) for site, at in startups.items() if site != victim}


def border_of_answers(coalition: Coalition, others: Sequence[str], exchanges: int) -> tuple[float, int]:
    """Return the largest centroid that the site adds up about, found by doubling and bisection, and how many it answered.

    Sums about centroids that are large enough leave the range of fixed point, at a size that discloses how many rows there are.
    """
    low, high, answered = LARGEST_SENT / 2, np.inf, 0
    for _ in range(exchanges):
        size = low * 100 if np.isinf(high) else float(np.sqrt(low * high))
        centroids = np.full((2, coalition.d), size) * np.array([[1.0], [-1.0]])
        if coalition.sums(others, {"centroids": centroids}) is None:
            high = size
        else:
            low, answered = size, answered + 1
    return low, answered
