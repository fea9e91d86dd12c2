"""The scripts in kits of relays and users that start NVFlare's programs: they begin in `flareclust.guarded`.

A server's and a site's scripts need no change: what protects their messages stands in `local/resources.json`, which relays and
NVFlare's console do not read.
"""

from collections.abc import Iterator
from pathlib import Path

from flareclust._foundation.errors import UserError
from flareclust._foundation.own_files import write_atomically
from flareclust.sites.running import RELAY

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
