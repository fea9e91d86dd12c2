"""The tables in docs/performance.md, made from a record."""

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.speed.cases import GROUPS, Case, threads_of
from benchmarks.speed.runs import Lines, Runs, described, letters

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "performance.md"
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
        text = between(text, group, table(record[group], group, record["runs"]))
    text = between(text, "goals", goals(record))
    return between(text, "machine", described(record["runs"], [line for group in GROUPS for line in record[group]]))


#: The groups of lines in words, for the summary.
_CALLED = {
    "lloyd": "Lloyd's algorithm",
    "float32": "Lloyd's algorithm from float32 rows",
    "starts": "ten starts",
    "sites": "sites of 500 rows",
    "seeds": "k-means++",
}


def goals(record: dict[str, Any]) -> str:
    """Return how many goals for ratios are met, and each that is not."""
    found = {
        f"{_CALLED[group]} ({shape(line['case'])}): {line['ratio']:.2f} of {case.goal:g}": line["ratio"] >= case.goal
        for group, cases in GROUPS.items()
        for case in cases
        for line in record[group]
        if case.goal is not None and (line["case"], line["contender"]) == (case.name, "flareclust")
    }
    missed = [what for what, met in found.items() if not met]
    return f"{len(found) - len(missed)} of {len(found)} goals beside scikit-learn are met." + (
        f" Missed: {'; '.join(missed)}." if missed else ""
    )


def table(lines: Lines, group: str, runs: Runs) -> str:
    """Return the table of a group."""
    if not lines:
        return f"Not measured yet: `python -m benchmarks.speed --only {group} --record`, on an idle machine."
    of_lloyd, of_run = ["share of GEMM", "share of FMA", "share of memory"], letters(runs)
    more = {"float32": ["memory / rows"], "lloyd": of_lloyd, "threads": of_lloyd, "seeds": of_lloyd[2:]}.get(group, [])
    time = "CPU time" if threads_of(group) == 1 else "wall time"
    header = ["rows", "contender", time, "times scikit-learn", "goal", "inertia / scikit-learn's - 1"]
    header += ["equal seeds" if group == "seeds" else "equal labels", *more, "run"]
    marks = ["---", "---", "---:", "---:", "---", "---:", "---:", *("---:" for _ in more), "---"]
    goals = {case.name: case for case in GROUPS[group]}
    rows = [header, marks]
    for line in lines:
        first = next(other for other in lines if other["case"] == line["case"])
        case = goals[line["case"]]
        rows.append(
            [
                *(shape(line["case"]), line["contender"], duration(line["seconds"])),
                f"{line['ratio']:.2f}",
                against_goal(line["ratio"], case.goal) if line["contender"] == "flareclust" else "",
                _apart(line["inertia"], first["inertia"]),
                f"{100 * line['equal']:.2f} %",
                *([f"{line['memory']:.2g}"] if group == "float32" else []),
                *([gemm_share(case, line, runs[line["run"]])] if more == of_lloyd else []),
                *([fma_share(case, line, runs[line["run"]])] if more == of_lloyd else []),
                *([memory_share(case, line, runs[line["run"]])] if more[-1:] == of_lloyd[2:] else []),
                of_run[line["run"]],
            ]
        )
    return "\n".join("| " + " | ".join(cells).replace("  ", " ") + " |" for cells in rows)


def shape(case: str) -> str:
    """Return a case's rows, columns and clusters, as a person reads them."""
    n, d, k, *more = case.split(",")
    return ", ".join([f"{int(n):,} rows", f"d = {d}", f"k = {int(k):,}", *more])


def _apart(inertia: float, first: float) -> str:
    """Return by which part of it an inertia is above that of scikit-learn."""
    return "equal" if inertia == first else f"{inertia / first - 1:.0e}"


def against_goal(found: float, goal: float | None, shown: str = "g") -> str:
    """Return a goal, and whether it is reached; nothing without one."""
    return "" if goal is None else f"≥ {goal:{shown}} {'met' if found >= goal else '**missed**'}"


def gemm_share(case: Case, line: dict[str, Any], run: dict[str, Any]) -> str:
    """Return the rate of 2 n d k operations for each iteration and the last labels, beside that of a product of matrices.

    Up to 3 columns, where grid cells save most operations, it says nothing.
    """
    if case.d <= 3 or "iterations" not in line:
        return ""
    share = _operations(case, line) / 1e9 / line["seconds"] / run["gemm_float64"]
    goal = case.gemm_goal if line["contender"] == "flareclust" else None
    return " ".join(filter(None, [f"{100 * share:.0f} %", f"({against_goal(share, goal, '.0%')})" if goal else ""]))


def fma_share(case: Case, line: dict[str, Any], run: dict[str, Any]) -> str:
    """Return the same rate beside that of multiply-adds in registers; nothing where the run did not measure these."""
    if case.d <= 3 or "iterations" not in line or "fma_float64" not in run:
        return ""
    return f"{100 * _operations(case, line) / 1e9 / line['seconds'] / run['fma_float64']:.0f} %"


def memory_share(case: Case, line: dict[str, Any], run: dict[str, Any]) -> str:
    """Return the rate of reading the rows once for each iteration and the last labels, or each seed, beside that of memory."""
    if "iterations" not in line or "read_gb" not in run:
        return ""
    passes = line["iterations"] + 1 if line["iterations"] else case.k
    return f"{100 * 8 * case.n * case.d * passes / 1e9 / line['seconds'] / run['read_gb']:.0f} %"


def _operations(case: Case, line: dict[str, Any]) -> float:
    return 2.0 * case.n * case.d * case.k * (line["iterations"] + 1)


def measured_on(record: dict[str, Any], where: str | None = None) -> str:
    """Return when and where a record was measured, as its page begins; on its number of cores unless `where` says otherwise."""
    cores = where or f"{record['cores']} cores"
    return f"Measured on {record['date']} on {cores}, at a load of {record['load']:.0f} from other work"


def recorded(file: Path, record: dict[str, Any], name: str, content: str) -> None:
    """Write a record, and what the page says of it between the marks of this name."""
    file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(between(PAGE.read_text(encoding="utf-8"), name, content), encoding="utf-8")


def between(text: str, name: str, content: str) -> str:
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    assert pattern.search(text), f"docs/performance.md has no mark {name}"
    return pattern.sub(lambda found: found[1] + content + "\n" + found[2], text)
