"""What Windows lacks is taken from Python: runs in this process work, and what needs processes, locks and accounts says so."""

import os
import subprocess
import sys

import pytest

from tests.paths import ROOT
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow

#: Takes away what Windows lacks, once the modules that look for it by the name of the system are there.
_TAKEN = """
import asyncio, concurrent.futures.process, multiprocessing.util, os, psutil, shutil, signal, subprocess, sys, tempfile
for module in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[module] = None
for name in ("SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "pthread_kill", "pthread_sigmask"):
    delattr(signal, name)
for name in ("fork", "getuid", "geteuid", "getgid", "getegid", "killpg", "getpgid", "setsid", "O_DIRECTORY", "O_NOFOLLOW"):
    delattr(os, name)
"""

_LIBRARY = """
import numpy as np, flareclust
rng = np.random.default_rng(0)
rows = np.concatenate([rng.normal(center, 1, (30, 2)) for center in (5, 15, 25)])
sites = {"north": rows[::2], "south": rows[1::2]}
result = flareclust.run("pooled", sites, 3, policy={}, out="out")
assert (flareclust.load_result("out").centroids == result.centroids).all()
assert flareclust.FederatedKMeans(n_clusters=3).fit(sites).cluster_centers_.shape == (3, 2)
"""

_COMMAND = "from flareclust.cli.main import main\nmain()"


def run(code, folder, *words):
    return subprocess.run(
        [sys.executable, "-c", _TAKEN + code, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_the_library_works(tmp_path):
    done = run(_LIBRARY, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_command_works_in_this_process(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n" + "\n".join(f"{i % 3},{i % 5}" for i in range(30)))
    words = ("run", "pooled", "--k", "2", "--data", "rows.csv", "--n-sites", "2", "--engine", "inprocess", "--no-track")
    done = run(_COMMAND, tmp_path, *words)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    "words",
    [
        ("run", "pooled", "--data", "iris", "--n-sites", "2", "--engine", "simulator", "--no-track"),
        ("poc", "up", "--n-sites", "2", "--data", "iris"),
    ],
    ids=["simulator", "poc"],
)
def test_what_does_not_work_says_so(words, tmp_path):
    done = run(_COMMAND, tmp_path, *words)
    assert done.returncode == 2, done.stderr[-2000:]
    assert "needs Linux or macOS; on Windows use WSL2, or the engine inprocess" in done.stderr
