"""Sites' columns are compared before the first round: names by hash, location and spread. Masked sums: test_odd_columns.py."""

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import JobFailed
from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.experiment.config import make_experiment
from flareclust.experiment.prepare import prepare
from flareclust.protocol import registry
from flareclust.protocol.task import Task
from tests.computed import computed

NAMES = ("age", "crp", "size")
RNG = np.random.default_rng(2)
ROWS = {site: RNG.normal([50, 70, 37], [15, 12, 4], (200, 3)) for site in ("a", "b", "c")}


def run(sites, compare="names", algorithm="pooled", *, secure=False, **settings):
    line = registry.get(algorithm)
    options = JobOptions(k=2, secure_sums=secure)
    return run_inprocess(line, {"compare": compare, **settings}, sites, options)


def named(**columns):
    return {site: Table(X, columns.get(site, NAMES)) for site, X in ROWS.items()}


def test_a_site_with_its_columns_in_another_order_is_named_before_round_0():
    outcome = run(named(c=NAMES[::-1]))
    (reason,) = outcome.refused.values()
    assert list(outcome.refused) == ["c"]
    assert reason.startswith(
        "has the columns of 2 other sites in another order: its column 1 is their 3, 3 is their 1;"
    )
    assert [record["step"] for record in outcome.rounds] == ["names", "cluster", "assess"]
    assert [record["sites"] for record in outcome.rounds[1:]] == [["a", "b"]] * 2
    assert set(outcome.labels) == {"a", "b"}


def test_a_site_with_other_columns_is_named():
    outcome = run(named(b=("age", "il6", "size")))
    assert outcome.refused["b"].startswith(
        "has other columns than 2 other sites: none of theirs has the name of its column 2;"
    )


def test_two_sites_that_differ_stop_the_job():
    sites = named(b=NAMES[::-1])
    del sites["c"]
    with pytest.raises(JobFailed, match="no list of columns is that of most sites"):
        run(sites)


def test_columns_without_names_and_other_salts_are_not_compared():
    sites = named(b=NAMES[::-1]) | {"c": Table(ROWS["c"]), "d": Table(ROWS["c"], NAMES)}
    assert list(run(sites).refused) == ["b"]
    salted = Table(ROWS["b"], NAMES, salt="a secret of several sites")
    assert not run({**named(), "b": salted}).refused
    assert not run(ROWS).refused


def test_names_do_not_leave_a_site():
    reply = computed(registry.get("pooled").executor_class()(2), Task("names", 0, {}, "a"), named()["a"], None)
    assert reply["codes"].dtype == np.int64
    assert len(set(reply["codes"].tolist())) == 3


@pytest.mark.parametrize("name", ["lloyd", "kfed", "portfolio"])
def test_comparing_changes_nothing_else(name):
    plain = run(named(), "none", name)
    for compare in ("names", "spread"):
        outcome = run(named(), compare, name)
        np.testing.assert_array_equal(outcome.centroids, plain.centroids)
        assert outcome.metrics == plain.metrics
        assert "deviation" not in outcome.arrays
    secure = run(named(), "names", name, secure=True)
    assert not any("names" in text for text in secure.warnings)


def test_another_unit_is_named_though_nothing_is_scaled(tmp_path):
    (tmp_path / "data").mkdir()
    for site, X in ROWS.items():
        rows = X * ([1, 1, 0.1] if site == "c" else 1)
        np.savetxt(tmp_path / "data" / f"{site}.csv", rows, delimiter=",", header=",".join(NAMES), comments="")
    (tmp_path / "schema.yaml").write_text("columns: {age: number, crp: number, size: number}")
    result = flareclust.run(
        "pooled",
        str(tmp_path / "data"),
        partition="none",
        k=2,
        schema=str(tmp_path / "schema.yaml"),
        engine="inprocess",
    )
    assert result.params["scale"] == "none"
    assert any(text.startswith("c: column 'size' is about 10 times smaller") for text in result.warnings)


@pytest.mark.parametrize("settings", [{}, {"secure_sums": True}])
def test_provisioned_sites_are_compared_without_a_schema(settings):
    experiment = make_experiment(algorithm="pooled", k=2, engine="production", kit="kits/lead", **settings)
    assert prepare(experiment).params == {"compare": "spread"}
    assert not prepare(make_experiment(algorithm="masked", k=2, engine="production", kit="kits/lead")).params
