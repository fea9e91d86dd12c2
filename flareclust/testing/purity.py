"""The promise that a site's computation is pure: its reply follows from task, rows and settings, and from nothing else."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.typing import never_abort
from flareclust.protocol.registry import Algorithm
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.task import Task
from flareclust.testing.tools import ensure, exchanges, iid_sites

_K, _SECONDS = 4, 120


def check_local_is_pure(algorithm: Algorithm) -> None:
    """Replies are the same in two fresh processes that get the tasks in opposite orders: nothing is remembered."""
    sites, _ = iid_sites(m=2)
    tasks = [one.task for one in exchanges(algorithm, sites, _K)]
    with tempfile.TemporaryDirectory(prefix="flareclust-") as folder:
        for number, task in enumerate(tasks):
            np.savez(Path(folder) / f"{number}.npz", allow_pickle=False, **task.arrays)
        np.savez(Path(folder) / "rows.npz", allow_pickle=False, **sites)
        about = {"executor": algorithm.executor, "tasks": [(task.step, task.round, task.site) for task in tasks]}
        (Path(folder) / "tasks.json").write_text(json.dumps(about))
        first, second = (_in_a_process(folder, order) for order in ("1", "-1"))
    for number, task in enumerate(tasks):
        same = first[str(number)] == second[str(number)]
        ensure(same, algorithm, f"step {task.step}, round {task.round}: the reply depends on more than its arguments")


def _in_a_process(folder: str, order: str) -> dict[str, str]:
    command = [sys.executable, "-c", f"from {__name__} import main; main()", folder, order]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"the site's side cannot be run in a process of its own: {done.stderr[-2000:]}")
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _replies(folder: Path, order: int) -> dict[str, str]:
    """Return a digest of the reply to each task in a folder, which is answered in this order: 1, or -1 for backwards."""
    about = json.loads((folder / "tasks.json").read_text())
    module, _, name = about["executor"].rpartition(".")
    executor = getattr(import_module(module), name)(k=_K, seed=0)
    rows = _arrays(folder / "rows.npz")
    found = {}
    for number, (step, round_, site) in list(enumerate(about["tasks"]))[::order]:
        task = Task(step, round_, _arrays(folder / f"{number}.npz"), site)
        found[str(number)] = _digest(executor.answer(task, rows[site], never_abort).arrays)
    return found


def _arrays(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _digest(arrays: Mapping[str, Any]) -> str:
    found = hashlib.sha256()
    for name in sorted(set(arrays) - {SECONDS}):
        value = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {value.dtype.str} {value.shape}".encode() + value.tobytes())
    return found.hexdigest()


def main() -> None:
    """Print the digests of the replies to the tasks of a folder, in an order."""
    print(json.dumps(_replies(Path(sys.argv[1]), int(sys.argv[2]))))
