"""Compiled kernels of an installation that nobody writes to: processes that start at once share the cache in NUMBA_CACHE_DIR.

Without that folder and without a home, each process compiles for itself.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow

#: Labels three rows, and says whether the kernel was compiled for it, and from where the package came.
_USE = """
import numpy as np, flareclust
from flareclust.core.kernels import nearest_centroids as kernel
X, labels = np.array([[0.0, 0], [5, 5], [0, 1]]), np.zeros(3, np.int64)
kernel(X, X[:2].copy(), labels, np.empty(3))
print(labels.tolist(), sum(kernel.stats.cache_misses.values()), flareclust.__file__)
"""


@pytest.fixture
def installed(tmp_path) -> Iterator[Path]:
    """The package as a wheel would put it into site-packages, with folders that the owner cannot write to."""
    folder = tmp_path / "site-packages"
    shutil.copytree(ROOT / "flareclust", folder / "flareclust", ignore=shutil.ignore_patterns("__pycache__"))
    folders = [path for path in (folder, *folder.rglob("*")) if path.is_dir()]
    for path in folders:
        path.chmod(0o555)
    yield folder
    for path in folders:
        path.chmod(0o755)


def start(code: str, installed: Path, cache: Path | None, home: Path | None = None) -> subprocess.Popen[str]:
    environment = {
        **{name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"},
        "PYTHONPATH": str(installed),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": str(cache or ""),
        "HOME": str(home or installed),
    }
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=installed,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def said(process: subprocess.Popen[str]) -> str:
    out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors[-2000:]
    return out


def test_processes_that_start_at_once_share_a_cache_beside_the_installation(installed, tmp_path):
    before = sorted(installed.rglob("*"))
    at_once = [start(_USE, installed, tmp_path / "cache") for _ in range(4)]
    for process in at_once:
        assert said(process).startswith("[0, 1, 0]")
    later = said(start(_USE, installed, tmp_path / "cache")).split()
    assert later[3] == "0", "compiled again"
    assert later[4].startswith(str(installed))
    assert sorted(installed.rglob("*")) == before


def test_the_command_for_images_compiles_into_the_cache(installed, tmp_path):
    page = (ROOT / "docs" / "containers.md").read_text(encoding="utf-8")
    command = re.search(r'python -c "(.*warm_up.*?)"', page)[1]
    assert said(start(command, installed, tmp_path / "cache")) == ""
    assert said(start(_USE, installed, tmp_path / "cache")).split()[3] == "0", "compiled again"


def test_without_any_place_for_a_cache_kernels_are_compiled_in_each_process_with_a_warning(installed, tmp_path):
    nowhere = tmp_path / "home"
    nowhere.touch()
    for folder in (path for path in (installed / "flareclust").rglob("*") if path.is_dir()):
        folder.chmod(0o755)
        (folder / "__pycache__").touch()  # so that root cannot write there either
        folder.chmod(0o555)
    process = start(_USE, installed, None, nowhere)
    out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors[-2000:]
    assert out.startswith("[0, 1, 0]")
    assert errors.count("set NUMBA_CACHE_DIR to a folder that only your account can write to") == 1
