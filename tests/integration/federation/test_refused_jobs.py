"""Jobs and users that a federation refuses."""

import io
import json
import time
import zipfile

import pytest
from faulty import FaultyExecutor
from harness import LEAD, MEMBER, SERVER, Federation, wait_until
from jobs import Job, jobs_in_store

from flareclust._foundation.errors import FlareclustError, JobFailed, UserError
from flareclust.engines.options import JobOptions
from flareclust.platform.job import build_job
from flareclust.platform.provisioned import run_job, run_production
from flareclust.protocol.registry import get

pytestmark = pytest.mark.slow

OPTIONS = JobOptions(k=5, seed=3, min_sites=3, deadline=600)


def test_a_user_who_may_not_submit_is_informed(federation, record):
    before = jobs_in_store(federation)
    started = time.monotonic()
    with pytest.raises(UserError, match=f"{MEMBER} may not submit jobs") as caught:
        run_production(get("feca"), {}, OPTIONS, federation.kit(MEMBER))
    record(
        "user not authorised",
        "a user with the role member submits a job",
        "the server refuses; nothing is stored",
        str(caught.value),
        time.monotonic() - started,
    )
    assert jobs_in_store(federation) == before


def test_a_kit_of_another_provisioning_is_not_accepted(federation, tmp_path, record):
    """The same names, made by somebody else: only the certificates differ."""
    kits = federation.provision(tmp_path / "foreign")
    started = time.monotonic()
    with pytest.raises(FlareclustError) as caught:
        run_production(get("feca"), {}, OPTIONS, kits / LEAD)
    record(
        "foreign kit",
        "a job is submitted with a lead's kit of the same names from another provisioning",
        "neither side accepts the other's certificate",
        str(caught.value).replace(federation.network.server_address, "SERVER"),
        time.monotonic() - started,
    )


def test_a_class_that_is_not_listed_is_refused_everywhere(federation, record):
    """The job names a class that the sites could import, and that it does not carry."""
    job = build_job(get("feca"), {}, OPTIONS)
    job.set_app_packages(["flareclust", "faulty"])
    job.to_clients(FaultyExecutor(k=5), tasks=["mischief"])
    started = time.monotonic()
    with pytest.raises(JobFailed) as caught:
        run_job(job, federation.kit(LEAD), OPTIONS.deadline)
    seconds = time.monotonic() - started
    refusing = [site for site in federation.sites if "faulty.FaultyExecutor" in log_of(federation, site)]
    assert refusing, "no site's log names the class"
    record(
        "class not listed",
        "a job names a class that the sites' lists do not have, and does not carry it",
        "no site loads it, and the job ends",
        str(caught.value),
        seconds,
    )


def log_of(federation: Federation, site: str) -> str:
    return "".join(path.read_text() for path in federation.kit(site).glob("**/*log.txt"))


def test_a_job_that_was_altered_in_the_servers_store_is_not_run(federation, record):
    """Somebody with access to the server's disk changes a stored job before it is sent to the sites."""
    before = jobs_in_store(federation)
    job = Job(federation, get("feca"), OPTIONS)
    wait_until(lambda: len(jobs_in_store(federation)) > len(before), "the job is stored", every=0.002)
    (stored,) = jobs_in_store(federation) - before
    federation.pause(SERVER)
    try:
        data = stored / "data"
        wait_until(data.exists, "the job's files are stored")
        data.write_bytes(altered(data.read_bytes()))
        at = time.monotonic()
    finally:
        federation.resume(SERVER)
    with pytest.raises(JobFailed) as caught:
        job.outcome()
    assert "signature" in str(caught.value)
    record(
        "altered job",
        "the job's configuration is changed in the server's store before it is sent out",
        "the submitter's signature does not fit any more; no site gets the job",
        str(caught.value).replace(stored.name, "JOB"),
        job.ended - at,
    )
    for site in federation.sites:
        assert not (federation.kit(site) / stored.name).exists(), f"{site} was sent the altered job"


def altered(job: bytes) -> bytes:
    """Return the zipped job with another seed in its configuration."""
    changed, out = 0, io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(job)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("config_fed_client.json"):
                config = json.loads(content)
                config["executors"][0]["executor"]["args"]["seed"] = 4
                content, changed = json.dumps(config).encode(), changed + 1
            new.writestr(name, content)
    assert changed == 1
    return out.getvalue()
