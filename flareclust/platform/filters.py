"""NVFlare filters that hold every job at a site to its policy, whatever executor the job names.

They are listed in the site's `local/privacy.json`, see `flareclust.sites.policy_file`; a third component there, `EveryScope`,
makes sure that they apply to every job. NVFlare's `DXOFilter` passes messages that are not DXOs; these filters refuse them.
If a filter raises, NVFlare sends a return code without a reason, so a violation is answered with a refusal, like an
executor's, without values.
"""

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import Filter
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FilterKey, FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply

from flareclust._foundation.errors import Refusal, UserError
from flareclust.platform import file_guard
from flareclust.platform._private import Scope
from flareclust.privacy.enforcement import PolicyEnforcer, Request, reason
from flareclust.privacy.job_folder import REQUEST_LOG_FILE, TRACEBACK_FILE, RequestLog, keep_traceback, run_dir
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import MADE_UNDER, QUESTION
from flareclust.protocol.task import NEEDS, REFUSED, ROUND, STEP
from flareclust.sites.policy_file import policy_of

_log = logging.getLogger(__name__)

#: In the meta of a task: its server takes replies as NVFlare does, without `flareclust.platform.receiver`.
UNBOUNDED = "unbounded"

_CODES = frozenset(value for name, value in vars(ReturnCode).items() if name.isupper() and value != ReturnCode.OK)


class SiteTaskPolicy(Filter):
    """Lets in what a job may ask by the site's policy, as `Policy.of` takes it; else it becomes a task that no executor answers."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        file_guard.install()
        self.policy = Policy.of(settings)

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the task, or one that says why it was refused."""
        try:
            found: Request | str = self._admitted(shareable, fl_ctx)
        except Refusal as refusal:
            found = str(refusal)
        except Exception as error:  # noqa: BLE001 - whatever it is, the task must not pass
            found = _kept(error, fl_ctx)
        fl_ctx.set_prop(QUESTION, found, private=True, sticky=False)
        if isinstance(found, str):
            _log.warning("refused the task %s: %s", _task_name(fl_ctx), found)
            _refusal(found).update_shareable(shareable)
        return shareable

    def _admitted(self, shareable: Shareable, fl_ctx: FLContext) -> Request:
        if (problem := file_guard.problem()) is not None:
            raise Refusal(f"{problem} (its policy)")
        dxo = _weights(shareable)
        if dxo is not None and UNBOUNDED in dxo.meta:
            raise Refusal(
                "answers no server that does not keep replies within bounds; its operator installs the NVFlare there that its "
                "flareclust requires (its policy)"
            )
        if dxo is None or not set(dxo.meta) <= {ROUND, NEEDS}:
            raise Refusal("was sent a task that is none of flareclust's (its policy)")
        gate = PolicyEnforcer(self.policy, RequestLog(run_dir(fl_ctx) / REQUEST_LOG_FILE))
        return gate.check_request(_task_name(fl_ctx), dxo.meta.get(ROUND), dxo.data)


class SiteResultPolicy(Filter):
    """Lets out what may leave by the same policy, in a message of its own making; anything else becomes a refusal."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.policy = Policy.of(settings)

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the reply with what may leave, and nothing that came beside it; or why it stays."""
        code = shareable.get_return_code()
        if code != ReturnCode.OK:
            return make_reply(code if code in _CODES else ReturnCode.EXECUTION_EXCEPTION)
        try:
            return self._released(shareable, fl_ctx).to_shareable()
        except Refusal as refusal:
            _log.warning("kept back the reply to %s: %s", _task_name(fl_ctx), refusal)
            return _refusal(str(refusal)).to_shareable()
        except Exception as error:  # noqa: BLE001 - whatever it is, the reply must not pass
            return _refusal(_kept(error, fl_ctx)).to_shareable()

    def _released(self, shareable: Shareable, fl_ctx: FLContext) -> DXO:
        question = fl_ctx.get_prop(QUESTION)
        fl_ctx.set_prop(QUESTION, None, private=True, sticky=False)
        if isinstance(question, str):
            return _refusal(question)
        if not isinstance(question, Request):
            raise Refusal("has a policy for replies and none for tasks, so nothing leaves (its policy)")
        dxo, made_under = _weights(shareable), shareable.get_header(MADE_UNDER)
        if dxo is None:
            raise Refusal("kept back a reply that is none of flareclust's (its policy)")
        if REFUSED in dxo.meta:
            own = made_under is not None  # the words of a foreign executor could be anything
            return _refusal(reason(dxo.meta[REFUSED]) if own else "refused; its words stay at the site (its policy)")
        meta = {STEP: question.step, ROUND: question.round}
        if {**dxo.meta, **meta} != meta:
            raise Refusal("kept back a reply that holds more than its arrays (its policy)")
        arrays = PolicyEnforcer(self.policy).check_reply(question, dxo.data, made_under)
        return DXO(DataKind.WEIGHTS, data=arrays, meta=meta)


class EveryScope(FLComponent):
    """Puts the two filters around the tasks of jobs that name a scope without them.

    NVFlare looks a job's scope up twice: when it comes, in what the site's process read when it was started, and in the
    job's own process, in the file as it is by then. One that is unknown only there has no filters at all. And NVFlare's
    simulator looks up none.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._scope = Scope()
        self._scope.set_name("flareclust_policy")
        self._scope.add_task_data_filter(SiteTaskPolicy(**settings), FilterKey.IN)
        self._scope.add_task_result_filter(SiteResultPolicy(**settings), FilterKey.OUT)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Look at the filters just before the first of them is asked."""
        if event_type != EventType.BEFORE_TASK_DATA_FILTER:
            return
        scope = fl_ctx.get_prop(FLContextKey.SCOPE_OBJECT)
        ours = scope is not None and (
            any(isinstance(one, SiteTaskPolicy) for one in scope.task_data_filters[FilterKey.IN])
            and any(isinstance(one, SiteResultPolicy) for one in scope.task_result_filters[FilterKey.OUT])
        )
        if not ours:
            fl_ctx.set_prop(FLContextKey.SCOPE_OBJECT, self._scope, private=True, sticky=True)


def policy_of_site(local: Path) -> str | None:
    """Return what of the site with this folder relies on guards of its processes: its policy, also one that cannot be read."""
    with suppress(UserError):
        return None if policy_of(local) is None else "its policy"
    return "its policy"


def contents_of(reply: object) -> tuple[int, str]:
    """Return the bytes of all arrays in a reply, and why it has none where it says so."""
    dxo = _weights(reply) if isinstance(reply, Shareable) else None
    if dxo is None:
        code = reply.get_return_code() if isinstance(reply, Shareable) else "no reply"
        return 0, f"NVFlare's {code}" if code != ReturnCode.OK else ""
    size = sum(getattr(array, "nbytes", 0) for array in dxo.data.values())
    return size, reason(dxo.meta[REFUSED]) if REFUSED in dxo.meta else ""


def _refusal(text: str) -> DXO:
    return DXO(DataKind.WEIGHTS, data={}, meta={REFUSED: reason(text)})


def _weights(shareable: Shareable) -> DXO | None:
    """Return the DXO of arrays by name in a message; None where it holds something else."""
    try:
        dxo = from_shareable(shareable)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    good = dxo.data_kind == DataKind.WEIGHTS and isinstance(dxo.data, dict) and isinstance(dxo.meta, dict)
    return dxo if good and all(isinstance(name, str) for name in dxo.data) else None


def _task_name(fl_ctx: FLContext) -> str:
    return str(fl_ctx.get_prop(FLContextKey.TASK_NAME))


def _kept(error: Exception, fl_ctx: FLContext) -> str:
    """Keep the traceback at the site and return what of it may be sent."""
    with suppress(Exception):
        keep_traceback(fl_ctx, error)
    return f"could not apply its policy, which raised {type(error).__name__}; the traceback is at the site, in {TRACEBACK_FILE}"
