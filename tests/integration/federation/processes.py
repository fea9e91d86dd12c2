"""The processes of a kit, found by the folder in their command lines, as NVFlare puts them into sessions of their own."""

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

#: What the process of a running job is called: at a site, and at the server.
JOB_MODULES = ("nvflare.private.fed.app.client.worker_process", "nvflare.private.fed.app.server.runner_process")


def of_kits(kits: Iterable[Path]) -> list[psutil.Process]:
    """Return daemon, parent and job of the kits in these folders."""
    folders = [str(kit) for kit in kits]
    return [process for process in psutil.process_iter(["cmdline"]) if _names(process.info["cmdline"] or [], folders)]


def job_of_kit(kit: Path) -> list[psutil.Process]:
    """Return the processes of the jobs that run at the kit's server or site."""
    return [process for process in of_kits([kit]) if set(JOB_MODULES) & set(process.info["cmdline"])]


def without_daemon(kit: Path) -> list[psutil.Process]:
    """Return parent and job, without the script that starts the parent again."""
    return [process for process in of_kits([kit]) if "-m" in process.info["cmdline"]]


def _names(command: list[str], folders: list[str]) -> bool:
    return any(word == folder or word.startswith(f"{folder}/") for word in command for folder in folders)


def kill(found: Iterable[psutil.Process], patience: float = 20.0) -> None:
    """SIGKILL all and their children at once and wait until they are gone; zombies do not count."""
    found = list(found)
    for process in list(found):  # the daemon's script waits in a `sleep`, which names no kit
        with suppress(psutil.NoSuchProcess):
            found += [child for child in process.children(recursive=True) if child not in found]
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    end = time.monotonic() + patience
    while alive := [process for process in found if _runs(process)]:
        if time.monotonic() > end:
            raise TimeoutError(f"{alive} outlived SIGKILL")
        time.sleep(0.02)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
