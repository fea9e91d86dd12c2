"""Compare the engine devices with the in-process engine: arrays and metrics must be equal, bit for bit.

python -m benchmarks.devices.equal [--devices 10000]
"""

import argparse
import time

import numpy as np

from benchmarks.devices.__main__ import CASES
from flareclust.engines.devices import run_devices
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol import registry


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.devices.equal", description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=10_000)
    m = parser.parse_args().devices
    for title, make, name, k, params, *_ in CASES.values():
        algorithm, devices, options = registry.get(name), make(m), JobOptions(k=k)
        rows = devices.part_of(np.arange(m))
        sites = {site: rows.rows(i) for i, site in enumerate(devices.names)}
        found = run_devices(algorithm, params, devices, options)
        started = time.process_time()
        usual = run_inprocess(algorithm, params, sites, options)
        seconds = time.process_time() - started
        same = all(np.array_equal(found.arrays[array], usual.arrays[array]) for array in usual.arrays)
        print(
            f"{title}: {m} devices, arrays equal: {same}, metrics equal: {found.metrics == usual.metrics}, "
            f"in-process {seconds:.1f} s CPU",
            flush=True,
        )


if __name__ == "__main__":
    main()
