"""A session with a federation's server through NVFlare's FLARE API: opened from an admin's kit, always closed again.

An open session keeps threads that hold the whole process, so nobody gets one outside `with`.
"""

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from io import StringIO
from pathlib import Path
from threading import Lock
from typing import Any

from nvflare.fuel.flare_api.api_spec import AuthenticationError, AuthorizationError, NoConnection, TargetType
from nvflare.fuel.flare_api.flare_api import Session

from flareclust._foundation.certificates import certificate_problem
from flareclust._foundation.errors import JobFailed, UserError
from flareclust.flare import downloads
from flareclust.privacy import file_guard

#: Where a kit says whose it is and where the server is.
ADMIN_FILE = Path("startup") / "fed_admin.json"


@contextmanager
def open_session(kit: Path, timeout: float = 10.0) -> Iterator[Session]:
    """Give a session for the admin whose kit this is.

    Args:
        kit: the folder with startup/ of a lead's or project admin's kit.
        timeout: seconds to reach the server.

    Raises:
        UserError: the folder is no admin's kit, or the server does not know the kit.
        JobFailed: the server does not answer; another try may help.
    """
    about = admin_of(kit)
    if (problem := certificate_problem(kit)) is not None:
        raise UserError(f"the kit {kit} {problem}")
    file_guard.install()
    downloads.install()
    if (problem := file_guard.problem()) is not None:
        raise UserError(f"this process {problem}")
    session = _connect(kit, about["username"], f"{about['host']}:{about['port']}", timeout)
    try:
        yield session
    finally:
        with quiet(), suppress(Exception):  # nothing can be done, and the reason may be on its way
            session.close()


def admin_of(kit: Path) -> dict[str, str]:
    """Return what an admin's kit says: `username`, `host`, `port`, `project_name` and more.

    Raises:
        UserError: the folder is no admin's kit.
    """
    try:
        about = json.loads((kit / ADMIN_FILE).read_text(encoding="utf-8"))["admin"]
        return {name: str(about[name]) for name in ("username", "host", "port", "project_name")}
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{kit} is no kit of a lead or an admin: expected a folder with {ADMIN_FILE}, such as "
            "kits/clinics/prod_00/lead@hub.org"
        ) from None


def server_status(session: Session) -> dict[str, Any]:
    """Return what NVFlare's server says of itself: when it started, its sites and its jobs.

    Raises:
        UserError: it does not permit the question.
        JobFailed: it does not answer; another try may help.
    """
    try:
        return dict(session.check_status(TargetType.SERVER))
    except AuthorizationError as error:
        raise UserError(
            f"the server does not permit this kit to ask for its status ({error}); ask for a kit with the role lead"
        ) from None
    except Exception as error:
        raise JobFailed(
            f"the server did not answer when it was asked for its status ({error}): is it still running?",
            transient=True,
        ) from error


def connected_sites(session: Session) -> list[str]:
    """Return the names of the sites that the server can reach now, in their order. Raises as `server_status`."""
    return sorted(str(client["client_name"]) for client in server_status(session).get("clients", []))


def _listens(server: str) -> bool:
    """Return whether somebody takes connections at host:port."""
    host, _, port = server.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except OSError:
        return False
    return True


def _connected(session: Session, timeout: float) -> Session:
    """Return the session when the server answers; closed again where it does not, or the wait is interrupted."""
    try:
        session.try_connect(timeout)
    except BaseException:
        with suppress(Exception):
            session.close()
        raise
    return session


class _Quiet:
    """Standard output of the process, taken away while at least one thread is within."""

    def __init__(self) -> None:
        self._lock, self._within = Lock(), 0

    @contextmanager
    def within(self) -> Iterator[None]:
        with self._lock:
            if self._within == 0:
                self._kept, sys.stdout = sys.stdout, StringIO()
            self._within += 1
        try:
            yield
        finally:
            with self._lock:
                self._within -= 1
                if self._within == 0:
                    sys.stdout = self._kept


#: One for the process, whose standard output all threads share: the first one in takes it, the last one out gives it back.
_QUIET = _Quiet()


def quiet() -> AbstractContextManager[None]:
    """Keep what NVFlare's API prints, such as greetings, out of the output; of other threads, too, so let it be short."""
    return _QUIET.within()


def _connect(kit: Path, user: str, server: str, timeout: float) -> Session:
    try:
        with quiet():
            return _connected(Session(user, str(kit.absolute())), timeout)
    except NoConnection:
        if _listens(server):
            raise UserError(
                f"the server {server} is there but does not talk to the kit of {user}: is it of this federation? Kits of "
                "another provisioning do not fit"
            ) from None
        raise JobFailed(
            f"the server {server} does not answer within {timeout:g} s: is it running, and can it be reached from here?",
            transient=True,
        ) from None
    except (AuthenticationError, AuthorizationError) as error:
        raise UserError(
            f"the server {server} does not accept the kit of {user} ({error}); kits of another provisioning do not fit"
        ) from None
