"""Processes of tests that are killed, or that begin at once."""

import json
import subprocess
import sys
from collections.abc import Sequence

from tests.patience import PATIENCE

#: Calls `case(*arguments)` for each of the cases, in a process of its own, forked so that Python is started once.
_EACH = """
import json, os, sys
for arguments in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            case(*arguments)
            status = 0
        finally:
            os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def run_each(script: str, cases: Sequence[Sequence[object]]) -> list[int]:
    """Run the function `case` of a script once for each of the cases, one after the other; return the exit codes."""
    command = [sys.executable, "-c", script + _EACH, json.dumps(cases)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    out, errors = process.communicate(timeout=PATIENCE)
    codes = [int(line) for line in out.split()]
    assert len(codes) == len(cases), errors.decode()
    return codes


def run_at_once(script: str, cases: Sequence[Sequence[str]]) -> list[int]:
    """Run a script once for each list of arguments, all at once, and return the integers that they print.

    A script prints "ready", and begins when it has read a line.
    """
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, *case],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for case in cases
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [int(process.communicate(timeout=PATIENCE)[0]) for process in processes]
