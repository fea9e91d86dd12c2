"""The tables in docs/performance.md, made from a record."""

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "performance.md"
GROUPS = ("lloyd", "float32", "starts", "sites", "seeds")
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def text_line(group: str, line: dict[str, Any]) -> str:
    """Return a line for the terminal."""
    return (
        f"{group:6} {line['case']:22} {line['contender']:20} {duration(line['seconds']):>9} "
        f"{line['ratio']:7.2f}x  inertia {line['inertia']:.10g}  equal {line['equal']:.6f}"
    )


def duration(seconds: float) -> str:
    factor, unit = next((pair for pair in UNITS if seconds >= pair[0]), UNITS[-1])
    return f"{seconds / factor:.3g} {unit}"


def with_tables(text: str, record: dict[str, Any]) -> str:
    """Return the page with what a record holds between its marks."""
    for group in GROUPS:
        text = between(text, group, table(record[group], group))
    return between(text, "machine", machine(record))


def machine(record: dict[str, Any]) -> str:
    about = record["machine"]
    return (
        f"Measured on {record['date']} on one thread of an {about['processor']}, Python {about['python']}, beside other "
        f"work. In the same run a 2048³ product ran at {about['gemm_float64']:.0f} GF/s in float64 and "
        f"{about['gemm_float32']:.0f} GF/s in float32, and memory was read at {about['read_gb']:.1f} GB/s."
    )


def table(lines: list[dict[str, Any]], group: str) -> str:
    equal = "equal seeds" if group == "seeds" else "equal labels"
    more = (" memory / rows |", " ---: |") if group == "float32" else ("", "")
    rows = [
        f"| n, d, k | contender | CPU time | times scikit-learn | inertia / scikit-learn's - 1 | {equal} |{more[0]}"
    ]
    rows.append(f"| --- | --- | ---: | ---: | ---: | ---: |{more[1]}")
    for line in lines:
        first = next(other for other in lines if other["case"] == line["case"])
        excess = line["inertia"] / first["inertia"] - 1
        rows.append(
            f"| {line['case'].replace(',', ', ')} | {line['contender']} | {duration(line['seconds'])} "
            f"| {line['ratio']:.2f} | {excess:.0e} | {100 * line['equal']:.2f} % |"
            + (f" {line['memory']:.2g} |" if more[0] else "")
        )
    return "\n".join(rows)


def between(text: str, name: str, content: str) -> str:
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    assert pattern.search(text), f"docs/performance.md has no mark {name}"
    return pattern.sub(lambda found: found[1] + content + "\n" + found[2], text)
