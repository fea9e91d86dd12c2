"""One table that is split over sites, whose rows keep their outcomes."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust.experiment.poc import _split_rows
from flareclust.experiment.tables.typed_files import read_table
from flareclust.platform.poc import kits
from flareclust.sites.rows import SiteData

ROWS = 200
SCHEMA = """columns:
  patient: id
  a: number
  b: number
  c: number
  kind: ignore
  t: number
  died: {type: category, values: ["no", "yes"]}
"""
OUTCOME = "outcome: {time: t, event: died=yes, every: 10, until: 60}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table, and schemas with and without its outcome."""
    there, rng = tmp_path_factory.mktemp("split"), np.random.default_rng(0)
    kind = rng.integers(3, size=ROWS)
    frame = pd.DataFrame(rng.normal(6 * kind[:, None], 1, size=(ROWS, 3)), columns=["a", "b", "c"])
    frame.insert(0, "patient", [f"p{i}" for i in range(ROWS)])
    frame["kind"], frame["t"] = kind, rng.exponential(20 * (1 + kind)).round(2)
    frame.loc[::17, "t"] = np.nan
    frame["died"] = np.where(rng.random(ROWS) < 0.6, "yes", "no")
    frame.to_csv(there / "all.csv", index=False)
    (there / "schema.yaml").write_text(SCHEMA + OUTCOME, encoding="utf-8")
    (there / "plain.yaml").write_text(
        SCHEMA.replace("t: number", "t: ignore").partition("  died")[0] + "  died: ignore\n", encoding="utf-8"
    )
    return there


def run(
    folder: Path, partition: str, schema: str = "schema.yaml", data: Any = None, **settings: Any
) -> flareclust.Result:
    asked: dict[str, Any] = {"algorithm": "lloyd", "k": 3, "n_sites": 4, "seed": 2, **settings}
    rows = str(folder / "all.csv") if data is None else data
    return flareclust.run(asked.pop("algorithm"), rows, partition=partition, schema=str(folder / schema), **asked)


def expected(folder: Path, result: flareclust.Result) -> Any:
    """Return the events of each cluster by the labels of the run and the outcomes of the whole table."""
    outcomes = read_table(folder / "all.csv", folder / "schema.yaml").outcomes
    assert outcomes is not None
    counted = ~np.isnan(outcomes).any(axis=1) & (outcomes[:, 0] <= 60) & (outcomes[:, 1] == 1) & (result.labels >= 0)
    return np.bincount(result.labels[counted], minlength=3)


@pytest.mark.parametrize("partition", ["iid", "dirichlet:0.5", "clusters:2", "power:1"])
def test_outcomes_go_where_their_rows_go(folder: Path, partition: str) -> None:
    truth = {"truth": "kind"} if partition.startswith(("dirichlet", "clusters")) else {}
    result = run(folder, partition, **truth)
    assert not any("there are no outcomes" in warning for warning in result.warnings)
    found = result.outcomes_by_cluster()
    left_out = int(found["not_counted"].sum())
    events = expected(folder, result)
    assert (events - found["events"] >= 0).all()
    assert (events - found["events"]).sum() <= left_out
    assert found["rows"].sum() > ROWS * 0.85 - left_out
    if partition == "iid":
        assert found["events"].tolist() == events.tolist()
    plain = run(folder, partition, "plain.yaml", **truth)
    np.testing.assert_array_equal(result.centroids, plain.centroids)
    np.testing.assert_array_equal(result.labels, plain.labels)


def test_they_go_with_columns_that_are_split(folder: Path) -> None:
    result = run(folder, "features-overlap:0.4", algorithm="masked", n_sites=2)
    assert result.outcomes_by_cluster()["events"].tolist() == expected(folder, result).tolist()


def test_they_go_with_the_rows_of_a_frame(folder: Path) -> None:
    of_file, of_frame = run(folder, "iid"), run(folder, "iid", data=pd.read_csv(folder / "all.csv"))
    assert of_frame.outcomes_by_cluster().equals(of_file.outcomes_by_cluster())


def test_a_policy_takes_them_as_those_of_a_sites_own_table(folder: Path) -> None:
    result = run(folder, "iid", policy={"min_count": 5, "min_rows": 5})
    assert not (result.arrays["outcome_site_counts"] % 5).any()
    assert result.outcomes_by_cluster()["events"].sum() > 0


def test_kits_of_a_poc_have_them(folder: Path, tmp_path: Path) -> None:
    prepared = _split_rows(str(folder / "all.csv"), "iid", 4, 2, str(folder / "schema.yaml"))
    whole = read_table(folder / "all.csv", folder / "schema.yaml").outcomes
    assert prepared.index is not None
    assert whole is not None
    for site, rows in prepared.sites.items():
        (tmp_path / site / "local").mkdir(parents=True)
        kits.place(tmp_path / site, rows, prepared.index[site].tolist())
        table = SiteData.of(tmp_path / site / "local", site).table()
        np.testing.assert_array_equal(table.outcomes, whole[prepared.index[site]])
        assert table.outcome_form == (0.0, 0.0, 10.0, 60.0)
