"""The server's side of the seam: everything about NVFlare that an algorithm's aggregator does not have to know."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.aggregator import Aggregator

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.seeding import SERVER, stream
from flareclust._foundation.typing import Message
from flareclust.core import assessment
from flareclust.core.disclosure import LEAST_ROWS
from flareclust.preparation import settings
from flareclust.protocol.params import Parametrized, Params
from flareclust.protocol.replies import SiteReply, accept, by_name
from flareclust.protocol.rounds import Round
from flareclust.protocol.schema import MOST_COLUMNS, Schema, plain
from flareclust.protocol.sizes import reply_sizes
from flareclust.protocol.steps import Step
from flareclust.protocol.task import REFUSED, ROUND, STEP, StepName


class ClusteringAggregator(Parametrized, Aggregator, ABC):
    """An NVFlare aggregator around one pure function, `merge`.

    A subclass declares its parameters, `params: ItsParams`, and with them gets its constructor (`flareclust.protocol.params`).
    """

    side: Literal["server"] = "server"
    params: Params

    #: The steps of jobs of the algorithm (`ClusteringExecutor.job_steps`).
    steps: ClassVar[Mapping[str, Step]]

    def __init__(self, k: int, seed: int = 0, **settings: Any) -> None:
        super().__init__()
        self.configure(k, seed, **settings)
        self._latest: Round | None = None
        self._replies: dict[str, SiteReply] = {}

    def first(self) -> Round:
        """Return the first exchange of a job: about the columns' names where the job compares them (`compare`).

        A site whose columns are not those of most sites takes no part.
        """
        compares = StepName.NAMES in self.steps and getattr(self.params, "compare", "none") != "none"
        return Round(step=StepName.NAMES) if compares else self.prepare()

    def prepare(self) -> Round:
        """Return the first exchange about rows: that of the algorithm, unless columns are prepared before."""
        return self.begin()

    def begin(self) -> Round:
        """Return what the algorithm's first exchange sends: nothing, unless overridden."""
        return Round()

    def read(self, folder: Path) -> None:
        """Read the files that came with the job, before it begins; there are none, unless overridden."""

    @abstractmethod
    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Merge one round's replies into the next `Round`; its `index` is set by the caller.

        Pure: it depends on its arguments and the constructor's only.

        Args:
            round_: the round whose `task` the replies answer.
            replies: checked replies by site name, in the order of the names.
            rng: the server's generator of this round.
        """

    # ---- NVFlare: what ScatterAndGather and the like call; flareclust's own controller calls `merge` ----

    def reset(self, fl_ctx: FLContext) -> None:
        """Forget the replies of the current round."""
        self._replies = {}

    def accept(self, shareable: Shareable, fl_ctx: FLContext) -> bool:
        """Keep a site's reply if it fits the schema of the round's step; return whether it was kept."""
        site = str(shareable.get_peer_prop(ReservedKey.IDENTITY_NAME, None) or "an unnamed site")
        reply = SiteReply(*unpack(shareable, (self._round.step, self._round.index)))
        _, problems = self._accept({site: reply})
        if problems:
            self.log_warning(fl_ctx, f"{site} {problems[site]}")
            return False
        self._replies[site] = reply
        return True

    def aggregate(self, fl_ctx: FLContext) -> Shareable:
        """Merge the replies kept since the last `reset` and return the next task."""
        replies, problems = self._accept(self._replies)
        for site, problem in problems.items():
            self.log_warning(fl_ctx, f"{site} {problem}")
        if not replies:
            raise JobFailed("no site sent a reply that could be used")
        self._latest = after = self.advance(self._round, replies)
        return DXO(DataKind.WEIGHTS, data=dict(after.task), meta={ROUND: after.index}).to_shareable()

    @property
    def _round(self) -> Round:
        if self._latest is None:
            self._latest = self.first()
        return self._latest

    def _accept(self, answers: Mapping[str, SiteReply]) -> tuple[dict[str, Message], dict[str, str]]:
        now = self._round
        sizes, own, limits = reply_sizes(now.step, now.task), self.own_sizes(now), self.limits(now)
        replies, problems, _ = accept(self.schema(now.step), answers, list(answers), sizes, own, limits)
        return replies, problems

    # ---- shared ----

    def check_sites(self, sites: Sequence[str]) -> None:
        """Raise UserError where the settings name sites that the federation does not have; nothing unless overridden."""

    def secured(self) -> Self:
        """Return this aggregator as it works where sums arrive as totals only; as it is, unless overridden.

        Raises:
            UserError: a setting needs the sums of single sites.
        """
        return self

    def advance(self, round_: Round, replies: Mapping[str, Message]) -> Round:
        """Call `merge` with the replies in the order of the sites' names and count the round."""
        if round_.step == StepName.NAMES:  # the schema has refused the sites at odds
            return self.prepare()
        merged = self.merge(round_, by_name(replies), stream(self.params.seed, round_.index, SERVER))
        return replace(merged, index=round_.index + (round_.step not in StepName.BEFORE_ROUNDS))

    def own_sizes(self, round_: Round) -> dict[str, dict[str, int]]:
        """Return, by site, the sizes that its reply to a round must respect beside `reply_sizes`; none unless overridden."""
        return {}

    def limits(self, round_: Round) -> dict[str, int]:
        """Return the most entries by axis symbol that an honest site's reply to a round can have, where they are not known.

        Overridden where sites may send more, or have axes of their own.
        """
        return {"k": max(self.params.k, len(round_.task.get("candidate", ()))), "d": MOST_COLUMNS}

    def quality(self, round_: Round, sums: Message) -> dict[str, float | None]:
        """Return the label-free metrics of the final centroids from the sums of all sites."""
        return assessment.label_free_metrics(round_.task["centroids"], sums)

    def least_rows(self) -> int:
        """Return how many rows a group must have over all sites to be reported with secure sums, in steps that are `counted`."""
        return (
            max(self.params.min_count, LEAST_ROWS) if isinstance(self.params, settings.ClusteringParams) else LEAST_ROWS
        )

    def warnings(self, round_: Round, assessed: Mapping[str, Message]) -> list[str]:
        """Return what a user should know of the result, a sentence each; nothing unless overridden.

        Args:
            round_: the last one.
            assessed: the sites' replies in the assessment by name; none without assessment, and with secure sums.
        """
        return []

    def result_so_far(self, round_: Round) -> Round | None:
        """Return the best solution so far as a finished round, for when the next exchange fails; None unless overridden."""
        return None

    def so_far(self, round_: Round) -> Round | None:
        """Return the same for a round as it was sent."""
        return self.result_so_far(round_)

    def result(self, round_: Round) -> Message:
        """Return the arrays of the result: what the sites were sent last, and what the server kept."""
        return {**round_.record, **round_.task}

    def schema(self, step: str) -> Schema:
        """Return what the sites send in a step."""
        return self.steps[step].schema


def unpack(shareable: Shareable, asked: tuple[str, int] | None = None) -> tuple[Message, str | None]:
    """Return a reply's arrays, or what is wrong with it in words that follow the site's name.

    Args:
        shareable: what came.
        asked: step and round that it must say it answers; None for any.
    """
    try:
        code = shareable.get_return_code()
        if code != ReturnCode.OK:
            return {}, plain(f"failed with NVFlare's return code {code}")
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


# Conversion of a named tuple to entries of the server's record, which keep it between two steps, and back.

_State = TypeVar("_State", bound=NamedTuple)


def entries(prefix: str, state: NamedTuple) -> Message:
    """Return the fields of a state as entries of a record, each under its name behind the prefix."""
    return {prefix + name: np.asarray(value) for name, value in state._asdict().items()}


def state_in(prefix: str, kind: type[_State], record: Message) -> _State:
    """Return the state whose fields are in a record; fields without a dimension come back as plain numbers."""
    arrays = [record[prefix + name] for name in kind._fields]
    plain: list[Any] = [value if value.ndim else value.item() for value in arrays]
    return kind(*plain)
