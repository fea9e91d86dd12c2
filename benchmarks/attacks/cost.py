"""What the guard against files costs per message: `python -m benchmarks.attacks.cost`.

Messages as jobs send them are encoded and decoded in two processes in turn, one of them guarded; the ratio is that of medians.
"""

import statistics
import subprocess
import sys

_ROUNDS = 15

#: Rows and columns of the centroids in a message.
SHAPES = ((15, 2), (100, 64), (1000, 784))

_TIMED = """
import sys, time
import numpy as np
from nvflare.apis.dxo import DXO, DataKind
from nvflare.fuel.utils import fobs
from nvflare.private.fed.utils.fed_utils import nvflare_fobs_initialize
from flareclust.platform import file_guard

nvflare_fobs_initialize()
guarded, k, d = (int(word) for word in sys.argv[1:])
if guarded:
    file_guard.install()
    assert file_guard.problem() is None
message = DXO(DataKind.WEIGHTS, data={"centroids": np.ones((k, d)), "counts": np.ones(k, np.int64)}).to_shareable()
message.add_cookie("task", "a")
number = 2000 if k * d < 1e5 else 50
fobs.loads(fobs.dumps(message))
started = time.process_time()
for _ in range(number):
    fobs.loads(fobs.dumps(message))
print((time.process_time() - started) / number)
"""


def seconds(guarded: bool, k: int, d: int) -> float:
    """Return the CPU seconds of a message, encoded and decoded, in a process of its own."""
    command = [sys.executable, "-c", _TIMED, str(int(guarded)), str(k), str(d)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print a line for each shape."""
    for k, d in SHAPES:
        pairs = [(seconds(True, k, d), seconds(False, k, d)) for _ in range(_ROUNDS)]
        with_guard, without = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"| {k:,} x {d} | {with_guard / without:.2f} ({1e6 * with_guard:,.0f} and {1e6 * without:,.0f} µs) |")


if __name__ == "__main__":
    main()
