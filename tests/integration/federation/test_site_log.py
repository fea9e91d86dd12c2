"""The log of jobs of real sites: who submitted them, what left, and why one was refused, by the site's rights as well."""

import json
import subprocess
import sys

import numpy as np
import pytest
from harness import LEAD, Federation
from jobs import Job

from flareclust.engines.options import JobOptions
from flareclust.protocol.registry import get
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow


def last(federation: Federation, site: str) -> dict[str, object]:
    """Return the last line that the operator of a site reads."""
    command = [sys.executable, "-m", "flareclust", "site", "log", str(federation.kit(site)), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def strict(federation):
    """A site whose own rights permit no code in jobs, from its next start on."""
    local = federation.kit("west") / "local"
    rights = json.loads((local / "authorization.json.default").read_text())
    for role in rights["permissions"].values():
        if isinstance(role, dict):
            role["byoc"] = "none"
    (local / "authorization.json").write_text(json.dumps(rights))
    federation.leave("west")
    federation.start("west")
    federation.wait_connected()
    yield "west"
    (local / "authorization.json").unlink()
    federation.restart("west")


def test_each_job_has_a_line_with_what_left_the_site_or_why_nothing_did(federation):
    federation.configure("south", path="no-such-file.npy")
    found = Job(federation, get("kfed"), JobOptions(k=5, seed=3, min_sites=2)).outcome()
    north, south, west = (last(federation, site) for site in ("north", "south", "west"))
    assert north == {**north, "job": found.job, "algorithm": "kfed", "user": LEAD, "refused": "", "accepted": True}
    assert north["exchanges"] == west["exchanges"] == len(found.rounds)
    assert north["bytes_out"] + west["bytes_out"] == found.bytes_up > 0
    assert north["came"] < north["ended"]
    assert (south["exchanges"], south["bytes_out"], south["accepted"]) == (0, 0, True)
    assert south["refused"] in found.refused["south"]


def test_a_job_that_the_sites_rights_reject_has_one_too(federation, strict, faulty):
    asked = JobOptions(k=1, min_sites=2, assess=False, deadline=600)
    outcome = Job(federation, faulty, asked).outcome()
    assert np.isfinite(outcome.centroids).all()
    line = last(federation, strict)
    assert (line["job"], line["user"], line["accepted"], line["exchanges"]) == (outcome.job, LEAD, False, 0)
    assert line["refused"] == "BYOC not permitted"
