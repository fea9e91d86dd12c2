"""Compare the engine devices with the in-process engine: arrays and metrics must be equal, bit for bit.

python -m benchmarks.devices.equal [--devices 10000]

Cases with a cohort draw a tenth of the devices for each round. The exit code is 1 where anything differs.
"""

import argparse
import sys
import time

import numpy as np

from benchmarks.devices.__main__ import CASES, Case
from flareclust.devices.engine import run_devices
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.federation.exchanges import Sampling
from flareclust.protocol import registry
from flareclust.protocol.outcome import numbers_of_sites


def differing(case: Case, m: int) -> list[str]:
    """Return the names of the arrays that differ, and "metrics" and "sites" where these do; print a line."""
    algorithm, devices = registry.get(case.algorithm), case.devices(m)
    options = JobOptions(k=case.k, assess=case.assess)
    sampling = None if case.cohort is None else Sampling(max(1, m // 10))
    rows = devices.part_of(np.arange(m))
    sites = {site: rows.rows(i) for i, site in enumerate(devices.names)}
    found = run_devices(algorithm, case.params, devices, options, sampling=sampling)
    started = time.process_time()
    usual = run_inprocess(algorithm, case.params, sites, options, sampling=sampling)
    seconds = time.process_time() - started
    different = [name for name, value in usual.arrays.items() if not np.array_equal(found.arrays[name], value)]
    different += ["metrics"] if found.metrics != usual.metrics else []
    asked = [list(map(numbers_of_sites, outcome.rounds)) for outcome in (found, usual)]
    different += ["sites"] if asked[0] != asked[1] else []
    verdict = f"{', '.join(different)} DIFFER" if different else "equal"
    print(f"{case.title}: {m} devices, {verdict}, in-process {seconds:.1f} s CPU", flush=True)
    return different


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.devices.equal", description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=10_000)
    m = parser.parse_args(arguments).devices
    found = [differing(case, m) for case in CASES.values()]
    return 1 if any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
