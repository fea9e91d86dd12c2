"""Processes that a test has started, found by the folder that they name, since NVFlare puts them into sessions of their own."""

import os
import tempfile

import psutil


def naming(folder):
    """Return all living processes, but this one, that name the folder in their command lines or environments."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), *process.environ().values()]
            alive = process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            continue
        if alive and process.pid != os.getpid() and any(str(folder) in word for word in words):
            found.append(process)
    return found


def short_folder():
    """Return where to make temporary folders whose path must be short, since NVFlare makes sockets in them."""
    usual = tempfile.gettempdir()
    return usual if len(usual) <= 20 else "/tmp"
