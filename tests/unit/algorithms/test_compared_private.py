"""Names of columns are compared without location and spread, too: under differential privacy, and before images or tables are embedded."""

import numpy as np
import pytest

from flareclust import UserError
from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.experiment.config import make_experiment
from flareclust.experiment.tables.typed_rows import compared
from flareclust.privacy.policy import Policy
from flareclust.protocol import registry
from tests.unit.algorithms.dp_cases import policy

NAMES = ("age", "crp")


def sites(odd=NAMES[::-1]):
    rng = np.random.default_rng(0)
    rows = {site: rng.normal(np.repeat([[-5, -5], [5, 5]], 150, axis=0), 1) for site in "abc"}
    return {site: Table(X, odd if site == "c" else NAMES) for site, X in rows.items()}


@pytest.mark.parametrize(
    ("name", "secure"), [("dp-lloyd", False), ("dp-lloyd", True), ("dp-oneshot", False), ("dp-gmm", True)]
)
def test_a_site_in_another_order_takes_no_part_and_spends_nothing(name, secure):
    line, own = registry.get(name), Policy.of(policy(epsilon=4.0, budget=4.0))
    options = JobOptions(k=2, secure_sums=secure, secure_min_sites=3 if secure else None)
    rows = sites() | {"d": sites()["a"]}
    outcome = run_inprocess(line, {"compare": "names", "epsilon": 4.0}, rows, options, policy=own)
    assert next(record["step"] for record in outcome.rounds if record["step"] != "keys") == "names"
    assert list(outcome.refused) == ["c"]
    assert outcome.refused["c"].startswith("has the columns of 3 other sites in another order")
    assert {"a", "b", "d"} == set(outcome.rounds[-1]["sites"]) == set(outcome.labels)
    plain = run_inprocess(line, {"epsilon": 4.0}, rows, options, policy=own)
    assert not plain.refused


@pytest.mark.parametrize("name", ["dp-lloyd", "dp-oneshot", "deepfeca"])
def test_own_tables_are_compared_by_names_without_asking(name, tmp_path):
    (tmp_path / "schema.yaml").write_text("columns: {age: number, crp: number}")
    about = {"engine": "production", "kit": "kits/lead", "schema": str(tmp_path / "schema.yaml")}
    assert compared(make_experiment(algorithm=name, k=2, **about)) == {"compare": "names"}
    with pytest.raises(UserError, match="none, names"):
        registry.get(name).check(2, params={"compare": "spread"})


def test_tables_are_compared_before_they_are_embedded():
    pytest.importorskip("torch")
    settings = {"compare": "names", "rounds": 0, "network": "mlp", "image": "none", "device": "cpu"}
    outcome = run_inprocess(registry.get("deepfeca"), settings, sites(), JobOptions(k=2))
    assert [record["step"] for record in outcome.rounds][:2] == ["names", "shape"]
    assert list(outcome.refused) == ["c"]
    assert set(outcome.labels) == {"a", "b"}


@pytest.mark.parametrize("name", ["masked", "proxy", "fkm-common", "fkm-imputed"])
def test_sites_with_different_columns_match_them_by_name(name):
    """They need no comparison of order: each site's columns are put where the federation has them."""
    assert "compare" not in registry.get(name).parameters()
    swapped = {
        site: Table(table.X[:, ::-1].copy(), NAMES[::-1]) if site == "c" else table
        for site, table in sites(NAMES).items()
    }
    found, plain = (run_inprocess(registry.get(name), {}, rows, JobOptions(k=2)) for rows in (swapped, sites(NAMES)))
    np.testing.assert_array_equal(found.centroids, plain.centroids)
