"""The base class of all aggregators: the server's side of an algorithm, as every engine and NVFlare see it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.aggregator import Aggregator

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import IntArray, Message
from flareclust.federation.executor import ClusteringExecutor, version_of
from flareclust.federation.server import ServerJob
from flareclust.protocol.parametrized import Parametrized
from flareclust.protocol.params import Params
from flareclust.protocol.replies import SiteReply, accept
from flareclust.protocol.rounds import Round
from flareclust.protocol.schema import plain
from flareclust.protocol.sizes import reply_sizes
from flareclust.protocol.state import State
from flareclust.protocol.task import REFUSED, ROUND, STEP


class ClusteringAggregator(Parametrized, Aggregator, ABC):
    """An NVFlare aggregator around pure functions of a round and the replies to it, one for each step of the algorithm.

    A subclass declares its parameters, `params: ItsParams`, and with them gets its constructor (`flareclust.protocol.params`);
    the other side of the algorithm; and what it keeps between two rounds. What jobs do beside the algorithm is in phases around
    it (`flareclust.federation.server`).
    """

    side: Literal["server"] = "server"
    params: Params

    #: The site's side of the algorithm, which has the steps: a step's `merge` names the method here.
    executor: ClassVar[type[ClusteringExecutor]]

    #: What the server keeps between two rounds.
    state: ClassVar[type[State]] = State

    #: What its jobs ask for; None for all steps of the executor.
    asks: ClassVar[tuple[str, ...] | None] = None

    #: Whether sums come as totals over all sites.
    secure = False

    def __init__(self, k: int, seed: int = 0, **settings: Any) -> None:
        super().__init__()
        self.configure(k, seed, **settings)
        self._job: ServerJob | None = None
        self._latest: Round[Any] | None = None
        self._replies: dict[str, SiteReply] = {}

    def begin(self) -> Round[Any]:
        """Return what the algorithm's first exchange sends: nothing, unless overridden."""
        return Round(state=self.state())

    @abstractmethod
    def merge(self, round_: Round[Any], replies: Mapping[str, Message], rng: np.random.Generator) -> Round[Any]:
        """Merge the replies to the first step into the next `Round`; methods of other steps are called in the same way.

        Pure: it depends on its arguments and the constructor's only. The caller counts rounds, and prepares rows.

        Args:
            round_: the round whose `task` the replies answer.
            replies: checked replies by site name, in the order of the names.
            rng: the server's generator of this round.
        """

    @property
    def member(self) -> "ClusteringAggregator | None":
        """Return the server's side of the executor's `member`; None unless overridden."""
        return None

    def version(self) -> str:
        """Return the version of flareclust and the digest of the job's messages, as that of the executor."""
        return version_of(self.executor, self.member and self.member.executor)

    def merge_of_member(
        self, round_: Round[Any], replies: Mapping[str, Message], rng: np.random.Generator
    ) -> Round[Any]:
        """Merge the replies to a step of the member, as `merge` does."""
        raise NotImplementedError(f"{type(self).__name__} has a member and does not say how its replies are merged")

    def check_secure(self) -> None:
        """Raise UserError where a setting needs the sums of single sites, which secure sums hide; nothing unless overridden."""

    def secured(self) -> "ClusteringAggregator":
        """Return this aggregator as it works where sums come as totals; raise UserError as `check_secure`."""
        self.check_secure()
        secured = copy(self)
        secured.secure = True
        return secured

    def read(self, folder: Path) -> None:
        """Read the files that came with the job, before it begins; there are none, unless overridden."""

    def check_sites(self, sites: Sequence[str]) -> None:
        """Raise UserError where the settings name sites that the federation does not have; nothing unless overridden."""

    def limits(self, round_: Round[Any]) -> dict[str, int]:
        """Return the most entries by axis symbol of an honest site's reply; k and d are known unless sites may send more."""
        return {}

    def so_far(self, round_: Round[Any]) -> Round[Any] | None:
        """Return the best solution so far as a finished round, for when the next exchange fails; None unless overridden."""
        return None

    def result(self, round_: Round[Any]) -> Message:
        """Return the arrays of the result: what the sites were sent last, and what the server kept."""
        return {**round_.state.arrays(), **round_.task}

    def metrics(self, round_: Round[Any]) -> dict[str, float | None]:
        """Return metrics beside those of the assessment; none unless overridden."""
        return {}

    def warnings(self, round_: Round[Any], assessed: Mapping[str, Message]) -> list[str]:
        """Return what a user should know of the result, a sentence each; nothing unless overridden.

        `assessed` are the sites' replies in the assessment by name; none without assessment, and with secure sums.
        """
        return []

    def labelled(self, round_: Round[Any]) -> IntArray | None:
        """Return the rows of each cluster (k,) as its own rule places them; None where rows are in the cluster of the nearest centroid."""
        return None

    def rows_needed(self, d: int, sites: int) -> int:
        """Return with how many rows of d columns in all clusters stand out of noise, from public numbers only; 0 if unknown."""
        return 0

    # ---- NVFlare: what ScatterAndGather and the like call; flareclust's own controller has a `ServerJob` ----

    def reset(self, fl_ctx: FLContext) -> None:
        """Forget the replies of the current round."""
        self._replies = {}

    def accept(self, shareable: Shareable, fl_ctx: FLContext) -> bool:
        """Keep a site's reply if it fits the schema of the round's step; return whether it was kept."""
        site = str(shareable.get_peer_prop(ReservedKey.IDENTITY_NAME, None) or "an unnamed site")
        _, now = self._current()
        reply = SiteReply(*unpack(shareable, (now.step, now.index)))
        _, problems = self._accepted({site: reply})
        if problems:
            self.log_warning(fl_ctx, f"{site} {problems[site]}")
            return False
        self._replies[site] = reply
        return True

    def aggregate(self, fl_ctx: FLContext) -> Shareable:
        """Merge the replies kept since the last `reset` and return the next task."""
        job, now = self._current()
        replies, problems = self._accepted(self._replies)
        for site, problem in problems.items():
            self.log_warning(fl_ctx, f"{site} {problem}")
        if not replies:
            raise JobFailed("no site sent a reply that could be used")
        self._latest = after = job.advance(now, replies)
        return DXO(DataKind.WEIGHTS, data=after.sent, meta={ROUND: after.index}).to_shareable()

    def _current(self) -> tuple[ServerJob, Round[Any]]:
        job = self._job = self._job or ServerJob(self)
        self._latest = self._latest or job.first()
        return job, self._latest

    def _accepted(self, answers: Mapping[str, SiteReply]) -> tuple[dict[str, Message], dict[str, str]]:
        job, now = self._current()
        sizes, own, limits = reply_sizes(now.step, now.sent), job.own_sizes(now), job.limits(now)
        replies, problems, _ = accept(job.schema(now.step), answers, list(answers), sizes, own, limits)
        return replies, problems


def unpack(shareable: Shareable, asked: tuple[str, int] | None = None) -> tuple[Message, str | None]:
    """Return a reply's arrays, or what is wrong with it in words that follow the site's name.

    `asked` are the step and the round that it must say it answers; None for any.
    """
    try:
        code = shareable.get_return_code()
        if code != ReturnCode.OK:
            return {}, plain(
                f"failed with NVFlare's return code {code}; log.txt of the job there says why, such as a full disk"
            )
        dxo = from_shareable(shareable)
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}, "sent something that is not a DXO"
    if dxo.data_kind != DataKind.WEIGHTS or not isinstance(dxo.data, dict):
        kind = getattr(dxo.data_kind, "value", dxo.data_kind)
        return {}, plain(f"sent a DXO of kind {kind} where WEIGHTS was expected")
    if (refused := dxo.get_meta_prop(REFUSED, None)) is not None:
        return {}, plain(refused)
    answered = dxo.get_meta_prop(STEP, None), dxo.get_meta_prop(ROUND, None)
    if asked is not None and not (all(map(isinstance, answered, (str, int))) and answered == asked):
        return {}, plain(f"answered {_exchange(*answered)} where {_exchange(*asked)} was asked")
    return dict(dxo.data), None


def _exchange(step: object, round_: object) -> str:
    if not isinstance(step, str) or not isinstance(round_, int):
        return "no step of any round"
    return f"{step[:40]} of round {round_}"
