"""The examples for Flower and vantage6, whose packages do not go with our pins: their tests run in environments of their own."""

import os
import subprocess

import pytest

from tests.paths import ROOT
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("framework", ["flower", "vantage6"])
def test_the_example_gives_what_the_in_process_engine_gives(framework, tmp_path):
    python = ROOT / f".venv-{framework}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{framework} is not installed in {python.parents[1].name}: make frameworks")
    example = ROOT / "examples" / framework
    options = ["-q", "--import-mode=importlib", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [str(python), "-m", "pytest", *options, str(example / "tests")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(example)])},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
