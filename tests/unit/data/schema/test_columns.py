"""The schema of a federation's tables: what it may say, and what its fingerprint depends on."""

import warnings

import pytest

from flareclust import UserError
from flareclust.data.schema.columns import TableSchema, read_schema

COLUMNS = {
    "patient": "id",
    "age": {"type": "number", "unit": "years", "range": [0, 120]},
    "sex": {"type": "category", "values": ["f", "m"]},
    "stage": {"type": "ordered", "values": ["I", "II", "III"]},
    "seen": {"type": "date", "range": ["2020-01-01", "2020-01-31"]},
    "remark": "ignore",
}


def test_features_in_the_order_of_the_columns():
    schema = TableSchema(columns=COLUMNS)
    assert schema.features == ("age", "sex=f", "sex=m", "stage", "seen")
    assert schema.id == "patient"
    assert schema.columns["seen"].bounds == (18262.0, 18292.0)


def test_ranges_of_features_are_those_of_their_columns():
    columns = {**COLUMNS, "crp": "number", "only": {"type": "ordered", "values": ["I"]}}
    expected = [[0, 120], [0, 1], [0, 1], [0, 2], [18262, 18292], None, None]
    assert TableSchema(columns=columns).ranges == expected


def test_logarithms_without_a_range_need_none_and_warn_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TableSchema(columns={"crp": {"type": "number", "transform": "log"}}).ranges == [None]


def test_columns_of_words_have_the_values_of_ordered_ones_and_none_of_dates():
    assert TableSchema(columns=COLUMNS).words == {"stage": ("I", "II", "III"), "seen": ()}


def test_missing_cells_may_be_a_value_of_a_category():
    schema = TableSchema(columns={"sex": {"type": "category", "values": ["f"], "missing": "as-category"}})
    assert schema.features == ("sex=f", "sex=missing")


def test_which_features_make_a_category():
    columns = {
        "sex": {"type": "category", "values": ["f", "m"]},
        "patient": {"type": "id"},
        "age": {"type": "number"},
        "organ": {"type": "category", "values": ["lung", "skin"], "missing": "as-category"},
    }
    assert TableSchema(columns=columns).categories == [[0, 1], [3, 4, 5]]


def test_fingerprint_is_of_what_features_mean():
    schema = TableSchema(columns=COLUMNS)
    same = {**COLUMNS, "remark": "ignore", "more": "ignore", "patient": "ignore"}
    assert TableSchema(columns=same).fingerprint == schema.fingerprint
    for name, other in (
        ("age", {"type": "number", "unit": "months", "range": [0, 120]}),
        ("stage", {"type": "ordered", "values": ["III", "II", "I"]}),
        ("sex", {"type": "category", "values": ["m", "f"]}),
    ):
        assert TableSchema(columns={**COLUMNS, name: other}).fingerprint != schema.fingerprint
    reversed_order = dict(reversed(COLUMNS.items()))
    assert TableSchema(columns=reversed_order).fingerprint != schema.fingerprint


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({}, "columns must name each column"),
        ({"a": "ignore"}, "none of them is a feature"),
        ({"a": "id", "b": "id", "c": "number"}, "a, b are all of type id"),
        (
            {"a": "real"},
            "column 'a': type must be one of number, category, ordered, date, id, weight, ignore; got 'real'",
        ),
        ({"a": {"type": "real"}}, "column 'a': type must be one of number"),
        ({"a": {"type": "category"}}, "column 'a': a column of type category needs a list of values"),
        ({"a": {"type": "category", "values": [True, False]}}, "put them in quotes"),
        ({"a": {"type": "category", "values": ["x", "x"]}}, "values must differ"),
        ({"a": {"type": "number", "values": ["x"]}}, "has no values"),
        ({"a": {"type": "number", "range": [3, 2]}}, "the first bound must be less"),
        ({"a": {"type": "number", "range": ["low", "high"]}}, "range must be two numbers"),
        ({"a": {"type": "date", "range": ["1.1.2020", "2.1.2020"]}}, "two dates such as 2024-12-31"),
        ({"a": {"type": "ordered", "values": ["x"], "range": [0, 1]}}, "has no range"),
        ({"a": {"type": "date", "unit": "days"}}, "has no unit"),
        ({"a": {"type": "number", "missing": "as-category"}}, "for columns of type category"),
        ({"a": {"type": "number", "units": "mm"}}, "unknown setting 'units' (did you mean 'unit'?)"),
        ({3: "number"}, "must be text"),
        ({"a": {"type": "category", "values": ["f"]}, "a=f": "number"}, "two features have the same name"),
    ],
)
def test_what_a_schema_may_not_say(columns, text):
    with pytest.raises(UserError) as error:
        TableSchema(columns=columns)
    assert text in str(error.value)


def test_a_schema_from_a_file(tmp_path):
    file = tmp_path / "schema.yaml"
    file.write_text(
        "columns:\n  seen: {type: date, range: [2020-01-01, 2020-02-01]}\n  sex: {type: category, values: [1, 2]}\n"
    )
    schema = read_schema(file)
    assert schema.columns["sex"].values == ("1", "2")
    assert schema.columns["seen"].bounds == (18262.0, 18293.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("columns:\n  a: number\n  a: date\n", "twice, again in line 3"),
        ("- a\n- b\n", "expected keys and values"),
        ("colums: {a: number}\n", "unknown setting 'colums' (did you mean 'columns'?)"),
        ("columns: {sex: {type: category, values: [yes, no]}}\n", "column 'sex': values: YAML reads yes, no"),
    ],
)
def test_a_file_that_is_no_schema(tmp_path, text, words):
    file = tmp_path / "schema.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as error:
        read_schema(file)
    assert words in str(error.value)
    assert "schema.yaml" in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match=r"schema\.yaml cannot be read"):
        read_schema(tmp_path / "schema.yaml")


@pytest.mark.parametrize(
    ("outcome", "named"),
    [
        ({"value": "died"}, ["days", "followUp", "last_seen"]),
        ({"time": "days", "event": "died=yes", "until": 90.0}, ["followUp", "last_seen"]),
    ],
)
def test_features_that_by_their_names_are_known_with_the_outcome_only_are_named(outcome, named):
    columns = {
        **{name: {"type": "number"} for name in ("age_days", "days", "followUp", "prothrombin_time", "progesterone")},
        "last_seen": "date",
        "survival": "ignore",
        "died": {"type": "category", "values": ["no", "yes"]},
    }
    hint = TableSchema(columns=columns, outcome=outcome).outcome_hint
    assert hint.startswith(f"columns {', '.join(map(repr, named))}: by the name known with the outcome (died")
    assert ("name a time in the outcome" in hint) == ("value" in outcome)
    assert TableSchema(columns=columns).outcome_hint == ""
    without = {name: one for name, one in columns.items() if name not in ("followUp", "last_seen")}
    timed = TableSchema(columns=without, outcome={"time": "days", "event": "died=yes", "until": 90.0})
    assert timed.outcome_hint == ""
    assert not {"days", "died=yes"} & set(timed.features)
