"""What protects the processes of a kit that run now, as they have written it down themselves when they started.

A kit's files say what a process will do that is started next. One that runs since before an upgrade of flareclust does not.
"""

import json
import logging
import os
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from flareclust._foundation.errors import UserError
from flareclust._foundation.own_files import write_atomically
from flareclust._foundation.settings_file import NotPlain, parse_json, read_text
from flareclust._foundation.version import __version__

log = logging.getLogger(__name__)

#: The file in a kit's folder.
PROTECTION = "protection.json"

#: Seconds by which a process may seem to have begun at another time, after the clock was set.
_SAME_START = 60.0

#: The programs that run for as long as a server, a site or a relay does.
RELAY = "nvflare.private.fed.app.relay.relay"
_PARENTS = frozenset(
    {"nvflare.private.fed.app.server.server_train", "nvflare.private.fed.app.client.client_train", RELAY}
)


def note_protection(kit: Path, problems: Sequence[str]) -> None:
    """Write down that this process, of the kit in this folder, keeps files out of its messages, or why it does not."""
    about = {
        "pid": os.getpid(),
        "started": psutil.Process().create_time(),
        "flareclust": __version__,
        "nvflare": version("nvflare"),
        "problems": list(problems),
    }
    try:
        with write_atomically(kit / PROTECTION, mode=0o600) as out:
            out.write(json.dumps(about, indent=2) + "\n")
    except OSError as error:
        log.warning(
            "%s cannot be written (%s), so `flareclust site check` cannot see the protection", kit / PROTECTION, error
        )


def protection(kit: Path) -> tuple[str, list[str]]:
    """Return in words what protects the processes of a kit that run on this machine from this folder, and what is wrong, a sentence each."""
    noted, lines, errors = _noted(kit), [], []
    for process in _parents(kit):
        if noted.get("pid") != process.pid or not _began(process, noted.get("started")):
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


def _began(process: psutil.Process, noted: object) -> bool:
    """Return whether this is the process that noted when it began; the time moves with the machine's clock."""
    return isinstance(noted, int | float) and abs(noted - process.create_time()) < _SAME_START


def _noted(kit: Path) -> dict[str, Any]:
    try:
        found = parse_json(read_text(kit / PROTECTION))
    except (OSError, NotPlain, UserError):
        return {}
    return found if isinstance(found, dict) else {}


def _parents(kit: Path) -> Iterator[psutil.Process]:
    folder = str(kit.resolve())
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if _PARENTS & {*words} and folder in {str(Path(word).resolve()) for word in words if word.startswith("/")}:
            yield process
