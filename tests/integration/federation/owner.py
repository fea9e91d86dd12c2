"""Who made something that outlives a killed process, as a short text to be left beside it."""

import os

import psutil


def me() -> str:
    """Return the text for this process; a number alone could be another process's later."""
    return f"{os.getpid()}:{psutil.Process().create_time()}"


def alive(text: str) -> bool:
    """Return whether the process that wrote `text` still runs."""
    pid, started = text.split(":")
    try:
        return str(psutil.Process(int(pid)).create_time()) == started
    except psutil.NoSuchProcess:
        return False
