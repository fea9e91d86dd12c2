"""The section of docs/reliability.md on random schedules of faults, from what `benchmarks.chaos` has recorded.

python -m benchmarks.pages.reliability_random chaos.jsonl    # adds its counts to those in benchmarks/records/chaos.json
python -m benchmarks.pages.reliability
"""

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.chaos.oracle import MIN_SITES, TASK_TIMEOUT
from benchmarks.chaos.schedule import ALL_JOBS_FROM, FAULTS, FIRST_JOBS, JOBS, LATER, LATEST, LONGEST
from benchmarks.chaos.soak import SOAK
from benchmarks.pages import RECORDS

CHAOS = RECORDS / "chaos.json"

#: Calls of the soak with fewer jobs say little of growth.
_LONG = 40

#: What changed between the calls of the soak.
SINCE = "Calls of fewer than a hundred jobs are mostly growth of the beginning, while caches fill. In all but the last three the server kept what it knew of each process and session that had ever been connected; in these it forgets those that are gone, in the last two as their connections close, at the relay, too. The aim is less than 1 MB in 100 jobs. Of what a relay gained in some twenty jobs near its beginning, 0.2 MB were in use, mostly for NVFlare's statistics of times, which are bounded; 1.3 MB were free pieces of its heap (seen once, by hand)."

#: What each fault does, in the order of the page.
WORDS = {
    "kill": "SIGKILL of a job's process",
    "restart": "all processes of a host killed at once and started again",
    "power cut": "a host gone with its link, started again after a while",
    "pause": "all processes of a host stopped, and continued",
    "cut": "a link down for a while",
    "reset": "every connection reset",
    "slow": "1 Mbit/s, up to 0.3 s of delay, one packet in twenty a second late",
    "clock": "the clock jumps by up to two hours, and back",
    "full disk": "the disk of a kit full for a while",
    "slow disk": "each write to the disk of a kit takes up to a quarter of a second, for a while",
}

#: What the schedules found in versions under development, with the seed that showed it first, and what became of it.
FOUND = (
    (2, "reset of all connections", "`flareclust run` waited for ever: NVFlare's session does not end a connection that comes back while it is closed", "it is ended again until the session is closed"),
    (1, "full disk at the server while a job is started", "NVFlare's server starts no job any more until somebody starts it anew; jobs waited for their deadline", "our component `LostJobs` keeps the start of jobs going; a job that was caught is ended as ABANDONED, so that it is submitted again"),
    (10, "the server's link down when a user connects", "`flareclust run` ended with an exception of NVFlare", "one sentence, and another try"),
    (9, "full disk at a site", "the site was left out with a return code of NVFlare and nothing else", "the reason says where to look"),
    (53, "the server's clock two hours back when a user connects, with certificates that are minutes old", "the sentence named another provisioning as the only cause", "it names the clocks, too"),
    (128, "a site's clock jumps, the server is started again meanwhile, on a busy machine", "the site was not connected 120 s later", "as promised when it was repeated. A wait of NVFlare goes by the clock of the machine, so where an answer was lost and the clock set back by 48 minutes, the site waited so much longer; waits go by a clock now that is never set"),
    (167, "the server's link down, its clock jumps, and a site's power cut, all within 10 s", "a job went on until its deadline of three times `task_timeout`, and ended there", "NVFlare tries again to start a job some time after its last try, which lay more than an hour ahead when the clock was back; `LostJobs` has it tried at once"),
    (259, "the server was started by hand before, and a site's connection is reset", "the site was not connected when the job began; the result named it", "as promised each of the four times that it was repeated, alone; `--for` keeps a job back until the sites that are expected are connected"),
    (270, "the server is started again, and every connection reset, while a user connects", "`flareclust run` ended with a sentence on provisioning and clocks", "a server that is there and does not answer is asked again"),
    (326, "a site's power cut, so that a job with secure sums is lost and submitted again", "the packed job of the second submission stayed among the server's temporary files, 9 kB", "so it is: NVFlare removes only those that it stores; [the system empties the folder](backup.md#retention)"),
    (203, "the server crashes, the fifth time in some minutes over four schedules", "NVFlare's script did not start the server again", "so it is: [start it by hand](operations-site.md#start-and-stop), or under systemd; the schedules do so after every second crash"),
)  # fmt: skip

#: Seeds that broke a promise and are not mended; their rows above say what is known.
OPEN: tuple[int, ...] = ()


def counted(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the counts that the page shows."""
    jobs = [job for record in records for job in record["jobs"]]
    results = [job for job in jobs if not job["failed"]]
    longest_first = sorted(WORDS, key=len, reverse=True)  # a slow disk is no slow link
    kinds = Counter(
        next(kind for kind in longest_first if fault.startswith(kind))
        for record in records
        for fault in record["faults"]
    )
    trees = sorted({record["tree"] for record in records if "tree" in record})
    seeds = {tree: sorted(record["seed"] for record in records if record.get("tree") == tree) for tree in trees}
    return {
        "schedules": len(records),
        "jobs": len(jobs),
        "results": len(results),
        "of all sites": sum(not job["refused"] for job in results),
        "submitted again": sum(job["attempts"] > 1 for job in jobs),
        "broken": sorted(record["seed"] for record in records if record["wrong"]),
        "faults": {kind: kinds[kind] for kind in WORDS},
        "seeds": seeds,
    }


def added(before: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts of both."""
    faults = {kind: before["faults"].get(kind, 0) + more["faults"][kind] for kind in WORDS}
    known = before.get("seeds", {})
    seeds = {
        tree: sorted(known.get(tree, []) + more["seeds"].get(tree, [])) for tree in sorted({*known, *more["seeds"]})
    }
    counts = {key: before[key] + more[key] for key in more if key not in ("faults", "seeds")}
    return {**counts, "faults": faults, "seeds": seeds}


def soaked(calls: Sequence[Mapping[str, Any]]) -> str:
    """Return the paragraph and the table on the soak, from its record."""
    jobs, faults, results = (sum(call[name] for call in calls) for name in ("jobs", "faults", "results"))
    broken = sorted(number for call in calls for number in call["broken"])
    kept = "none broke a promise" if not broken else f"the jobs {broken} broke a promise"
    long, lines = [call for call in calls if call["jobs"] >= _LONG], []
    for call in long:
        cells = [f"{call['jobs']} | {call['faults']} | {call['left out']}"]
        site = max(
            (host for host in call["MB"] if host not in ("server", "relay")), key=lambda host: call["MB"][host][2]
        )
        for host in ("server", "relay", site):
            thirds = ", ".join(f"{value:.0f}" for value in call["MB"][host])
            cells.append(f"{thirds} | {call['grows'][host]['MB']:+.1f}")
        lines.append(f"| {' | '.join(cells)} |\n")
    return f"""`python -m benchmarks.chaos.soak --jobs N` runs jobs one after the other, with one site behind a relay and a fault in every twentieth. Of {jobs:,} jobs {kept}; {results:,} had a result, and {faults} met a fault. {_held(long)}

Memory of the long processes in MB, as medians of the thirds of a call, and what more is held after 100 further jobs (least squares, without the first ten), in calls of {_LONG} jobs or more:

| jobs | with a fault | without a site | server | in 100 jobs | relay | in 100 jobs | largest site | in 100 jobs |
|---|---|---|---|---|---|---|---|---|
{"".join(lines)}
{SINCE} {_last(long)}
"""


def _last(calls: Sequence[Mapping[str, Any]]) -> str:
    """Return the sentence on the ends of the longest calls."""
    said = []
    for call in calls:
        if ends := call["grows last"]:
            hosts = ", ".join(f"{host} {one['MB']:+.1f}" for host, one in sorted(ends.items()))
            said.append(f"of {call['jobs']} jobs {hosts} MB")
    return f"In the last 100 jobs of a call {'; '.join(said)}."


def _held(calls: Sequence[Mapping[str, Any]]) -> str:
    """Return what long calls say of open files and disks."""
    files = max(own["files"] for call in calls for own in call["grows"].values())
    disk = {host: own["disk MB"] / 100 for host, own in calls[0]["grows"].items()}  # the longest call began first
    site = max(value for host, value in disk.items() if host not in ("server", "relay"))
    return f"Open files grew by at most {files:.1f} in 100 jobs in any process. A job leaves {disk['server']:.2f} MB at the server and {site:.2f} MB at a site, until it is [pruned](backup.md#retention)."


def random_schedules(chaos: Mapping[str, Any]) -> str:
    """Return the section of the page."""
    done, results = chaos["schedules"], chaos["results"]
    broken = (
        f"the seeds {chaos['broken']} broke a promise and are open"
        if chaos["broken"]
        else "none broke a promise that is open"
    )
    faults = ", ".join(f"{words} ({chaos['faults'].get(kind, 0)})" for kind, words in WORDS.items())
    seeds = "; ".join(f"{', '.join(map(str, own))} of commit {tree}" for tree, own in chaos.get("seeds", {}).items())
    seeds = f" Seeds that are on record: {seeds}; those of the others were not kept." if seeds else ""
    found = "".join(f"| {seed} | {fault} | {happened} | {now} |\n" for seed, fault, happened, now in sorted(FOUND))
    return f"""
## Random schedules

`python -m benchmarks.chaos --seed N --schedules M` submits one or two of {len(JOBS)} kinds of job ({FIRST_JOBS} before seed {ALL_JOBS_FROM}), all on numbers without gaps and categories, to a server and three sites, and lets one to three faults happen at random hosts and moments: {faults}. A fault begins within {LATEST:g} s of the submission, so that it meets the start of the jobs, their rounds and their end, and lasts up to {LONGEST:g} s. After each schedule the following must hold:

- a result equals, bit for bit, that of one process in which in each exchange the same sites are silent;
- sites to which nothing happened are in it, unless something happened to the server, and those that are not are named;
- a job fails only if something happened to the server or to too many sites (quorum {MIN_SITES} of 3; all three with secure sums), in a sentence with a reason;
- each job ends within `task_timeout` ({TASK_TIMEOUT} s) + 60 s of the last fault, and of the usual time of each try;
- it has at most one complete job at the server, none that is listed as running, and no process is left; all sites are connected again;
- where the server has a `result.json`, which is written last, the rest of the result is there, and no host and no user has temporary files left (from seed 315 on).

A server counts a site as gone after 20 s here, and not after NVFlare's 60 s. A kill that finds no process of a job, before its start or after its end, counts as a fault, too.

While the version 0.3.0 was developed, {done} schedules ran, with {chaos["jobs"]} jobs: {broken}; those of the table below whose fault is mended are not counted. {results} jobs had a result, {chaos["of all sites"]} of them of all sites; {chaos["submitted again"]} were submitted again, as tracked runs do.{seeds} What the schedules have found so far:

| seed | fault | what happened | now |
|---|---|---|---|
{found}
{soaked(json.loads(SOAK.read_text()))}"""


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m benchmarks.pages.reliability_random RECORDS")
    assert set(WORDS) == {*FAULTS, *LATER}
    lines = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    CHAOS.write_text(json.dumps(added(json.loads(CHAOS.read_text()), counted(lines)), indent=1) + "\n")
    print(CHAOS)
