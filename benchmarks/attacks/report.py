"""What attacks found: a table for the terminal, benchmarks/records/attacks.json, and docs/attacks.md made of it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.attacks.case import PROCESSES

DOCS = Path(__file__).resolve().parents[2] / "docs"
RECORDS, PAGE = DOCS.parent / "benchmarks" / "records" / "attacks.json", DOCS / "attacks.md"

Record = Mapping[str, Any]

_HEADINGS = ("attack", "opponent", "sites", "asked", "before", "without a policy", "now", "what stops it")


def result(record: Record) -> str:
    """Return what an attack gets now, in words."""
    rows, of = f"{record['recovered']:,}", f"{record['rows']:,}"
    words = [f"{f'**{rows}**' if record['recovered'] else rows} of {of} {record['unit']}"]
    words += [f"**{record['changed']}** files changed"] if record["changed"] else []
    words += [f"code ran **{record['ran']}** times"] if record["ran"] else []
    return ", ".join(words)


def cells(record: Record) -> list[str]:
    """Return the line of a record."""
    control = "-" if record["control"] is None else f"{record['control']:,} of {record['rows']:,}"
    own = [record[key] for key in ("attack", "opponent", "sites", "asked", "before")]
    return [*map(str, own), control, result(record), str(record["stops"])]


def table(records: Iterable[Record]) -> str:
    """Return a Markdown table, a line per attack and data set."""
    lines = [list(_HEADINGS), ["---"] * len(_HEADINGS), *map(cells, records)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def page(records: Sequence[Record]) -> str:
    """Return docs/attacks.md."""
    own = [record for record in records if not record["remains"]]
    got = [record for record in own if not record["stopped"]]
    real = [record for record in own if record["form"] == PROCESSES]
    further = len({record["name"] for record in records if record["remains"]})
    attacks, tried = len({record["name"] for record in own}), len(own)
    verdict = (
        f"None of the {attacks} attacks in the tables ({tried} runs) recovers a row, changes a file of a kit or runs code. "
        f"{further} further {'one does' if further == 1 else 'ones do'} recover rows: see [what remains](#what-remains)."
        if not got
        else f"{len(got)} of {tried} runs **do** recover rows, change files or run code."
    )
    rest = "\n".join(f"| {' | '.join(_left(record))} |" for record in records if record["remains"])
    return f"""# Attacks

What was attacked: sites with the policy that kits come with, by leads, servers and other sites, alone or together. {verdict}

Run all of it again with one command, from the repository's folder:

```console
$ FLARECLUST_DATA=<folder> python -m benchmarks.attacks
$ python -m benchmarks.attacks --quick
$ python -m benchmarks.attacks --only {own[0]["name"]} --json attacks.json
```

The first takes about a quarter of an hour on two cores, writes `benchmarks/records/attacks.json` and makes this page of it. The second needs no data and no processes, and takes less than a minute. The exit code is 1 if an attack gets something.

How to read the tables:

- A row is recovered if a claim of the attack is within a millionth of a standard deviation of it, in every column.
- *asked* is what the opponent sent, and how often the sites answered or refused.
- *before* is what the attack took from version 0.1 (commit 931e3ff), on the data that the cell names or on a site of 1,500 rows.
- *without a policy* is what the same attack takes today from sites without one, whose jobs say `min_count=1`. It shows that the attack works. There is none where a hole was closed for all sites.
- In the first table every *now* also means: no file in `local/` of any kit changed, and no code of the opponent ran. If one did, the cell says so.

## Against provisioned sites, with real processes

Kits are made by our Builder and started by their own scripts. A malicious server is the server's own process with another program in the place of the job's workflow. A malicious lead submits jobs made by hand.

{table(real)}

## Against a site in one process

The executors answer behind the policy and the gate that jobs have, without the network between. So an attack can ask far more.

{table(record for record in own if record["form"] != PROCESSES)}

## What remains

The [threat model](threat-model.md#what-remains) has the list. These recover rows or values from sites with a policy, and only [differential privacy](differential-privacy.md) stops them:

| attack | sites | asked | recovered |
| --- | --- | --- | --- |
{rest}

- **Tables that change**: results about your table before and after a row was added differ by that row. Agree on how often jobs run over new rows. Rows that a site [withdraws](policies.md#withdrawn-rows) go with their whole group.
- **Coarse values**: where values are few, a guess is right now and then. Iris has one decimal; the rows that jobs see, rounded to it, hit 1 of 150 rows, and random rows in their place 0 to 2.
- **Columns that add up**: each column of a group is looked at by itself. If a table has a total and all but one of its parts, the difference of two means can be one row's value. Leave out totals.
- **What groups have in common**: size, mean and spread of each group of `min_count` or more rows can be learned.
- **Sites without a policy**: the column *without a policy* is what they give away.
"""


def _left(record: Record) -> list[str]:
    own = [str(record[key]) for key in ("attack", "sites", "asked")]
    return [*own, f"{record['recovered']:,} of {record['rows']:,} {record['unit']}"]


def printed(records: Iterable[Record]) -> str:
    """Return lines for a terminal."""
    lines = []
    for record in records:
        control = "-" if record["control"] is None else f"{record['control']:,}"
        mark = "left" if record["remains"] else "ok" if record["stopped"] else "NOT STOPPED"
        now = result(record).replace("*", "")
        title = f"{record['name']:<16} {record['form']:<11} {record['sites']:<28}"
        lines.append(f"{mark:<5} {title} now {now}; without a policy {control}; {record['asked']}")
    return "\n".join(lines)


def read(path: Path = RECORDS) -> list[dict[str, Any]]:
    """Return the records of a file; none if there is no such file."""
    return list(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []


def write(path: Path, records: Sequence[Record]) -> None:
    """Write records to a file."""
    path.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


def merged(old: Iterable[Record], new: Iterable[Record], order: Sequence[str]) -> list[Record]:
    """Return the records with those of the attacks that were run again in the place of their old ones, in this order."""
    again = list(new)
    names = {record["name"] for record in again}
    kept = [record for record in old if record["name"] in order and record["name"] not in names]
    return sorted([*kept, *again], key=lambda record: order.index(record["name"]))
