"""What a site keeps in the folder of one job: what it was asked so far, and the tracebacks, which stay there."""

import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from flareclust._foundation.own_files import append

#: Where a real site keeps it, in the job's folder; every line has a step and a round.
REQUEST_LOG_FILE = "flareclust_asked.txt"

#: The file with the tracebacks.
TRACEBACK_FILE = "flareclust_error.txt"


class RequestLog:
    """The exchanges of one job with a site.

    Args:
        file: where they are written down before they are answered, so that they outlive the process; None for memory.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._seen: list[tuple[str, int]] = []

    def so_far(self) -> list[tuple[str, int]]:
        """Return the step and the round of each exchange."""
        if self._file is None:
            return list(self._seen)
        if not self._file.exists():
            return []
        words = [line.split() for line in self._file.read_text(encoding="utf-8").splitlines()]
        return [(step, int(round_)) for step, round_ in words]

    def add(self, step: str, round_: int) -> None:
        """Write down one more exchange."""
        if self._file is None:
            self._seen.append((step, round_))
            return
        append(self._file, f"{step} {round_}\n")


def run_dir(fl_ctx: Any) -> Path:
    """Return the folder at this site of the job that NVFlare's context is of."""
    return Path(fl_ctx.get_workspace().get_run_dir(fl_ctx.get_job_id()))


def keep_traceback(fl_ctx: Any, error: Exception) -> None:
    """Add a traceback to the site's own file; a full disk must not send it to NVFlare's log instead."""
    with suppress(OSError):
        append(run_dir(fl_ctx) / TRACEBACK_FILE, "".join(traceback.format_exception(error)))
