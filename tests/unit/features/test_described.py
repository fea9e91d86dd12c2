"""Sites with different columns, end to end: files, hidden names, standardisation, gaps in rows, late sites, both engines."""

import json

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust._foundation.errors import JobFailed, UserError
from flareclust.cli.main import main
from flareclust.data.tables import Table
from flareclust.engines.late_sites import place, place_file
from flareclust.evaluation.metrics import ari
from flareclust.experiment.config import make_experiment
from flareclust.experiment.prepare import prepare
from flareclust.features.result import place_rows
from flareclust.protocol import registry
from flareclust.sites.rows import SiteData
from flareclust.testing.partial_features import overlapping_sites
from flareclust.testing.tools import run

PARTIAL = [a.name for a in registry.algorithms().values() if a.partial]
FEDERATED = [name for name in PARTIAL if registry.get(name).federated]


def frames(seed: int = 0) -> dict[str, pd.DataFrame]:
    sites, _ = overlapping_sites(seed)
    return {site: pd.DataFrame(table.X, columns=list(table.columns or ())) for site, table in sites.items()}


@pytest.fixture
def folder(tmp_path):
    """A folder with a csv file per site, one of which has a column of names beside the numbers."""
    data = tmp_path / "data"
    data.mkdir()
    for site, frame in frames().items():
        frame.to_csv(data / f"{site}.csv", index=False)
    return data


def test_the_algorithms_for_different_columns_are_these():
    assert {"masked", "proxy", "fkm-common", "fkm-imputed", "kpod"} == set(PARTIAL)


@pytest.mark.parametrize("name", PARTIAL)
def test_files_frames_and_tables_give_the_same_centroids(name, folder):
    tables, _ = overlapping_sites()
    by_file = flareclust.run(name, folder, k=4, partition="none")
    by_frame = flareclust.run(name, frames(), k=4)
    by_table = run(registry.get(name), tables, k=4) if name in FEDERATED else None
    np.testing.assert_array_equal(by_file.centroids, by_frame.centroids)
    if by_table is not None:
        np.testing.assert_array_equal(by_file.centroids, by_table.centroids)
    assert by_file.columns is not None
    assert set(by_file.columns) <= {"age", "crp", "iron", "lactate", "sodium", "urea"}


@pytest.mark.parametrize("name", ["masked", "proxy", "kpod"])
def test_standardising_does_not_depend_on_the_units_of_the_columns(name):
    one = frames()
    other = {site: frame.assign(**{c: 1000 * frame[c] - 5 for c in frame if c == "crp"}) for site, frame in one.items()}
    here = flareclust.run(name, one, k=4, standardize=True)
    there = flareclust.run(name, other, k=4, standardize=True)
    crp = here.columns.index("crp")
    expected = here.centroids.copy()
    expected[:, crp] = 1000 * expected[:, crp] - 5
    np.testing.assert_allclose(there.centroids, expected, rtol=1e-9)
    for site in one:
        np.testing.assert_array_equal(here.site_labels[site], there.site_labels[site])
    np.testing.assert_allclose(there.metrics["inertia"], here.metrics["inertia"], rtol=1e-9)


# ---- labels, prediction, late sites ----


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("name", ["masked", "fkm-common", "fkm-imputed", "kpod"])
def test_predict_gives_the_rows_of_a_site_the_labels_that_the_site_gave_them(name, standardize):
    data = frames()
    result = flareclust.run(name, data, k=4, standardize=standardize)
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


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("name", PARTIAL)
def test_a_site_that_comes_late_with_the_rows_of_another_gets_its_labels(name, standardize, folder, tmp_path):
    result = flareclust.run(name, folder, k=4, partition="none", standardize=standardize, out=tmp_path / "out")
    placed = place_file(tmp_path / "out", folder / "south.csv", "late")
    if name == "proxy":  # whose labels are those of the merged local clusters
        assert ari(placed, result.site_labels["south"]) > 0.98
    else:
        np.testing.assert_array_equal(placed, result.site_labels["south"])
    with pytest.raises(UserError, match="south took part"):
        place_file(tmp_path / "out", folder / "south.csv", "south")
    with pytest.raises(UserError, match=r"the federation has no column 'lactte' \(did you mean 'lactate'\?\)"):
        place_file(tmp_path / "out", folder / "south.csv", "late", columns=["iron", "lactte"])


@pytest.mark.parametrize("name", PARTIAL)
def test_a_late_site_with_a_new_column_is_placed_by_the_columns_that_are_known(name, folder, tmp_path):
    flareclust.run(name, folder, k=4, partition="none", out=tmp_path / "out")
    late = frames(seed=0)["south"].assign(ferritin=7.0)
    if name != "fkm-common":
        late = late.drop(columns="urea")
    late.to_csv(tmp_path / "late.csv", index=False)
    placed = place_file(tmp_path / "out", tmp_path / "late.csv", "late")
    known = flareclust.run(name, folder, k=4, partition="none").site_labels["south"]
    assert ari(placed, known) > 0.99


def test_a_late_site_without_a_known_column_is_told_so(folder, tmp_path):
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


# ---- what a user sees ----


def test_the_command_reports_who_has_what(folder, tmp_path, capsys):
    out = tmp_path / "out"
    call = ["run", "masked", "--data", str(folder), "--partition", "none", "--k", "4", "--engine", "inprocess"]
    with pytest.raises(SystemExit, match="0"):
        main([*call, "--no-track", "--out", str(out), "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["features"]["names"] == ["age", "crp", "iron", "lactate", "sodium", "urea"]
    assert printed["features"]["sites_with"] == [1, 2, 3, 3, 2, 1]
    assert printed["features"]["by_site"]["south"] == ["iron", "lactate", "sodium", "urea"]
    assert printed["features"]["method"] == "B"
    assert (out / "picture.png").is_file()
    with np.load(out / "result.npz", allow_pickle=False) as stored:
        assert stored["mask"].all()
    with pytest.raises(SystemExit, match="0"):
        main([*call, "--no-track", "--out", str(out)])
    assert "6 columns in all: 2 at every site, 2 at several, 2 at one site only" in capsys.readouterr().out


def test_an_entry_that_nobody_observes_stays_unknown_and_is_warned_of():
    rng = np.random.default_rng(0)
    near = pd.DataFrame(rng.normal(0, 1, (80, 2)), columns=["x", "y"])
    both = pd.DataFrame(np.concatenate([rng.normal(0, 1, (40, 1)), rng.normal(50, 1, (40, 1))]), columns=["x"])
    result = flareclust.run("masked", {"a": near, "b": both}, k=2, k_local={"a": 1, "b": 2})
    assert np.isnan(result.centroids).sum() == 1
    assert not result.mask.all()
    assert any("1 of 4 entries of the centroids were observed by no site" in text for text in result.warnings)


def test_a_column_in_a_far_larger_unit_is_warned_of_unless_columns_are_standardised():
    data = {site: frame.assign(**{c: 1e4 * frame[c] for c in frame if c == "crp"}) for site, frame in frames().items()}
    told = "column 'crp' varies more than 100 times as much as most others"
    assert any(told in warning for warning in flareclust.run("masked", data, k=4).warnings)
    assert not flareclust.run("masked", data, k=4, standardize=True).warnings
    assert not flareclust.run("masked", frames(), k=4).warnings


@pytest.mark.slow
def test_a_saved_and_tracked_run_keeps_unknown_entries_and_its_model_places_rows_with_gaps(
    folder, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    data = frames()
    for name, settings in (("fkm-imputed", {"standardize": True}), ("masked", {"phi": "cosine"})):
        result = flareclust.run(name, data, k=4, track=True, out=tmp_path / name, **settings)
        import mlflow  # after the run, which has told it to be quiet

        model = mlflow.pyfunc.load_model(f"runs:/{result.run_id}/model")
        rows = pd.concat(list(data.values()))
        rows.iloc[::7, 2] = np.nan
        np.testing.assert_array_equal(model.predict(rows), result.predict(rows))
        whole = data["south"].round().astype(int)  # as read_csv reads ages
        np.testing.assert_array_equal(model.predict(whole), result.predict(whole))
        fewer = data["south"][["iron", "urea"]]
        np.testing.assert_array_equal(model.predict(fewer), result.predict(fewer))
        with pytest.raises(Exception, match="none of the columns"):
            model.unwrap_python_model().predict(None, pd.DataFrame({"other": [1.0]}))


# ---- bad input ----


def test_columns_chosen_by_name_may_be_missing_at_some_sites_only(folder):
    result = flareclust.run("masked", folder, k=4, partition="none", columns=["iron", "lactate", "urea"])
    assert result.columns == ("iron", "lactate", "urea")
    result = flareclust.run("masked", frames(), k=4, columns=["iron", "lactate", "urea"])
    assert result.columns == ("iron", "lactate", "urea")
    with pytest.raises(JobFailed, match=r"north .*none of the columns|north .*has no column"):
        flareclust.run("masked", folder, k=4, partition="none", columns=["urea"], min_sites=3)
    for data in (folder, frames()):
        partition = {"partition": "none"} if data is folder else {}
        with pytest.raises(UserError, match=r"no site has a column 'lactte' \(did you mean 'lactate'\?\)"):
            flareclust.run("masked", data, k=4, columns=["lactate", "lactte"], **partition)
    with pytest.raises(UserError, match="north has none of the columns urea"):
        flareclust.run("masked", frames(), k=4, columns=["urea"])


@pytest.mark.parametrize("name", FEDERATED)
def test_a_site_that_shares_no_column_is_named(name):
    data = frames()
    data["east"] = pd.DataFrame(np.ones((20, 2)), columns=["height", "weight"])
    with pytest.raises(JobFailed, match=r"without a column in common: east \(height, weight\)"):
        flareclust.run(name, data, k=4)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("duplicate", "crp,crp,iron\n1,2,3\n4,5,6\n7,8,9\n", "'crp' more than once"),
        ("text", "crp,sex\n1,f\n2,m\n3,f\n", "'sex' is not numeric"),
        ("mixed", "crp,iron\n1,2\n2,high\n3,4\n", "'iron' is not numeric"),
        ("empty", "crp,iron\n1,\n2,\n3,\n", "column 'iron' without any value: choose the others"),
        ("gap", "crp,iron\n1,\n2,3\n3,4\n", "1 cell is missing"),
    ],
)
def test_a_site_with_bad_columns_is_named_and_the_others_go_on(folder, name, text, words):
    (folder / "odd.csv").write_text(text)
    result = flareclust.run("masked", folder, k=4, partition="none")
    odd = next(warning for warning in result.warnings if warning.startswith("odd"))
    assert words in odd
    assert result.centroids_found == 4


def test_a_frame_with_a_repeated_or_non_numeric_column_is_refused_at_once():
    data = frames()
    with pytest.raises(UserError, match="odd: the column crp is there more than once"):
        flareclust.run("masked", {**data, "odd": pd.DataFrame(np.ones((4, 2)), columns=["crp", "crp"])}, k=4)
    when = pd.to_datetime(["2026-01-01", "2026-01-02"])
    for column, values in (("sex", ["f", "m"]), ("when", when), ("code", ["1", "2"]), ("empty", [None, None])):
        with pytest.raises(UserError, match=f"odd: .*column '{column}'.*leave it out"):
            flareclust.run("masked", {**data, "odd": pd.DataFrame({"crp": [1.0, 2.0], column: values})}, k=4)
    with pytest.raises(UserError, match="odd: column 2 has no name"):
        flareclust.run("masked", {**data, "odd": pd.DataFrame({"crp": [1.0, 2.0], "": [1, 2]})}, k=4)


def test_a_column_of_another_type_at_one_site_is_named_with_the_site(folder):
    """`sex` is 0 and 1 at the north and letters at the south."""
    for site, values in (("north", "01"), ("south", "fm")):
        file = pd.read_csv(folder / f"{site}.csv")
        file["sex"] = [values[i % 2] for i in range(len(file))]
        file.to_csv(folder / f"{site}.csv", index=False)
    result = flareclust.run("masked", folder, k=4, partition="none")
    assert [warning.split()[0] for warning in result.warnings if "'sex' is not numeric" in warning] == ["south"]


def test_more_clusters_than_the_sites_have_together_says_what_to_do():
    few = {site: frame.iloc[:6] for site, frame in frames().items()}
    for name in ("masked", "proxy"):
        with pytest.raises(JobFailed, match=r"(?s)40|k=40"):
            flareclust.run(name, few, k=40)


def test_rows_go_by_what_several_centroids_know():
    """Each site knows one cluster and a column of its own, which tells nothing about which cluster a row belongs to."""
    rng = np.random.default_rng(0)
    sites = {
        "one": pd.DataFrame(rng.normal(0, 1, (100, 2)), columns=["a", "b"]),
        "two": pd.DataFrame(np.column_stack([rng.normal(10, 1, 100), rng.normal(0, 1, 100)]), columns=["b", "c"]),
    }
    for standardize in (False, True):
        result = flareclust.run("masked", sites, k=2, k_local=1, standardize=standardize)
        assert ari(result.labels, np.repeat([0, 1], 100)) == 1.0
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
    placed = place_file(tmp_path / "out", folder / "south.csv", "late", salt=salt)
    np.testing.assert_array_equal(placed, outcome.labels["south"])
    with pytest.raises(UserError, match="shares no column with the federation; if the federation hashes"):
        place_file(tmp_path / "out", folder / "south.csv", "late")


@pytest.mark.parametrize("alpha", [0, -0.1, 1.5, "much", True])
def test_a_step_outside_of_0_to_1_is_refused(alpha):
    with pytest.raises(UserError, match="alpha must be a number above 0 and at most 1"):
        flareclust.run("masked", frames(), k=4, alpha=alpha)


def test_algorithms_for_the_same_columns_say_which_take_different_ones():
    with pytest.raises(UserError, match=r"fkm needs the same columns at every site.*masked, proxy"):
        flareclust.run("fkm", "iris", k=3, partition="features-shared:0.3", clients=2)
    with pytest.raises(UserError, match=r"not all sites have the column .*masked"):
        flareclust.run("fkm", frames(), k=4)
    with pytest.raises(UserError, match="takes one k, not a range"):
        flareclust.run("masked", frames(), k="2..5")


def test_frames_of_ordinary_algorithms_keep_the_names_of_their_columns(tmp_path):
    data = {site: frame[["iron", "lactate"]] for site, frame in frames().items()}
    data["west"] = data["west"][["lactate", "iron"]]
    result = flareclust.run("fkm", data, k=4, out=tmp_path / "out")
    assert result.columns == ("iron", "lactate")
    for site, frame in data.items():
        np.testing.assert_array_equal(result.predict(frame.assign(age=1.0)), result.site_labels[site])
    data["west"].to_csv(tmp_path / "late.csv", index=False)
    np.testing.assert_array_equal(
        place_file(tmp_path / "out", tmp_path / "late.csv", "late"), result.site_labels["west"]
    )
    numbered = {site: pd.DataFrame(frame.to_numpy()) for site, frame in data.items() if site != "west"}
    for name in ("fkm", "masked"):
        result = flareclust.run(name, numbered, k=4)
        np.testing.assert_array_equal(result.predict(numbered["north"]), result.site_labels["north"])
    with pytest.raises(UserError, match="west: expected a data frame, as other sites have"):
        flareclust.run("fkm", data | {"west": data["west"].to_numpy()}, k=4)
    with pytest.raises(UserError, match="west: the data frame has no columns"):
        flareclust.run("masked", data | {"west": pd.DataFrame(index=range(4))}, k=4)


def test_spelling_and_missing_names_are_warned_of():
    data = frames()
    data["north"] = data["north"].rename(columns={"crp": "CRP "})
    told = flareclust.run("masked", data, k=4).warnings
    assert "columns 'CRP ' and 'crp' differ in spelling only, and count as two" in told
    arrays = {site: frame.to_numpy() for site, frame in frames().items()}
    assert any("without names of columns" in warning for warning in flareclust.run("masked", arrays, k=4).warnings)


def test_a_site_that_is_left_out_is_counted(folder, capsys):
    (folder / "odd.csv").write_text("crp,sex\n1,f\n2,m\n")
    result = flareclust.run("masked", folder, k=4, partition="none")
    assert result.took_part == "3 of 4 sites"
    assert list(result.left_out) == ["odd"]
    call = ["run", "masked", "--data", str(folder), "--partition", "none", "--k", "4", "--engine", "inprocess"]
    with pytest.raises(SystemExit, match="0"):
        main([*call, "--no-track"])
    printed = capsys.readouterr().out
    assert "3 of 4 sites" in printed
    assert "left out: odd cannot use its rows" in printed


def test_common_columns_are_counted_among_all_and_drawn_for_all_sites():
    result = flareclust.run("fkm-common", frames(), k=4)
    assert not result.sites, "a picture of the rows would show those sites only that have no other column"
    from flareclust.features.result import sentences

    assert sentences(result.arrays) == ["2 of 6 columns: those that every site has"]


def test_frames_with_the_same_columns_in_another_order_are_read_by_name():
    data = {site: frame[["iron", "lactate"]] for site, frame in frames().items()}
    turned = data | {"west": data["west"][["lactate", "iron"]]}
    np.testing.assert_array_equal(
        flareclust.run("fkm", data, k=4).centroids, flareclust.run("fkm", turned, k=4).centroids
    )


def test_hidden_names_do_not_reach_the_result(folder, tmp_path):
    from flareclust.engines.inprocess import run_inprocess
    from flareclust.engines.options import JobOptions

    sites = {}
    for site in ("north", "south", "west"):
        local = tmp_path / site / "local"
        local.mkdir(parents=True)
        hide = "[age]" if site == "north" else "[]"
        (local / "flareclust.yaml").write_text(f"path: {folder / site}.csv\nsalt: s3cret of sixteen\nhide: {hide}\n")
        sites[site] = SiteData.of(local, site).table()
    outcome = run_inprocess(registry.get("masked"), {}, sites, JobOptions(k=4))
    names = outcome.arrays["column_names"].tolist()
    assert "age" not in names
    assert sum(name.startswith("hidden-") for name in names) == 1
    plain = flareclust.run("masked", folder, k=4, partition="none")
    np.testing.assert_array_equal(outcome.centroids, plain.centroids)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hide: true", "hides columns without a salt"),
        ("salt: 7", "salt is no text of at least 16 characters"),
        ("salt: short", "salt is no text of at least 16 characters"),
        ("salt: long enough to be one\nhide: crp", "hide is neither true nor a list"),
        ("agreement: perhaps", "agreement is none of has, exact, may-lack"),
    ],
)
def test_a_site_configuration_that_cannot_be_meant_is_refused(tmp_path, text, words):
    (tmp_path / "flareclust.yaml").write_text(f"path: x.csv\n{text}\n")
    with pytest.raises(flareclust._foundation.errors.Refusal, match=words):
        SiteData.of(tmp_path, "north")


@pytest.mark.parametrize(
    ("hide", "text"),
    [
        ("[secret]", "age,secret\n1,x\n2,y\n"),
        ("true", "age,secret\n1,\n2,3\n3,4\n"),
        ("[secrets]", "age,secret\n1,2\n3,4\n"),
    ],
)
def test_a_refusal_does_not_tell_a_hidden_name(tmp_path, caplog, hide, text):
    (tmp_path / "rows.csv").write_text(text)
    (tmp_path / "flareclust.yaml").write_text(f"path: rows.csv\nsalt: s3cret of sixteen\nhide: {hide}\n")
    site = SiteData.of(tmp_path, "north")
    with pytest.raises(flareclust._foundation.errors.Refusal) as caught:
        site.table()
    assert str(caught.value) == "cannot use its rows; why is in the site's own log, as it hides names of columns"
    assert "secret" in caplog.text, "the site's own log says why"
    with pytest.raises(flareclust._foundation.errors.Refusal, match="secret"):
        site.table(reader_owns_them=True)


# ---- feature partitions of data sets ----


@pytest.mark.parametrize("name", [*PARTIAL, "central"])
def test_a_data_set_can_be_dealt_by_columns(name):
    result = flareclust.run(name, "breast_cancer", k=2, partition="features-shared:0.2", clients=3)
    assert result.clients == 3
    assert len(result.labels) == 569
    expected = {"fkm-common": 6}.get(name, 30)
    assert result.centroids.shape == (2, expected)
    if name != "central":
        accuracy = {"proxy": "e5"}.get(name, "e2")
        assert 0.5 < result.metrics[accuracy] <= 1
        assert 0 <= result.metrics["cosine"] <= 1
    if name in ("masked", "proxy"):
        assert 0 <= result.metrics[{"masked": "e1", "proxy": "e4"}[name]] <= 1


def test_e2_is_the_accuracy_of_the_labels_and_relative_distance_that_of_the_best_centroids():
    dataset_rows = flareclust.run("masked", "iris", k=3, partition="features-shared:0.5", clients=2)
    assert dataset_rows.metrics["e2"] == pytest.approx(dataset_rows.metrics["accuracy"])


def test_the_paper_s_setups_know_their_k(shared_data):
    prepared = prepare(make_experiment(algorithm="masked", data="dim032", partition="dim-a1", engine="inprocess"))
    assert prepared.k == 16
    assert len(prepared.sites) == 10
