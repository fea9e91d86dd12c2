"""What writes the generated parts of docs/: from the registry, and from the records of measurements in benchmarks/records."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RECORDS = ROOT / "benchmarks" / "records"
