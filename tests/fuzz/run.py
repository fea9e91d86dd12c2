"""Runs one target under atheris: `python -m tests.fuzz.fuzz_config -runs=1000`, with libFuzzer's options."""

import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import atheris

#: What is watched for new paths, as packages; numba could not compile functions that are watched.
WATCHED, COMPILED = (
    ["flareclust", "nvflare", "tests"],
    ["flareclust.core.kernels", "flareclust.core.missing.kernels"],
)


@contextmanager
def watched() -> Iterator[None]:
    """Watch the modules that are imported in the block."""
    with atheris.instrument_imports(include=WATCHED, exclude=COMPILED):
        yield


def fuzz(make: Callable[[Path], Callable[[bytes], object]]) -> None:
    """Call what `make` returns, for a folder of its own, with inputs until one raises or as many as asked for are done."""
    logging.disable(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="flareclust-fuzz-"))
    options = ["-max_len=512", "-len_control=0", f"-artifact_prefix={folder}/", "-rss_limit_mb=4096"]
    atheris.Setup([sys.argv[0], *options, *sys.argv[1:]], make(folder))
    atheris.Fuzz()  # ends the process
