"""Lloyd's algorithm, sites of 500 rows and k-means++ against scikit-learn and faiss: CPU time at one thread.

    python -m benchmarks.speed [--quick] [--shapes 100000,2,15 ...] [--only lloyd|float32|starts|sites|seeds]
        [--contenders flareclust ...] [--record]

Contenders take turns in one process; a ratio is the median of those of the turns, above 1 where a contender is faster
than scikit-learn. `--record` writes benchmarks/records/speed.json, and tables and picture of docs/performance.md, where lines that were
not measured stay. faiss takes part where faiss-cpu is installed. Nothing here runs in a test: other work on the machine moves
the figures.
"""

import argparse
import json
from datetime import date
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.speed import cases, contenders, machine, page, picture
from benchmarks.speed.measure import measured

RECORD = Path(__file__).resolve().parent.parent / "records" / "speed.json"
CONTENDERS = {
    "lloyd": contenders.LLOYD,
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
    found = {}
    with threadpool_limits(1):
        limits = machine.limits()
        print(json.dumps(limits))
        for group, everybody in CONTENDERS.items():
            found[group] = []
            asked = {next(iter(everybody)), *(options.contenders or everybody)}
            who = {name: run for name, run in everybody.items() if name in asked}
            for case in cases.GROUPS[group] if options.only in (None, group) else ():
                large = case.n * case.d > cases.QUICK_SIZE
                if (options.shapes and case.name not in options.shapes) or (options.quick and large):
                    continue
                lines = measured(case, who, min(3, options.rounds) if large else options.rounds, limits["gemm_float64"])
                found[group] += lines
                print(*(page.text_line(group, line) for line in lines), sep="\n", flush=True)
    if options.record:
        about = {"date": date.today().isoformat(), "machine": limits}
        if options.quick or options.only or options.shapes or options.contenders:
            about = {name: json.loads(RECORD.read_text())[name] for name in about}  # of the run with most of the lines
        record = {**about, **together(found)}
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        page.PAGE.write_text(page.with_tables(page.PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")
        picture.draw(record)


def together(found: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Return the lines measured now, and of the others those of the record, by case."""
    before = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    merged = {}
    for group, shapes in cases.GROUPS.items():
        known = {(line["case"], line["contender"]): line for line in [*before.get(group, []), *found[group]]}
        merged[group] = [line for case in shapes for line in known.values() if line["case"] == case.name]
    return merged


if __name__ == "__main__":
    main()
