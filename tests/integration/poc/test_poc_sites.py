"""The rows that the sites of a POC get."""

import numpy as np
import pytest

from flareclust._foundation.errors import UserError
from flareclust.engines.poc import kits as poc_kits
from flareclust.engines.poc.federation import Poc
from flareclust.engines.poc.state import KITS
from flareclust.experiment import poc as set_up
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepare import prepare, prepare_poc
from flareclust.experiment.prepared import tables_of
from flareclust.sites.rows import SiteData


def placed(folder, data, partition, n_sites=3, seed=0):
    """Return a POC that has its rows and no processes."""
    assigned = set_up.split_rows(data, partition, n_sites, seed)
    for site, rows in assigned.sites.items():
        kit = folder / KITS / site
        (kit / "local").mkdir(parents=True)
        poc_kits.place(kit, rows, None if assigned.index is None else assigned.index[site].tolist())
    return Poc(folder, data, partition, n_sites, seed, 20000, dict.fromkeys(assigned.sites))


@pytest.mark.parametrize(
    ("algorithm", "data", "partition"),
    [
        ("feca", "iris", "dirichlet:0.3"),
        ("kfed", "blobs", "clusters:2"),
        ("masked", "iris", "iid"),
        ("masked", "wine", "features-overlap:0.3"),
        ("proxy", "wine", "features-shared:0.2"),
    ],
)
def test_the_sites_have_the_rows_that_a_run_in_another_engine_deals(tmp_path, algorithm, data, partition):
    there = placed(tmp_path, data, partition, seed=7)
    expected = prepare(
        Experiment(algorithm=algorithm, data=data, partition=partition, n_sites=3, seed=7, engine="inprocess")
    )
    # The experiment's own seed, data and partition do not matter: the POC has its rows already.
    found = prepare_poc(there, Experiment(algorithm=algorithm, seed=1, engine="inprocess"))
    assert (found.k, tuple(found.sites)) == (expected.k, there.sites)
    for site in there.sites:
        np.testing.assert_array_equal(found.index[site], expected.index[site])
    np.testing.assert_array_equal(found.dataset.X, expected.dataset.X)
    theirs = tables_of(found)
    for site, table in tables_of(expected).items():
        assert theirs[site].columns == (table.columns or found.columns)
        assert theirs[site].X.tobytes() == table.X.tobytes()
        own = SiteData.of(there.kits[site] / "local", site).table()
        assert own.columns == theirs[site].columns
        assert own.X.tobytes() == table.X.tobytes()


def test_the_sites_know_which_row_of_the_data_each_of_theirs_is(tmp_path):
    there = placed(tmp_path, "iris", "iid")
    index = prepare_poc(there, Experiment(algorithm="feca", engine="inprocess")).index
    for site, kit in there.kits.items():
        table = SiteData.of(kit / "local", site).table()
        assert list(table.ids) == [str(row) for row in index[site]]
        assert "data_row" not in table.columns


def test_sites_that_own_files_get_copies_in_their_kits(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "files").mkdir()
    for site in ("north", "south"):
        np.savetxt(
            tmp_path / "files" / f"{site}.csv", rng.normal(size=(9, 2)), delimiter=",", header="a,b", comments=""
        )
    there = placed(tmp_path / "poc", str(tmp_path / "files"), "none")
    assert there.sites == ("north", "south")
    found = prepare_poc(there, Experiment(algorithm="feca", k=2, engine="inprocess"))
    assert found.index is None
    assert found.columns == ("a", "b")
    for site, kit in there.kits.items():
        assert found.sites[site] == kit / "data" / "rows.csv"
        assert found.sites[site].read_text() == (tmp_path / "files" / f"{site}.csv").read_text()
        assert len(SiteData.of(kit / "local", site).table()) == 9


def test_columns_are_the_sites_business(tmp_path):
    there = placed(tmp_path, "iris", "iid")
    with pytest.raises(UserError, match="leave out --columns"):
        prepare_poc(there, Experiment(algorithm="feca", columns=("a",), engine="inprocess"))


def test_a_site_called_as_the_server_is_refused(tmp_path):
    np.save(tmp_path / "localhost.npy", np.zeros((2, 2)))
    with pytest.raises(UserError, match="rename its file"):
        set_up.split_rows(str(tmp_path), "none", 1, 0)
