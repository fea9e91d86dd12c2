"""Jobs one after the other in one federation of three sites, one of them behind a relay, with a fault in every twentieth.

    python -m benchmarks.chaos.soak --jobs 100 --out soak.jsonl
    python -m benchmarks.chaos.soak --record soak.jsonl    # writes what docs/reliability.md says of the calls in these files

A record per job is appended to the file, with what the long processes and the disks hold after it; a further call goes on with the
next job, in a federation that it starts anew. At the end it prints the growth in 100 jobs. As root, on Linux, as `benchmarks.chaos`.
"""

import argparse
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from benchmarks.chaos.schedule import JOBS, SITES, Fault, Schedule, commit
from benchmarks.pages import RECORDS

if TYPE_CHECKING:
    from benchmarks.chaos.federation import Shaken

#: What docs/reliability.md says.
SOAK = RECORDS / "soak.json"

_RELAYS = {"relay": SITES[-1:]}

#: Every so many jobs have a fault, of one of these kinds.
_EVERY, _KINDS = 20, ("kill", "restart", "power cut")

#: Seconds after its submission in which a job's processes run at the sites.
_MEETS = (5, 11)

#: How many jobs of a call are left out of the growth: until then caches and pools of threads fill.
_WARM = 10

#: So many jobs are looked at by themselves at the end of a long call, with those that are left out of the growth.
_LAST = 100 + _WARM

_MB = 1 << 20


def job_of(number: int) -> Schedule:
    """Return the n-th job, and the fault that happens to a site meanwhile if it is that one's turn."""
    names = list(JOBS)
    name = names[number % len(names)]  # 20 and 21 have no divisor in common, so faults meet each kind in turn
    rng = np.random.default_rng(number)
    faults = []
    if number % _EVERY == _EVERY - 1:
        kind, site = str(rng.choice(_KINDS)), str(rng.choice(SITES))
        faults.append(Fault(kind, site, float(rng.uniform(*_MEETS)), 5.0, 0.5))
    return Schedule(number, (name,), tuple(faults))


def held(federation: "Shaken") -> dict[str, dict[str, float]]:
    """Return MB of memory and open files of the long process of each host, and MB on its disk."""
    found = {}
    for host in federation.hosts:
        long = federation.long_processes(host)
        memory = max((process.memory_full_info().uss for process in long), default=0)
        files = max((process.num_fds() for process in long), default=0)
        disk = psutil.disk_usage(str(federation.kit(host))).used
        found[host] = {"MB": round(memory / _MB, 2), "files": files, "disk MB": round(disk / _MB, 2)}
    return found


def _by_call(records: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    calls: dict[int, list[Mapping[str, Any]]] = {}
    for record in records:
        calls.setdefault(record["call"], []).append(record)
    return list(calls.values())


def growth(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return by host what is held more after 100 further jobs, by a line of least squares through each call's records but the first ones."""
    kept = [own for own in (own[_WARM:] for own in _by_call(records)) if len(own) > _WARM]
    if not kept:
        return {}
    found: dict[str, dict[str, float]] = {}
    for host, values in kept[0][0]["held"].items():
        for what in values:
            x = np.concatenate([np.arange(len(own)) - (len(own) - 1) / 2 for own in kept])
            y = np.concatenate([(v := np.array([one["held"][host][what] for one in own])) - v.mean() for own in kept])
            found.setdefault(host, {})[what] = round(100 * float(x @ y / (x @ x)), 2)
    return found


def summary(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return of each call how its jobs ended, and by host the medians of MB of memory in thirds of it and what grew in 100 jobs."""
    found = []
    for own in _by_call(records):
        thirds = [[one["held"] for one in own[i * len(own) // 3 : (i + 1) * len(own) // 3]] for i in range(3)]
        grew = growth(own)
        found.append(
            {
                "first": own[0]["seed"],
                "tree": own[0].get("tree", ""),
                "jobs": len(own),
                "results": sum(not job["failed"] for one in own for job in one["jobs"]),
                "broken": [one["seed"] for one in own if one["wrong"]],
                "faults": sum(bool(one["faults"]) for one in own),
                "left out": sum(bool(job["refused"]) for one in own for job in one["jobs"]),
                "MB": {host: [float(np.median([one[host]["MB"] for one in part])) for part in thirds] for host in grew},
                "grows": grew,
                "grows last": growth(own[-_LAST:]) if len(own) >= 2 * _LAST else {},
            }
        )
    return found


def main() -> int:
    """Run the jobs, and print what grew."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=100, help="how many more")
    parser.add_argument("--out", type=Path, default=Path("soak.jsonl"), help="the records, a line each")
    parser.add_argument("--first", type=int, help="the number of the first one; by default that after the last record")
    parser.add_argument("--record", type=Path, nargs="+", help="run none; write the record of the calls in these files")
    asked = parser.parse_args()
    if asked.record is not None:
        files = [[json.loads(line) for line in file.read_text().splitlines()] for file in asked.record]
        SOAK.write_text(json.dumps([call for records in files for call in summary(records)], indent=1) + "\n")
        return 0
    from benchmarks.chaos.__main__ import carry_out, in_own_mounts
    from benchmarks.chaos.federation import Shaken

    in_own_mounts("benchmarks.chaos.soak")
    logging.disable(logging.ERROR)
    done = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    call = 1 + max((record["call"] for record in done), default=0)
    first = 1 + max((record["seed"] for record in done), default=-1) if asked.first is None else asked.first
    tree = commit()
    with Shaken(_RELAYS).running() as federation:
        for number in range(first, first + asked.jobs):
            record = carry_out(federation, job_of(number))
            record |= {"call": call, "tree": tree, "held": held(federation)}
            with asked.out.open("a") as file:
                file.write(json.dumps(record) + "\n")
            done.append(record)
            if record["wrong"] or number % _EVERY == 0:
                print(f"{number}: {'; '.join(record['wrong']) or 'as promised'}", flush=True)
    results = sum(not job["failed"] for record in done for job in record["jobs"])
    broken = sum(bool(record["wrong"]) for record in done)
    print(f"{len(done)} jobs, {results} results, {broken} with a broken promise; more held after 100 further jobs:")
    for host, values in growth(done).items():
        print(f"  {host}: {', '.join(f'{value:+g} {what}' for what, value in values.items())}")
    return min(1, broken)


if __name__ == "__main__":
    sys.exit(main())
