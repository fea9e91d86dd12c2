"""Rows given labels later, at late sites and by predict, where columns differ."""

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.data.tables import Table, read_table
from flareclust.engines.late_sites import place
from flareclust.evaluation import metrics
from flareclust.experiment.tables import late_rows
from flareclust.experiment.tables.late_rows import place_file
from flareclust.preparation.result import place_rows
from flareclust.protocol import registry
from tests.unit.preparation.described_cases import PARTIAL, frames

# ---- labels, prediction, late sites ----


@pytest.mark.parametrize("scale", ["none", "standard"])
@pytest.mark.parametrize("name", ["masked", "fkm-common", "fkm-imputed", "kpod"])
def test_predict_gives_the_rows_of_a_site_the_labels_that_the_site_gave_them(name, scale):
    data = frames()
    result = flareclust.run(name, data, k=4, scale=scale)
    for site, frame in data.items():
        np.testing.assert_array_equal(result.predict(frame), result.site_labels[site])
        gaps = frame.reindex(columns=list(result.columns)).to_numpy()
        np.testing.assert_array_equal(result.predict(gaps), result.site_labels[site])


def test_predict_takes_rows_with_gaps_of_their_own_and_says_which_it_cannot_place():
    result = flareclust.run("masked", frames(), k=4)
    rows = result.centroids.copy()
    rows[0, 1:] = np.nan
    rows[3] = np.nan
    labels = result.predict(rows)
    assert labels[1:3].tolist() == [1, 2]
    assert labels[3] == -1
    np.testing.assert_array_equal(result.predict(rows[:1]), labels[:1])


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.ones((2, 3)), r"expected rows of 6 columns, NaN where one is missing; got shape \(2, 3\)"),
        (pd.DataFrame({"other": [1.0]}), "none of the columns of the centroids: age"),
        (pd.DataFrame({"age": ["old"]}), "expected numbers in column 'age', got string"),
        (pd.DataFrame(np.ones((2, 3)), columns=["age", "crp", "crp"]), "crp is there more than once"),
        (np.full((2, 6), np.inf), "infinite"),
    ],
)
def test_predict_says_what_is_wrong_with_rows(X, words):
    with pytest.raises(UserError, match=words):
        flareclust.run("masked", frames(), k=4).predict(X)


@pytest.mark.parametrize("scale", ["none", "standard"])
@pytest.mark.parametrize("name", PARTIAL)
def test_a_site_that_comes_late_with_the_rows_of_another_gets_its_labels(name, scale, folder, tmp_path):
    result = flareclust.run(name, folder, k=4, partition="none", scale=scale, out=tmp_path / "out")
    placed = place_file(tmp_path / "out", folder / "south.csv", "late")[0]
    if name == "proxy":  # whose labels are those of the merged local clusters
        assert metrics.ari(placed, result.site_labels["south"]) > 0.98
    else:
        np.testing.assert_array_equal(placed, result.site_labels["south"])
    with pytest.raises(UserError, match="south took part"):
        place_file(tmp_path / "out", folder / "south.csv", "south")
    with pytest.raises(UserError, match=r"the federation has no column 'lactte' \(did you mean 'lactate'\?\)"):
        place_file(tmp_path / "out", folder / "south.csv", "late", columns=["iron", "lactte"])


def test_the_rows_of_a_late_site_are_read_once(folder, tmp_path, monkeypatch):
    flareclust.run("masked", folder, k=4, partition="none", out=tmp_path / "out")
    read = []
    monkeypatch.setattr(late_rows, "read_table", lambda *args, **kw: read.append(args[0]) or read_table(*args, **kw))
    place_file(tmp_path / "out", folder / "south.csv", "late")
    assert read == [folder / "south.csv"]


@pytest.mark.parametrize("name", PARTIAL)
def test_a_late_site_with_a_new_column_is_placed_by_the_columns_that_are_known(name, folder, tmp_path):
    flareclust.run(name, folder, k=4, partition="none", out=tmp_path / "out")
    late = frames(seed=0)["south"].assign(ferritin=7.0)
    if name != "fkm-common":
        late = late.drop(columns="urea")
    late.to_csv(tmp_path / "late.csv", index=False)
    placed = place_file(tmp_path / "out", tmp_path / "late.csv", "late")[0]
    known = flareclust.run(name, folder, k=4, partition="none").site_labels["south"]
    assert metrics.ari(placed, known) > 0.99


def test_a_late_site_without_a_known_column_is_informed(folder, tmp_path):
    flareclust.run("masked", folder, k=4, partition="none", out=tmp_path / "out")
    with pytest.raises(UserError, match="late shares no column with the federation"):
        place(tmp_path / "out", Table(np.ones((5, 2)), ("a", "b")), "late")


def test_labels_of_rows_that_nothing_can_be_compared_with_are_minus_one_and_warned_of(folder):
    """One centroid of the start is known to the north only, so a column of the south alone places nobody there."""
    result = flareclust.run("masked", folder, k=4, partition="none")
    arrays = dict(result.arrays) | {"centroids": np.where(np.arange(6) < 2, result.centroids, np.nan)}
    rows = np.full((2, 6), np.nan)
    rows[0, 0], rows[1, 5] = 10.0, 10.0
    assert place_rows("masked", {}, arrays, rows).tolist()[1] == -1


# ---- bad input ----


def test_rows_go_by_what_several_centroids_know():
    """Each site knows one cluster and a column of its own, which does not show which cluster a row belongs to."""
    rng = np.random.default_rng(0)
    sites = {
        "one": pd.DataFrame(rng.normal(0, 1, (100, 2)), columns=["a", "b"]),
        "two": pd.DataFrame(np.column_stack([rng.normal(10, 1, 100), rng.normal(0, 1, 100)]), columns=["b", "c"]),
    }
    for scale in ("none", "standard"):
        result = flareclust.run("masked", sites, k=2, k_local=1, scale=scale)
        assert metrics.ari(result.labels, np.repeat([0, 1], 100)) == 1.0
        assert np.isnan(result.centroids).sum() == 2, "nobody knows column a of the one cluster, and c of the other"


def test_a_late_site_finds_hidden_columns_by_their_codes(folder, tmp_path):
    from flareclust.engines.inprocess import run_inprocess
    from flareclust.engines.options import JobOptions
    from flareclust.protocol import outcome as outcome_files

    salt = "s3cret of sixteen"
    sites = {site: Table(frame.to_numpy(), tuple(frame), salt, frozenset(frame)) for site, frame in frames().items()}
    outcome = run_inprocess(registry.get("masked"), {}, sites, JobOptions(k=4))
    about = {"algorithm": "masked", "k": 4, "seed": 0, "params": {}, "columns": outcome.arrays["column_names"].tolist()}
    (tmp_path / "out").mkdir()
    outcome_files.write(outcome, tmp_path / "out", about)
    placed = place_file(tmp_path / "out", folder / "south.csv", "late", salt=salt)[0]
    np.testing.assert_array_equal(placed, outcome.labels["south"])
    with pytest.raises(UserError, match="shares no column with the federation; if the federation hashes"):
        place_file(tmp_path / "out", folder / "south.csv", "late")
