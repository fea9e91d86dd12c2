"""The table of the comparison in docs/performance.md, made from its record."""

from pathlib import Path
from typing import Any

from benchmarks.speed.page import PAGE, between

RECORD = Path(__file__).resolve().parent.parent.parent / "records" / "devices_rivals.json"

TITLES = {
    "flower": "Flower",
    "devices": "engine devices",
    "in-process": "engine in-process",
    "loop": "plain loop over the devices",
}
WORK = {"one-shot": "one-shot k-means", "lloyd": "one round of Lloyd"}


def text_line(line: dict[str, Any]) -> str:
    """Return a line for the terminal."""
    return (
        f"{line['contender']:10} {line['work']:8} {line['devices']:6d} devices {line['seconds']:8.3f} s wall "
        f"{line['cpu']:8.3f} s CPU {1e3 * line['cpu'] / line['devices']:8.4f} ms CPU per device"
    )


def write(record: dict[str, Any]) -> None:
    """Replace what stands between the page's marks."""
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), record))


def with_table(text: str, record: dict[str, Any]) -> str:
    """Return the page's text with the table of this record."""
    return between(text, "rivals", table(record))


def table(record: dict[str, Any]) -> str:
    """Return machine and versions, and a row for each work, number of devices and contender."""
    versions, worst = record["versions"], max(record["differences"].values())
    about = (
        f"Measured on {record['date']} on {record['cores']} cores, beside other work, Python {record['python']}, Flower "
        f"{versions['flwr']} with Ray {versions['ray']}, NumPy {versions['numpy']}. The centroids of all differ by at most "
        f"{worst:.0e}."
    )
    rows = [
        about,
        "",
        "| work | devices | | CPU time | CPU time per device | devices per CPU second | wall time |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    works, titles = list(WORK), list(TITLES)
    for line in sorted(
        record["lines"],
        key=lambda line: (works.index(line["work"]), line["devices"], titles.index(line["contender"])),
    ):
        each = line["cpu"] / line["devices"]
        rows.append(
            f"| {WORK[line['work']]} | {line['devices']:,} | {TITLES[line['contender']]} | {line['cpu']:.3g} s | "
            f"{1e3 * each:.2g} ms | {_rounded(1 / each):,} | {line['seconds']:.2g} s |"
        )
    return "\n".join(rows)


def _rounded(number: float) -> int:
    """Return a number with two significant digits."""
    return int(float(f"{number:.2g}"))
