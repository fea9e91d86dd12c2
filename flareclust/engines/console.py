"""What a process writes to its console file, passed on line by line to a logger while it runs."""

import logging
from pathlib import Path

#: The logger of NVFlare's own lines; `flareclust --verbose` shows them.
log = logging.getLogger("nvflare.simulator")


class Console:
    """Follows a console file.

    Args:
        path: of the file, which need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._rest = path, 0, ""

    def pass_on(self) -> None:
        """Log the lines that are new and complete, where somebody wants to see them."""
        if not log.isEnabledFor(logging.INFO) or not self._path.exists():
            return
        with self._path.open("rb") as stream:
            stream.seek(self._offset)
            new = stream.read()
        self._offset += len(new)
        *lines, self._rest = (self._rest + new.decode(errors="replace")).split("\n")
        for line in lines:
            log.info("%s", line.rstrip())
