"""The rows of a site on its own Dask cluster: workers read the parts of its table, and compute where they have read them.

The cluster's machines, and what runs on them, belong to the site. Dask serialises functions and results itself; nothing here does.
"""

import asyncio
import logging
import platform
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from flareclust._foundation.errors import Aborted, Refusal, UserError
from flareclust._foundation.extras import require
from flareclust._foundation.typing import AbortCheck, FloatArray, never_abort
from flareclust._foundation.version import __version__
from flareclust.core.parts import Parts, View, computed, extent_of
from flareclust.data import file_formats
from flareclust.data.ids import Ids, Withdrawn
from flareclust.data.tables import File, Numbers, RowsRead, Table
from flareclust.protocol.rows import OtherRows, SiteContext
from flareclust.sites.part_rows import PartRows

if TYPE_CHECKING:
    from distributed import Client, Future

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


def _connect(address: str) -> "Client":
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


def _check_workers(client: "Client", stamps: Sequence[file_formats.FileFingerprint]) -> int:
    """Return the number of workers.

    Raises:
        ClusterUnusable: there are none, some process of the cluster has other versions than this one, or a worker does not see the
            files as they are here.
    """
    own, found = versions(), client.run(versions, on_error="return")
    if not found:
        raise ClusterUnusable("the Dask cluster has no workers; start some (dask worker)")
    workers = {f"the worker {place}": theirs for place, theirs in sorted(found.items())}
    try:
        scheduler = client.run_on_scheduler(versions)
    except Exception as error:  # noqa: BLE001 - whatever keeps the scheduler from importing flareclust
        scheduler = error
    for place, theirs in {"the scheduler": scheduler, **workers}.items():
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


def _unseen(stamps: Sequence[file_formats.FileFingerprint]) -> int:
    """Return how many files are missing or others where this runs."""
    seen = 0
    for stamp in stamps:
        with suppress(Refusal):
            stamp.check()
            seen += 1
    return len(stamps) - seen


_log = logging.getLogger(__name__)

#: Seconds to wait for a worker where all are gone.
_ALONE = 60.0

#: Seconds between two looks at whether the job was stopped, or all workers are gone.
_LOOK = 1.0

_LOST = "lost its Dask cluster while it computed"


@dataclass(frozen=True, eq=False)
class ClusterTable(OtherRows):
    """A site's rows on a cluster, and what their columns are called; `salt` and `hidden` are those of `Table`.

    `withdrawn` is how many rows of the files were left out, since the site has withdrawn their ids.
    """

    parts: "DaskParts"
    columns: tuple[str, ...]
    salt: str = field(default="", repr=False)
    hidden: frozenset[str] = frozenset()
    withdrawn: int = 0

    def site_rows(self, rng: np.random.Generator, aborted: AbortCheck, context: SiteContext) -> PartRows:
        """Return the rows for one step."""
        extent = self.parts.extent
        extremes = np.stack([extent.least, extent.largest])
        table, parts = Table(extremes, self.columns, salt=self.salt, hidden=self.hidden), self.parts.until(aborted)
        return PartRows(table, rng, aborted, context, parts=parts, own=parts)


def parts_on(
    address: str,
    files: Sequence[File],
    columns: Sequence[str],
    id_name: str | None,
    aborted: AbortCheck = never_abort,
    withdrawn: frozenset[str] = frozenset(),
) -> "DaskParts":
    """Return the rows of parquet files, read by the cluster at an address.

    Raises:
        ClusterUnusable: it cannot be reached, or its workers are not fit for these files.
        UserError, Refusal: as `DaskParts`.
    """
    client = _connect(address)
    try:
        files = [file._replace(path=file.path.absolute()) for file in files]
        workers = _check_workers(client, [file_formats.FileFingerprint.of(file.path) for file in files])
        return DaskParts(client, files, columns, id_name, workers, aborted, withdrawn)
    except BaseException:
        client.close(timeout=CONNECT)
        raise


class DaskParts(Parts):
    """Rows in parts on the workers of a Dask cluster, which reads a part again where the worker that had it is gone.

    Args:
        client: of the cluster.
        files: the parts, none of them empty.
        id_name: the column with the rows' ids, None for none.
        workers: how many there were at the beginning.
        aborted: asked while the parts are read.
        withdrawn: the ids whose rows are left out.

    Raises:
        UserError: a file has other cells than numbers, or cannot be read.
        Refusal: a file has changed, or the cluster is gone.
    """

    def __init__(
        self,
        client: "Client",
        files: Sequence[File],
        columns: Sequence[str],
        id_name: str | None,
        workers: int,
        aborted: AbortCheck = never_abort,
        withdrawn: frozenset[str] = frozenset(),
    ) -> None:
        self._client, self.workers = client, workers
        read = tuple(columns), id_name, withdrawn
        self._sources = [(file, file_formats.FileFingerprint.of(file.path), *read) for file in files]
        self._futures: list[Future[Any]] = client.map(_rows, self._sources, pure=False)
        super().__init__([])
        self.extents = tuple(self._gathered(client.map(extent_of, self._futures, pure=False), aborted))

    def keep(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Compute on the workers, and leave the results there; see `Parts.keep`."""
        settings = {"view": self.view, "function": function, "shared": shared}
        kept: list[Any] = self._client.map(_computed, self._futures, *own, pure=False, **settings)
        return kept

    def in_turn(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> Iterator[Any]:
        """Give the results, each fetched when it is asked for; see `Parts.in_turn`."""
        futures = self.keep(function, *own, shared=shared)
        for future in futures:
            yield from self._gathered([future], self.aborted)

    def each(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Return all results, fetched at once; see `Parts.each`."""
        return self._gathered(self.keep(function, *own, shared=shared), self.aborted)

    def ids(self, aborted: AbortCheck = never_abort) -> Iterator[str]:
        """Give the ids of the rows, which the workers read again, part by part; the log says how many rows repeat one."""
        hashes = [np.zeros(0, np.int64)]
        for future in self._client.map(_ids, self._sources, pure=False):
            for ids in self._gathered([future], aborted):
                hashes.append(np.fromiter(map(hash, ids), np.int64))
                yield from ids
        n = sum(map(len, hashes))
        for note in RowsRead(n, repeated=n - len(np.unique(np.concatenate(hashes)))).notes().values():
            _log.warning("%s", note)

    def check_unchanged(self) -> None:
        """Raise Refusal where a file has changed since its part was read."""
        for _, stamp, *_ in self._sources:
            stamp.check()

    def close(self) -> None:
        """Let the cluster forget the rows."""
        self._futures.clear()
        with suppress(OSError, RuntimeError, asyncio.TimeoutError):  # it may be gone already
            self._client.close(timeout=CONNECT)

    def _alive(self) -> int:
        """Return the number of workers, 0 where the scheduler does not answer."""
        try:
            return len(self._client.sync(self._client.scheduler.ncores, callback_timeout=CONNECT))
        except asyncio.TimeoutError:
            return 0
        except RuntimeError:  # the client has given up
            raise Refusal(f"{_LOST}: its scheduler is gone") from None

    def _gathered(self, futures: "list[Future[Any]]", aborted: AbortCheck) -> list[Any]:
        """Return what futures come to.

        Raises:
            Refusal: the cluster is gone, or a part kills the workers that compute it.
            Aborted: the job was stopped.
        """
        from distributed import CancelledError, KilledWorker

        loop = self._client.loop.asyncio_loop
        # A thread of Dask's fetches, so that this one can look around.
        fetched = asyncio.run_coroutine_threadsafe(self._client.gather(futures, asynchronous=True), loop)
        last = monotonic()
        try:
            while not wait_for([fetched], timeout=_LOOK).done:
                if aborted():
                    raise Aborted("stopped while the cluster computed")
                if self._alive():
                    last = monotonic()
                elif monotonic() - last > _ALONE:
                    raise Refusal(f"{_LOST}: no worker is left")
            return list(fetched.result())
        except KilledWorker:
            _log.warning("several workers of the Dask cluster died one after the other; see their logs and memory")
            raise Refusal(f"{_LOST}: several of its workers died") from None
        except (CancelledError, OSError) as error:
            _log.warning("the scheduler of the Dask cluster is gone (%s)", type(error).__name__)
            raise Refusal(f"{_LOST}: its scheduler is gone") from None
        finally:
            fetched.cancel()


#: A part's file, how it was when the job began, the columns to read, that with the ids, and the ids whose rows are left out.
_Source = tuple[File, file_formats.FileFingerprint, tuple[str, ...], str | None, frozenset[str]]


def _read(source: _Source) -> Table:
    """Return a part, which is as it was when the job began; this runs on a worker."""
    file, stamp, columns, id_name, withdrawn = source
    stamp.check()
    reader = Numbers(columns, id_name=id_name)
    reader.withdrawn = Withdrawn(withdrawn)
    return reader.read([file])


def _rows(source: _Source) -> FloatArray:
    rows = _read(source).X
    source[1].check()
    return rows


def _ids(source: _Source) -> Ids:
    return _read(source).ids or Ids()


def _computed(
    X: FloatArray, *own: Any, view: View | None, function: Callable[..., Any], shared: tuple[Any, ...]
) -> Any:
    return computed(X, view, function, *own, *shared)
