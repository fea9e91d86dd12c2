"""The rows that the sites of a POC have withdrawn since it was set up are not among those that get labels."""

import numpy as np
import pytest

from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.experiment.config import RowsAsked
from flareclust.experiment.prepare import PocSites
from flareclust.platform.poc.state import Poc
from flareclust.protocol.registry import get
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
    assert list(found.ids["alpha"]) == [one for one in before.ids["alpha"] if one not in ("alpha3", "alpha17")]
    stay = np.delete(np.arange(30), [3, 17])
    np.testing.assert_array_equal(found.sites["alpha"].X, before.sites["alpha"].X[stay])
    outcome = run_inprocess(get("lloyd"), {}, found.sites, JobOptions(k=2))
    assert len(outcome.labels["alpha"]) == len(found.ids["alpha"])  # which a file with labels puts side by side


def test_sites_with_parts_of_a_data_set(tmp_path, asked):
    there = poc(tmp_path, rows={"site-1": 75, "site-2": 75})
    before = PocSites(there)(asked).index
    gone = before["site-2"][[0, 5]]
    withdraw(there.kit("site-2") / "local", [str(number) for number in gone])
    found = PocSites(there)(asked).index
    np.testing.assert_array_equal(found["site-1"], before["site-1"])
    np.testing.assert_array_equal(found["site-2"], np.delete(before["site-2"], [0, 5]))


def test_a_list_that_cannot_be_read_is_left_to_the_site(tmp_path, asked):
    there = poc(tmp_path, rows={"site-1": 75, "site-2": 75})
    (there.kit("site-1") / "local" / WITHDRAWN_FILE).write_text("{")
    assert len(PocSites(there)(asked).index["site-1"]) == 75
