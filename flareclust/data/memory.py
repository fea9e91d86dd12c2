"""How much memory tables may take: sizes as people write them, and the limit of a run on one machine."""

import math
import os
import re
from types import MappingProxyType

import psutil

from flareclust._foundation.errors import UserError

#: The environment variable with the limit of a run, such as "8GB".
LIMIT = "FLARECLUST_MEMORY"

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)B?")
_POWER = MappingProxyType({"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4})


def parse_size(text: str) -> int | None:
    """Return a size in bytes: "4GB" and "4GiB" are 4 * 1000**3 and 4 * 1024**3; None where the text is no size."""
    match = _SIZE.fullmatch(text.strip())
    size = float(match[1]) * (1024 if match[3] else 1000) ** _POWER[match[2]] if match else 0.0
    return int(size) if 0 < size < math.inf else None


def machine_memory() -> int:
    """Return the bytes of this machine's memory."""
    return int(psutil.virtual_memory().total)


def run_limit() -> int:
    """Return the most bytes of rows that a run on this machine reads: `FLARECLUST_MEMORY`, or an eighth of the memory.

    A run holds the rows several times: as they were read, by site, and as the sites use them.

    Raises:
        UserError: the variable holds no size.
    """
    if not (text := os.environ.get(LIMIT, "")):
        return machine_memory() // 8
    if (size := parse_size(text)) is None:
        raise UserError(f'{LIMIT} must be a size such as "8GB", got {text[:40]!r}')
    return size


def site_limit(sites: int) -> int:
    """Return the most bytes of rows that each of so many simulated sites holds in memory; further ones lie in a file."""
    return max(1, run_limit() // sites)


def check_fits(size: int, place: str) -> None:
    """Raise UserError where a table of so many bytes is more than a run reads."""
    if size > (limit := run_limit()):
        raise UserError(
            f"{place} has {size:,} bytes of rows, more than the {limit:,} that a run may read (an eighth of the machine's "
            f"memory, or {LIMIT}); use fewer rows or columns, or set {LIMIT}=8GB or the like"
        )
