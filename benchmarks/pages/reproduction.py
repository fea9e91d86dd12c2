"""Write docs/reproduction.md and its figures from a folder of reports.

python -m benchmarks.papers all --out FOLDER
python -m benchmarks.pages.reproduction FOLDER
"""

import sys
from pathlib import Path

from benchmarks.pages import DOCS
from benchmarks.papers.report import write_page
from flareclust._foundation.errors import UserError

PAGE = DOCS / "reproduction.md"

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m benchmarks.pages.reproduction FOLDER")
    try:
        print(write_page(Path(sys.argv[1]), PAGE))
    except UserError as error:
        sys.exit(f"error: {error}")
