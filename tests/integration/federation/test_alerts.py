"""Nights of a real federation under a real Prefect server, whose automation alerts the lead to each that is not as it should be."""

import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest
from conftest import SITES, rows_of
from harness import LEAD, Federation
from jobs import NIGHT

from tests.alerts import alerts
from tests.patience import PATIENCE
from tests.scheduler import Scheduler, started

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

AWAY = SITES[-1]
NOTICED, FAILED = "flareclust.night.noticed: ", "prefect.flow-run.Failed: "

#: All rows move by this: less than the reach of a cluster, so that it keeps its number, and more than half of it.
MOVED = 0.8


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    """A Prefect server of this test's own."""
    import flareclust.flows.experiment  # noqa: F401 - sets Prefect's switches before it is imported

    with started() as scheduler:
        yield scheduler


def night(scheduler: Scheduler, federation: Federation, name: str) -> int:
    """Run a night for which two sites are enough; return its exit code."""
    words = [sys.executable, "-c", NIGHT, str(federation.kit(LEAD)), name, "5", "2"]
    with scheduler.process(words, f"{name}.log") as process:
        return process.wait(PATIENCE)


def test_a_missing_site_a_night_below_the_quorum_and_clusters_that_drift_are_alerts(
    scheduler, federation, tmp_path, record
):
    with alerts(scheduler) as texts:
        assert night(scheduler, federation, "usual") == 0, scheduler.text("usual.log")

        federation.leave(AWAY)
        began = time.monotonic()
        assert night(scheduler, federation, "without") == 0, scheduler.text("without.log")
        (missing,) = scheduler.wait(lambda: list(texts), "the missing site is reported")
        assert missing.startswith(f"{NOTICED}{AWAY} was not connected when the job began, and had part in one of")
        record(
            "night without a site",
            "one of three sites is stopped before a night of the flow `flareclust-nightly` with a Prefect server and the [automation](schedules.md#alerts); quorum 2",
            "the night is complete with the others, and the webhook gets its alert; that of the night before, with all sites, sent none",
            missing,
            time.monotonic() - began,
        )

        federation.start(AWAY)
        federation.wait_connected()
        for site in SITES[1:]:
            federation.configure(site, path="no-such-file.npy")
        began = time.monotonic()
        assert night(scheduler, federation, "refused") != 0
        failed = scheduler.wait(lambda: texts[1:], "the failure is reported")[0]
        assert failed.startswith(FAILED)
        assert "1 of 3 sites took part where at least 2 are needed" in failed
        record(
            "night below the quorum",
            "two of three sites cannot read their rows; quorum 2",
            "the job fails, and the webhook gets its alert",
            failed,
            time.monotonic() - began,
        )

        for site in SITES:
            file = tmp_path / f"{site}.npy"
            np.save(file, np.load(rows_of(federation, site)) + MOVED)
            federation.configure(site, path=str(file), root=str(tmp_path))
        began = time.monotonic()
        assert night(scheduler, federation, "moved") == 0, scheduler.text("moved.log")
        drifted = scheduler.wait(lambda: texts[2:], "the drift is reported")[0]
        assert drifted.startswith(f"{NOTICED}drift: the centroid of cluster")
        assert "has moved far since version 1 of clinics: " in drifted
        assert len(texts) == 3
        record(
            "night that drifts",
            "the rows of all sites have moved since the night before",
            "the night is complete, and the webhook gets its alert",
            drifted,
            time.monotonic() - began,
        )
