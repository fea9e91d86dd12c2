"""What the tracked model says of rows beside their labels, and what MLflow's scoring server answers."""

import json

import numpy as np
import pandas as pd
import pytest

import flareclust
from tests.unit.tracking.tracking_cases import model_of, saved_model

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(center, 1, (40, 2)) * [1, 1000] for center in (-10, 0, 10)])


def frame(rows):
    return pd.DataFrame(rows, columns=["a", "b"])


CASES = {
    "scaled": {"scale": "standard"},
    "described": {"scale": "standard", "profile": True},
    "directions": {"metric": "cosine"},
    "filled": {"missing": "mean"},
    "open": {"missing": "partial", "scale": "standard"},
    "mixture": {"scale": "standard"},
    "diagonal mixture": {"covariance": "diag", "missing": "mean"},
}


@pytest.mark.parametrize("case", CASES)
def test_details_are_the_placements_of_the_result(tmp_path, case):
    rows = X + np.array([30.0, 30_000.0]) if case == "directions" else X.copy()
    if case in ("filled", "open", "diagonal mixture"):
        rows[::9, 0] = np.nan
    algorithm = "gmm" if "mixture" in case else "lloyd"
    result = flareclust.run(algorithm, {"a": frame(rows[::2]), "b": frame(rows[1::2])}, k=3, **CASES[case])
    loaded, asked = model_of(result, tmp_path / "model"), np.concatenate([rows, [[0.0, 0.0], [1e3, -1e6]]])
    found = loaded.predict(frame(asked), params={"details": True})
    expected = result.placements(frame(asked))
    pd.testing.assert_frame_equal(found, expected, rtol=1e-9, check_dtype=False)
    assert expected["far"].any()
    labels = loaded.predict(frame(asked))
    np.testing.assert_array_equal(labels, result.predict(frame(asked)))


@pytest.mark.parametrize("shape", ["ward", "density"])
def test_rows_of_clusters_with_representatives_go_to_the_nearest_of_them(tmp_path, shape):
    result = flareclust.run("tree", {"a": frame(X[::2]), "b": frame(X[1::2])}, k=3, shape=shape, scale="standard")
    loaded, asked = model_of(result, tmp_path / "model"), np.concatenate([X, 1.1 * X, [[1e3, -1e6]]])
    np.testing.assert_array_equal(loaded.predict(frame(asked)), result.predict(frame(asked)))
    expected = result.placements(frame(asked))
    found = loaded.predict(frame(asked), params={"details": True})
    pd.testing.assert_frame_equal(found, expected, rtol=1e-9, check_dtype=False)
    assert expected["far"].any()
    assert (expected["cluster"] < 0).any()


def test_the_scoring_server_answers_raw_rows_with_gaps_and_categories(tmp_path):
    from fastapi.testclient import TestClient
    from mlflow.pyfunc.scoring_server import init

    raw = pd.DataFrame({"age": [20.0, 21.0, 60.0, np.nan] * 10, "sex": ["f", "m", "m", "f"] * 10})
    ready = pd.DataFrame({"age": raw["age"], "sex=f": (raw["sex"] == "f") * 1.0, "sex=m": (raw["sex"] == "m") * 1.0})
    result = flareclust.run("lloyd", {"a": ready[:20], "b": ready[20:]}, k=2, missing="mean")
    loaded = model_of(result, tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(raw), result.predict(ready))
    records = [{"age": 22, "sex": "m"}, {"age": None, "sex": "f"}, {"age": 900, "sex": None}]
    client = TestClient(init(loaded))
    asked = {"dataframe_records": records, "params": {"details": True}}
    answer = client.post("/invocations", content=json.dumps(asked), headers={"Content-Type": "application/json"})
    assert answer.status_code == 200, answer.text
    found = answer.json()["predictions"]
    expected = result.placements(pd.DataFrame(records))
    assert [row["cluster"] for row in found] == expected["cluster"].tolist()
    assert [row["far"] for row in found] == expected["far"].tolist() == [False, False, True]
    np.testing.assert_allclose([row["distance"] for row in found], expected["distance"])
    wrong = client.post("/invocations", json={"dataframe_records": [{"age": 1, "sex": "secret"}]})
    assert wrong.status_code == 400
    assert "column sex holds values other than f, m" in wrong.text
    assert "secret" not in wrong.json().get("message", "")
    neither = client.post("/invocations", json={"dataframe_records": [{"age": 1}]})
    assert "the input has no column sex=f" in neither.text


def test_without_thresholds_far_is_not_known(tmp_path):
    loaded = saved_model(tmp_path / "model", np.array([[1.0], [5.0]]), ["a"])
    found = loaded.predict(pd.DataFrame({"a": [2.0]}), params={"details": True})
    assert (found["cluster"][0], found["second"][0], found["distance"][0]) == (0, 1, 1.0)
    assert found["far"].isna().all()
    assert found["threshold"].isna().all()
