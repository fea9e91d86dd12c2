"""Run every known attack again: `python -m benchmarks.attacks`."""

import argparse
import sys
from pathlib import Path

from benchmarks.attacks import (
    answers,
    files,
    fillers,
    in_process,
    lead,
    ledger,
    processes,
    report,
    sums,
    training,
    variables,
)
from benchmarks.attacks.case import IN_PROCESS, Case

#: All of them, in the order of the page. Those that share a federation follow each other.
CASES: list[Case] = [
    *lead.CASES,
    *processes.CASES,
    *files.CASES,
    *answers.CASES,
    *in_process.CASES,
    *fillers.CASES,
    *variables.CASES,
    *training.CASES,
    *sums.CASES,
    *ledger.CASES,
]


def main(words: list[str] | None = None) -> int:
    """Run attacks, print what they found, and return 0 if none got anything, else 1."""
    asked = _parser().parse_args(words)
    if asked.page:
        report.PAGE.write_text(report.page(report.read()), encoding="utf-8")
        return 0
    names = [case.name for case in CASES]
    if unknown := sorted(set(asked.only) - set(names)):
        print(f"no attacks: {', '.join(unknown)}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    chosen = [case for case in CASES if not asked.only or case.name in asked.only]
    found = []
    with processes.federations():
        for case in chosen:
            if asked.quick and case.form != IN_PROCESS:
                continue
            records = case.records(asked.quick)
            print(report.printed(records), flush=True)
            found += records
    target = asked.json or (None if asked.quick else report.RECORDS)
    if target is not None:
        old = report.read(target) if asked.only else []
        report.write(target, report.merged(old, found, names))
        if target.resolve() == report.RECORDS:
            report.PAGE.write_text(report.page(report.read()), encoding="utf-8")
    return int(any(not record["stopped"] for record in found if not record["remains"]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks", description="Run every known attack again.")
    parser.add_argument(
        "--quick", action="store_true", help="in this process only, with fewer questions; writes nothing"
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these attacks; records of others stay")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the records there, not to benchmarks/records/attacks.json"
    )
    parser.add_argument(
        "--page", action="store_true", help="make docs/attacks.md of benchmarks/records/attacks.json, and nothing else"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
