"""Whether a file is still the one that was opened: rows that are used from where they lie must not change under a job."""

from dataclasses import dataclass
from pathlib import Path

from flareclust._foundation.errors import Refusal


@dataclass(frozen=True)
class FileFingerprint:
    """A file's size in bytes and the time when it was last changed, in nanoseconds."""

    path: Path
    size: int
    changed: int

    @classmethod
    def of(cls, path: Path) -> "FileFingerprint":
        """Return the stamp that a file has now; OSError where it is gone."""
        status = path.stat()
        return cls(path, status.st_size, status.st_mtime_ns)

    def check(self) -> None:
        """Raise Refusal where the file has another stamp by now, or is gone."""
        try:
            same = FileFingerprint.of(self.path) == self
        except OSError:
            same = False
        if not same:
            raise Refusal(
                "cannot use its rows: its file changed while the job ran; write new rows to another file, and run the job "
                "again"
            )
