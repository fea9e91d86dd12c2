"""Command lines and sweeps, under atheris."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.fuzz.run import fuzz, watched

with watched():
    from tests.fuzz.specs import check_spec


def make(folder: Path) -> Callable[[bytes], object]:
    """Return what reads a request in the folder."""
    return partial(check_spec, folder)


if __name__ == "__main__":
    fuzz(make)
