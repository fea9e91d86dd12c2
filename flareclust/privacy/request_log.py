"""What one job has asked a site so far, in the order in which it asked."""

import os
from pathlib import Path

#: Where a real site keeps it, in the job's folder; every line has a step and a round.
REQUEST_LOG_FILE = "flareclust_asked.txt"


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
        with os.fdopen(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as out:
            out.write(f"{step} {round_}\n")
            out.flush()
            os.fsync(out.fileno())
