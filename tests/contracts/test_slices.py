"""Parts that nothing else needs: with the folder left out, the rest works, and says what is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT, of_the_whole

pytestmark = of_the_whole

#: By folder of flareclust: a command that needs it, and what is said then.
NEEDED_BY = {
    "personal": (["personalise", "--k", "2"], "flareclust personalise needs the folder flareclust/personal"),
    "deep": (["list", "deepfeca"], "needs the package 'flareclust.deep', which is not installed"),
    "devices": (
        ["run", "lloyd", "--data", "iris", "--k", "3", "--engine", "devices", "--no-track"],
        "the engine devices needs the folder flareclust/devices",
    ),
}

#: Without the finder of an editable installation, which would find the folder in the checkout.
ALONE = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in repr(finder).lower()]
sys.path.insert(0, {root!r})
"""


def without(folder: str, to: Path) -> str:
    """Make a checkout of links without a folder; return the code that has Python import it."""
    (to / "flareclust").mkdir()
    for path in (ROOT / "flareclust").iterdir():
        if path.name not in (folder, "__pycache__"):
            (to / "flareclust" / path.name).symlink_to(path)
    return ALONE.format(root=str(to))


def called(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], check=False, cwd=folder, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("folder", NEEDED_BY)
def test_the_rest_works_without_the_folder(folder: str, tmp_path: Path) -> None:
    alone = without(folder, tmp_path)
    code = """
import contextlib, io
import numpy as np
import flareclust
from flareclust.protocol.registry import BUILT_IN, executors
rows = {site: np.random.default_rng(i).normal(size=(40, 2)) for i, site in enumerate("abc")}
from flareclust.cli.main import main
for command in (["list"], ["list", "--json"], ["list", "--stages", "--json"]):
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            main(command)
        except SystemExit as ended:
            assert not ended.code, (command, ended)
for name in ("kfed", "lloyd"):
    assert flareclust.run(name, rows, k=2, policy={"min_count": 5}).centroids.shape == (2, 2)
print(flareclust.__file__, *sorted(a.name for a in BUILT_IN if a.federated and a.name not in executors()))
"""
    done = called(alone + code, tmp_path)
    assert done.returncode == 0, done.stderr
    file, *missing = done.stdout.split()
    assert file == str(tmp_path / "flareclust" / "__init__.py")
    assert missing == (["deepfeca"] if folder == "deep" else [])


@pytest.mark.parametrize("folder", NEEDED_BY)
def test_a_command_that_needs_the_folder_says_so(folder: str, tmp_path: Path) -> None:
    command, words = NEEDED_BY[folder]
    alone = without(folder, tmp_path)
    done = called(f"{alone}\nfrom flareclust.cli.main import main\nmain({command!r})", tmp_path)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
