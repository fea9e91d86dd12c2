"""Change the product at random places, one token at a time, and list the changes that its tests do not notice.

python -m benchmarks.mutants --seed N [--number 60] [--near] [--again FILE] [--out FILE]

A change is a comparison, a sign, a boolean or a constant (`benchmarks.mutants.places`). It is made in a copy of the checkout in a
temporary folder. The tests nearest to it run first. What lives is then changed all at once, and all tests without processes
run once; those that fail, at most a hundred of all files, run again with every survivor alone, until no more die. A test that
fails without any change does not count.
A survivor either changes nothing that matters, or a test is missing: look at it.

The same seed and product give the same mutants. Sixty take about half an hour on two idle cores. The exit code is 1 where one lives.
"""

import argparse
import contextlib
import itertools
import json
import queue
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.mutants.near import near
from benchmarks.mutants.places import Mutant, draw
from benchmarks.mutants.tree import FAILED, Run, Tree, tracked

ROOT = Path(__file__).resolve().parent.parent.parent
#: Seconds after which the tests near a mutant are stopped, unless they take longer than a third of it without the mutant.
LIMIT = 300.0
#: Seconds after which a run of all tests is stopped.
LONG = 7200.0
#: Tests that fail with all survivors and are tried with each.
MANY = 100


class Campaign:
    """Mutants, trees to try them in side by side, and what killed them."""

    def __init__(self, trees: Sequence[Tree], mutants: Sequence[Mutant]) -> None:
        self.trees, self.mutants = trees, mutants
        self.free: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        for tree in trees:
            self.free.put(tree)
        self.killers: dict[Mutant, str] = {}
        self.broken: set[str] = set()  # tests that fail without a mutant
        self.sound: set[str] = set()

    @property
    def survivors(self) -> list[Mutant]:
        return [mutant for mutant in self.mutants if mutant not in self.killers]

    def try_near(self) -> None:
        """Run the nearest test file with each mutant, and the next ones with those that live."""
        for which in (slice(1), slice(1, None)):
            todo = self.survivors
            while todo:
                self._judge_all({mutant: near(ROOT, mutant.place)[which] for mutant in todo})
                self._check(list(self.killers.values()))
                todo = [mutant for mutant, killer in self.killers.items() if killer in self.broken]
                for mutant in todo:
                    del self.killers[mutant]

    def try_rest(self) -> None:
        """Run all tests with all survivors at once, and those that fail with each of them."""
        self._rest(self.survivors)

    def _rest(self, mutants: Sequence[Mutant]) -> None:
        if not mutants:
            return
        print(f"all tests with {len(mutants)} mutants at once", file=sys.stderr, flush=True)
        run = self._run(mutants, ["-n", str(len(self.trees)), "--no-loadscope-reorder"], LONG)
        if len(mutants) == 1:
            self._note(mutants[0], run)
        elif run.passed:
            return
        elif run.code == FAILED and self._some_die(mutants, run.failed):
            if len(run.failed) > MANY:
                self._rest([mutant for mutant in mutants if mutant not in self.killers])
        elif run.code != FAILED or len(run.failed) > MANY:
            half = len(mutants) // 2
            self._rest(mutants[:half])
            self._rest(mutants[half:])

    def _some_die(self, mutants: Sequence[Mutant], failed: Sequence[str]) -> bool:
        """Try each mutant with tests that failed with all of them, from as many files as there are; return whether one died."""
        of_files: dict[str, list[str]] = {}
        for test in failed:
            of_files.setdefault(test.partition("::")[0], []).append(test)
        turns = itertools.zip_longest(*of_files.values())
        tests = list(itertools.islice((test for turn in turns for test in turn if test), MANY))
        self._check(tests)
        if sound := [test for test in tests if test not in self.broken]:
            self._judge_all(dict.fromkeys(mutants, sound))
        return any(mutant in self.killers for mutant in mutants)

    def _judge_all(self, tests: Mapping[Mutant, Sequence[str]]) -> None:
        """Run tests with each mutant until one fails."""
        pool = ThreadPoolExecutor(len(self.trees))
        try:
            for done in [pool.submit(self._judge, mutant, files) for mutant, files in tests.items()]:
                done.result()
        finally:  # where somebody stops it, the trees are closed next, which ends the runs
            pool.shutdown(wait=False, cancel_futures=True)

    def _judge(self, mutant: Mutant, tests: Sequence[str]) -> None:
        run = None
        if tests:
            run = self._run([mutant], ["-x", *tests], LIMIT)
            if run.code is None and (longer := 3 * self._run([], tests, LONG).seconds) > LIMIT:
                run = self._run([mutant], ["-x", *tests], longer)
        self._note(mutant, run)

    def _run(self, mutants: Sequence[Mutant], arguments: Sequence[str], limit: float) -> Run:
        left_out = [word for test in sorted(self.broken) for word in ("--deselect", test)]
        tree = self.free.get()
        try:
            with tree.with_(mutants):
                return tree.run(*left_out, *arguments, limit=limit)
        finally:
            self.free.put(tree)

    def _note(self, mutant: Mutant, run: Run | None) -> None:
        if run is not None and not run.passed:
            end = f"no end after {run.seconds:.0f} s" if run.code is None else f"pytest ended with {run.code}"
            self.killers[mutant] = run.failed[0] if run.failed else end
        print(self.line(mutant), file=sys.stderr, flush=True)

    def _check(self, tests: Sequence[str]) -> None:
        """Learn which of these tests fail without a mutant."""
        new = [test for test in tests if "::" in test and test not in self.sound | self.broken]
        if new:
            self.broken |= set(self._run([], new, LONG).failed)
            self.sound |= set(new) - self.broken

    def line(self, mutant: Mutant) -> str:
        return f"{mutant}: {self.killers.get(mutant, 'SURVIVED')}"


@contextlib.contextmanager
def copied(checkout: Path, number: int) -> Iterator[list[Tree]]:
    """Return copies of the checkout that are removed afterwards."""
    files = tracked(checkout)
    with tempfile.TemporaryDirectory(prefix="mutants") as folder:
        trees = [Tree(checkout, files, Path(folder) / str(i)) for i in range(number)]
        try:
            yield trees
        finally:
            for tree in trees:
                tree.close()


def main(arguments: list[str] | None = None) -> int:
    words = (__doc__ or "").split("\n\n")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=words[0], epilog=words[2])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--near", action="store_true", help="leave out the run of all tests")
    parser.add_argument("--again", type=Path, help="a file that --out wrote: try its survivors only")
    parser.add_argument("--out", type=Path, help="write mutants and what killed them as JSON")
    parser.add_argument("--processes", type=int, default=2, help="that test side by side")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that the copies go
    mutants = draw(ROOT, given.seed, given.number)
    if given.again:
        before = json.loads(given.again.read_text(encoding="utf-8"))
        lived = {entry["mutant"] for entry in before if entry["killer"] is None}
        mutants = [mutant for mutant in mutants if str(mutant) in lived]
    with copied(ROOT, given.processes) as trees:
        campaign = Campaign(trees, mutants)
        campaign.try_near()
        if not given.near:
            campaign.try_rest()
    for mutant in mutants:
        print(campaign.line(mutant))
    print(f"{len(mutants) - len(campaign.survivors)} of {len(mutants)} died, {len(campaign.survivors)} lived")
    if given.out:
        found = [{"mutant": str(mutant), "killer": campaign.killers.get(mutant)} for mutant in mutants]
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 1 if campaign.survivors else 0


if __name__ == "__main__":
    sys.exit(main())
