"""One line of the tables about the server: ours and a baseline in turns in one process, in CPU time, or peaks of memory."""

import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple


class Trial(NamedTuple):
    """What is measured.

    Attributes:
        ours: the code of this package.
        baseline: what it is compared with.
        times: so many runs of the baseline are one measure; need not be whole.
        equal: compares the output with a plain algorithm's; returns what was found in a few words.
    """

    ours: Callable[[], Any]
    baseline: Callable[[], Any]
    times: float = 1.0
    equal: Callable[[], str] = lambda: ""


class Line(NamedTuple):
    """A line of a table.

    Attributes:
        what: is computed.
        size: of the problem.
        against: names the baseline.
        goal: the ratio that is wanted.
        make: prepares the input.
        faster: whether the ratio says how many times faster ours is (`goal` at least), and not how many times the baseline's time
            it takes (`goal` at most).
        memory: whether peaks of memory in bytes are compared, not times.
        rounds: turns; one less is not counted, as it compiles.
    """

    what: str
    size: str
    against: str
    goal: float
    make: Callable[[], Trial]
    faster: bool = False
    memory: bool = False
    rounds: int = 3

    def good(self, ratio: float) -> bool:
        """Return whether a ratio is what is goal."""
        return bool(ratio >= self.goal if self.faster else ratio <= self.goal)


def measured(line: Line) -> dict[str, Any]:
    """Return the medians of both, and the median of the turns' ratios."""
    trial = line.make()
    cost = peak if line.memory else seconds
    if not line.memory:
        trial.ours()
        trial.baseline()
    ours, theirs = [], []
    for _ in range(1 if line.memory else line.rounds):
        ours.append(cost(trial.ours))
        theirs.append(trial.times * cost(trial.baseline))
    pairs = zip(theirs, ours, strict=True) if line.faster else zip(ours, theirs, strict=True)
    ratio = float(statistics.median(a / b for a, b in pairs))
    return {
        "what": line.what,
        "size": line.size,
        "against": line.against,
        "goal": line.goal,
        "faster": line.faster,
        "memory": line.memory,
        "ours": statistics.median(ours),
        "baseline": statistics.median(theirs),
        "ratio": ratio,
        "good": line.good(ratio),
        "equal": trial.equal(),
    }


def seconds(action: Callable[[], Any]) -> float:
    """Return the CPU time of an action."""
    started = time.process_time()
    action()
    return time.process_time() - started


def peak(action: Callable[[], Any]) -> float:
    """Return the largest number of bytes that Python and NumPy held at once during an action."""
    tracemalloc.start()
    try:
        kept = action()
        del kept
        return float(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
