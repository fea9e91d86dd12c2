"""Ordered columns and dates as words: in `predict` of a result, and in the tracked model."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

import flareclust
from flareclust import UserError
from flareclust.data.schema.reading import rows_of
from tests.served import run, tables
from tests.unit.tracking.tracking_cases import model_of, saved_model


@pytest.fixture
def served(tmp_path):
    """The tables by site, the result of a run on them, and its model."""
    made = tables(tmp_path)
    result = run(tmp_path, out=tmp_path / "out")
    return made, result, model_of(result, tmp_path / "model")


def test_words_are_read_as_the_run_has_read_them(served, tmp_path):
    made, result, model = served
    assert result.words == {"stage": ("I", "II", "III", "IV"), "seen_on": ()}
    again = flareclust.load_result(tmp_path / "out")
    assert again.words == result.words
    for site, raw in made.items():
        read = flareclust.read_table(tmp_path / "data" / f"{site}.csv", tmp_path / "schema.yaml")
        expected = result.placements(read)
        np.testing.assert_array_equal(expected["cluster"], result.site_labels[site])
        as_dates = raw.assign(seen_on=pd.to_datetime(raw["seen_on"]), stage=raw["stage"].astype("string"))
        for frame in (
            raw,
            as_dates,
            pd.DataFrame(read.X, columns=read.columns),
            pl.from_pandas(raw.astype({"age": float})),
        ):
            np.testing.assert_array_equal(again.predict(frame), expected["cluster"])
        for frame in (raw, as_dates, pd.DataFrame(read.X, columns=read.columns)):
            np.testing.assert_array_equal(model.predict(frame), expected["cluster"])
            found = model.predict(frame, params={"details": True})
            pd.testing.assert_frame_equal(found, expected, rtol=1e-9, check_dtype=False)


@pytest.mark.parametrize(
    ("column", "cell", "text"),
    [
        ("stage", "secret", r"column '?stage'? holds .*than I, II, III, IV"),
        ("seen_on", "31.12.2024", r"column '?seen_on'? holds values that are no dates such as 2024-12-31"),
        ("seen_on", "2024-02-30", r"column '?seen_on'? holds values that are no dates"),
    ],
)
def test_other_words_are_refused_without_naming_them(served, column, cell, text):
    made, result, model = served
    wrong = made["north"].copy()
    wrong.loc[3, column] = cell
    for predict in (result.predict, model.predict):
        with pytest.raises((UserError, ValueError), match=text) as failed:
            predict(wrong)
        assert cell not in str(failed.value)


def test_numbers_that_may_be_values_or_places_are_refused(tmp_path):
    words = {"grade": ("1", "2", "3")}
    with pytest.raises(UserError, match="'grade' may be values or their places; give values as texts"):
        rows_of(pd.DataFrame({"grade": [1, 2]}), ["grade"], words)
    assert rows_of(pd.DataFrame({"grade": ["1", "3"]}), ["grade"], words).tolist() == [[0], [2]]
    assert rows_of(pd.DataFrame({"score": [1, "2"]}), ["score"], {"score": ("0", "1", "2")}).tolist() == [[1], [2]]
    model = saved_model(tmp_path / "model", np.array([[0.0], [2.0]]), ["grade"], words=words)
    assert model.predict(pd.DataFrame({"grade": ["1", "3"]})).tolist() == [0, 1]
    with pytest.raises(ValueError, match="grade may be values or their places"):
        model.predict(pd.DataFrame({"grade": [1, 3]}))


def test_missing_cells_are_those_of_every_kind_of_frame():
    cells = [None, float("nan"), np.float64("nan"), pd.NA, pd.NaT, "", 0, 9.5, pd.Timestamp("1970-01-02 13:00")]
    cells += [datetime.date(1970, 1, 3), "1970-01-04T01:00"]
    days = rows_of(pd.DataFrame({"seen_on": pd.Series(cells, dtype=object)}), ["seen_on"], {"seen_on": ()})
    np.testing.assert_array_equal(days[:, 0], [np.nan] * 6 + [0, 9.5, 1, 2, 3])
