"""Which jobs came to a site, and what left it for them: lines in a file of the kit, of which nothing is sent.

A job has a line when it comes and one when its process has ended, so that one that a power cut ended is there, too. What
leaves is written down by the process of the job, in the job's folder, exchange by exchange.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from flareclust._foundation.own_files import append
from flareclust.protocol.schema import plain

#: In the folder of a kit, and in that of a job.
JOBS_FILE, SENT_FILE = "flareclust_jobs.jsonl", "flareclust_sent.jsonl"


@dataclass(frozen=True)
class JobLine:
    """A job that came to a site.

    Attributes:
        job: its id.
        name: what its lead called it.
        user: who submitted it.
        algorithm: that of flareclust whose job it is; empty for another's, and for one that was not taken.
        came: when it came, in seconds since 1970 UTC.
        ended: when its process ended; None while it runs, and where the site was stopped meanwhile.
        exchanges: how many requests the site answered with numbers.
        bytes_out: the bytes of all arrays in these answers.
        refused: why the site did not take the job, or the last reason for which it answered a request without numbers; else empty.
        accepted: whether the job began.
        withdrawn: how many rows it left out, since the site has withdrawn their ids.
        rows: under which name the ids of its rows are kept (`flareclust.sites.held_rows`); empty where they are not.
    """

    job: str
    name: str
    user: str
    algorithm: str
    came: float
    ended: float | None = None
    exchanges: int = 0
    bytes_out: int = 0
    refused: str = ""
    accepted: bool = True
    withdrawn: int = 0
    rows: str = ""


def note_came(kit: Path, job: str, name: str, user: str, algorithm: str, refused: str) -> None:
    """Write down a job that was taken, or why it was refused; OSError where that is not possible."""
    about = {"job": plain(job), "name": plain(name), "user": plain(user), "came": time.time()}
    _add(kit / JOBS_FILE, {**about, "algorithm": plain(algorithm), "refused": plain(refused), "accepted": not refused})


def note_end(kit: Path, job: str, run_dir: Path) -> None:
    """Write down that a job's process has ended, with what left the site as its folder says; OSError where that is not possible."""
    replies = list(_lines(run_dir / SENT_FILE))
    good = [reply["bytes"] for reply in replies if not reply["refused"]]
    reasons = [reply["refused"] for reply in replies if reply["refused"]]
    found = {"exchanges": len(good), "bytes_out": sum(good), "refused": reasons[-1] if reasons else ""}
    _add(kit / JOBS_FILE, {"job": job, "ended": time.time(), **found})


def note_reply(run_dir: Path, size: int, refused: str) -> None:
    """Write down, in the process of a job, one answer: the bytes of its arrays, or why it has none; OSError where that is not possible."""
    _add(run_dir / SENT_FILE, {"bytes": size, "refused": plain(refused)}, durable=False)


def note_rows(kit: Path, job: str, rows: str, withdrawn: int) -> None:
    """Write down, in the process of a job, which rows it has; OSError where that is not possible."""
    _add(kit / JOBS_FILE, {"job": plain(job), "rows": rows, "withdrawn": withdrawn})


def read_log(kit: Path) -> list[JobLine]:
    """Return the jobs that came to the site of a kit, in the order in which they came."""
    found, known = list[JobLine](), {field.name for field in fields(JobLine)}
    for said in _lines(kit / JOBS_FILE):
        line = {name: value for name, value in said.items() if name in known}  # a later version may say more
        if "came" in line:
            found.append(JobLine(**line))
            continue
        # A server may send a job again under the same number; it is refused then, and the one that ended is the first.
        began = (i for i, job in enumerate(found) if job.job == line["job"] and job.accepted)
        if (i := next(began, None)) is not None:
            found[i] = replace(found[i], **line)
    return found


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file, without lines that were cut when the machine stopped; nothing where there is no file."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for line in text.splitlines():
        with suppress(ValueError):
            yield json.loads(line)


def _add(path: Path, about: Mapping[str, object], *, durable: bool = True) -> None:
    append(path, f"\n{json.dumps(about)}\n", durable=durable)  # an empty line ends one that was cut
