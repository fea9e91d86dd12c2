"""Write docs/reliability.md from the records of the fault tests, and keep these in docs/reliability.json.

RELIABILITY_RECORDS=records.json python -m pytest -m slow tests/federation
python docs/reliability.py records.json

The section on lying sites (reliability_lying.py) is made of docs/lying_sites.json, which benchmarks/lying_sites.py writes.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reliability_lying import lying_sites

PAGE = Path(__file__).resolve().parent / "reliability.md"
RECORDS = PAGE.with_suffix(".json")
LYING_SITES = PAGE.with_name("lying_sites.json")

#: The faults by section, in the order of the page: each must have a record, and no other may.
SECTIONS = {
    "A site fails": (
        "site raises",
        "silent site",
        "slow site",
        "killed process",
        "killed process, all needed",
        "killed process, at the start",
        "killed host",
        "cut network",
        "short interruption",
        "below the quorum",
    ),
    "A site is set up wrongly": ("wrong version", "not allowed", "clock a day ahead", "clock a day behind"),
    "A site sends what it should not": (
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
    "The server fails": ("server crash", "server crash under a flow", "killed while writing"),
    "Somebody may not": ("user not authorised", "foreign kit", "class not listed", "altered job"),
}

#: What is said below a section's table.
REMARKS = {
    "A site sends what it should not": """
What the server takes from a site, whatever the algorithm; each refusal names the site and leaves the others alone:

- at most k centroids (or what the algorithm's `limits` say), a million columns, counts that add up to 2^46, finite values within 1e140;
- one message of at most 64 MiB. `streaming_max_blob_size` in `local/comm_config.json` of the server's kit (bytes) allows more or less; it then holds for all messages that the server receives;
- a reply to the step and round that were asked. What comes after a round has ended is not used;
- 400 characters of a reason, without those that a terminal obeys. No text about a bad reply holds its values.

How, what NVFlare alone does, and what remains: [ADR 0012](adr/0012-intake.md).
"""
}

INTRODUCTION = """# What happens when something fails

Each line below is a test that was run with real processes: {setting}. Server and sites were provisioned with `flareclust.provision.SiteDefaults` and its defaults, but for `policy` (the sites have none) and `byoc`, as the sites' misbehaviour travels with its jobs, and started by the scripts in their kits. A fault was made while a job ran, and the seconds are those from the fault, or from the submission where the fault was there before, until the user could read the text in the third column. They were measured once, on two cores.

## The quorum

- All sites that are connected when the job starts are asked in every round.
- A round needs replies of `min_sites` sites; unless set, of more than half of those that the job began with.
- Who refuses, fails, sends something else than was agreed or does not answer in time is left out of the rounds that follow, and is named with its reason in `result.json` (`refused`) and while the job runs.
- Below the quorum the job fails, with all reasons in one message.
- The result of a job that lost sites is, bit for bit, that of a federation whose sites fell silent in the same rounds. The tests of lost sites compare the two.
- A job has a result if `result.json` is there. It is written last, and in one step.

How long a lost site is waited for:

| setting | default | what it bounds |
|---|---|---|
| `--task-timeout` | 600 s | how long a site may compute for one task, and the longest wait for one that is silent |
| `heart_beat_timeout` of `SiteDefaults` | 60 s | a host that is gone, or its network |
| none | about 20 s, up to 30 s in a job's first seconds | a job's process that was killed while its host goes on |
| `outcome_wait` of `SiteDefaults` | 20 s | how long a finished job waits for sites that vanished |
"""

CLOSING = """
## The record

`docs/reliability.json` is what the tests wrote, and `docs/reliability.py` makes this page of it. To make both anew (about ten minutes; network namespaces need root on Linux, without them the tests use loopback, cannot cut a link, and say so):

```console
$ RELIABILITY_RECORDS=$PWD/records.json python -m pytest -m slow tests/federation
$ python docs/reliability.py records.json
```
"""

SETTINGS = {
    "namespaces": "a server and three or four sites with certificates (mutual TLS), each in a network namespace of its own",
    "loopback": "a server and three or four sites with certificates (mutual TLS), all on the loopback of one machine",
}


def page(records: list[dict[str, object]], lying: Mapping[str, Any]) -> str:
    """Return the text of the page from the records of the fault tests and what was measured of lying sites.

    Raises:
        ValueError: a fault has no record, a record is of no known fault, or the records are of different networks.
    """
    by_fault = {str(record["fault"]): record for record in records}
    known = {fault for faults in SECTIONS.values() for fault in faults}
    if odd := sorted(known ^ set(by_fault)):
        raise ValueError(f"faults without a record, or records of faults that docs/reliability.py does not know: {odd}")
    networks = {str(record["network"]) for record in records}
    if len(networks) != 1:
        raise ValueError(f"records of runs with different networks: {sorted(networks)}")
    parts = [INTRODUCTION.format(setting=SETTINGS[networks.pop()])]
    for section, faults in SECTIONS.items():
        parts.append(
            f"\n## {section}\n\n| fault | what happened | what the user reads | seconds |\n|---|---|---|---|\n"
        )
        parts += [_line(by_fault[fault]) for fault in faults]
        parts.append(REMARKS.get(section, ""))
    return "".join(parts) + lying_sites(lying) + CLOSING


def _line(record: dict[str, object]) -> str:
    fault = f"**{record['fault']}**: {record['done']}"
    told = str(record["told"]).replace("|", "\\|").replace("\n", " ")
    return f"| {fault} | {record['happened']} | {told} | {record['seconds']} |\n"


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit("usage: python docs/reliability.py [RECORDS]")
    found = json.loads(Path(sys.argv[1] if len(sys.argv) == 2 else RECORDS).read_text())
    try:
        text = page(found, json.loads(LYING_SITES.read_text()))
    except ValueError as error:
        sys.exit(f"error: {error}")
    RECORDS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(text)
    print(PAGE)
