"""The connection of a site to its own Dask cluster, and whether the cluster's processes are fit for the site's rows.

Texts of errors here are for the site's own eyes.
"""

import asyncio
import platform
import socket
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.extras import require
from flareclust._foundation.version import __version__
from flareclust.data.file_formats import FileFingerprint

if TYPE_CHECKING:
    from distributed import Client

#: How the address of a cluster begins in a site's configuration.
_SCHEME = "dask"

#: Seconds to wait for a scheduler that does not answer.
CONNECT = 10.0

#: What must be the same at the site, at the scheduler and at all workers, beside flareclust and Python.
_PACKAGES = ("distributed", "numpy", "numba", "pyarrow")


class ClusterUnusable(UserError):
    """A cluster cannot be used; the text has addresses, for the site's own eyes."""


def is_address(value: object) -> bool:
    """Return whether a value is the address of a cluster, `dask://host:port`."""
    try:
        parts = urlsplit(value) if isinstance(value, str) else urlsplit("")
        rest = parts.path, parts.query, parts.fragment, parts.username or ""
        return parts.scheme == _SCHEME and bool(parts.hostname) and bool(parts.port) and not any(rest)
    except ValueError:  # a port that is none
        return False


def connect(address: str) -> "Client":
    """Return a client of the cluster at an address, within `CONNECT` seconds for each step.

    Raises:
        UserError: the packages are missing.
        ClusterUnusable: no scheduler answers.
    """
    require("compute", "compute in local/flareclust.yaml")
    from distributed import Client

    parts = urlsplit(address)
    place = f"tcp://{parts.netloc}"
    try:
        # A plain connection first: Dask tries for its whole time where nobody listens.
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=CONNECT).close()
        asyncio.run(_greeted(place))
        return Client(place, timeout=CONNECT, set_as_default=False, direct_to_workers=False, name="flareclust")
    except (OSError, ValueError, RuntimeError, asyncio.TimeoutError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise ClusterUnusable(
            f"no Dask scheduler answers at {address} ({why}); start it (dask scheduler), or correct `compute` in the site's "
            "configuration"
        ) from None


async def _greeted(place: str) -> None:
    """Connect once: a client would wait without end for a program that listens and is no scheduler."""
    from distributed.comm import connect as connection

    comm = await asyncio.wait_for(connection(place, timeout=CONNECT), CONNECT)
    await comm.close()


def check_workers(client: "Client", stamps: Sequence[FileFingerprint]) -> int:
    """Return the number of workers.

    Raises:
        ClusterUnusable: there are none, some process of the cluster has other versions than this one, or a worker does not see the
            files as they are here.
    """
    own = versions()
    found = client.run(versions, on_error="return")
    if not found:
        raise ClusterUnusable("the Dask cluster has no workers; start some (dask worker)")
    workers = {f"the worker {place}": theirs for place, theirs in sorted(found.items())}
    for place, theirs in {"the scheduler": _at_scheduler(client), **workers}.items():
        if not isinstance(theirs, dict):
            raise ClusterUnusable(
                f"{place} of the Dask cluster cannot import flareclust ({type(theirs).__name__}); install flareclust "
                f"{own['flareclust']} there"
            )
        if other := [name for name in own if theirs.get(name) != own[name]]:
            has = ", ".join(f"{name} {theirs[name]}" if name in theirs else f"no {name}" for name in other)
            wanted = ", ".join(f"{name} {own[name]}" for name in other)
            raise ClusterUnusable(
                f"{place} of the Dask cluster has {has} where the site has {wanted}; install the same versions everywhere"
            )
    for place, unseen in sorted(client.run(_unseen, list(stamps)).items()):
        if unseen:
            raise ClusterUnusable(
                f"the worker {place} of the Dask cluster does not see {unseen} of the {len(stamps)} files with the rows as "
                "they are at the site; give all workers the same folder under the same path"
            )
    return len(found)


def versions() -> dict[str, str]:
    """Return the versions that results and messages of a cluster depend on, here."""
    found = {"Python": ".".join(platform.python_version_tuple()[:2]), "flareclust": __version__}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _at_scheduler(client: "Client") -> object:
    try:
        return client.run_on_scheduler(versions)
    except Exception as error:  # noqa: BLE001 - whatever keeps the scheduler from importing flareclust
        return error


def _unseen(stamps: Sequence[FileFingerprint]) -> int:
    """Return how many files are missing or others where this runs."""
    unseen = 0
    for stamp in stamps:
        try:
            stamp.check()
        except Refusal:
            unseen += 1
    return unseen
