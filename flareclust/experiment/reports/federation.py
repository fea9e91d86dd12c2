"""What a federation's server knows as HTML: a page that loads nothing, for everybody who may know the names of its sites and jobs."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from flareclust._foundation.version import __version__
from flareclust.experiment.reports.html import render
from flareclust.experiment.reports.table import Cell, Table

if TYPE_CHECKING:
    from flareclust.platform.status import FederationStatus, JobStatus

#: The colours of what is as it should be, and of what is not.
_COLOURS = {"connected": "color:#2a6e3b", "missing": "color:#bd1f01", "away": ""}


def status_page(found: "FederationStatus | None", problem: str = "") -> str:
    """Return the page of a federation; of one whose server did not answer, for None, the page that says why."""
    now = datetime.now(timezone.utc).timestamp()
    shown: dict[str, Any] = {"problem": problem, "made": _time(now), "version": __version__}
    if found is not None:
        shown |= {"started": _time(found.started), "sites": _sites(found), "jobs": _jobs(found.jobs)}
        shown["ends"] = {whose: _day(end) for whose, end in found.certificate_ends.items()}
    return render("federation.html", found=found, **shown)


def _sites(found: "FederationStatus") -> Table:
    heads = ("site", "state", "last seen (UTC)", "NVFlare", "flareclust", "kit ends", "free disk", "budget left")
    rows = [
        (
            Cell(site.name, "name"),
            Cell(site.state, style=_COLOURS[site.state], inner="b"),
            Cell(_time(site.last_seen), "time"),
            Cell(site.nvflare or "-"),
            Cell(site.flareclust or "-"),
            Cell(_day(site.certificate_end), "time"),
            Cell(site.said_disk, "time"),
            Cell(site.said_budget),
        )
        for site in found.sites
    ]
    return _table(heads, rows)


def _jobs(jobs: "list[JobStatus]") -> Table:
    rows = []
    for job in jobs:
        style, refusals = _COLOURS["missing"] if job.failed else "", [f"not taken: {one}" for one in job.refusals]
        rows.append(
            (
                Cell(_time(job.submitted), "time"),
                Cell(job.name, "name", lines=[job.id], line_kind="soft"),
                Cell(job.user, "name"),
                Cell(job.duration),
                Cell(job.status, "name", style, lines=refusals),
            )
        )
    return _table(("submitted (UTC)", "job", "by", "took", "state"), rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Table:
    """Return a table whose cells have their heads as hints: on a phone they stand before them."""
    named = [[cell._replace(hint=head) for head, cell in zip(heads, row, strict=True)] for row in rows]
    return Table([Cell(head) for head in heads], named, "stack")


def _time(when: float | None) -> str:
    """Return a time in seconds since 1970 UTC; a dash for none."""
    return "-" if when is None else datetime.fromtimestamp(when, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def _day(when: float | None) -> str:
    return _time(when)[:10]
