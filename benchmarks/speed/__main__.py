"""Lloyd's algorithm, sites of 500 rows and k-means++ against scikit-learn, oneDAL and faiss: CPU time at one thread, wall time at two.

    python -m benchmarks.speed [--quick] [--shapes 100000,2,15 ...] [--only lloyd|threads|float32|starts|sites|seeds]
        [--contenders flareclust ...] [--record]

Contenders take turns in one process; a ratio is the median of those of the turns, above 1 where a contender is faster
than scikit-learn. `--record` writes benchmarks/records/speed.json, and tables and picture of docs/performance.md, where lines that were
not measured stay with the run that they are of. faiss takes part where faiss-cpu is installed, and oneDAL where scikit-learn-intelex is.
Nothing here runs in a test: other work on the machine moves the figures.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.speed import cases, contenders, machine, page, picture, runs
from benchmarks.speed.measure import measured
from flareclust.core.threads import set_threads

RECORD = Path(__file__).resolve().parent.parent / "records" / "speed.json"
CONTENDERS = {
    "lloyd": contenders.LLOYD,
    "threads": contenders.THREADS,
    "float32": contenders.SITES,
    "starts": contenders.STARTS,
    "sites": contenders.SITES,
    "seeds": contenders.SEEDS,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave out the shapes that take minutes")
    parser.add_argument("--shapes", nargs="+", metavar="N,D,K", help="only these")
    parser.add_argument("--only", choices=CONTENDERS, help="only this table")
    parser.add_argument("--contenders", nargs="+", metavar="NAME", help="only these, and whom they are compared with")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender")
    parser.add_argument("--record", action="store_true", help="write the record and the page")
    options = parser.parse_args()
    record = json.loads(RECORD.read_text())
    for threads in (1, 2):
        groups = [group for group in CONTENDERS if options.only in (None, group) and threads == cases.threads_of(group)]
        if groups:
            set_threads(threads)
            contenders.limit_threads(threads)
            with threadpool_limits(threads):
                record = _measure(groups, threads, record, options)
    if options.record:
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        page.PAGE.write_text(page.with_tables(page.PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")
        picture.draw(record)


def _measure(groups: list[str], threads: int, record: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Return the record with what is measured now of these groups."""
    limits = machine.limits(threads)
    print(json.dumps(limits))
    found: dict[str, runs.Lines] = {}
    for group in groups:
        found[group] = []
        everybody = CONTENDERS[group]
        asked = {next(iter(everybody)), *(options.contenders or everybody)}
        who = {name: run for name, run in everybody.items() if name in asked}
        for case in cases.GROUPS[group]:
            large = case.n * case.d > cases.QUICK_SIZE
            if (options.shapes and case.name not in options.shapes) or (options.quick and large):
                continue
            able = {name: run for name, run in who.items() if not (case.weighted and name in contenders.UNWEIGHTED)}
            lines = measured(case, able, min(3, options.rounds) if large else options.rounds, threads)
            found[group] += lines
            print(*(page.text_line(group, line) for line in lines), sep="\n", flush=True)
    return together(record, found, limits)


def together(before: dict[str, Any], found: dict[str, runs.Lines], limits: dict[str, Any]) -> dict[str, Any]:
    """Return a record with the lines measured now, and of the others those that it had, by case."""
    now = runs.new_name(before["runs"])
    merged = {}
    for group, shapes in cases.GROUPS.items():
        new = [{**line, "run": now} for line in found.get(group, [])]
        known = {(line["case"], line["contender"]): line for line in [*before.get(group, []), *new]}
        merged[group] = [line for case in shapes for line in known.values() if line["case"] == case.name]
    return {"runs": runs.still_used({**before["runs"], now: limits}, merged.values()), **merged}


if __name__ == "__main__":
    main()
