"""What protects the processes of a kit: what those that run now have written down when they started, and how scripts start them.

A kit's files say what a process will do that is started next. One that runs since before an upgrade of flareclust does not.

The scripts in kits of relays and users that start NVFlare's programs begin in `flareclust.guarded`. A server's and a site's need
no change: what protects their messages stands in `local/resources.json`, which relays and NVFlare's console do not read.
"""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from flareclust._foundation.errors import UserError
from flareclust._foundation.own_files import write_atomically
from flareclust._foundation.settings_file import NotPlain, parse_json, read_text
from flareclust._foundation.version import __version__

_log = logging.getLogger(__name__)

#: The file in a kit's folder.
_PROTECTION = "protection.json"

#: Seconds by which a process may seem to have begun at another time, after the clock was set.
_SAME_START = 60.0

#: The programs that run for as long as a server, a site or a relay does.
RELAY = "nvflare.private.fed.app.relay.relay"
_PARENTS = frozenset(
    {"nvflare.private.fed.app.server.server_train", "nvflare.private.fed.app.client.client_train", RELAY}
)


def note_protection(kit: Path, problem: str | None) -> None:
    """Write down that this process, of the kit in this folder, keeps files out of its messages and is guarded, or why it is not."""
    about = {
        "pid": os.getpid(),
        "started": psutil.Process().create_time(),
        "flareclust": __version__,
        "nvflare": version("nvflare"),
        "problems": [] if problem is None else [problem],
    }
    try:
        with write_atomically(kit / _PROTECTION, mode=0o600) as out:
            out.write(json.dumps(about, indent=2) + "\n")
    except OSError as error:
        _log.warning(
            "%s cannot be written (%s), so `flareclust site check` cannot see the protection", kit / _PROTECTION, error
        )


def protection(kit: Path) -> tuple[str, list[str]]:
    """Return in words what protects the processes of a kit that run on this machine from this folder, and what is wrong, a sentence each."""
    noted, lines, errors = _noted(kit), [], []
    for process in (one for one, used in _programs() if kit.resolve() in used):
        began = noted.get("started")  # the time moves with the machine's clock
        same = isinstance(began, int | float) and abs(began - process.create_time()) < _SAME_START
        if noted.get("pid") != process.pid or not same:
            errors.append(
                f"the process {process.pid} of this kit was started without the protection of its messages: stop it, and start it "
                "anew with the kit's own script, after `flareclust site allow`"
            )
        elif problems := noted.get("problems"):
            errors += [f"the process {process.pid} {problem}" for problem in problems]
        else:
            lines.append(
                f"in force in process {process.pid}: messages hold no files (flareclust {noted.get('flareclust')})"
            )
    return "; ".join(lines) or ("not in force" if errors else "no process runs here from this folder"), errors


def _noted(kit: Path) -> dict[str, Any]:
    with suppress(OSError, NotPlain, UserError):
        found = parse_json(read_text(kit / _PROTECTION))
        return found if isinstance(found, dict) else {}
    return {}


def runs_in(folder: Path) -> bool:
    """Return whether a process of a kit runs on this machine that is this folder, or lies in it or above it."""
    place = folder.resolve()
    return any(one.is_relative_to(place) or one in place.parents for _process, used in _programs() for one in used)


def job_runs(job: str) -> bool:
    """Return whether a process of a job runs on this machine."""
    return any(job in (process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))


def _programs() -> Iterator[tuple[psutil.Process, set[Path]]]:
    """Yield the processes of all kits on this machine, with the places that they were started with."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if _PARENTS & {*words}:
            yield process, {Path(word).resolve() for word in words if word.startswith("/")}


#: NVFlare's program in each script.
_PROGRAMS = {"sub_start.sh": RELAY, "fl_admin.sh": "nvflare.fuel.hci.tools.admin"}

_GUARDED = "-m flareclust.guarded"


def owner_without_jobs(kit: Path) -> str | None:
    """Return whose a kit is that runs no jobs and has no rows, "a relay" or "a user"; None for a site's or the server's."""
    owners = {"fed_relay.json": "a relay", "fed_admin.json": "a user"}
    return next((owner for name, owner in owners.items() if (kit / "startup" / name).exists()), None)


def guard_scripts(kit: Path) -> list[str]:
    """Have the programs of a kit start with messages that hold no files; return what was changed, a line each.

    Raises:
        UserError: a script cannot be written.
    """
    changes = []
    for script, program in _unguarded(kit):
        text = script.read_text(encoding="utf-8").replace(f"-m {program}", f"{_GUARDED} {program}")
        try:
            with write_atomically(script, mode=script.stat().st_mode & 0o777, shared=True) as out:
                out.write(text)
        except OSError as error:
            raise UserError(f"{script} cannot be written: {error.strerror}") from None
        changes.append(f"{script.name}: messages of {program} hold no files")
    return changes


def unguarded_scripts(kit: Path) -> list[str]:
    """Return the scripts of a kit whose program takes messages with files, a sentence each."""
    return [
        f"startup/{script.name} starts {program} without the protection of its messages: flareclust site allow"
        for script, program in _unguarded(kit)
    ]


def _unguarded(kit: Path) -> Iterator[tuple[Path, str]]:
    for name, program in _PROGRAMS.items():
        script = kit / "startup" / name
        if script.is_file() and f" -m {program} " in script.read_text(encoding="utf-8"):
            yield script, program
