"""Whether there is a Prefect server to report to. Prefect is imported only where something names one: it takes seconds."""

import os
import sys
from contextlib import suppress
from pathlib import Path

from flareclust._foundation.extras import installed

_URL = "PREFECT_API_URL"
#: Files of the working folder in which Prefect looks for settings.
_FILES = (".env", "prefect.toml", "pyproject.toml")


def server_configured() -> bool:
    """Return whether Prefect is set to use a server: in the environment, a profile, or a file of the working folder.

    Without one, Prefect would start a temporary server for each command, which nobody looks at.
    """
    if not installed("flows") or not _mentioned():
        return False
    from prefect.settings import get_current_settings

    import flareclust.flows.server  # noqa: F401 - sets Prefect's switches before it is imported

    return bool(get_current_settings().api.url)


def _mentioned() -> bool:
    if "prefect" in sys.modules or os.environ.get(_URL):
        return True
    home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    profiles = Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml")
    for file in (profiles, *map(Path, _FILES)):
        with suppress(OSError, ValueError):  # not there, or none of Prefect's
            if "prefect" in file.read_text(encoding="utf-8").lower():
                return True
    return False
