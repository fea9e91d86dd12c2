"""`python -m benchmarks.mutants.server`: runs pytest in forks of a process that has imported what the product needs from others.

Each line of the input is a list of pytest's arguments. The answers are two lines, the process that runs them, which leads a
session of its own, and its exit code.
"""

import contextlib
import importlib
import json
import os
import sys

#: What tests import beside the product's own needs.
TESTS_NEED = ("pytest", "hypothesis", "_pytest.pytester", "sklearn.cluster", "sklearn.metrics")


def main() -> None:
    for name in (*_needs(), *TESTS_NEED):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    print("ready", flush=True)
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            os._exit(_test(json.loads(line)))
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


def _needs() -> list[str]:
    """Return the modules of others that the product imports; it is imported in another process, for here it is to be unknown."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        importlib.import_module("flareclust.cli.main")
        importlib.import_module("flareclust.testing")
        with open(write, "w") as pipe:
            pipe.write(
                "\n".join(name for name in sys.modules if name.partition(".")[0] not in ("flareclust", "__main__"))
            )
        os._exit(0)
    os.close(write)
    with open(read) as pipe:
        names = pipe.read().split()
    os.waitpid(process, 0)
    return names


def _test(arguments: list[str]) -> int:
    import pytest

    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    return int(pytest.main(arguments))


if __name__ == "__main__":
    main()
