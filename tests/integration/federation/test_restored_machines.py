"""The machines of the server, the lead and a site are empty: backups bring them back, and the next night is that of a federation that lost none."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from harness import LEAD, SERVER, Federation
from jobs import NIGHT, jobs_in_store
from machines import burnt

from flareclust.platform.session import delete_job, ended_jobs, open_session
from flareclust.protocol.outcome import Outcome, read
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow

NORTH = "north"

CHAMPION = """
import sys

from flareclust.tracking.store import connect

client = connect(sys.argv[1])
[model] = client.search_registered_models()
print(model.aliases["champion"], len(client.search_model_versions("name = 'clinics'")))
"""


class Lead:
    """The machine of the lead: a kit, a store and results."""

    def __init__(self, federation: Federation, folder: Path) -> None:
        self.federation, self.folder = federation, folder
        folder.mkdir()
        self.store = f"sqlite:///{folder}/mlflow.db"

    def night(self, name: str) -> Outcome:
        """Run the nightly flow; return its result."""
        self._run(["-c", NIGHT, str(self.federation.kit(LEAD)), name, "5", "3"], self.folder)
        return read(self.folder / name)[0]

    def command(self, *words: object, machine: str = LEAD) -> str:
        """Run `flareclust` on a machine with a state of its own and return what it prints."""
        return self._run(["-m", "flareclust", *map(str, words)], self.folder.parent, machine)

    def _run(self, words: list[str], folder: Path, machine: str = LEAD) -> str:
        own = {"MLFLOW_TRACKING_URI": self.store, "TMPDIR": str(self.federation.folder / "tmp")}
        own |= {"PREFECT_HOME": str(self.folder.parent / "prefect")}
        own |= {"XDG_STATE_HOME": str(self.folder.parent / "state" / machine)}
        done = subprocess.run(
            [sys.executable, *words],
            cwd=folder,
            env=os.environ | own,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def champion(self) -> str:
        """Return the version that has the alias, and how many there are; by a new process, since MLflow keeps a store's file open."""
        return self._run(["-c", CHAMPION, self.store], self.folder)


def test_empty_machines_are_back_in_minutes_and_the_next_night_is_the_same(federation, tmp_path, record):
    lead = Lead(federation, tmp_path / "lead")
    lead.night("night-1")
    before, stored = lead.champion(), jobs_in_store(federation)
    kits = {name: federation.kit(name) for name in (SERVER, NORTH, LEAD)}
    for name, also in ((SERVER, ()), (NORTH, ()), (LEAD, (lead.folder,))):
        words = "backup", tmp_path / f"{name}.tar.gz", kits[name], *also  # while all processes run
        printed = lead.command(*words, machine=name)
        assert "private keys" in printed
    undisturbed = lead.night("night-2")
    expected = lead.champion()

    federation.stop(SERVER, NORTH)
    with burnt(tmp_path / "burnt", *kits.values(), lead.folder):
        began = time.monotonic()
        for name in kits:
            lead.command("restore", tmp_path / f"{name}.tar.gz", machine=name)
        assert lead.champion() == before
        assert jobs_in_store(federation) == stored
        federation.start(SERVER, NORTH)
        federation.wait_connected()
        seconds = time.monotonic() - began
        again = lead.night("night-2")
    assert again.sites == undisturbed.sites == sorted(federation.sites)
    assert again.metrics == undisturbed.metrics
    assert again.arrays.keys() == undisturbed.arrays.keys()
    for name, array in undisturbed.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array, err_msg=name)
    assert lead.champion() == expected
    record(
        "lost machines",
        "the machines of the server, of the lead and of one of three sites are empty, and [backups](backup.md) of the day before are restored",
        "the others connect again; the next nightly run finds the same clusters, bit for bit, under the same numbers and with the same champion as without the loss; the seconds run from the first restore until all sites are connected",
        "nothing, after `flareclust restore`",
        seconds,
    )


def test_jobs_are_listed_with_their_ends_and_deleted_at_the_server(federation, tmp_path):
    lead = Lead(federation, tmp_path / "lead")
    lead.night("night")
    job = json.loads((lead.folder / "night" / "result.json").read_text())["job"]
    printed = lead.command("prune", federation.kit(LEAD), "--results", lead.folder, "--older-than", 1)
    assert printed == "nothing is older than 1 days\n"
    with open_session(federation.kit(LEAD)) as session:
        [(_, at, may_have_result)] = [one for one in ended_jobs(session, LEAD) if one[0] == job]
        assert may_have_result
        assert 0 < time.time() - at < PATIENCE
        delete_job(session, job)
        assert job not in {one[0] for one in ended_jobs(session, LEAD)}
    assert job not in {path.name for path in jobs_in_store(federation)}
