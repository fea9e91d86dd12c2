"""Configurations of sites, under atheris."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.fuzz.run import fuzz, watched

with watched():
    from tests.fuzz.files import check_config


def make(folder: Path) -> Callable[[bytes], object]:
    """Return what reads a configuration in the folder."""
    return partial(check_config, folder)


if __name__ == "__main__":
    fuzz(make)
