"""The draft of a schema: a text that can be read by the same tables, and that holds no value of a single row."""

import numpy as np
import pytest

from flareclust import UserError
from flareclust._foundation.settings_file import parse_yaml
from flareclust.data.schema.columns import TableSchema, read_schema
from flareclust.data.schema.draft import LEAST_ROWS, draft
from flareclust.data.schema.mapping import TableMapping
from flareclust.data.schema.reading import Typed
from flareclust.data.tables import File

N = 60


def table(tmp_path, columns, *, encoding="utf-8", delimiter=","):
    path = tmp_path / "north.csv"
    lines = [delimiter.join(columns), *(delimiter.join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines), encoding=encoding)
    return path


def check_draft(text):
    return TableSchema(**parse_yaml(text))


def drafted(path, mapping=None):
    return check_draft(draft(path, mapping).text)


def test_types_of_columns(tmp_path):
    rng = np.random.default_rng(0)
    path = table(
        tmp_path,
        {
            "patient": [f"P{i}" for i in range(N)],
            "case no": range(1000, 1000 + N),
            "size (mm)": rng.uniform(1, 90, N).round(2),
            "weight_kg": rng.integers(40, 120, N),
            "sex": ["f", "m"] * (N // 2),
            "answer": ["yes", "no"] * (N // 2),
            "seen": [f"{1 + i % 28:02d}.03.2024" for i in range(N)],
            "note": [f"text {i // 2}" for i in range(N)],
            "empty": [""] * N,
        },
    )
    columns = drafted(path).columns
    assert {name: column.type for name, column in columns.items()} == {
        "patient": "id", "case no": "ignore", "size (mm)": "number", "weight_kg": "number", "sex": "category",
        "answer": "category", "seen": "ignore", "note": "ignore", "empty": "ignore",
    }  # fmt: skip
    assert (columns["size (mm)"].unit, columns["weight_kg"].unit) == ("mm", "kg")
    assert columns["answer"].values == ("no", "yes")
    Typed(drafted(path)).read([File(path, "north.csv")])


def test_the_draft_shows_no_extreme_and_no_rare_value(tmp_path):
    values = ["common"] * (N - LEAST_ROWS + 1) + ["rare disease"] * (LEAST_ROWS - 1)
    path = table(tmp_path, {"age": [17, 93, *([50] * (N - 2))], "diagnosis": values})
    text = draft(path).text
    assert "rare disease" not in text
    assert "1 rarer value is not listed" in text
    low, high = check_draft(text).columns["age"].bounds
    assert low < 17
    assert high > 93
    assert "93" not in text
    assert "17" not in text


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("name", [f"P{i:03}" for i in range(N)]),
        ("MRN", [7919 * i % 100_003 for i in range(N)]),
        ("PatientNr", [7919 * i % 100_003 for i in range(N)]),
        ("patientid", [7919 * i % 100_003 for i in range(N)]),
    ],
)
@pytest.mark.parametrize("again", [0, 1, 3])
def test_a_column_is_one_of_ids_although_a_few_rows_repeat_one(tmp_path, name, cells, again):
    sizes = [i % 50 for i in range(N)]
    twice = [*cells[again:], *cells[N - again :]]
    text = draft(table(tmp_path, {name: twice, "size": sizes})).text
    assert f"  {name}: {{type: id}}  # " in text
    assert "size: {type: number" in text
    assert ("of the rows have the id of another" in text) == (again > 0)


def test_a_column_with_many_repeats_or_fractions_is_none_of_ids(tmp_path):
    text = draft(
        table(
            tmp_path,
            {
                "mrn": [i // 2 for i in range(N)],
                "note": [f"P{i // 2}" for i in range(N)],
                "patient": [i / 7 for i in range(N)],
            },
        )
    ).text
    assert "type: id" not in text


def test_a_code_for_missing_cells_is_named_and_not_in_the_range(tmp_path):
    ages = [9999, *(20 + i % 60 for i in range(N - 1))]
    text = draft(table(tmp_path, {"age": ages, "size": [i % 50 for i in range(N)]})).text
    assert (
        "2 % of the cells lie far from all others; list a code for missing ones under missing: in the mapping" in text
    )
    assert text.count("far from all others") == 1
    assert "9999" not in text
    assert check_draft(text).columns["age"].bounds[1] <= 200


def test_ages_that_nobody_has_are_counted_and_not_shown(tmp_path):
    ages = [203, 203, 150, *(20 + i % 60 for i in range(N - 3))]
    text = draft(table(tmp_path, {"Alter": ages, "size": ages})).text
    assert text.count("cells above 120 years: 3; errors, or another unit? range: [0, 120]") == 1
    assert "203" not in text


def test_encoding_and_decimal_comma(tmp_path):
    path = table(tmp_path, {"Größe": ["1,5", "2,25"] * 30, "Art": ["ä", "ö"] * 30}, encoding="latin-1", delimiter=";")
    schema = drafted(path, TableMapping(encoding="latin-1", decimal=","))
    assert schema.columns["Größe"].type == "number"
    assert schema.columns["Art"].values == ("ä", "ö")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"id": range(N)}, "no column looks like a number or a category"),
        ({"": range(N), "b": range(N)}, "a column has no name"),
    ],
)
def test_tables_without_a_draft(tmp_path, columns, words):
    with pytest.raises(UserError) as error:
        draft(table(tmp_path, columns))
    assert words in str(error.value)


def test_a_column_twice(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,a\n1,2\n")
    with pytest.raises(UserError, match="'a' is there more than once"):
        draft(path)


def test_a_file_of_another_kind(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(3))
    with pytest.raises(UserError, match="is one of csv, parquet"):
        draft(tmp_path / "a.npy")
    with pytest.raises(UserError, match="no such file"):
        draft(tmp_path / "gone.csv")


def test_numbers_with_another_decimal_mark_are_named(tmp_path):
    path = table(tmp_path, {"age": [30, 40, 50], "crp": ["1,5", "2", "3,25"]}, delimiter=";")
    assert "crp: {type: ignore}  # numbers with a decimal comma? Draft with --decimal ," in draft(path).text
    assert "crp: {type: number" in draft(path, TableMapping(decimal=",")).text
    alone = table(tmp_path, {"crp": ["1,5", "2", "3,25"], "ldh": ["1,5", "2", "3,25"]}, delimiter=";")
    with pytest.raises(UserError, match="Draft with --decimal ,"):
        draft(alone)


def test_a_column_that_is_nearly_one_of_numbers_is_named(tmp_path):
    cells = [str(i) if i % 10 else "pending" for i in range(100)]
    path = table(tmp_path, {"age": [30.5, *range(99)], "crp": cells})
    assert "crp: {type: ignore}  # 10 % of the cells are no number; list spellings such as k.A." in draft(path).text
    assert "crp: {type: number" in draft(path, TableMapping(missing=("pending",))).text


def test_dates_in_two_forms_and_ids_with_a_letter_are_found(tmp_path):
    dates = [
        f"{i % 28 + 1:02}.03.20{i % 17 + 10}" if i % 3 else f"20{i % 17 + 10}-03-{i % 28 + 1:02}" for i in range(N)
    ]
    american = [f"{i % 12 + 1:02}/{i % 28 + 1:02}/2020" if i % 3 else "2020-03-01" for i in range(N)]
    ids = [f"{700 + i}" if i else "A-1005" for i in range(N)]
    text = draft(table(tmp_path, {"seen": dates, "us": american, "pat_id": ids, "x": [i % 50 for i in range(N)]})).text
    assert 'seen: {type: ignore}  # dates, date: ["%Y-%m-%d", "%d.%m.%Y"] in the mapping; type date' in text
    assert "us: {type: ignore}  # text with more than 30 values" in text
    assert "pat_id: {type: id}  # all different" in text


def test_numbers_with_a_unit_behind_are_drafted_with_the_line_that_reads_them(tmp_path):
    cells = [f"{60 + i % 17} µmol/l" if i % 2 else f"{60 + i % 17}" for i in range(N)]
    mixed = [f"{i}.5 {('mmol/l', 'mg/dl')[i % 2] if i > 1 else 'g/d'}" for i in range(N)]
    rooms = [f"{i}A" for i in range(N)]
    text = draft(table(tmp_path, {"crea": cells, "glu": mixed, "ward": rooms, "age": [i % 50 for i in range(N)]})).text
    line = "of the cells have a unit behind the number: type: number, and units:"
    assert f'crea: {{type: ignore}}  # 50 % {line} {{"µmol/l": 1}} in the mapping, each with its factor' in text
    assert f'glu: {{type: ignore}}  # 100 % {line} {{"mmol/l": 1, "mg/dl": 1}} in the mapping' in text
    assert "g/d:" not in text.replace('"mg/dl"', "")
    assert "ward: {type: id}" in text


@pytest.mark.parametrize(("numbers", "said"), [(8, "20 % of the cells are no number"), (7, "no value has 5 rows")])
def test_a_column_is_nearly_one_of_numbers_from_four_fifths_on(tmp_path, numbers, said):
    cells = [f"{i}.5" for i in range(numbers)] + ["pending"] * (10 - numbers)
    (tmp_path / "north.csv").write_text("\n".join(["crp,age", *(f"{cell},1" for cell in cells), ""]))
    assert f"crp: {{type: ignore}}  # {said}" in draft(tmp_path / "north.csv").text


def test_words_for_missing_cells_keep_no_column_from_its_type(tmp_path):
    many = [str(i % 40) if i % 2 else ("k.A.", "n/a")[i % 4 // 2] for i in range(N)]
    dates = [f"{1 + i % 28:02d}.03.2024" if i else "unknown" for i in range(N)]
    path = table(tmp_path, {"crp": many, "seen": dates, "kind": ["a", "k.A."] * (N // 2)})
    text = draft(path).text
    assert "crp: {type: number, range: [0, 60]}  # 50 % of the cells say that none is known: list" in text
    assert 'in the mapping, missing: ["k.A.", "n/a"]' in text
    assert "seen: {type: ignore}  # dates, %d.%m.%Y" in text
    assert (
        'kind: {type: category, values: [a, "k.A."]}  # "k.A." for missing cells? Then missing: ["k.A."] in the' in text
    )
    own = TableMapping(missing=("k.A.", "n/a", "unknown"))
    assert "crp: {type: number, range: [0, 60]}  # 50 % of the cells are missing" in draft(path, own).text


def test_a_code_is_the_same_number_however_the_cells_write_it(tmp_path):
    path = table(
        tmp_path,
        {
            "size": ["99", "99.0", *(f"{20 + i / 7:.2f}" for i in range(N - 2))],
            "code": ["1", "2", "99", "99.0"] * (N // 4),
        },
    )
    assert draft(path).text.count("of the cells lie far from all others") == 2
    text = draft(path, TableMapping(missing=("99",))).text
    assert "far from all others" not in text
    assert "code: {type: number, range: [0, 3]}  # 50 % of the cells are missing; 2 integers only" in text


@pytest.mark.parametrize(
    ("values", "drafted_as"),
    [
        (("IV", "II", "I", "III"), ("ordered", ("I", "II", "III", "IV"))),
        (("IX", "IIB", "IIA", "I", "V"), ("ordered", ("I", "IIA", "IIB", "V", "IX"))),
        (("X", "V"), ("category", ("V", "X"))),
        (("I", "II", "other"), ("category", ("I", "II", "other"))),
        (("II", "I", "unknown"), ("ordered", ("I", "II"))),
    ],
)
def test_stages_are_ordered(tmp_path, values, drafted_as):
    text = draft(table(tmp_path, {"stage": values * 12, "size": [i / 7 for i in range(12 * len(values))]})).text
    column = check_draft(text).columns["stage"]
    assert (column.type, column.values) == drafted_as
    assert ("in the order of their numbers" in text) == (column.type == "ordered")


def test_columns_called_like_an_outcome_are_named_and_stay_features(tmp_path):
    columns = {"died": ["yes", "no"] * (N // 2), "follow-up": [i * 3.5 for i in range(N)], "event": [0, 1] * (N // 2)}
    text = draft(table(tmp_path, {**columns, "size": [i / 7 for i in range(N)], "age_days": range(N)})).text
    asked = "an outcome? Then name it below the columns, and it is no feature: outcome: "
    assert f"{asked}{{time: ..., event: died=..., until: ...}}, or {{value: died}}" in text
    assert f"{asked}{{time: follow-up, event: ..., until: ...}}, or {{value: follow-up}}" in text
    assert f"{asked}{{time: ..., event: event, until: ...}}, or {{value: event}}" in text
    assert text.count("an outcome?") == 3
    assert check_draft(text).outcome is None
    assert {"died", "follow-up", "event"} <= set(check_draft(text).used)


@pytest.mark.parametrize(
    ("cells", "asked"),
    [
        (
            [0, 1, 2],
            "3 integers only: a number, or codes? Then type: category, or ordered if they have an order, with values: [0, 1, 2]",
        ),
        ([1, 2, 9], "values: [1, 2, 9]; 9 for missing cells? Then missing: 9 for the column in the mapping"),
        (["1", "2.0", "2"], "2 integers only: a number, or codes?"),
    ],
)
def test_few_integers_may_be_codes(tmp_path, cells, asked):
    path = table(tmp_path, {"code": cells * (N // 3), "age": [i % 50 for i in range(N)]})
    text = draft(path).text
    assert asked in text.partition("  code: {type: number, ")[2].splitlines()[0]
    assert "codes?" not in text.partition("  age:")[2]
    check_draft(text)


def test_codes_of_few_rows_are_not_shown_and_other_numbers_are_none(tmp_path):
    columns = {
        "rare": [0, 1] * (N // 2 - 1) + [7, 7],
        "half": [0, 0.5, 1] * (N // 3),
        "many": [i % 20 for i in range(N)],
        "few": [i % 20 // 2 for i in range(N)],
    }
    text = draft(table(tmp_path, columns)).text
    asked = {line.split(":")[0].strip(): line for line in text.splitlines() if "codes?" in line}
    assert set(asked) == {"rare", "few"}
    assert asked["rare"].endswith("values: [0, 1] and the rarer ones")


def test_yes_and_no_in_a_schema_without_quotes_are_refused_with_what_to_write(tmp_path):
    (tmp_path / "schema.yaml").write_text("columns: {smokes: {type: category, values: [yes, no]}}")
    with pytest.raises(UserError) as error:
        read_schema(tmp_path / "schema.yaml")
    assert "column 'smokes': values: YAML reads yes, no, on and off as true and false; put them in quotes" in str(
        error.value
    )
    assert 'such as ["no", "yes"]' in str(error.value)
