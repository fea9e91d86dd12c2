"""A federation's server as the FLARE API shows it, for what does not happen on demand: crashes at a moment, odd words."""

from collections.abc import Callable, Collection
from contextlib import contextmanager
from pathlib import Path

from nvflare.fuel.flare_api.api_spec import JobNotFound, NoConnection, SubmitTokenConflict

from flareclust.platform.controller import EXCHANGES, LIVE, RECORDS
from flareclust.protocol import outcome as outcome_files
from flareclust.protocol.outcome import Outcome


class FakeServer:
    """Answers like a `Session`. Each look at a job's status takes the next of `statuses`; the last one stays.

    Args:
        statuses: of every job, or what is raised instead.
        outcome: what the job leaves behind; None for no result.
        error_log: of the job.
        server_log: of the server itself.
    """

    def __init__(self, statuses: list[str | Exception], outcome: Outcome | None = None, error_log="", server_log=""):
        self.statuses, self.outcome = list(statuses), outcome
        self.error_log, self.server_log = error_log, server_log
        self.sites = ["site-1", "site-2", "site-3"]
        self.start_time = 1.0
        self.tokens: dict[str | None, str] = {}
        self.known: dict[str, str] = {}
        self.running: set[str] = set()
        self.aborted: list[str] = []
        self.submitted: list[str | None] = []
        self.opened = self.closed = 0
        self.down = False
        self.records: list[dict[str, object]] = []
        self.on_look: Callable[[int], None] = lambda number: None
        self.looks = 0
        self.on_status: Callable[[int], None] = lambda number: None
        self.asked = 0
        self.refuse: Exception | None = None
        self.deployed: list[str] = []
        self.stats_refuse: Exception | None = None
        self.fetch_errors: list[Exception] = []
        self.listed: list[dict[str, object]] = []
        self.said: dict[str, object] = {}

    def restart_at(self, look: int, takes_up: Collection[str] = ()) -> None:
        """Start again at a look at the job's status, and then run these jobs."""

        def restart(number: int) -> None:
            if number == look:
                self.start_time += 1.0
            self.running = set(takes_up) if number > look else set()

        self.on_look = restart

    @contextmanager
    def session(self, kit: Path, timeout: float = 10.0):
        if self.down:
            raise NoConnection("no server")
        self.opened += 1
        try:
            yield self
        finally:
            self.closed += 1

    def check_status(self, target_type, targets=None):
        self.asked += 1
        self.on_status(self.asked)
        clients = [{"client_name": site} for site in self.sites]
        jobs = [{"job_id": job} for job in self.running]
        return {"server_start_time": self.start_time, "clients": clients, "jobs": jobs}

    def list_jobs(self, detailed: bool = False, limit: int | None = None, reverse: bool = False, name_prefix: str = ""):
        assert detailed
        return [job for job in self.listed if str(job.get("name", "")).startswith(name_prefix)]

    def submit_job(self, folder: str, token: str | None = None) -> str:
        if self.refuse is not None:
            raise self.refuse
        assert (Path(folder) / "meta.json").exists()
        self.submitted.append(token)
        if token in self.tokens:
            if self.tokens[token] == "other":
                raise SubmitTokenConflict("other content", "job-x")
            return self.tokens[token]
        return f"job-{len(self.submitted)}"

    def get_job_meta(self, job: str) -> dict[str, object]:
        if job in self.known:
            return {"status": self.known[job], "job_deploy_detail": self.deployed}
        self.looks += 1
        self.on_look(self.looks)
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if isinstance(status, Exception):
            raise status
        return {"status": status, "job_deploy_detail": self.deployed}

    def show_stats(self, job: str, target_type: str) -> dict[str, object]:
        if self.stats_refuse is not None:
            raise self.stats_refuse
        if not self.records:
            raise JobNotFound("no such job: job")  # what NVFlare says until the process of the job is there
        return {"server": {LIVE: {EXCHANGES: len(self.records), RECORDS: self.records[-2:]}}}

    def abort_job(self, job: str) -> None:
        self.aborted.append(job)

    def grep_target(self, target: str, options: str, pattern: str, file: str) -> str:
        assert (target, file) == ("server", "log.txt")
        return self.server_log

    def download_job_result(self, job: str, destination: str) -> str:
        if self.fetch_errors:
            raise self.fetch_errors.pop(0)
        folder = Path(destination) / job / "workspace"
        folder.mkdir(parents=True)
        (folder / "error_log.txt").write_text(self.error_log)
        if self.outcome is not None:
            outcome_files.write(self.outcome, folder, self.said)
        return str(folder.parent)
