"""A session with a federation's server through NVFlare's FLARE API: opened from an admin's kit, always closed again.

An open session keeps threads that hold the whole process, so nobody gets one outside `with`.
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stdout, suppress
from io import StringIO
from pathlib import Path, PurePosixPath, PureWindowsPath
from threading import Thread
from typing import Any

from nvflare.apis.fl_exception import FLCommunicationError
from nvflare.apis.job_def import JobMetaKey
from nvflare.fuel.flare_api.api_spec import (
    AuthenticationError,
    AuthorizationError,
    InternalError,
    NoConnection,
    TargetType,
)
from nvflare.fuel.flare_api.flare_api import Session

from flareclust._foundation.certificates import certificate_problem, server_ends_soon, speaks_tls
from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.interrupts import SharedChange
from flareclust.platform import file_guard
from flareclust.platform._private import FileTransferModule, mend_connections

#: Where a kit says whose it is and where the server is.
_ADMIN_FILE = Path("startup") / "fed_admin.json"


@contextmanager
def open_session(kit: Path, timeout: float = 10.0) -> Iterator[Session]:
    """Give a session for the lead or project admin whose kit this is, who has so many seconds to reach the server.

    Raises:
        UserError: the folder is no admin's kit, or the server does not know the kit.
        JobFailed: the server does not answer; another try may help.
    """
    about = admin_of(kit)
    if (problem := certificate_problem(kit)) is not None:
        raise UserError(f"the kit {kit} {problem}")
    if (problem := guard()) is not None:
        raise UserError(f"this process {problem}")
    session = _connect(kit, about, timeout)
    try:
        yield session
    finally:
        with quiet():
            _close(session)


def admin_of(kit: Path) -> dict[str, str]:
    """Return what an admin's kit says: `username`, `host`, `port`, `project_name` and more.

    Raises:
        UserError: the folder is no admin's kit.
    """
    try:
        about = json.loads((kit / _ADMIN_FILE).read_text(encoding="utf-8"))["admin"]
        return {name: str(about[name]) for name in ("username", "host", "port", "project_name")}
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{kit} is no kit of a lead or an admin: expected a folder with {_ADMIN_FILE}, such as "
            "kits/clinics/prod_00/lead@hub.org"
        ) from None


def server_status(session: Session) -> dict[str, Any]:
    """Return what NVFlare's server says of itself: when it started, its sites and its jobs.

    Raises:
        UserError: it does not permit the question.
        JobFailed: it does not answer; another try may help.
    """
    with _in_words("its status"):
        return dict(session.check_status(TargetType.SERVER))


@contextmanager
def _in_words(what: str) -> Iterator[None]:
    """Raise UserError where the server does not permit what it is asked for, and JobFailed where it does not answer."""
    try:
        yield
    except AuthorizationError as error:
        raise UserError(
            f"the server does not permit this kit to ask for {what} ({error}); ask for a kit with the role lead"
        ) from None
    except Exception as error:  # NVFlare's API has a dozen ways to say that the server is gone
        raise JobFailed(
            f"the server did not answer when it was asked for {what} ({error}): is it still running?", transient=True
        ) from error


#: How the statuses end of jobs that may have a result.
_WITH_RESULTS = ("COMPLETED", "EXECUTION_EXCEPTION", "ABNORMAL")


def ended_jobs(session: Session, user: str) -> list[tuple[str, float, bool]]:
    """Return a user's jobs that have ended, when they were submitted, and whether they may have a result. Raises as `server_status`.

    NVFlare can also call a job failed whose result was complete before (docs/adr/0010-lost-sites.md).
    """
    found = []
    with _in_words("its list of jobs"):
        for meta in session.list_jobs(detailed=True):
            status = str(meta.get(JobMetaKey.STATUS.value, ""))
            if status.startswith("FINISHED") and meta.get(JobMetaKey.SUBMITTER_NAME.value) == user:
                at = float(meta[JobMetaKey.SUBMIT_TIME.value])
                found.append((str(meta[JobMetaKey.JOB_ID.value]), at, status.endswith(_WITH_RESULTS)))
    return found


def delete_job(session: Session, job: str) -> None:
    """Delete a job and its result at the server. Raises as `server_status`."""
    with _in_words("the deletion of a job"):
        session.delete_job(job)


def connected_sites(session: Session) -> list[str]:
    """Return the names of the sites that the server can reach now, in their order. Raises as `server_status`."""
    return sorted(str(client["client_name"]) for client in server_status(session).get("clients", []))


#: One for the process, whose standard output all threads share.
_QUIET = SharedChange(lambda: redirect_stdout(StringIO()))


def quiet() -> AbstractContextManager[None]:
    """Keep what NVFlare's API prints, such as greetings, out of the output; of other threads, too, so let it be short."""
    return _QUIET.inside()


#: Why a server that is there may turn a kit away; it does not tell which it is.
_NO_FIT = (
    "kits of another provisioning do not fit, and none does while the clock of the server, or of this machine, is outside the "
    "days of its certificate; compare both clocks, then look where the kit is from"
)


def _connect(kit: Path, about: Mapping[str, str], timeout: float, *, again: bool = False) -> Session:
    """Return the session when the server answers; closed again where it does not, or the wait is interrupted.

    A server that is there and does not answer is asked `again`: the connection may have been reset, or the server just started.
    """
    user, place = about["username"], (about["host"], int(about["port"]))
    server, there = f"{place[0]}:{place[1]}", speaks_tls(*place, timeout=2)
    try:
        with quiet():
            session = Session(user, str(kit.absolute()))
            try:
                session.try_connect(timeout)
            except BaseException:
                _close(session)
                raise
            return session
    except NoConnection:
        if there and speaks_tls(*place, timeout=2):  # before and after; else it may just have come back
            if (ended := server_ends_soon(kit, *place)) is not None:
                raise UserError(ended) from None
            if not again:
                return _connect(kit, about, timeout, again=True)
            raise UserError(f"the server {server} is there but does not talk to the kit of {user}: {_NO_FIT}") from None
        raise JobFailed(
            f"the server {server} does not answer within {timeout:g} s: is it running, and can it be reached from here?",
            transient=True,
        ) from None
    except (FLCommunicationError, InternalError) as error:
        raise JobFailed(
            f"the server {server} did not answer in time ({str(error).strip(' :')}): is it running, and is the network fast enough?",
            transient=True,
        ) from None
    except (AuthenticationError, AuthorizationError) as error:
        raise UserError(f"the server {server} does not accept the kit of {user} ({error}): {_NO_FIT}") from None


def _close(session: Session) -> None:
    """Close a session, whatever becomes of it: nothing can be done, and the reason why may be on its way.

    NVFlare ends its connections once, and waits for ever for one that comes to be just then, as after a reset.
    """

    def close() -> None:
        with suppress(Exception):
            session.close()

    closing = Thread(target=close, daemon=True)
    closing.start()
    while closing.is_alive():
        closing.join(_AGAIN_SECONDS)
        with suppress(Exception):
            for connector in list(session.api.cell.core_cell.communicator.conn_manager.connectors.values()):
                connector.driver.shutdown()


#: Between two times that connections are ended.
_AGAIN_SECONDS = 0.5

#: Transfers have names of this form.
_TRANSFER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

#: Where the arguments of NVFlare's command `pull_binary_file` have the file's name.
_FILE = 5


class _PathOutside(ValueError):
    """A server named a file or a transfer that would lie outside of the folder for downloads."""


def guard() -> str | None:
    """Guard messages, waits and downloads of this process; return why messages cannot be, in words that follow its name."""
    file_guard.install()
    mend_connections()
    _guard_downloads()
    return file_guard.problem()


def _guard_downloads() -> None:
    """Keep what this process downloads in the folder for it, and no packed job that was sent or could not be; may be called again.

    In NVFlare's answers the server names the files, the transfer and, if it likes, the folder with the result, and NVFlare makes
    paths of these names as they are. They are checked before a folder is made, a file or a folder is moved, or what there is of a
    transfer that failed is removed.
    """
    if getattr(FileTransferModule, "_tx_path", None) is _transfer_folder:
        return
    pull, push = FileTransferModule.pull_binary_file, FileTransferModule.push_folder
    download = Session.download_job_result

    def push_folder(self: FileTransferModule, args: list[str], ctx: Any) -> Any:
        try:
            return push(self, args, ctx)
        finally:
            if (sender := ctx.get_requester()) is not None:
                Path(sender.file_name).unlink(missing_ok=True)

    def pull_binary_file(self: FileTransferModule, args: list[str], ctx: Any) -> Any:
        if len(args) > _FILE and not _is_inside(args[_FILE]):
            raise _PathOutside(f"the server named a file outside of the download: {ascii(args[_FILE])[:80]}")
        return pull(self, args, ctx)

    def download_job_result(session: Session, job_id: str, destination: str | None = None) -> str:
        location = Path(download(session, job_id))  # without a destination NVFlare moves nothing
        if not _is_result(location, session.download_dir, job_id):
            raise _PathOutside(f"the server named a folder that is no result of the job: {ascii(str(location))[:80]}")
        if destination is None:
            return str(location)
        Path(destination).mkdir(parents=True, exist_ok=True)
        return str(shutil.move(location, Path(destination).absolute() / location.name))

    FileTransferModule.pull_binary_file, FileTransferModule.push_folder = pull_binary_file, push_folder
    Session.download_job_result = download_job_result
    FileTransferModule._tx_path = _transfer_folder


def _is_inside(name: str) -> bool:
    """Return whether a file of this name lies in the folder that it is put into."""
    paths = PurePosixPath(name), PureWindowsPath(name)
    return bool(name) and not any(path.is_absolute() or path.drive or ".." in path.parts for path in paths)


def _is_result(location: Path, downloads: str, job_id: str) -> bool:
    """Return whether a folder is what NVFlare makes of the result of this job in the folder for downloads."""
    name = re.fullmatch(rf"{re.escape(job_id)}(__\d+)?", location.name)
    return name is not None and not location.is_symlink() and location.parent.resolve() == Path(downloads).resolve()


def _transfer_folder(self: FileTransferModule, tx_id: str, folder_name: str) -> str:
    """Return the folder of a transfer, as NVFlare names it."""
    if not isinstance(tx_id, str) or not _TRANSFER.fullmatch(tx_id) or not _is_inside(folder_name):
        raise _PathOutside(f"the server named a transfer in an unknown form: {ascii(tx_id)[:80]}")
    return f"{self.download_dir}/{folder_name}__{tx_id}"
