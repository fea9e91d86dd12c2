"""The rows that the sites of a POC get."""

from dataclasses import replace

import numpy as np
import pytest

from flareclust._foundation.errors import Refusal, UserError
from flareclust.data.schema.columns import read_schema
from flareclust.experiment import poc as set_up
from flareclust.experiment.config import Experiment, make_experiment
from flareclust.experiment.prepare import PocSites, prepare
from flareclust.experiment.prepared import tables_of
from flareclust.platform.poc import federation as poc
from flareclust.platform.poc import state as poc_state
from flareclust.platform.poc.federation import Poc
from flareclust.sites.rows import SiteData


def placed(folder, data, partition, n_sites=3, seed=0, schema=None):
    """Return a POC that has its rows and no processes."""
    assigned = set_up._split_rows(data, partition, n_sites, seed, schema)
    for site in assigned.sites:
        (folder / poc_state.KITS / site / "local").mkdir(parents=True)
    there = Poc(folder, data, partition, n_sites, seed, 20000, dict.fromkeys(assigned.sites), schema)
    return replace(there, rows=set_up.place_rows(there, assigned))


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
    found = prepare(Experiment(algorithm=algorithm, seed=1, engine="inprocess"), PocSites(there))
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
    index = prepare(Experiment(algorithm="feca", engine="inprocess"), PocSites(there)).index
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
    found = prepare(Experiment(algorithm="feca", k=2, engine="inprocess"), PocSites(there))
    assert found.index is None
    assert found.columns == ("a", "b")
    asked = Experiment(algorithm="lloyd", k=2, engine="inprocess")
    assert prepare(asked, PocSites(there)).params == {"compare": "spread"}
    for site, kit in there.kits.items():
        assert found.sites[site] == kit / "data" / "rows.csv"
        assert found.sites[site].read_text() == (tmp_path / "files" / f"{site}.csv").read_text()
        assert len(SiteData.of(kit / "local", site).table()) == 9


@pytest.fixture
def with_schema(tmp_path):
    """A POC whose sites have tables of their own; south's is in centimetres, and has other words."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "north.csv").write_text("id,size,sex\n" + "".join(f"n{i},{i + 1},f\n" for i in range(9)))
    (tmp_path / "files" / "south.csv").write_text("size;sex;id\n" + "".join(f"{i / 10};w;s{i}\n" for i in range(1, 9)))
    (tmp_path / "files" / "south.mapping.yaml").write_text("columns: {size: {factor: 10}, sex: {values: {w: f}}}")
    schema = tmp_path / "schema.yaml"
    schema.write_text("columns: {id: id, size: {type: number, range: [1, 9]}, sex: {type: category, values: [f, m]}}")
    return placed(tmp_path / "poc", str(tmp_path / "files"), "none", schema=str(schema))


def test_sites_read_tables_of_their_own_by_the_schema(with_schema, tmp_path, monkeypatch):
    assert with_schema.rows == {"north": 9, "south": 8}
    monkeypatch.setattr(poc, "find", lambda folder: with_schema)
    experiment = make_experiment(algorithm="feca", k=2, engine="poc")
    found = prepare(experiment)
    expected = prepare(
        make_experiment(
            algorithm="feca",
            k=2,
            data=with_schema.data,
            partition="none",
            schema=with_schema.schema,
            engine="inprocess",
        )
    )
    assert found.params == {**expected.params, "table_schema": read_schema(with_schema.schema).fingerprint}
    assert experiment.table_schema == with_schema.schema
    kits = {site: kit / "local" for site, kit in with_schema.kits.items()}
    for site, local in kits.items():
        own = SiteData.of(local, site).table()
        np.testing.assert_allclose(own.X, expected.sites[site].X)
        assert list(own.ids) == list(expected.ids[site])
        assert own.schema == found.params["table_schema"]
    rows = kits["south"].parent / "data" / "rows.csv"
    rows.write_text(rows.read_text().replace("0.5;", "55;"))
    with pytest.raises(Refusal, match="size: # cell is outside"):
        SiteData.of(kits["south"], "south").table()


def test_another_schema_than_that_of_the_sites_is_refused(with_schema, tmp_path, monkeypatch):
    monkeypatch.setattr(poc, "find", lambda folder: with_schema)
    assert make_experiment(algorithm="feca", k=2, engine="poc", table_schema=with_schema.schema)
    with pytest.raises(UserError, match=r"POC's sites have schema .*schema.yaml, not other.yaml; leave it out"):
        make_experiment(algorithm="feca", k=2, engine="poc", table_schema="other.yaml")
    with pytest.raises(UserError, match="leave out id_column and truth"):
        make_experiment(algorithm="feca", k=2, engine="poc", truth="sex")


def test_columns_are_the_sites_business(tmp_path):
    there = placed(tmp_path, "iris", "iid")
    with pytest.raises(UserError, match="leave out --columns"):
        prepare(Experiment(algorithm="feca", columns=("a",), engine="inprocess"), PocSites(there))


def test_a_site_called_as_the_server_is_refused(tmp_path):
    np.save(tmp_path / "localhost.npy", np.zeros((2, 2)))
    with pytest.raises(UserError, match="rename its file"):
        set_up._split_rows(str(tmp_path), "none", 1, 0)


def test_the_rows_of_one_table_that_is_read_by_a_schema_have_the_names_of_its_columns(tmp_path):
    table, schema = tmp_path / "all.csv", tmp_path / "schema.yaml"
    table.write_text("size,sex\n" + "".join(f"{i},{'fm'[i % 2]}\n" for i in range(1, 10)))
    schema.write_text("columns: {size: {type: number, range: [1, 9]}, sex: {type: category, values: [f, m]}}")
    there = placed(tmp_path / "poc", str(table), "iid", schema=str(schema))
    assert sum(there.rows.values()) == 9
    for site, kit in there.kits.items():
        own = SiteData.of(kit / "local", site).table()
        assert own.columns == read_schema(schema).features
        assert len(own) == there.rows[site]
