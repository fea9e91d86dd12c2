"""A job in the background, as a user follows it: the rounds as they come, and how it ended."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import LEAD, SERVER, Federation, wait_until

from flareclust.engines.options import ExpectedSites, JobOptions
from flareclust.platform.provisioned import run_production
from flareclust.protocol.outcome import Outcome, read_rounds
from flareclust.protocol.registry import Algorithm
from tests.patience import PATIENCE


@dataclass(frozen=True)
class Notice:
    """What the user reads about a fault, and when: `at` is of time.monotonic()."""

    text: str
    at: float


class Job:
    """A job that the lead has submitted; what the engine reports is kept with its time."""

    def __init__(
        self,
        federation: Federation,
        algorithm: Algorithm,
        options: JobOptions,
        params: Mapping[str, object] | None = None,
        user: str = LEAD,
        token: str | None = None,
        expected: ExpectedSites | None = None,
    ) -> None:
        self.rounds: list[tuple[float, Mapping[str, Any]]] = []
        self._outcome: Outcome | None = None
        self._error: Exception | None = None
        self.started, self.ended = time.monotonic(), 0.0

        def run() -> None:
            try:
                asked = algorithm, dict(params or {}), options, federation.kit(user), self._hear
                self._outcome = run_production(*asked, token=token, expected=expected)
            except Exception as error:  # noqa: BLE001 - it is raised again where the test asks for the outcome
                self._error = error
            self.ended = time.monotonic()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def _hear(self, record: Mapping[str, object]) -> None:
        self.rounds.append((time.monotonic(), record))

    def wait_round(self, number: int, patience: float = PATIENCE) -> None:
        """Wait until the user has seen the round with this number."""
        wait_until(
            lambda: self.ended or any(record["round"] >= number for _, record in self.rounds),
            f"round {number}",
            patience,
        )
        if self.ended:
            raise AssertionError(f"the job ended before round {number} was seen: {self._error or self._outcome}")

    def outcome(self, patience: float = PATIENCE) -> Outcome:
        """Wait for the job and return its outcome, or raise what the engine raised."""
        self._thread.join(patience)
        if self._thread.is_alive():
            raise TimeoutError(f"the job did not end within {patience} s")
        if self._error is not None:
            raise self._error
        assert self._outcome is not None
        return self._outcome

    def notice(self, site: str) -> Notice:
        """Return when and in which words a round said why a site is left out."""
        for at, record in self.rounds:
            if site in record["refused"]:
                return Notice(f"{site} {record['refused'][site]}", at)
        if self._outcome is not None and site in self._outcome.refused:
            return Notice(f"{site} {self._outcome.refused[site]}", self.ended)
        raise AssertionError(f"nothing was reported about {site}: {self.rounds}")


def jobs_in_store(federation: Federation) -> set[Path]:
    """Return the server's folders of all jobs that were submitted."""
    store = federation.kit(SERVER) / "jobs-storage"
    return set(store.iterdir()) if store.exists() else set()


def runs_of(federation: Federation) -> set[Path]:
    """Return the server's folders of jobs that run or were lost."""
    return {path for path in federation.kit(SERVER).iterdir() if path.name.count("-") == 4}


def rounds_of(federation: Federation, before: set[Path]) -> int:
    """Return how many rounds a job has had whose folder is none of `before`."""
    return max((len(read_rounds(folder)) for folder in runs_of(federation) - before), default=0)


#: A program that runs a night of fkm by the nightly flow: kit, folder of the result, rounds, sites that are needed.
NIGHT = """
import sys

from flareclust.experiment.config import Experiment
from flareclust.flows.nightly import nightly_flow

kit, out, rounds, needed = sys.argv[1:]
asked = {"algorithm": "fkm", "k": 5, "seed": 3, "engine": "production", "min_sites": int(needed), "register_as": "clinics"}
nightly_flow(Experiment(kit=kit, params={"rounds": int(rounds), "tol": 0.0}, **asked), out=out)
"""


def disturbed(
    federation: Federation, words: Sequence[str], folder: Path, tracking: str, disturb: Callable[[], object]
) -> float:
    """Run Python with these words, which submit a job, and disturb the federation in its third round; return the seconds from then to the end.

    The run must succeed, with the job submitted exactly once more.
    """
    own = {"PREFECT_HOME": str(folder / "prefect"), "MLFLOW_TRACKING_URI": tracking, "TMPDIR": str(folder)}
    before, stored = runs_of(federation), jobs_in_store(federation)
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env=os.environ | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(lambda: process.poll() is not None or rounds_of(federation, before) >= 3, "the job is under way")
        assert process.poll() is None, process.stdout and process.stdout.read()
        at = time.monotonic()
        disturb()
        printed, _ = process.communicate(timeout=PATIENCE)
        seconds = time.monotonic() - at
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, printed
    assert len(jobs_in_store(federation) - stored) == 2, "the job was not submitted exactly once more"
    return seconds
