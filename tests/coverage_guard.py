"""`python -m tests.coverage_guard`: which lines `make test-all` reaches and `make test` does not.

Both tiers run with coverage in all their processes. The guard fails where `make test` has fewer than 99.5 % of the lines.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from coverage import Coverage, CoverageData

ROOT = Path(__file__).resolve().parent.parent
SHARE = 0.995
TIERS = {"test": ["-m", "not slow or smoke", "-n", "3"], "test-all": ["-n", "4"]}

CONFIG = """
[run]
parallel = true
concurrency = thread,multiprocessing
data_file = {folder}/.coverage
source_pkgs = flareclust
sigterm = true
patch = subprocess
"""


def reached(tier: str, folder: Path) -> set[tuple[str, int]]:
    """Run a tier and return the lines that it reaches, by file and number."""
    folder.mkdir()
    (folder / "coveragerc").write_text(CONFIG.format(folder=folder))
    run = [sys.executable, "-m", "coverage", "run", f"--rcfile={folder / 'coveragerc'}", "-m", "tests.run"]
    if subprocess.run([*run, "--no-loadscope-reorder", *TIERS[tier]], cwd=ROOT, check=False).returncode:
        sys.exit(f"{tier}: tests failed")
    coverage = Coverage(config_file=str(folder / "coveragerc"))
    coverage.combine([str(folder)])
    data: CoverageData = coverage.get_data()
    return {(str(Path(file).resolve()), line) for file in data.measured_files() for line in data.lines(file) or ()}


def main() -> int:
    """Run both tiers and compare; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        some, everything = (reached(tier, Path(folder) / tier) for tier in TIERS)
    missing = sorted(everything - some)
    share = 1 - len(missing) / len(everything)
    for file, line in missing:
        print(f"{Path(file).relative_to(ROOT)}:{line}")
    print(f"make test reaches {share:.2%} of the {len(everything)} lines that make test-all reaches")
    return 0 if share >= SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
