"""`python -m tests.coverage_guard`: which lines `make test-all` reaches and `make test` does not.

The tests of `make test`, and then those that only `make test-all` has, run with coverage in all their processes. The guard
fails where a test fails, or where `make test` has fewer than 99.5 % of the lines.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from coverage import Coverage, CoverageData
from xdist.workermanage import NodeManager

ROOT = Path(__file__).resolve().parent.parent
SHARE = 0.995
QUICK, REST = ("-m", "not slow or smoke", "-n", "3"), ("-m", "slow and not smoke", "-n", "4")

CONFIG = """
[run]
parallel = true
concurrency = thread,multiprocessing
data_file = {folder}/.coverage
source_pkgs = flareclust
sigterm = true
patch = subprocess
"""


def reached(tests: Sequence[str], folder: Path) -> tuple[set[tuple[str, int]], bool]:
    """Run tests; return the lines that they reach, by file and number, and whether all tests passed."""
    folder.mkdir()
    (folder / "coveragerc").write_text(CONFIG.format(folder=folder))
    run = [sys.executable, "-m", "coverage", "run", f"--rcfile={folder / 'coveragerc'}", "-m", "tests.run"]
    words = ["-p", "tests.coverage_guard", "--no-loadscope-reorder", *tests]
    passed = not subprocess.run([*run, *words], cwd=ROOT, check=False).returncode
    coverage = Coverage(config_file=str(folder / "coveragerc"))
    coverage.combine([str(folder)])
    data: CoverageData = coverage.get_data()
    own = [file for file in data.measured_files() if Path(file).is_relative_to(ROOT)]  # no copies in other folders
    return {(file, line) for file in own for line in data.lines(file) or ()}, passed


def pytest_configure() -> None:
    """Let the workers write what they have measured: xdist kills them after ten seconds, too few on a busy machine."""
    NodeManager.EXIT_TIMEOUT = 600


def main() -> int:
    """Run both and compare; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        some, passed = reached(QUICK, Path(folder) / "quick")
        rest, rest_passed = reached(REST, Path(folder) / "rest")
    missing = sorted(rest - some)
    share = 1 - len(missing) / len(some | rest)
    for file, line in missing:
        print(f"{Path(file).relative_to(ROOT)}:{line}")
    print(f"make test reaches {share:.2%} of the {len(some | rest)} lines that make test-all reaches")
    return 0 if passed and rest_passed and share >= SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
