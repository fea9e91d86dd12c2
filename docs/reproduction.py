"""Write docs/reproduction.md and its figures from a folder of reports.

python -m benchmarks.papers all --out FOLDER
python docs/reproduction.py FOLDER
"""

import sys
from pathlib import Path

from benchmarks.papers.report import write_page
from flareclust._foundation.errors import UserError

PAGE = Path(__file__).resolve().parent / "reproduction.md"

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/reproduction.py FOLDER")
    try:
        print(write_page(Path(sys.argv[1]), PAGE))
    except UserError as error:
        sys.exit(f"error: {error}")
