"""The rows that the sites of a POC have withdrawn since it was set up are not among those that get labels."""

import numpy as np
import pytest

from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.experiment.config import RowsAsked
from flareclust.experiment.prepare import PocSites
from flareclust.platform.poc import federation, kits
from flareclust.platform.poc import state as poc_state
from flareclust.platform.poc.state import Poc
from flareclust.protocol.registry import get
from flareclust.sites.config import CONFIG_FILE
from flareclust.sites.permissions import KitFiles
from flareclust.sites.rows import SiteData
from flareclust.sites.withdrawn import WITHDRAWN_FILE, withdraw

SCHEMA = """\
columns:
  patient: {type: id}
  age: {type: number, unit: years}
  crp: {type: number, unit: mg/l}
"""


@pytest.fixture
def asked(tmp_path):
    return RowsAsked("", "none", 2, 0, engine="poc", by_name=True, with_ids=True)


def poc(folder, **about):
    made = Poc(folder, **{"data": "iris", "partition": "iid", "n_sites": 2, "seed": 0, "port": 1, "rows": {}, **about})
    for kit in made.kits.values():
        (kit / "local").mkdir(parents=True)
    return made


def with_files(made):
    for kit in made.kits.values():
        (kit / "data").mkdir()
        (kit / "data" / "rows.npz").touch()
    return made


def test_sites_with_tables_of_their_own(tmp_path, asked):
    rng = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    for site in ("alpha", "beta"):
        lines = [f"{site}{i},{age:.1f},{crp:.1f}" for i, (age, crp) in enumerate(rng.uniform(20, 80, (30, 2)))]
        (tmp_path / "data" / f"{site}.csv").write_text("\n".join(["patient,age,crp", *lines]) + "\n")
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    there = poc(
        tmp_path / "poc",
        data=str(tmp_path / "data"),
        partition="none",
        rows={"alpha": 30, "beta": 30},
        schema=str(tmp_path / "schema.yaml"),
    )
    before = PocSites(there)(asked)
    withdraw(there.kit("alpha") / "local", ["alpha3", "alpha17", "nobody"])
    found = PocSites(there)(asked)
    assert (len(found.sites["alpha"]), len(found.sites["beta"])) == (28, 30)
    assert (found.sites["alpha"].rows_read.of, found.sites["beta"].rows_read.of) == (28, 30)
    assert list(found.ids["alpha"]) == [one for one in before.ids["alpha"] if one not in ("alpha3", "alpha17")]
    stay = np.delete(np.arange(30), [3, 17])
    np.testing.assert_array_equal(found.sites["alpha"].X, before.sites["alpha"].X[stay])
    outcome = run_inprocess(get("lloyd"), {}, found.sites, JobOptions(k=2))
    assert len(outcome.labels["alpha"]) == len(found.ids["alpha"])  # which a file with labels puts side by side


def test_withdrawn_rows_that_are_dropped_anyway_are_in_no_count_of_the_run(tmp_path, asked):
    (tmp_path / "data").mkdir()
    (tmp_path / "schema.yaml").write_text(f"missing: drop-rows\n{SCHEMA}")
    for site in ("alpha", "beta"):
        lines = [f"{site}{i},{20 + i},{'' if i in (3, 5) else i}" for i in range(30)]
        (tmp_path / "data" / f"{site}.csv").write_text("\n".join(["patient,age,crp", *lines]) + "\n")
    about = {"data": str(tmp_path / "data"), "partition": "none", "rows": {"alpha": 30, "beta": 30}}
    there = poc(tmp_path / "poc", **about, schema=str(tmp_path / "schema.yaml"))
    for site in ("alpha", "beta"):
        kits.place_typed(there.kit(site), tmp_path / "data" / f"{site}.csv", None, tmp_path / "schema.yaml")
    withdraw(there.kit("alpha") / "local", ["alpha3", "alpha17"])
    withdraw(there.kit("beta") / "local", ["beta5"])
    found = PocSites(there)(asked).sites
    assert [(found[site].rows_read.of, found[site].rows_read.gaps) for site in ("alpha", "beta")] == [(28, 1), (29, 1)]
    assert (len(found["alpha"]), len(found["beta"])) == (27, 28)
    own = SiteData.of(there.kit("alpha") / "local", "alpha", reader_owns_them=True).table(reader_owns_them=True)
    assert (own.rows_read.of, own.rows_read.gaps, own.rows_read.withdrawn, own.rows_read.withdrawn_gaps) == (
        30,
        2,
        1,
        1,
    )


def test_sites_with_parts_of_a_data_set(tmp_path, asked):
    there = with_files(poc(tmp_path, rows={"site-1": 75, "site-2": 75}))
    before = PocSites(there)(asked).index
    gone = before["site-2"][[0, 5]]
    withdraw(there.kit("site-2") / "local", [str(number) for number in gone])
    found = PocSites(there)(asked).index
    np.testing.assert_array_equal(found["site-1"], before["site-1"])
    np.testing.assert_array_equal(found["site-2"], np.delete(before["site-2"], [0, 5]))


def test_a_list_that_cannot_be_read_is_left_to_the_site(tmp_path, asked):
    there = with_files(poc(tmp_path, rows={"site-1": 75, "site-2": 75}))
    (there.kit("site-1") / "local" / WITHDRAWN_FILE).write_text("{")
    assert len(PocSites(there)(asked).index["site-1"]) == 75


def test_the_status_counts_the_rows_that_take_part(tmp_path, monkeypatch):
    made = poc(tmp_path, rows={"site-1": 75, "site-2": 75, "site-3": None})
    for kit in made.kits.values():
        kits.place(kit, Table(np.arange(150.0).reshape(75, 2), ("a", "b")), list(range(75)))
    withdraw(made.kit("site-2") / "local", ["3", "17", "no-row"])
    (made.kit("site-1") / "local" / WITHDRAWN_FILE).write_text("{")
    monkeypatch.setattr(poc_state, "known", lambda folder: made)
    rows = {one.name: one.rows for one in federation.status(tmp_path)}
    assert rows == {"localhost": None, "site-1": None, "site-2": 73, "site-3": None}


def test_the_configuration_of_a_site_is_for_its_owner_only(tmp_path):
    made = poc(tmp_path, rows={"site-1": 4})
    kit = made.kit("site-1")
    kits.place(kit, Table(np.arange(8.0).reshape(4, 2), ("a", "b")), None)
    assert (kit / "local" / CONFIG_FILE).stat().st_mode & 0o777 == 0o600
    assert not any("can read local/flareclust.yaml" in hint for hint in KitFiles(kit / "local").hints())
