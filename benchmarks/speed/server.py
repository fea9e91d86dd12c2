"""The work of the server, and the other steps, beside what they are measured by: CPU time at one thread, or memory.

    python -m benchmarks.speed.server [--only WORD ...] [--record]

Ours and the baseline take turns in one process; a ratio is the median of those of the turns. `--only` takes the lines
whose first two columns have one of the words. `--record` writes benchmarks/records/speed_server.json and the tables in
docs/performance.md, where lines that were not measured stay with the run that they are of. Nothing here runs in a test: other work on the machine moves the figures.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.speed import machine, memory_lines, page, runs, server_lines, step_lines
from benchmarks.speed.server_measure import measured

RECORD = Path(__file__).resolve().parent.parent / "records" / "speed_server.json"
GROUPS = {"server": (*server_lines.LINES, *memory_lines.LINES), "steps": step_lines.LINES}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.server", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", metavar="WORD", help="only lines whose first two columns have one of these"
    )
    parser.add_argument("--record", action="store_true", help="write the record and the page")
    options = parser.parse_args()
    found: dict[str, Any] = {group: [] for group in GROUPS}
    with threadpool_limits(1):
        limits = machine.limits()
        print(json.dumps(limits))
        for group, lines in GROUPS.items():
            for line in lines:
                if options.only and not any(word in f"{line.what} {line.size}" for word in options.only):
                    continue
                found[group].append(measured(line))
                print(" ".join(cells(found[group][-1])), flush=True)
    if options.record:
        record = together(json.loads(RECORD.read_text()), found, limits)
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        page.PAGE.write_text(with_tables(page.PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")


def together(before: dict[str, Any], found: dict[str, runs.Lines], limits: dict[str, Any]) -> dict[str, Any]:
    """Return a record with the lines measured now, and of the others those that it had, in order."""
    now = runs.new_name(before["runs"])
    merged = {}
    for group, lines in GROUPS.items():
        new = [{**line, "run": now} for line in found[group]]
        known = {(line["what"], line["size"]): line for line in [*before[group], *new]}
        merged[group] = [known[line.what, line.size] for line in lines if (line.what, line.size) in known]
    return {"runs": runs.still_used({**before["runs"], now: limits}, merged.values()), **merged}


def cells(line: dict[str, Any]) -> list[str]:
    """Return the columns of a line."""
    shown = megabytes if line["memory"] else page.duration
    goal = f"{'≥' if line['faster'] else '≤'} {line['goal']:g}"
    met = "" if line["good"] else " **missed**"
    return [
        *(line["what"], line["size"], shown(line["ours"])),
        *(f"{line['against']}: {shown(line['baseline'])}", f"{line['ratio']:.2f}", goal + met, line["equal"]),
    ]


def megabytes(size: float) -> str:
    return f"{size / 1e6:.3g} MB"


def with_tables(text: str, record: dict[str, Any]) -> str:
    """Return the text of the page with what stands between its marks written anew."""
    called = runs.letters(record["runs"])
    for group in GROUPS:
        rows = [
            "| what | size | here | baseline | ratio | goal | equal | run |",
            "| --- | --- | ---: | --- | ---: | --- | --- | --- |",
        ]
        rows += [f"| {' | '.join([*cells(line), called[line['run']]])} |" for line in record[group]]
        text = page.between(text, group, "\n".join(rows))
        text = page.between(text, f"machine-{group}", runs.described(record["runs"], record[group]))
    lines = [line for group in GROUPS for line in record[group]]
    missed = [
        f"{line['what']} ({line['size']}): {line['ratio']:.2f} of {line['goal']:g}"
        for line in lines
        if not line["good"]
    ]
    met = f"{len(lines) - len(missed)} of {len(lines)} goals of the server and of other steps are met."
    return page.between(text, "goals-server", met + (f" Missed: {'; '.join(missed)}." if missed else ""))


if __name__ == "__main__":
    main()
