"""What a federation's server knows of it now: the sites, connected or missing, and the last jobs.

Times are seconds since 1970 UTC.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flareclust._foundation.certificates import ends_soon, first_end, near_end, server_end
from flareclust._foundation.version import __version__, fits
from flareclust.platform.job_monitor import Server, deployed, lost_jobs, lost_words, refusals_in
from flareclust.platform.peers import reported_by_hosts
from flareclust.platform.session import admin_of, connected_sites, server_status

_UNKNOWN = "versions, disks, budgets and ends of certificates of the sites are not known: the server does not answer what this kit asks of them (flareclust site allow there)"

#: Bytes of free disk, and the share of a privacy budget, below which there is a hint.
_LITTLE_DISK, _LITTLE_BUDGET = 2e9, 0.1


@dataclass(frozen=True)
class SiteStatus:
    """A site of the federation.

    Attributes:
        name: of the site.
        connected: whether the server can reach it now.
        last_seen: its last sign of life; of a site that is away, the submission of the last listed job that it took; None if unknown.
        nvflare: the version of NVFlare there, as the site says; empty if unknown.
        flareclust: that of flareclust, likewise.
        certificate_end: when the first certificate of its kit ends, likewise; None if unknown.
        free_disk: bytes that are free on the disk of its kit, likewise.
        rules: what its policy says, and what is spent of its privacy budget, where the site shares that; else None.
        expected: why it should be there; empty if it need not.
    """

    name: str
    connected: bool
    last_seen: float | None
    nvflare: str = ""
    flareclust: str = ""
    certificate_end: float | None = None
    free_disk: float | None = None
    rules: Mapping[str, float | bool] | None = None
    expected: str = ""

    @property
    def state(self) -> str:
        """Return connected, missing, or away where it need not be there."""
        return "connected" if self.connected else "missing" if self.expected else "away"

    @property
    def budget_left(self) -> float | None:
        """Return the share of its privacy budget that is left; None where that is not known."""
        rules = self.rules or {}
        return max(0.0, 1 - rules["spent"] / rules["budget"]) if "spent" in rules and rules.get("budget") else None

    @property
    def said_disk(self) -> str:
        """Return the free disk in GB as tables show it."""
        return "-" if self.free_disk is None else f"{self.free_disk / 1e9:.1f} GB"

    @property
    def said_budget(self) -> str:
        """Return the share of the privacy budget that is left as tables show it."""
        return "-" if self.budget_left is None else f"{self.budget_left:.0%}"


@dataclass(frozen=True)
class JobStatus:
    """A job in the server's list; `refusals` are the sites that did not take it, with the reason, a line each."""

    id: str
    name: str
    user: str
    submitted: float
    duration: str
    status: str
    refusals: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Return whether it has ended without a result."""
        return self.status.startswith("FINISHED") and not self.status.endswith("COMPLETED")


@dataclass(frozen=True)
class FederationStatus:
    """What a server said: where it is, since when it runs, its sites by name, its last jobs, and what its users should know.

    `certificate_ends` has when the first certificate of the kit that asked ends, by its user, and that of the server, where they are known.
    """

    server: str
    started: float
    nvflare: str
    certificate_ends: dict[str, float]
    sites: list[SiteStatus]
    jobs: list[JobStatus]
    hints: list[str]

    @property
    def missing(self) -> list[str]:
        """Names of the sites that should be connected and are not."""
        return [site.name for site in self.sites if site.state == "missing"]

    @property
    def problems(self) -> list[str]:
        """What to do about each of them, a sentence each."""
        missing = [site for site in self.sites if site.state == "missing"]
        return [
            f"{one.name} is not connected, and {one.expected}; start it (startup/start.sh in its kit)"
            for one in missing
        ]


def federation_status(kit: Path, expect: Sequence[str] | None = None, jobs: int = 10) -> FederationStatus:
    """Ask the server of a lead's or an admin's kit; sites are expected that are named, else those of that user's last ten jobs.

    Raises:
        UserError: the folder is no such kit, or the server does not permit the questions.
        JobFailed: it does not answer; another try may help.
    """
    with closing(Server(kit)) as server:
        about, said = admin_of(kit), server.call_with_retry(server_status)
        connected = {str(client["client_name"]): client for client in said.get("clients", [])}
        listed = server.last_jobs()
        expected = server.find_expected("", expect, listed)
        server_ends = server_end(kit, about["host"], int(about["port"]))
        hints = [ends_soon(kit), near_end(f"the certificate of the server {about['host']}", server_ends)]
        hints += [lost_words(job) for job in lost_jobs(server.session, listed)]
        reported: dict[str, dict[str, Any]] = {}
        try:
            reported = reported_by_hosts(server.session)
        except Exception:  # noqa: BLE001 - not every user may ask, and the rest is there
            hints.append(_UNKNOWN)
    sites = []
    for name in sorted({*connected, *expected}):
        last = max((_submitted(meta) for meta in listed if name in deployed(meta)), default=None)
        last = connected[name].get("client_last_conn_time") if name in connected else last
        sites.append(
            SiteStatus(name, name in connected, last, **reported.get(name, {}), expected=expected.get(name, ""))
        )
    own_end = first_end(kit)
    ends = {about["username"]: None if own_end is None else own_end[0], "server": server_ends}
    return FederationStatus(
        f"{about['project_name']} at {about['host']}:{about['port']}",
        float(said.get("server_start_time", 0.0)),
        reported.get("server", {}).get("nvflare", ""),
        {whose: end.timestamp() for whose, end in ends.items() if end is not None},
        sites,
        [_job(meta) for meta in listed[:jobs]],
        [hint for hint in [*hints, *_hints_about(sites)] if hint is not None],
    )


def federation_rules(kit: Path) -> dict[str, Mapping[str, float | bool] | None]:
    """Ask the connected sites, by the kit of a lead or an admin; return by site what its policy says, None where it does not say.

    Raises:
        UserError, JobFailed: as `federation_status`.
    """
    with closing(Server(kit)) as server:
        sites, reported = server.call_with_retry(connected_sites), server.call_with_retry(reported_by_hosts)
    return {site: reported.get(site, {}).get("rules") for site in sites}


def _hints_about(sites: Sequence[SiteStatus]) -> Iterator[str | None]:
    for site in sites:
        if site.flareclust and not fits(__version__, site.flareclust):
            yield f"{site.name} has flareclust {site.flareclust}, and {__version__} is installed here: it refuses jobs whose messages differ"
        yield near_end(f"the certificate of {site.name}", site.certificate_end)
        if site.free_disk is not None and site.free_disk < _LITTLE_DISK:
            yield f"{site.name} has {site.said_disk} of free disk: remove old folders of jobs there (flareclust prune, --labels)"
        if site.budget_left is not None and site.budget_left < _LITTLE_BUDGET:
            yield f"{site.name} has {site.said_budget} of its privacy budget left, and refuses jobs that need more"


def _job(meta: Mapping[str, Any]) -> JobStatus:
    keys = ("job_id", "name", "submitter_name", "duration", "status")
    job, name, user, duration, status = (str(meta.get(key, "")) for key in keys)
    return JobStatus(job, name, user, _submitted(meta), duration, status, refusals_in(meta))


def _submitted(meta: Mapping[str, Any]) -> float:
    return float(meta.get("submit_time", 0.0))


def prometheus_text(status: FederationStatus) -> str:
    """Return the status in Prometheus' text format, as its node exporter reads it from a file (`*.prom`)."""
    sites = {_labels(site=site.name): site for site in status.sites}
    versions = [
        _labels(site=one.name, nvflare=one.nvflare, flareclust=one.flareclust) for one in status.sites if one.connected
    ]
    ends = {_labels(of=whose): end for whose, end in status.certificate_ends.items()}
    ends |= {_labels(of=site.name): site.certificate_end for site in status.sites if site.certificate_end is not None}
    jobs = {_labels(job=job.name): job for job in reversed(status.jobs) if job.status.startswith("FINISHED")}
    gauges: tuple[tuple[str, str, Mapping[str, float | None]], ...] = (
        ("server_start_time_seconds", "Start of the server.", {"": status.started}),
        ("site_connected", "Whether the site is connected.", {at: one.connected for at, one in sites.items()}),
        ("site_expected", "Whether it should be.", {at: bool(one.expected) for at, one in sites.items()}),
        ("site_last_seen_seconds", "Its last sign of life.", {at: one.last_seen for at, one in sites.items()}),
        ("site_versions", "Its versions, as labels.", dict.fromkeys(versions, 1)),
        ("site_free_disk_bytes", "Free on the disk of its kit.", {at: one.free_disk for at, one in sites.items()}),
        ("site_budget_left_ratio", "Left of its privacy budget.", {at: one.budget_left for at, one in sites.items()}),
        ("certificate_end_seconds", "End of a kit's first certificate, and of the server's.", ends),
        (
            "last_job_time_seconds",
            "Submission of the last job that ended.",
            {at: one.submitted for at, one in jobs.items()},
        ),
        ("last_job_completed", "Whether it completed.", {at: not one.failed for at, one in jobs.items()}),
        ("last_job_refusals", "Sites that did not take it.", {at: len(one.refusals) for at, one in jobs.items()}),
        ("hints", "What the lead should look at, as `flareclust status` says it.", {"": len(status.hints)}),
    )
    lines = []
    for name, about, values in gauges:
        lines += [f"# HELP flareclust_{name} {about}", f"# TYPE flareclust_{name} gauge"]
        lines += [f"flareclust_{name}{labels} {value:.15g}" for labels, value in values.items() if value is not None]
    return "\n".join(lines) + "\n"


def _labels(**texts: str) -> str:
    escaped = {name: text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for name, text in texts.items()}
    return "{" + ",".join(f'{name}="{text}"' for name, text in escaped.items()) + "}"
