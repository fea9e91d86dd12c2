"""Whether this machine is ready: versions and pins, disk, ports, leftovers, plugins, a kit's files, MLflow, Prefect.

Every check only looks: it changes nothing, starts nothing, and sends nothing but a request to servers that are set.
"""

import json
import os
import platform
import shutil
import socket
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from flareclust._foundation.certificates import certificate_problem, ends_soon, is_foreign
from flareclust._foundation.errors import FlareclustError, JobFailed
from flareclust._foundation.version import __version__
from flareclust.platform.scratch import leftovers, scratch_base
from flareclust.sites import class_list
from flareclust.sites.check import local_of
from flareclust.sites.permissions import KitFiles
from flareclust.tracking import store

_State = Literal["ok", "note", "warn", "fail"]

_GIB = 1 << 30
#: Free space below which a run may end early, and below which it surely does.
_LITTLE, _NOTHING = 2 * _GIB, _GIB // 4
#: Ports of pages, and the option that names another one.
_PORTS = {5000: "flareclust ui --port", 4200: "prefect server start --port"}
#: Extras without which nothing is amiss, only less is there.
_EXTRAS = {
    "tracking": "MLflow runs",
    "flows": "Prefect flows and tracked sweeps",
    "plots": "pictures",
    "dp": "dp-lloyd, dp-oneshot and dp-gmm",
    "export": "models for scikit-learn and ONNX",
    "deep": "deepfeca and folders of images",
    "compute": "sites that compute on a Dask cluster",
    "postgres": "MLflow and Prefect on PostgreSQL",
}
_SHOWN = ("nvflare", "numpy", "scikit-learn", "numba", "mlflow", "prefect", "fastapi", "sqlalchemy")


@dataclass(frozen=True)
class _Finding:
    """What one check found.

    Attributes:
        check: what was looked at.
        state: ok; note, if something is missing that not everybody needs; warn, if something may go wrong; fail, if something will.
        found: in words.
        advice: what to do; empty where all is well.
    """

    check: str
    state: _State
    found: str
    advice: str = ""


def examine(kit: Path | None = None) -> list[_Finding]:
    """Return the findings of all checks, also of the files of a kit of a site, a server or an admin."""
    checks: dict[str, Iterator[_Finding]] = {"python": _python(), "packages": _packages(), "disk": _disk()}
    checks |= {"ports": _ports(), "leftovers": _leftovers(), "plugins": _plugins(), "MLflow": _mlflow()}
    checks |= {"Prefect": _prefect(), "data": _data()}
    checks |= {} if kit is None else {"kit": _kit(kit), "federation": _federation(kit)}
    found = []
    for name, check in checks.items():
        try:
            found += list(check)
        except (FlareclustError, OSError) as error:  # its own error is a finding, too
            found.append(_Finding(name, "fail", str(error)))
    return found


def _python() -> Iterator[_Finding]:
    yield _Finding("python", "ok", f"flareclust {__version__}, Python {platform.python_version()}, {platform.system()}")
    if (packages := _without_bytecode()) is not None:
        text = "the installed packages have no bytecode and Python may not write it: each process compiles them again"
        yield _Finding("python", "warn", text, f"python -m compileall -q {packages}")


def _without_bytecode() -> Path | None:
    """Return the folder of the packages where they have no bytecode, and will get none; None where all is well."""
    spec = find_spec("nvflare")
    if spec is None or spec.cached is None or Path(spec.cached).exists():
        return None
    packages = Path(spec.cached).parents[2]
    return packages if sys.dont_write_bytecode or not os.access(packages, os.W_OK) else None


def _packages() -> Iterator[_Finding]:
    wrong, absent = [], dict[str, list[str]]()
    for text in requires("flareclust") or ():
        needed = Requirement(text)
        extra = next((name for name in _EXTRAS if needed.marker and needed.marker.evaluate({"extra": name})), "")
        if needed.marker is not None and not extra and not needed.marker.evaluate({"extra": ""}):
            continue
        if (found := _version(needed.name)) is None:
            if not extra:
                wrong.append((needed, "is missing"))
            elif needed.name != "flareclust":
                absent.setdefault(extra, []).append(needed.name)
        elif needed.specifier and not needed.specifier.contains(found, prereleases=True):
            wrong.append((needed, f"has version {found}"))
    for needed, what in wrong:
        pin = f"{needed.name}{needed.specifier}"
        yield _Finding("packages", "fail", f"{needed.name} {what}, needed is {pin}", f"python -m pip install '{pin}'")
    shown = [f"{name} {found}" for name in _SHOWN if (found := _version(name))]
    if not wrong:
        yield _Finding("packages", "ok", ", ".join(shown))
    for extra, packages in absent.items():
        advice = f"python -m pip install 'flareclust[{extra}]' if you need it ({_EXTRAS[extra]})"
        yield _Finding("packages", "note", f"the extra {extra} is not installed ({', '.join(packages)})", advice)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _disk() -> Iterator[_Finding]:
    for what, folder in {"this folder": Path.cwd(), "temporary files": scratch_base()}.items():
        free = shutil.disk_usage(folder).free
        state: _State = "fail" if free < _NOTHING else "warn" if free < _LITTLE else "ok"
        advice = "" if state == "ok" else "make room, or work in another folder (TMPDIR for temporary files)"
        yield _Finding("disk", state, f"{free / _GIB:.1f} GiB free for {what} in {folder}", advice)
    if scratch_base() != Path(tempfile.gettempdir()):
        text = f"the simulator cannot work in {tempfile.gettempdir()}, whose path is long or has a space"
        yield _Finding("disk", "warn", f"{text}; it uses {scratch_base()}", "set TMPDIR to a short path")


def _ports() -> Iterator[_Finding]:
    taken = [port for port in _PORTS if port_problem(port)]
    for port in taken:
        text = f"port {port} is in use; if by your own server, all is well"
        yield _Finding("ports", "warn", text, f"otherwise name another one: {_PORTS[port]} {port + 1}")
    if not taken:
        yield _Finding("ports", "ok", f"{', '.join(map(str, _PORTS))} are free")


def port_problem(port: int) -> str:
    """Return why nothing could listen at a port of this machine; "" where it could."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return str(error.strerror)
    return ""


def _leftovers() -> Iterator[_Finding]:
    found = leftovers()
    if not found:
        yield _Finding("leftovers", "ok", "no folder of a run that was killed")
        return
    text = f"{len(found)} folder(s) of killed runs, with rows of their sites or a signed job: {', '.join(map(str, found[:3]))}"
    yield _Finding("leftovers", "warn", text, "the next run in the simulator or at a server removes them, or do it now")


def _plugins() -> Iterator[_Finding]:
    names = class_list.installed_plugins()
    for name in names:
        try:
            class_list.of_plugins([name])
        except FlareclustError as error:
            yield _Finding("plugins", "fail", str(error), f"update or uninstall the package of {name}")
    if not names:
        yield _Finding("plugins", "ok", f"none; {len(class_list.of_sites())} classes of ours may be named in jobs")
    else:
        yield _Finding("plugins", "ok", f"installed: {', '.join(names)}")


def _mlflow() -> Iterator[_Finding]:
    uri = store.resolve_uri()
    shown = uri if "@" not in uri else uri.partition("://")[0] + "://..." + uri.rpartition("@")[2]
    file = store.sqlite_file(uri)
    if file is not None and not file.exists():
        yield _Finding("MLflow", "ok", f"the first tracked run makes {file}")
        return
    store.check_store(uri)
    yield _Finding("MLflow", "ok", f"the store {shown} answers")


def _prefect() -> Iterator[_Finding]:
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        yield _Finding("Prefect", "ok", "PREFECT_API_URL is not set; runs are not reported to a Prefect server")
        return
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/health", timeout=5):
            yield _Finding("Prefect", "ok", f"the server {url} answers")
    except (OSError, ValueError) as error:
        advice = "start it (prefect server start), or unset PREFECT_API_URL"
        yield _Finding("Prefect", "fail", f"no server answers at {url} ({error})", advice)


def _data() -> Iterator[_Finding]:
    folder = os.environ.get("FLARECLUST_DATA")
    if folder and not Path(folder).is_dir():
        yield _Finding("data", "warn", f"FLARECLUST_DATA names {folder}, which is no folder", "correct it, or unset it")
    else:
        yield _Finding("data", "ok", f"data sets are kept in {folder}" if folder else "FLARECLUST_DATA is not set")


def _kit(kit: Path) -> Iterator[_Finding]:
    local = local_of(kit)
    found = KitFiles(local).problems(kit.name)
    for problem in found:
        yield _Finding("kit", "fail", problem, f"flareclust site check {kit}")
    if (ended := certificate_problem(kit)) is not None:
        yield _Finding("kit", "fail", f"{kit.name} {ended}", "ask for a new kit")
    elif (ending := ends_soon(kit)) is not None:
        yield _Finding("kit", "warn", f"{kit.name}: {ending}", "ask for a new kit")
    if (server := _server_of(kit)) is not None and is_foreign(kit, *server):
        words = f"the server {server[0]}:{server[1]} has a certificate of another root than {kit.name}"
        yield _Finding("kit", "fail", words, "ask for the kit of the latest provisioning")
    if not found:
        yield _Finding("kit", "ok", f"the allow-list and the rights in {local} are as they should be")


def _federation(kit: Path) -> Iterator[_Finding]:
    """Give what the server of a lead's or an admin's kit knows of sites, versions, disks and everybody's certificates."""
    if not (kit / "startup" / "fed_admin.json").exists():
        return
    from flareclust.platform.status import federation_status  # with another NVFlare all of this may be missing

    try:
        status = federation_status(kit)
    except JobFailed as error:
        yield _Finding("federation", "warn", str(error), "start the server; until then no job runs")
        return
    texts = (*status.problems, *(hint for hint in status.hints if hint != ends_soon(kit)))  # of which `_kit` speaks
    found = [_Finding("federation", "warn", text) for text in texts]
    yield from found or [_Finding("federation", "ok", f"sites connected: {len(status.sites)}; nothing is to be done")]


def _server_of(kit: Path) -> tuple[str, int] | None:
    """Return where a site's kit connects to; None where it does not say so, as that of a server."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        about = json.loads((kit / "startup" / "fed_client.json").read_text(encoding="utf-8"))
        host, _, port = str(about["servers"][0]["service"]["target"]).rpartition(":")
        return host, int(port)
    return None
