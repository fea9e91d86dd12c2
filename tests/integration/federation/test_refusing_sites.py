"""Sites that do not take part as they should: they are named with their reason, and the quorum decides."""

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from conftest import LATE, SITES
from harness import Federation
from jobs import Job
from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from versions import renumbered

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.version import REVISION, __version__
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol.registry import get
from tests.kit_certificates import write_certificates

pytestmark = pytest.mark.slow

#: In it the processes of a site begin, too, which takes long on a busy machine.
TIMEOUT = 20


def options(min_sites: int | None, **others: int) -> JobOptions:
    return JobOptions(k=1, min_sites=min_sites, task_timeout=TIMEOUT, assess=False, deadline=600, **others)


def mean_of(files: dict[str, Path], sites: tuple[str, ...]) -> np.ndarray:
    return np.mean([np.load(files[site]).mean(axis=0, keepdims=True) for site in sites], axis=0)


def test_raising_silent_and_slow_sites_are_named_and_the_quorum_goes_on(federation, files, faulty, record):
    """Three faults in three jobs at once, which the server runs side by side."""
    faults = {"raises": "raises", "silent": "never answers", "slow": TIMEOUT + 4}
    jobs = {name: Job(federation, faulty, options(2), {"faults": {"west": fault}}) for name, fault in faults.items()}
    outcomes = {name: job.outcome() for name, job in jobs.items()}
    for outcome in outcomes.values():
        assert set(outcome.refused) == {"west"}
        np.testing.assert_array_equal(outcome.centroids, mean_of(files, ("north", "south")))
    assert "raised ZeroDivisionError" in outcomes["raises"].refused["west"]
    assert "in time" in outcomes["silent"].refused["west"]
    assert "in time" in outcomes["slow"].refused["west"]

    secret = repr(float(np.load(files["west"])[0, 0])).encode()
    kept = federation.kit("west") / outcomes["raises"].job / "flareclust_error.txt"
    assert secret in kept.read_bytes(), "the site's own file does not show its operator what was raised"
    assert kept.stat().st_mode & 0o777 == 0o600
    for file in federation.kit("server").rglob("*"):
        assert not file.is_file() or secret not in file.read_bytes(), f"the text of an exception reached {file}"

    done = {
        "raises": ("site raises", "the algorithm raises an exception at one of three sites; quorum 2"),
        "silent": ("silent site", f"one of three sites never answers; task_timeout {TIMEOUT} s; quorum 2"),
        "slow": ("slow site", f"one of three sites needs longer than task_timeout, {TIMEOUT} s; quorum 2"),
    }
    for name, job in jobs.items():
        happened = "the others go on; the text of the exception stays at the site"
        if name != "raises":
            happened = "the round ends at task_timeout with the others' replies; what comes later is not used"
        record(*done[name], happened, job.notice("west").text, job.notice("west").at - job.started)


def test_below_the_quorum_all_reasons_are_in_one_message(federation, faulty, record):
    """With no quorum set, more than half of the sites are needed."""
    job = Job(federation, faulty, options(None), {"faults": {"north": "raises", "west": "never answers"}})
    with pytest.raises(JobFailed) as caught:
        job.outcome()
    text = str(caught.value)
    assert "1 of 3 sites took part where at least 2 are needed" in text
    assert "north raised ZeroDivisionError" in text
    assert "west" in text
    record(
        "below the quorum",
        "one of three sites raises, another is silent; the default quorum, more than half",
        "the job fails with all reasons in one message",
        text,
        job.ended - job.started,
    )


def test_a_site_with_another_version_refuses_in_plain_words(federation, files, tmp_path, record):
    other = renumbered(tmp_path / "other", "9.8.7", REVISION + 1)
    federation.start(LATE, env={"PYTHONPATH": str(other)})
    federation.wait_connected([*SITES, LATE])
    job = Job(federation, get("feca"), JobOptions(k=5, seed=3, min_sites=3))
    outcome = job.outcome()
    assert set(outcome.refused) == {LATE}
    assert "9.8.7" in outcome.refused[LATE]
    assert __version__ in outcome.refused[LATE]
    np.testing.assert_array_equal(
        outcome.centroids, run_inprocess(get("feca"), {}, files, JobOptions(k=5, seed=3)).centroids
    )
    record(
        "wrong version",
        "a fourth site has flareclust 9.8.7, whose results are others; quorum 3",
        "the site refuses before it computes anything; the others go on",
        job.notice(LATE).text,
        job.notice(LATE).at - job.started,
    )


@pytest.mark.parametrize(("quorum", "named"), [(2, ""), (1, ", one site is enough")], ids=["two", "one"])
def test_a_site_whose_certificate_has_ended_is_left_out_also_where_only_its_job_notices(
    federation, files, tmp_path, record, quorum, named
):
    """It stays connected, but the process of a job could not connect; a foreign certificate stands for what only that process sees."""
    startup, asked = federation.kit("west") / "startup", JobOptions(k=5, seed=3, min_sites=quorum, task_timeout=600)
    others = {site: file for site, file in files.items() if site != "west"}
    expected = run_inprocess(get("feca"), {}, others, asked).centroids
    before, now = (startup / "client.crt").read_bytes(), datetime.now(timezone.utc)
    jobs, notices = {}, {}
    try:
        for days in (-1, 900):
            made = tmp_path / f"certificates{days}"
            made.mkdir()
            dates = (now - timedelta(days=9), now + timedelta(days=days))
            write_certificates(made, root=dates, client=dates)
            (startup / "client.crt").write_bytes((made / "startup" / "client.crt").read_bytes())
            jobs[days] = Job(federation, get("feca"), asked)
            np.testing.assert_array_equal(jobs[days].outcome().centroids, expected)
            notices[days] = jobs[days].notice("west")
    finally:
        (startup / "client.crt").write_bytes(before)
    assert "did not take the job: has a certificate (client.crt) that ended" in notices[-1].text
    assert "was lost" in notices[900].text
    record(
        f"ended certificate{named}",
        f"the certificate of one of three connected sites has ended; quorum {quorum}",
        "the site takes no job, so that the others go on; the result is that of the others, bit for bit",
        re.sub(r"\d{4}-.*?UTC", "DATE", notices[-1].text),
        notices[-1].at - jobs[-1].started,
    )
    record(
        f"job that cannot connect{named}",
        f"the job's process at one of three sites cannot connect, as with a certificate that ends just then; quorum {quorum}",
        "the process ends before its first task, which counts as a lost site; the others go on",
        notices[900].text,
        notices[900].at - jobs[900].started,
    )


def test_a_site_that_does_not_allow_the_classes_is_named(federation, record):
    """As NVFlare's own provisioning leaves a site: without our classes on its list, and with NVFlare's launcher."""
    file = resources(federation, "west")
    before = file.read_text()
    config = json.loads(before)
    config["class_allow_list"] = list(DEFAULT_CLASS_ALLOW_LIST)
    (launcher,) = [part for part in config["components"] if part["id"] == "process_launcher"]
    launcher |= {"path": f"{ClientProcessJobLauncher.__module__}.{ClientProcessJobLauncher.__name__}", "args": {}}
    file.write_text(json.dumps(config))
    try:
        job = Job(federation, get("feca"), JobOptions(k=5, min_sites=2, deadline=600))
        with pytest.raises(JobFailed, match="west does not allow") as caught:
            job.outcome()
    finally:
        file.write_text(before)
    record(
        "not allowed",
        "one of three sites does not list flareclust's classes; quorum 2",
        "NVFlare ends the job, whatever the quorum says",
        str(caught.value),
        job.ended - job.started,
    )


def resources(federation: Federation, site: str) -> Path:
    local = federation.kit(site) / "local"
    own = local / "resources.json"
    return own if own.exists() else local / "resources.json.default"
