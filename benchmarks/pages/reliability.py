"""Write docs/reliability.md from the records of the fault tests, and keep these in benchmarks/records/reliability.json.

RELIABILITY_RECORDS=records.json python -m pytest -m "slow or nightly" tests/integration/federation
python -m benchmarks.pages.reliability records.json

The section on malicious sites (reliability_lying.py) is made of benchmarks/records/lying_sites.json, which benchmarks/lying_sites.py writes,
that on random schedules (reliability_random.py) of benchmarks/records/chaos.json.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.pages import DOCS, RECORDS
from benchmarks.pages.reliability_lying import lying_sites
from benchmarks.pages.reliability_random import CHAOS, random_schedules

PAGE = DOCS / "reliability.md"
FAULTS, LYING_SITES = RECORDS / "reliability.json", RECORDS / "lying_sites.json"

#: The faults by section, in the order of the page: each must have a record, and no other may.
SECTIONS = {
    "A site fails": (
        "site raises",
        "silent site",
        "slow site",
        "killed process",
        "killed process, all needed",
        "killed process, at the start",
        "job that cannot connect",
        "job that cannot connect, one site is enough",
        "killed host",
        "restarted site",
        "kit that runs twice",
        "cut network",
        "short interruption",
        "below the quorum",
    ),
    "A site is set up wrongly": (
        "wrong version",
        "not allowed",
        "ended certificate",
        "ended certificate, one site is enough",
        "clock a day ahead",
        "clock a day behind",
    ),
    "A site is absent, or its rows cannot be used": (
        "absent site",
        "absent site, waited for",
        "crash of the server, and a late site",
        "table being written",
        "too little memory",
    ),
    "A site sends bad replies": (
        "too many centroids",
        "absurd count",
        "huge coordinates",
        "NaN",
        "gigabyte",
        "many objects",
        "unknown object",
        "references",
        "replayed round",
        "escapes",
    ),
    "The server fails": (
        "server crash",
        "job lost in a crash",
        "server crash under a flow",
        "killed while writing",
        "jump of the server's clock",
    ),
    "Machines are restored, and old jobs removed": (
        "lost machines",
        "ledger of a backup",
        "old jobs",
    ),
    "Sites, certificates and versions change": (
        "new site",
        "site put out",
        "silent site put out",
        "site put out, all started again",
        "site put out, let in by the server",
        "renewed certificates",
        "renewed identity",
        "forgotten at a new root",
        "mixed versions",
        "upgrade in a night",
    ),
    "Status, alerts and output folders": (
        "missing site in the status",
        "night without a site",
        "night below the quorum",
        "night that drifts",
        "two runs with one folder",
    ),
    "Missing permissions": ("user not authorised", "foreign kit", "class not listed", "altered job"),
}

#: What is said below a section's table.
REMARKS = {
    "Sites, certificates and versions change": """
How to [add a site, and to put one out](operations-lead.md#another-site-another-admin), and to [renew certificates](versions.md#renew-certificates). With the kit of a site that was put out, or a copy of it, nobody registers at the server; who has kept the token of an earlier connection gets no task of a job that began after that.
""",
    "A site sends bad replies": """
The server accepts from a site, with any algorithm:

- at most k centroids (or what the algorithm's `limits` say), a million columns, counts that add up to 2^46, finite values within 1e140;
- one message of at most 128 MiB. `streaming_max_blob_size` in `local/comm_config.json` of the server's kit (bytes) allows more or less; it then holds for all messages that the server receives;
- a reply to the requested step and round. Replies after the end of a round are not used;
- 400 characters of a reason, without control characters of a terminal. No text about a bad reply holds its values.

Each refusal names the site and does not affect the others. [ADR 0012](adr/0012-intake.md) describes the implementation, the behaviour of NVFlare alone, and what remains.
""",
}

INTRODUCTION = """# Reliability

A site that refuses, fails, sends a bad reply, is too slow or vanishes does not stop a job, as long as enough sites are left (the quorum). The result names it, with the reason. A site that was expected and is absent [when a job begins](#absent-sites) is named, too. A job that is lost because the server fails can be submitted again, and tracked runs do so once by themselves. [Trackers and folders that fail](#a-tracker-or-a-folder-fails) cost no result. [Sites that send false numbers](#malicious-sites) need the robust settings.

## The quorum

- The server asks all sites that are connected when the job starts, in every round.
- A round needs replies of `min_sites` sites, by default of more than half of those that the job began with.
- A site that refuses, fails, sends a bad reply or does not answer in time is left out of the following rounds. It is named with its reason while the job runs and in `result.json` (`refused`).
- Below the quorum the job fails, with all reasons in one message.
- The result of a job that lost sites equals, bit for bit, that of a federation whose sites fell silent in the same rounds. The tests of lost sites compare the two.
- A job has a result if `result.json` is there. It is written last, and in one step.

## Absent sites

- Which sites a job [expects](operations-lead.md#a-job) is said by `--expect-sites`, or else by the last ten jobs with this algorithm of the same user. An expected site that has no part in the job is in the result among those left out, with what to do; so it is where [`flareclust fetch`](operations-lead.md#with-nvflares-own-commands) fetches the result of an exported job, which expects the sites of earlier jobs of its name.
- `--for SECONDS` keeps a job back until the expected sites, or `--wait-for N` of any, are connected.
- A run that is submitted again, or goes on with `--resume JOB`, is kept back until all sites of the job that it replaces are connected, for 60 s at most. If they are, its result is that of the lost job; the result names a site that stays away.

## Lost sites

How long the server waits for a lost site:

| setting | default | what it bounds |
|---|---|---|
| `--task-timeout` | 600 s | the time of a site for one task, and the longest wait for a silent site, whatever happens to the clock of the server |
| none | at once | the wait for a site that is [disabled](operations-lead.md#a-site-leaves) at the server |
| `heart_beat_timeout` of `SiteDefaults` | 60 s | the wait for a host that is gone, or its network |
| none | until the site connects again, about 20 s | the wait for a site that was started again |
| none | about 20 s, up to 30 s in a job's first seconds | the wait for a job's process that was killed while its host goes on |
| none | 60 s | the wait of a run that is submitted again for the sites that the lost job had |
| `outcome_wait` of `SiteDefaults` | 20 s | the wait of a finished job for sites that vanished |

## How the faults were tested

Each line of the tables from [A site fails](#a-site-fails) to [Missing permissions](#missing-permissions) is a test with real processes: {setting}. Server and sites were provisioned with `flareclust.provision.SiteDefaults` and its defaults, except for `policy` (the sites have none) and `byoc` (the faulty code travels with its jobs), and started by the scripts in their kits. The fault happened while a job ran, unless it was there before. The seconds run from the fault, or else from the submission, until the user could read the text in the third column. They were measured once, on two cores, some of them while the machine had other work.
"""

TRACKERS = """
## A tracker or a folder fails

A result is written to its folder first, and logged after that. What MLflow or Prefect do then costs no result: the command ends with 0 and one warning, which names the folder, the NVFlare job if there was one, and what is not logged.

| fault | what happens | what to do |
|---|---|---|
| **MLflow's server dies during a run**: killed, or its machine is gone | the result is in its folder; the MLflow run stays RUNNING | `flareclust log FOLDER`, once the server is back: it completes the same run |
| **MLflow's store is locked** by another process, or its disk is full | the same; where the store still takes it, the run is closed as FAILED with the warning as its reason | end the other process, or make room; `flareclust log FOLDER` |
| **MLflow's server does not answer at the start** | exit 2 with one line, before any work | start it, or run with `--no-track` and log later |
| **MLflow dies during a sweep** | every trial is kept in `trials.jsonl`; at the end all that is missing is logged, if the store is back by then | `flareclust log FOLDER`, or the same command again: both run nothing again |
| **MLflow dies while the papers' tables are run** | the tables and the trials are in their folders | the same command again, which runs nothing again |
| **Prefect's server dies during a run or a sweep** | the steps and trials go on without it; MLflow gets everything | nothing: only Prefect's pages do not show the end |
| **Prefect's server dies during a flow run of a deployment** | the result is in its folder and in MLflow; the log names the folder. Prefect cannot be informed, so the process ends with an error, and Prefect calls the run Crashed, or Running without a worker | nothing, or `prefect flow-run delete ID` |
| **Prefect's server does not answer at the start** | exit 2 with one line, before any work | start it, or unset `PREFECT_API_URL` |
| **MLflow dies during a nightly run** | the run ends as Completed with the warning; the alias stays where it was | the command in the warning: it logs the run, registers the model and offers it the alias |
| **the output folder holds the result of another run** | exit 2 with one line, before any work; nothing is replaced | another `--out`, or `--overwrite` |
| **two runs at a time have the same output folder**, of one account on one machine | the second: exit 2 with one line, before its job | wait, or another `--out` |
| **the output folder is full or cannot be written** at the start | exit 2 with one line, before any work | choose another with `--out` |
| **the output folder fills up during a run or a sweep** | the result goes to `$XDG_STATE_HOME/flareclust/results/` (`~/.local/state`), or else to `flareclust-results/` in the temporary folder; the warning names the folder, and for jobs at a server `flareclust fetch` | move it where it belongs |
| **no folder can be written** | exit 1; the text names the NVFlare job, whose result the server keeps, and the command | `flareclust fetch JOB --kit KIT`, after making room |

`flareclust log` logs what the run itself would have logged: parameters, metrics, rounds, files, model, tags. A second call changes nothing and says so. It also logs a run of `--no-track`.

How long it takes from the fault to the end of the command, measured once on two busy cores, and what bounds it:

| fault | seconds | bound |
|---|---|---|
| MLflow's server killed | 8 | two further tries within 4 s |
| MLflow's server hangs during the run | 104 | three tries of 15 s, and as long again to close the run; `MLFLOW_HTTP_REQUEST_TIMEOUT`, `MLFLOW_HTTP_REQUEST_MAX_RETRIES` |
| MLflow's server hangs before the run | 65 to 124, exit 2 before any work | the same |
| SQLite store locked | 29 | 10 s to log, and 10 s to close the run |
| store on a full disk | 12 | none: it fails at once |
| Prefect's server killed, run | 59 | one further try of every request and event |
| Prefect's server killed, sweep | 23 | the same |

Tests with real processes, in `tests/integration/flows/test_tracker_faults.py`, are of an MLflow server that is killed or hangs during a run, a locked store during a run and a sweep, a full disk with the store or the output folder during a run, and a Prefect server that is killed during a run and a sweep.
"""

#: What happens on the user's own machine, measured once as the other faults; the tests are named below the table.
LOCAL = """
## The user's machine fails, or the input is wrong

| fault | what happened | message to the user | seconds |
|---|---|---|---|
| **Ctrl-C**, while the sites of a simulator run | no process and no folder is left | interrupted; nothing was kept | 6.3 |
| **Ctrl-C twice** within 0.1 s | the same; signals in the first 10 s after one are ignored, while the run cleans up | interrupted; nothing was kept | 4.6 |
| **SIGTERM** | the same | interrupted; nothing was kept | 2.6 |
| **SIGKILL** of `flareclust run` | its sites and its temporary folder, rows included, stay; when the next run in the simulator with the same `TMPDIR` begins, they are ended and removed first | nothing | 0.7 |
| **SIGKILL** of `flareclust sweep` while a trial runs in the simulator | the same; the trials that are done are kept in `trials.jsonl` | nothing; the same command does the others | |
| **a table of zeros**: a npz file of 3 MB that holds 3.2 GB, limit 1 GB | refused by its header; the process has 37 MiB | zeros.npz has 3,200,000,000 bytes of rows, more than the 1,000,000,000 that a run may read | 0.5 |
| **200,000 columns**: a csv file with 20 rows | read with 143 MiB | nothing | 2.2 |

The folder of a run (`fc-...` in `TMPDIR`), with the simulator's rows or the signed job and the result of provisioned sites, is locked by the run. The system releases the lock however the run ends, so that the folder of a living run is never taken for a leftover (`tests/unit/platform/test_scratch.py`, `tests/integration/simulator/test_simulator.py`, `tests/unit/data/test_memory.py`). [Fuzzing](fuzzing.md) has the generated commands and files.

A job that a server lost in a crash has the status FINISHED:ABANDONED in NVFlare's list of jobs as soon as the server has started again, and can be deleted. With a server's kit from before that (`flareclust site allow KIT` changes it) it stays RUNNING; `flareclust poc status` names it then, and so does the next job that is submitted to this server.
"""

CLOSING = """
## How to repeat the tests

The tests write the file that `RELIABILITY_RECORDS` names, and `benchmarks/pages/reliability.py` makes this page from it and keeps it as `benchmarks/records/reliability.json`. Some of the tests run only where `-m` names `nightly`. Network namespaces need root on Linux; without them the tests use loopback, cannot cut a link, and say so.

```console
$ RELIABILITY_RECORDS=$PWD/records.json python -m pytest -m "slow or nightly" tests/integration/federation
$ python -m benchmarks.pages.reliability records.json
```
"""

SETTINGS = {
    "namespaces": "a server and three or four sites with certificates (mutual TLS), each in a network namespace of its own",
    "loopback": "a server and three or four sites with certificates (mutual TLS), all on the loopback of one machine",
}


def page(records: list[dict[str, object]], lying: Mapping[str, Any], chaos: Mapping[str, Any]) -> str:
    """Return the text of the page from the records of the fault tests, and what was measured of lying sites and random schedules.

    Raises:
        ValueError: a fault has no record, a record is of no known fault, or the records are of different networks.
    """
    by_fault = {str(record["fault"]): record for record in records}
    known = {fault for faults in SECTIONS.values() for fault in faults}
    if odd := sorted(known ^ set(by_fault)):
        raise ValueError(
            f"faults without a record, or records of faults that benchmarks/pages/reliability.py does not know: {odd}"
        )
    networks = {str(record["network"]) for record in records}
    if len(networks) != 1:
        raise ValueError(f"records of runs with different networks: {sorted(networks)}")
    parts = [INTRODUCTION.format(setting=SETTINGS[networks.pop()])]
    for section, faults in SECTIONS.items():
        parts.append(
            f"\n## {section}\n\n| fault | what happened | message to the user | seconds |\n|---|---|---|---|\n"
        )
        parts += [_line(by_fault[fault]) for fault in faults]
        parts.append(REMARKS.get(section, ""))
    return "".join(parts) + TRACKERS + LOCAL + random_schedules(chaos) + lying_sites(lying) + CLOSING


def _line(record: dict[str, object]) -> str:
    fault = f"**{record['fault']}**: {record['done']}"
    message = str(record["message"]).replace("|", "\\|").replace("\n", " ")
    return f"| {fault} | {record['happened']} | {message} | {record['seconds']} |\n"


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit("usage: python -m benchmarks.pages.reliability [RECORDS]")
    found = json.loads(Path(sys.argv[1] if len(sys.argv) == 2 else FAULTS).read_text())
    try:
        text = page(found, json.loads(LYING_SITES.read_text()), json.loads(CHAOS.read_text()))
    except ValueError as error:
        sys.exit(f"error: {error}")
    FAULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(text)
    print(PAGE)
