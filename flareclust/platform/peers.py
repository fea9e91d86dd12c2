"""Whose messages a server passes on, and which requests the process of a site answers.

NVFlare's server passes a message from any kit of the federation on to any other, and the parent process of a site answers
whatever comes: it sends files, and removes folders by the name of a job, without asking who wants that unless the sender
says that it should (docs/adr/0018-peers.md). So the server passes on what belongs to a job only, and a site answers what
jobs and their administration need.
"""

import json
import logging
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from functools import wraps
from pathlib import Path
from shutil import disk_usage
from threading import Lock
from typing import Any

from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, ServerCommandNames, WorkspaceConstants
from nvflare.apis.fl_context import FLContext

from flareclust._foundation.certificates import first_end
from flareclust._foundation.display import printable
from flareclust._foundation.errors import UserError
from flareclust._foundation.version import __version__
from flareclust.platform._private import (
    FQCN,
    TOPIC_STREAM_ABORT,
    TOPIC_STREAM_REQUEST,
    AdminMessage,
    CellChannel,
    CellChannelTopic,
    CellIdentityResolver,
    ClientAppRunner,
    ClientEngine,
    ClientRequestProcessors,
    CoreCell,
    Endpoint,
    FqcnInfo,
    MessageHeaderKey,
    MessagePropKey,
    MessageType,
    RequestHeader,
    RequestProcessor,
    StreamHeaderKey,
    SysCommandTopic,
    TrainingTopic,
    error_reply,
    is_valid_admin_client_name,
    unprotected,
)
from flareclust.platform._private import CellMessage as Message
from flareclust.platform._private import CellReturnCode as ReturnCode
from flareclust.platform._private import make_cell_reply as make_reply
from flareclust.sites.policy_file import SHARED, shared_rules

_log = logging.getLogger(__name__)

#: So many sessions of each user does a server know at most, the latest.
_MOST_SESSIONS = 1000

#: What NVFlare's server asks sites for when it runs jobs, and what an administrator asks. Sending files (`sys.shell`),
#: listing paths, changing the logs and deleting the folders of jobs are not among it.
ANSWERED = frozenset(
    {
        *(TrainingTopic.CHECK_STATUS, TrainingTopic.GET_SCOPES, TrainingTopic.NOTIFY_JOB_STATUS),
        *(TrainingTopic.CHECK_RESOURCE, TrainingTopic.ALLOCATE_RESOURCE, TrainingTopic.CANCEL_RESOURCE),
        *(TrainingTopic.DEPLOY, TrainingTopic.START, TrainingTopic.START_JOB, TrainingTopic.SET_JOB_ID),
        *(TrainingTopic.ABORT, TrainingTopic.ABORT_TASK),
        *(TrainingTopic.SHUTDOWN, TrainingTopic.RESTART),
        *(SysCommandTopic.SYS_INFO, SysCommandTopic.REPORT_RESOURCES, SysCommandTopic.REPORT_VERSION),
    }
)

#: What a site adds to its answer about versions.
_FLARECLUST, _CERTIFICATE_END, _FREE_DISK, _RULES = "flareclust", "certificate_end", "free_disk", "rules"

#: Letters of a version that a site reports, the first second after all years that a date has, more bytes than a disk has, and more
#: than any number of a policy.
_LONGEST_VERSION, _AFTER_ALL, _MOST_BYTES, _MOST = (
    40,
    datetime(9999, 12, 31, tzinfo=timezone.utc).timestamp(),
    1e18,
    1e9,
)

#: On it NVFlare looks into the network of processes: their names, connections and settings.
_NETWORK = "_net_manager"

#: What only the server's own processes ask of each other, and what inspects and stops any process of the network.
_OF_THE_SERVER = frozenset({CellChannel.SERVER_PARENT_LISTENER, _NETWORK})

#: What a site asks the server's process of a job for; the other commands there are the server's own.
_OF_JOBS = frozenset({ServerCommandNames.GET_TASK, ServerCommandNames.SUBMIT_UPDATE})

#: What the parent processes of server and sites take on the auxiliary channel: a job that is submitted, and logs.
_STREAMS = frozenset({TOPIC_STREAM_REQUEST, TOPIC_STREAM_ABORT})

#: Why a request is not answered, where its topic does not say it all.
_REASONS = {
    TrainingTopic.DELETE_RUN: "keeps the folders of its jobs, with labels and the record of requests; its operator deletes them"
}

#: What NVFlare's deployer puts into a job's folder, before the job's process adds its logs and labels.
_DEPLOYED = frozenset({WorkspaceConstants.JOB_META_FILE, "fl_app.txt"})

#: Jobs have names of this form, and are in folders of that name in the kit.
_JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


#: What the guards change of NVFlare, and what they call.
_CHANGED = (
    (CoreCell, "add_incoming_filter"),
    (CellIdentityResolver, "require_match"),
    (ClientRequestProcessors, "request_processors"),
    (ClientAppRunner, "create_run_manager"),
)


def unguarded(why: object) -> str:
    """Return that a process takes what others send, in words that follow its name or that of its site."""
    return unprotected("drop what others of the federation must not send", why)


def problem() -> str | None:
    """Return why no process can be guarded here, in words that follow its name; None where NVFlare has what the guards change."""
    missing = [f"no {owner.__name__}.{name}" for owner, name in _CHANGED if not hasattr(owner, name)]
    return unguarded(", ".join(missing)) if missing else None


def _saying_why_not(guard: Callable[[FLContext], None]) -> Callable[[FLContext], str | None]:
    """Return a guard that returns why it could not be set up, in words that follow the name of its process; None where it could."""

    @wraps(guard)
    def attempt(fl_ctx: FLContext) -> str | None:
        try:
            guard(fl_ctx)
        except Exception as error:  # noqa: BLE001 - whatever of NVFlare is another thing now, the guard is not there
            return unguarded(error)
        return None

    return attempt


def job_problem(job: object) -> str | None:
    """Return why no job can have this name, None where it can."""
    if isinstance(job, str) and _JOB.fullmatch(job):
        return None
    return f"was given {ascii(job)[:80]} as the name of a job, which is none"


def _passing_problem(endpoint: str, origin: str, destination: str) -> str | None:
    """Return why a server does not take a message, in words that follow the endpoint's name; None where it does.

    NVFlare has compared the name of the endpoint, the cell at the other end of the connection, with its certificate; the
    cells that have sent the message and that it is for are as the message says.
    """
    if FqcnInfo(endpoint).is_on_server:
        return None
    if not _is_family(endpoint, origin):
        return f"sent a message in the name of {ascii(origin)[:80]}"
    own = _is_family(endpoint, destination) or _is_family(destination, endpoint)
    if not own and not FqcnInfo(destination).is_on_server:
        return f"sent a message to {ascii(destination)[:80]}"
    return None


def _asking_problem(endpoint: str, channel: str, topic: str, destination: str = FQCN.ROOT_SERVER) -> str | None:
    """Return why a server does not take a request on this channel, in words that follow the endpoint's name.

    The destination is the process that is asked: the server's own, or that of a job.
    """
    commands = channel == CellChannel.SERVER_COMMAND and topic not in _OF_JOBS
    # A bulk is unpacked behind all filters, and nothing of NVFlare's sends one to a server.
    unseen = channel == CellChannel.CELLNET and topic != CellChannelTopic.Bye
    for_job = destination != FQCN.ROOT_SERVER and not is_valid_admin_client_name(endpoint)
    auxiliary = channel == CellChannel.AUX_COMMUNICATION and topic not in _STREAMS and not for_job
    if FqcnInfo(endpoint).is_on_server or not (channel in _OF_THE_SERVER or commands or unseen or auxiliary):
        return None
    return f"asked for {ascii(topic)[:80]} on {ascii(channel)[:80]}"


def _returning_problem(endpoint: str, headers: object) -> str | None:
    """Return why a server does not take back a message with these headers, in words that follow the endpoint's name.

    NVFlare counts a message that comes back as the answer of the process that it was for.
    """
    destination = str(headers.get(MessageHeaderKey.DESTINATION)) if isinstance(headers, dict) else ""
    if FqcnInfo(endpoint).is_on_server or _is_family(endpoint, destination):
        return None
    return f"returned a message that was for {ascii(destination)[:80]}"


def _answering_problem(site: str, origin: str) -> str | None:
    """Return why a site does not take a message from this cell, None where it does."""
    if FqcnInfo(origin).is_on_server or _is_family(site, origin):
        return None
    return "is no cell of the server or of this site"


@_saying_why_not
def guard_server(fl_ctx: FLContext) -> None:
    """Have the server, in its parent process, drop what passes between sites, and between users and sites.

    Also what members of the federation ask of the server's own processes, and connections in the name of another user's session.
    """
    cell = fl_ctx.get_prop(FLContextKey.SITE_OBJ).cell
    _bind_sessions(cell.core_cell.communicator.conn_manager.identity_resolver)

    def problem(message: Message) -> str | None:
        endpoint = message.get_prop(MessagePropKey.ENDPOINT)
        name = endpoint.name if isinstance(endpoint, Endpoint) else ""
        destination = _of(message, MessageHeaderKey.DESTINATION)
        wrong = _passing_problem(name, _of(message, MessageHeaderKey.ORIGIN), destination)
        kind = message.get_header(MessageHeaderKey.MSG_TYPE)
        if wrong is None and kind == MessageType.RETURN:
            wrong = _returning_problem(name, message.get_header(MessageHeaderKey.ORIGINAL_HEADERS))
        if wrong is None and kind == MessageType.REQ:
            asked = (_asking_problem(name, channel, topic, destination) for channel, topic in requests_of(message))
            wrong = next((one for one in asked if one), None)
        return wrong and f"{ascii(name)[:80]} {wrong}"

    cell.core_cell.add_incoming_filter(channel="*", topic="*", cb=dropping(problem))


@_saying_why_not
def guard_site(fl_ctx: FLContext) -> None:
    """Have a site, in its parent process, answer the server only, and no other requests than `ANSWERED`.

    To be called before NVFlare takes up its processors of requests, at `SYSTEM_BOOTSTRAP`.
    """
    engine, processors = fl_ctx.get_engine(), ClientRequestProcessors.request_processors
    if not isinstance(engine, ClientEngine) or not processors:
        raise TypeError(f"{type(engine).__name__} with {len(processors)} processors of requests")
    if all(isinstance(processor, _SafeProcessor) for processor in processors):
        return
    _answer_server_only(engine.get_cell(), engine.get_cell().get_fqcn(), auxiliary=_STREAMS)
    processors[:] = [_SafeProcessor(processor) for processor in processors]


def follow_jobs(follower: FLComponent) -> str | None:
    """Have a component of a site receive the events of a job in its process, where NVFlare tells the site's components of none.

    Returns why that cannot be, in words that follow the name of the process; None where it can.
    """
    found = getattr(ClientAppRunner, "create_run_manager", None)
    if found is None:
        return problem()
    create = getattr(found, "__wrapped__", found)

    @wraps(create)
    def with_follower(*asked: Any, **named: Any) -> Any:
        manager = create(*asked, **named)
        manager.add_handler(follower)
        return manager

    ClientAppRunner.create_run_manager = with_follower
    return None


@_saying_why_not
def guard_job(fl_ctx: FLContext) -> None:
    """Have a site, in the process of a job, answer the server and its own processes only."""
    cell = fl_ctx.get_engine().get_cell()
    _answer_server_only(cell, cell.get_fqcn().rpartition(".")[0])


def _answer_server_only(cell: Any, site: str, auxiliary: Collection[str] | None = None) -> None:
    """Have a process of a site drop what others ask, and auxiliary requests to itself of other topics than these where some are given."""

    def problem(message: Message) -> str | None:
        origin, requests = _of(message, MessageHeaderKey.ORIGIN), requests_of(message)
        wrong = _answering_problem(site, origin)
        if any(channel == _NETWORK for channel, _ in requests):
            wrong = "asks about this site's network"
        asked = [topic for channel, topic in requests if channel == CellChannel.AUX_COMMUNICATION]
        # Behind a relay, those for jobs come by, too.
        here = _of(message, MessageHeaderKey.DESTINATION) == cell.get_fqcn()
        if auxiliary is not None and here and any(topic not in auxiliary for topic in asked):
            wrong = f"asked for {ascii(asked[0])[:80]}"
        return wrong and f"{ascii(origin)[:80]} {wrong}"

    cell.core_cell.add_incoming_filter(channel="*", topic="*", cb=dropping(problem))


class _SafeProcessor(RequestProcessor):
    """One of NVFlare's processors of requests, for those of its requests that a site answers."""

    def __init__(self, processor: RequestProcessor) -> None:
        self._processor = processor

    def get_topics(self) -> list[str]:
        """Return the topics that the processor is asked about."""
        return list(self._processor.get_topics())

    def process(self, req: AdminMessage, app_ctx: object) -> AdminMessage:
        """Return the processor's answer, or why there is none."""
        problem = _request_problem(req, app_ctx)
        if problem is None:
            reply = self._processor.process(req, app_ctx)
            return _add_own(reply, app_ctx) if req.topic == SysCommandTopic.REPORT_VERSION else reply
        _log.warning("a request was refused: this site %s", problem)
        return error_reply(f"this site {problem}")


def _add_own(reply: AdminMessage, app_ctx: Any) -> AdminMessage:
    """Return a site's answer about versions with that of flareclust, when the first certificate of its kit ends (s since 1970), the
    bytes that are free on its disk, and what its policy says, where that may be shared.
    """
    with suppress(ValueError, TypeError, AttributeError):  # then without them
        said = {**json.loads(reply.body), _FLARECLUST: __version__}
        reply.body = json.dumps(said)
        kit = Path(app_ctx.args.workspace)
        with suppress(OSError):
            said[_FREE_DISK] = disk_usage(kit).free
        with suppress(UserError, OSError):
            if (ends := first_end(kit)) is not None:
                said[_CERTIFICATE_END] = ends[0].timestamp()
        with suppress(UserError, OSError):
            if rules := shared_rules(kit / "local"):
                said[_RULES] = {**rules, **(_spent(kit / "local") if "budget" in rules else {})}
        reply.body = json.dumps(said)
    return reply


def _spent(local: Path) -> dict[str, float]:
    """Return what is gone of the privacy budget of a site; nothing where no job may spend from it."""
    from flareclust.sites.account import budget_of  # 4 MB of modules that other sites do not need

    with suppress(UserError):
        if (account := budget_of(local)).trouble is None:
            return {"spent": account.spent}
    return {}


def reported_by_hosts(session: Any) -> dict[str, dict[str, Any]]:
    """Return by host what it reports: versions `nvflare` and `flareclust`, when a certificate ends (`certificate_end`, s since 1970),
    bytes free on its disk (`free_disk`), and the `rules` of its policy, of which only numbers and truth values under known names.

    What is not known, or not what it should be, is None. Raises what the session raises where the server does not permit the question.
    """
    answers: Mapping[str, Any] = session.report_version("all")
    return {printable(host): _reported(said if isinstance(said, Mapping) else {}) for host, said in answers.items()}


def _reported(said: Mapping[str, Any]) -> dict[str, Any]:
    versions = {"nvflare": said.get("version"), "flareclust": said.get(_FLARECLUST)}
    ends, free, rules = (said.get(name) for name in (_CERTIFICATE_END, _FREE_DISK, _RULES))
    known = {name: rules.get(name) for name in SHARED} if isinstance(rules, Mapping) else {}
    return {
        **{name: printable(version or "")[:_LONGEST_VERSION] for name, version in versions.items()},
        "certificate_end": ends if _is_number(ends, _AFTER_ALL) else None,
        "free_disk": free if _is_number(free, _MOST_BYTES) else None,
        "rules": {name: one for name, one in known.items() if isinstance(one, bool) or _is_number(one, _MOST)} or None,
    }


def _is_number(value: object, most: float) -> bool:
    """Return whether what a site says is a number from 0 to `most`."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most


def _request_problem(req: AdminMessage, app_ctx: object) -> str | None:
    if req.topic not in ANSWERED:
        return _REASONS.get(req.topic, f"does not answer {req.topic}")
    job = req.get_header(RequestHeader.JOB_ID)
    if not job:
        return None
    problem = job_problem(job)
    if problem is None and req.topic == TrainingTopic.START_JOB and isinstance(app_ctx, ClientEngine):
        folder = Path(app_ctx.args.workspace) / job  # the job's process would write over what an earlier one has left
        names = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
        if not all(name.startswith(WorkspaceConstants.APP_PREFIX) for name in names - _DEPLOYED):
            return f"has run the job {folder.name} before, and runs none twice"
    return problem


def _bind_sessions(resolver: CellIdentityResolver) -> None:
    """Have only the user that opened a session connect in its name; NVFlare compares no certificate with these names."""
    match, lock = resolver.require_match, Lock()
    users: dict[str, str] = {}
    sessions: dict[str, dict[str, None]] = {}  # of each user, the latest last

    def require_match(fqcn: str, peer_cn: str, context: str) -> None:
        match(fqcn, peer_cn, context)
        if not is_valid_admin_client_name(fqcn):
            return
        with lock:
            if users.setdefault(fqcn, peer_cn) != peer_cn:
                raise ValueError(f"{context}: the session {fqcn} is another user's")
            own = sessions.setdefault(peer_cn, {})
            own.pop(fqcn, None)
            own[fqcn] = None
            if len(own) > _MOST_SESSIONS:  # nobody can make the server forget a session of another user
                oldest = next(iter(own))
                del own[oldest], users[oldest]

    resolver.require_match = require_match


def _is_family(endpoint: str, origin: str) -> bool:
    return bool(endpoint) and (origin == endpoint or origin.startswith(f"{endpoint}."))


def requests_of(message: Message) -> list[tuple[str, str]]:
    """Return channel and topic of a message, then those that a streamed one names beside the stream's, empty for others."""
    return [(_of(message, of.CHANNEL), _of(message, of.TOPIC)) for of in (MessageHeaderKey, StreamHeaderKey)]


def _of(message: Message, header: str) -> str:
    return str(message.get_header(header) or "")


def dropping(problem: Callable[[Message], str | None]) -> Callable[[Message], Message | None]:
    """Return a filter of incoming messages that drops those with a problem, and logs it."""

    def drop(message: Message) -> Message | None:
        wrong = problem(message)
        if wrong is None:
            return None
        _log.warning("a message was dropped: %s", wrong)
        return make_reply(ReturnCode.UNAUTHENTICATED, error="dropped")

    return drop
