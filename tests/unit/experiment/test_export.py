"""Models for scikit-learn and ONNX: the labels of the result on 10,000 rows, in every space it may have clustered in."""

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from skops.io import get_untrusted_types, load

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.cli.main import main
from tests.served import SCHEMA, tables

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(center, 1, (40, 3)) * [1, 1000, 0.1] for center in (-10, 0, 10)])
ASKED = RNG.uniform(-12, 12, (10_000, 3)) * [1, 1000, 0.1]

CASES = {
    "plain": {},
    "far from the origin": {},
    "far on both sides": {},
    "far on both sides, scaled": {"scale": "standard"},
    "far on both sides, range": {"scale": "range"},
    "scaled": {"scale": "standard"},
    "robust": {"scale": "robust"},
    "range": {"scale": "range"},
    "directions": {"metric": "cosine"},
    "filled": {"missing": "mean", "scale": "standard"},
}


def clustered(case):
    """Return a result, and the rows that are asked of it."""
    rows, asked = X.copy(), ASKED.copy()
    if case == "far from the origin":
        rows, asked = rows + 1e9, asked + 1e9
    if case.startswith("far on both sides"):
        # Expanded squares are of 1e18, where numbers are 128 apart.
        side = np.where(np.arange(len(rows)) % 2, 1e9, -1e9)[:, None]
        rows, asked = rows / [1, 1000, 0.1] + side, asked / [1, 1000, 0.1] + np.resize([1e9, -1e9], (len(asked), 1))
        start = [[side + center] * 3 for side in (-1e9, 1e9) for center in (-10.0, 0.0, 10.0)]
        return flareclust.run("lloyd", rows, k=6, n_sites=3, start=start, **CASES[case]), asked
    if case == "filled":
        rows[::9, 0] = np.nan
        asked[::5, 0] = np.nan
        asked[::7, 1] = np.nan
    return flareclust.run("lloyd", rows, k=3, n_sites=3, **CASES[case]), asked


@pytest.mark.parametrize("case", CASES)
def test_both_formats_give_the_labels_of_the_result(case, tmp_path):
    result, asked = clustered(case)
    expected = result.predict(asked)
    assert len(set(expected.tolist())) == result.k
    path = result.export(tmp_path / "model.skops")
    trusted = ["numpy.dtype"] if case == "filled" else []
    assert get_untrusted_types(file=path) == trusted
    model = load(path, trusted=trusted)
    np.testing.assert_array_equal(model.predict(asked), expected)
    session = onnxruntime.InferenceSession(str(result.export(tmp_path / "model.onnx")))
    labels, distances = session.run(["cluster", "distance"], {"rows": asked})
    np.testing.assert_array_equal(labels, expected)
    placed = result.placements(asked)
    np.testing.assert_allclose(distances, placed["distance"], rtol=1e-9)
    distances, labels = model[-1].kneighbors(model[:-1].transform(asked), result.k)
    np.testing.assert_array_equal(labels[:, 0], expected)
    np.testing.assert_allclose(distances[:, 0], placed["distance"], rtol=1e-9)
    np.testing.assert_allclose(distances[:, 1], placed["second_distance"], rtol=1e-9)


@pytest.mark.parametrize("covariance", ["full", "tied", "diag", "spherical"])
def test_a_mixture_gives_its_components_in_both_formats(covariance, tmp_path):
    result = flareclust.run("gmm", X, k=3, n_sites=3, scale="standard", covariance=covariance)
    expected, placed = result.predict(ASKED), result.placements(ASKED)
    model = load(result.export(tmp_path / "model.skops"))
    np.testing.assert_array_equal(model.predict(ASKED), expected)
    np.testing.assert_allclose(model.predict_proba(ASKED).max(axis=1), placed["probability"], rtol=1e-9)
    session = onnxruntime.InferenceSession(str(result.export(tmp_path / "model.onnx")))
    labels, distances = session.run(["cluster", "distance"], {"rows": ASKED})
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_allclose(distances, placed["distance"], rtol=1e-9)


@pytest.mark.parametrize("offset", [0, 1e9])
def test_equally_near_centroids_go_to_the_first_in_both_formats(offset, tmp_path):
    places = np.array([[-2.0, 0], [2, 0], [0, -2], [0, 2], [6, 5]]) + offset
    rows = np.repeat(places, 4, axis=0) + np.tile([[0.5, 0], [-0.5, 0], [0, 0.5], [0, -0.5]], (5, 1))
    result = flareclust.run("lloyd", {"a": rows, "b": rows}, k=5, start=places.tolist())
    np.testing.assert_array_equal(result.centroids, places)
    asked = np.stack(np.meshgrid(np.arange(-9.0, 10), np.arange(-9.0, 10)), axis=-1).reshape(-1, 2) + offset
    expected = ((asked[:, None] - places) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(result.predict(asked), expected)
    model = load(result.export(tmp_path / "model.skops"))
    np.testing.assert_array_equal(model.predict(asked), expected)
    session = onnxruntime.InferenceSession(str(result.export(tmp_path / "model.onnx")))
    np.testing.assert_array_equal(session.run(["cluster"], {"rows": asked})[0], expected)


@pytest.mark.parametrize("missing", ["drop-rows", "mean"])
def test_categories_weigh_in_both_formats_as_in_the_run(missing, tmp_path):
    """`kprototypes` counts categories that differ, with a weight that the run has found."""
    tables(tmp_path)
    schema = tmp_path / "own.yaml"
    schema.write_text(SCHEMA.replace("missing: mean", f"missing: {missing}"), encoding="utf-8")
    result = flareclust.run("kprototypes", tmp_path / "data", k=3, partition="none", schema=schema)
    read = [flareclust.read_table(tmp_path / "data" / f"{site}.csv", schema).X for site in ("north", "south")]
    female = RNG.integers(0, 2, 10_000)
    random = [
        RNG.uniform(20, 90, 10_000),
        female,
        1 - female,
        RNG.integers(0, 4, 10_000),
        RNG.uniform(18262, 19300, 10_000),
    ]
    asked = np.concatenate([*read, np.column_stack(random)])
    expected = result.predict(asked)
    np.testing.assert_array_equal(expected[: sum(map(len, read))], np.concatenate(list(result.site_labels.values())))
    model = load(result.export(tmp_path / "model.skops"), trusted=["numpy.dtype"])
    np.testing.assert_array_equal(model.predict(pd.DataFrame(asked, columns=result.columns)), expected)
    session = onnxruntime.InferenceSession(str(result.export(tmp_path / "model.onnx")))
    labels, distances = session.run(["cluster", "distance"], {"rows": asked})
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_allclose(distances, result.placements(asked)["distance"], rtol=1e-9)


def test_a_row_without_a_direction_has_no_cluster(tmp_path):
    result, _ = clustered("directions")
    session = onnxruntime.InferenceSession(str(result.export(tmp_path / "model.onnx")))
    assert session.run(["cluster"], {"rows": np.zeros((1, 3))})[0].tolist() == [-1]


def test_names_of_columns_go_along(tmp_path):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    result = flareclust.run("lloyd", {"one": frame[::2], "two": frame[1::2]}, k=3)
    model = load(result.export(tmp_path / "model.skops"))
    np.testing.assert_array_equal(model.predict(frame), result.predict(frame))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["b", "a", "c"]])
    (columns,) = onnx.load(result.export(tmp_path / "model.onnx")).metadata_props
    assert (columns.key, columns.value) == ("columns", "a\nb\nc")


def test_the_command_writes_the_model_of_a_saved_result(tmp_path, capsys):
    flareclust.run("lloyd", X, k=3, n_sites=3, out=tmp_path / "out")
    file = tmp_path / "models" / "model.onnx"
    with pytest.raises(SystemExit) as ended:
        main(["export", str(tmp_path / "out"), "--to", str(file)])
    assert not ended.value.code
    assert capsys.readouterr().out.strip() == str(file)
    assert len(onnx.load(file).graph.output) == 2


def test_what_cannot_be_written_is_refused(tmp_path, monkeypatch):
    result, _ = clustered("plain")
    with pytest.raises(UserError, match=r"ends in \.skops or \.onnx, got 'model.pkl'"):
        result.export(tmp_path / "model.pkl")
    (tmp_path / "model.onnx").touch()
    with pytest.raises(UserError, match="is there already"):
        result.export(tmp_path / "model.onnx")
    monkeypatch.setattr("flareclust._foundation.extras.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"\.skops export needs skops and onnx; .*flareclust\[export\]"):
        result.export(tmp_path / "model.skops")
