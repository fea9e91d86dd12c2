"""A program that serves pages until it is ended, and what is printed once they answer."""

import socket
import subprocess
import time
from collections.abc import Sequence

import typer

#: Seconds between two questions whether a port answers.
_PAUSE = 0.2


def served(command: Sequence[str], port: int, lines: Sequence[str]) -> int:
    """Run a program until it ends, print lines once it answers at a port of this machine, and return its exit code.

    Ctrl-C ends it, too: an interrupt of this process, however it came, is passed on.
    """
    process = subprocess.Popen(command)
    try:
        while process.poll() is None and not _answers(port):
            time.sleep(_PAUSE)
        if process.poll() is None:
            typer.echo("\n".join(lines))
        return process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
