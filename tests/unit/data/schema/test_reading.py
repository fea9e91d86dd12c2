"""Tables by a schema and a mapping: what comes out, and one message with all that is wrong and no value in it."""

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv, feather, parquet

from flareclust import UserError
from flareclust._foundation.errors import TableFaults
from flareclust.data.memory import RowStore
from flareclust.data.schema.columns import TableSchema
from flareclust.data.schema.mapping import TableMapping, read_mapping
from flareclust.data.schema.reading import Typed
from flareclust.data.tables import File, open_columns

COLUMNS = {
    "patient": "id",
    "age": {"type": "number", "unit": "years", "range": [0, 120]},
    "size": {"type": "number", "unit": "mm", "range": [1, 300]},
    "sex": {"type": "category", "values": ["f", "m"]},
    "stage": {"type": "ordered", "values": ["I", "II", "III"]},
    "seen": {"type": "date"},
}
SCHEMA = TableSchema(columns=COLUMNS)
PLAIN = "patient,age,size,sex,stage,seen\np1,40,15.5,f,II,1970-01-11\np2,51,22,m,I,1970-01-02\n"
EXPECTED = [[40, 15.5, 1, 0, 1, 10], [51, 22, 0, 1, 0, 1]]


def read(tmp_path, text, schema=SCHEMA, mapping=None, encoding="utf-8", name="north.csv", **more):
    path = tmp_path / name
    path.write_text(text, encoding=encoding)
    return Typed(schema, mapping, **more).read([File(path, name)])


def faults(tmp_path, text, **more):
    with pytest.raises(TableFaults) as error:
        read(tmp_path, text, **more)
    return list(error.value.faults["north.csv"]), str(error.value)


@pytest.mark.parametrize("delimiter", ",;\t|")
def test_a_table_as_the_schema_says(tmp_path, delimiter):
    typed = read(tmp_path, PLAIN.replace(",", delimiter))
    np.testing.assert_array_equal(typed.X, EXPECTED)
    assert typed.columns == SCHEMA.features
    assert list(typed.ids) == ["p1", "p2"]
    assert (typed.rows_read.of, typed.missing, typed.unread, typed.truth) == (2, {}, (), None)


def test_a_table_with_its_own_names_units_and_words(tmp_path):
    text = (
        "Aufnahme;Größe;Geschlecht;Fall;Alter;Stadium;Notiz\n11.01.1970;1,55;W;p1;40;2;x\n02.01.1970; 2,2 ;m;p2;51;1;\n"
    )
    mapping = TableMapping(
        encoding="latin-1",
        decimal=",",
        columns={
            "patient": "Fall",
            "age": "Alter",
            "size": {"from": "Größe", "factor": 10},
            "sex": {"from": "Geschlecht", "values": {"W": "f"}},
            "stage": {"from": "Stadium", "values": {1: "I", 2: "II", 3: "III"}},
            "seen": {"from": "Aufnahme", "date": "%d.%m.%Y"},
        },
    )
    typed = read(tmp_path, text, mapping=mapping, encoding="latin-1")
    np.testing.assert_array_equal(typed.X, EXPECTED)
    assert typed.unread == ("Notiz",)


def test_dates_in_several_forms(tmp_path):
    schema = TableSchema(columns={"seen": {"type": "date", "missing": "mean"}})
    text = 'seen\n11.01.1970\n1970-01-03\n1970-01-04 10:30\n""\n01/02/1970\n'
    mapping = TableMapping(columns={"seen": {"date": ["%d.%m.%Y", "%Y-%m-%d", "%d/%m/%Y"]}})
    np.testing.assert_array_equal(read(tmp_path, text, schema, mapping).X[:, 0], [10, 2, 3, np.nan, 31])
    mapping = TableMapping(columns={"seen": {"date": ["%d.%m.%Y", "%Y-%m-%d"]}})
    found, _ = faults(tmp_path, text, schema=schema, mapping=mapping)
    assert found[0].startswith(
        "seen: 1 cell is no date, first in row 5 (read as %d.%m.%Y or %Y-%m-%d; date: in the mapping says another form, or "
        "a list of several; "
    )


def test_few_cells_outside_the_range_may_be_codes(tmp_path):
    schema = TableSchema(columns={"size": {"type": "number", "range": [1, 300]}})
    few = "errors, or a code for missing cells? missing: in the mapping"
    assert few in faults(tmp_path, "size\n" + "20\n" * 8 + "-9\n" * 2, schema=schema)[0][0]
    assert few not in faults(tmp_path, "size\n" + "20\n" * 7 + "-9\n" * 3, schema=schema)[0][0]


def test_an_offset_after_the_factor(tmp_path):
    schema = TableSchema(columns={"temperature": {"type": "number", "unit": "Celsius", "range": [30, 45]}})
    mapping = TableMapping(columns={"temperature": {"factor": 5 / 9, "offset": -160 / 9}})
    typed = read(tmp_path, "temperature\n98.6\n104\n", schema, mapping)
    np.testing.assert_allclose(typed.X[:, 0], [37, 40])


def test_equal_from_parquet_and_feather_with_types_of_their_own(tmp_path):
    table = pa.table(
        {
            "seen": pa.array([datetime.datetime(1970, 1, 11, 9), datetime.datetime(1970, 1, 2)], pa.timestamp("us")),
            "patient": pa.array(["p1", "p2"]).dictionary_encode(),
            "age": pa.array([40, 51], pa.int8()),
            "size": [15.5, 22.0],
            "sex": pa.array(["f", "m"]).dictionary_encode(),
            "stage": pa.array([2.0, 1.0]),
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    feather.write_feather(table, str(tmp_path / "a.feather"))
    mapping = TableMapping(columns={"stage": {"values": {"1": "I", "2": "II"}}})
    for name in ("a.parquet", "a.feather"):
        typed = Typed(SCHEMA, mapping).read([File(tmp_path / name, name)])
        np.testing.assert_array_equal(typed.X, EXPECTED)
        assert list(typed.ids) == ["p1", "p2"]


def test_missing_cells_as_each_column_says(tmp_path):
    columns = {
        "age": {"type": "number", "missing": "drop-rows"},
        "sex": {"type": "category", "values": ["f", "m"], "missing": "as-category"},
        "patient": "id",
    }
    text = "age,sex,patient\n,f,a\n1,NA,b\nk.A.,-9,c\n2,m,d\n"
    typed = read(tmp_path, text, TableSchema(columns=columns), TableMapping(missing=["k.A.", -9]))
    np.testing.assert_array_equal(typed.X, [[1, 0, 0, 1], [2, 0, 1, 0]])
    assert list(typed.ids) == ["b", "d"]
    assert (typed.rows_read.of, typed.missing) == (4, {"age": 2, "sex": 2})


def test_known_classes_are_no_feature(tmp_path):
    typed = read(tmp_path, PLAIN, truth="stage")
    assert typed.truth == ("II", "I")
    assert "stage" not in typed.columns
    np.testing.assert_array_equal(typed.X, np.delete(EXPECTED, 4, axis=1))


def test_all_faults_of_a_table_in_one_message_and_no_value(tmp_path):
    text = (
        "patient,age,size,sex,stage,seen\n"
        "p1,4O,15.5,F,II,1970-01-11\n"
        ",51,0.22,m,IV,02.01.1970\n"
        "p3,,0.31,m,I,1970-01-02\n"
        "p4,150,0.5,m,I,1970-02-30\n"
    )
    found, whole = faults(tmp_path, text)
    unit_behind = (
        ' (with a unit? columns: {age: {units: {"UNIT": 1}}} in the mapping reads 1 of them; for UNIT write it as the cells do, '
        "for 1 its factor to years)"
    )
    assert found == [
        "age: 1 cell is outside 0 to 120 years, first in row 4",
        "age: 1 cell is no number, first in row 1" + unit_behind,
        "age: 1 cell is missing, first in row 3 (missing: in the schema, such as drop-rows or mean)",
        "size: 3 cells are outside 1 to 300 mm, first in row 2 (another unit? factor: 10 in the mapping leaves 0)",
        "sex: 1 cell is none of the schema's values, first in row 1 (upper or lower case? values: in the mapping)",
        "stage: 1 cell is none of the schema's values, first in row 2 (values: in the mapping)",
        "seen: 2 cells are no date, first in row 2 (read as %Y-%m-%d; date: in the mapping says another form, or a list of several)",
        "patient: 1 cell is missing, first in row 2",
    ]
    for value in ("4O", "0.22", "IV", "02.01.1970", "1970-02-30", "150,", "p3"):
        assert value not in whole


def test_decimal_commas_are_recognised(tmp_path):
    found, _ = faults(tmp_path, PLAIN.replace(",", ";").replace("15.5", "15,5"))
    assert found == ['size: 1 cell is no number, first in row 1 (with a decimal comma? decimal: "," in the mapping)']


def test_decimal_points_are_recognised_where_the_mapping_has_commas(tmp_path):
    found, _ = faults(tmp_path, PLAIN, mapping=TableMapping(decimal=","))
    assert found == ['size: 1 cell is no number, first in row 1 (with a decimal point? decimal: "." in the mapping)']


@pytest.mark.parametrize(
    ("cells", "unit", "own", "said"),
    [
        (["75 µmol/l", "80\N{GREEK SMALL LETTER MU}mol/l", "91"], "µmol/l", {}, ['"µmol/l": 1', "reads 2 of them"]),
        (["5,6 mmol", "5,1 mmol/l"], "mmol/l", {"from": "Glu"}, ["decimal comma", 'from: "Glu", ', "reads 1 of them"]),
        (
            ["0.8 mg/dl", "75 µmol/l"],
            "µmol/l",
            {"units": {"µmol/l": 1}},
            ['units: {"µmol/l": 1, "UNIT": 1}', "its factor to µmol/l"],
        ),
        (["40 %", "41%"], None, {}, ['"UNIT": 1', "for UNIT write it as the cells do", "the schema's unit"]),
        (["4O", "x"], "mm", {}, ['columns: {size: {units: {"UNIT": 1}}} in the mapping reads 1 of them; for']),
    ],
    ids=str,
)
def test_numbers_with_a_unit_behind_name_the_line_of_the_mapping_that_reads_them(tmp_path, cells, unit, own, said):
    text = "\n".join([f"{own.get('from', 'size')};b", *(f"{cell};1" for cell in cells)])
    schema = TableSchema(columns={"size": {"type": "number", "unit": unit}})
    found, _ = faults(tmp_path, text, schema=schema, mapping=TableMapping(columns={"size": own}))
    for words in ("is no number" if own.get("units") else "no number", "(with a ", *said):
        assert words in found[0]
    for cell in cells:
        assert cell not in found[0]


def test_the_mapping_reads_units_behind_numbers_and_a_factor_without_one(tmp_path):
    text = (
        "Krea;b\n75 µmol/l;1\n 0,8mg/dl ;1\n80 \N{GREEK SMALL LETTER MU}mol/l;1\n1;1\n+1,5e1 mg/dl;1\n999 mg/dl;1\n;1\n"
    )
    schema = TableSchema(columns={"crea": {"type": "number", "unit": "µmol/l", "missing": "mean"}})
    own = {"from": "Krea", "factor": 10, "offset": 2, "units": {"µmol/l": 1, "mg/dl": 88.4}, "missing": 999}
    typed = read(tmp_path, text, schema, TableMapping(decimal=",", columns={"crea": own}))
    np.testing.assert_array_equal(typed.X[:, 0], [75, 0.8 * 88.4, 80, 12, 15 * 88.4, np.nan, np.nan])
    line = 'size: {units: {"mm": 1}}'
    schema = TableSchema(columns={"size": {"type": "number", "unit": "mm"}})
    found, _ = faults(tmp_path, "size\n12 mm\n", schema=schema)
    assert line in found[0]
    (tmp_path / "mapping.yaml").write_text(f"columns: {{{line}}}\n")
    assert read(tmp_path, "size\n12 mm\n", schema, read_mapping(tmp_path / "mapping.yaml")).X.tolist() == [[12]]


@pytest.mark.parametrize(("name", "factors"), [("hb", "0.1"), ("Glucose", "0.0555556 or 0.1")])
def test_factors_of_laboratory_values_are_of_columns_named_like_them(tmp_path, name, factors):
    schema = TableSchema(columns={name: {"type": "number", "unit": "g/dl", "range": [4, 20]}})
    found, _ = faults(tmp_path, f"{name}\n" + "125\n123\n109\n140\n", schema=schema)
    assert f"another unit? factor: {factors} in the mapping leaves 0" in found[0]


@pytest.mark.parametrize(
    ("name", "factors"),
    [("crea", "88.4 or 100"), ("S-Kreatinin", "88.4 or 100"), ("pancreas", "100"), ("increase", "100")],
)
def test_the_factor_of_a_columns_substance_is_named_before_powers_of_ten(tmp_path, name, factors):
    schema = TableSchema(columns={name: {"type": "number", "unit": "µmol/l", "range": [20, 1000]}})
    found, _ = faults(tmp_path, f"{name}\n0.8\n1.1\n0.9\n1.3\n", schema=schema)
    assert f"another unit? factor: {factors} in the mapping leaves 0" in found[0]


def test_missing_and_misnamed_columns_together(tmp_path):
    found, _ = faults(tmp_path, PLAIN.replace("stage", "stages").replace("sex", "size"))
    assert found[0] == "size: 2 columns of this name (north.csv)"
    assert found[1] == "sex: no such column (north.csv)"
    assert found[2].startswith(
        "stage: no such column (did you mean 'stages'?); columns without a place in the schema: 'stages'"
    )


def test_a_column_that_the_schema_ignores_has_its_place_there(tmp_path):
    schema = TableSchema(columns=COLUMNS | {"ward": "ignore"})
    text = PLAIN.replace("seen\n", "seen,Station\n").replace("11\n", "11,A\n").replace("02\n", "02,B\n")
    found, _ = faults(
        tmp_path, text.replace("sex", "note"), schema=schema, mapping=TableMapping(columns={"ward": "Station"})
    )
    assert found == ["sex: no such column; columns without a place in the schema: 'note' (north.csv)"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty; a table needs at least one row"),
        ("patient,age,size,sex,stage,seen\n", "has no rows"),
        (PLAIN + "p3,1,2\n", "row 3 has 3 cells, the first has 6"),
    ],
)
def test_a_file_that_is_no_table(tmp_path, text, words):
    with pytest.raises(UserError) as error:
        read(tmp_path, text)
    assert words in str(error.value)


def test_a_file_in_another_encoding(tmp_path):
    with pytest.raises(
        UserError, match=r"is no utf-8 text, first in line 4; .* with `encoding: latin-1` or cp1252 in the mapping"
    ):
        read(tmp_path, PLAIN + "p3,1,2,f,I,größer\n", encoding="latin-1")


def test_all_rows_dropped(tmp_path):
    with pytest.raises(UserError, match=r"has no rows: all 2 have a missing cell"):
        read(tmp_path, 'a\nNA\n""\n', TableSchema(missing="drop-rows", columns={"a": "number"}))


def test_formats_without_text(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.eye(2))
    with pytest.raises(UserError, match="is one of csv, parquet"):
        Typed(SCHEMA).read([File(tmp_path / "a.npz", "a.npz")])


def test_several_files_and_more_rows_than_memory(tmp_path):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(PLAIN)
    files = [File(tmp_path / name, name) for name in ("a.csv", "b.csv")]
    typed = Typed(SCHEMA).read(files, RowStore(50, tmp_path))
    assert isinstance(typed.X, np.memmap)
    np.testing.assert_array_equal(typed.X, EXPECTED * 2)


@pytest.mark.parametrize(
    "own",
    [
        {"values": {"w": "f"}},
        {"from": "Geschlecht", "values": {"w": "female"}, "missing": 9},
        {"factor": 2},
        {"date": "%d.%m.%Y"},
    ],
    ids=str,
)
def test_a_mapping_of_an_ignored_column_stays_and_does_nothing(tmp_path, own):
    schema = TableSchema(columns=COLUMNS | {"sex": "ignore"})
    typed = read(tmp_path, PLAIN, schema=schema, mapping=TableMapping(columns={"sex": own}))
    np.testing.assert_array_equal(typed.X, np.delete(EXPECTED, [2, 3], axis=1))
    for text in (PLAIN, PLAIN.replace("sex", "other")):
        assert read(tmp_path, text, schema=schema, mapping=TableMapping(lacks=["sex"])).columns == schema.features


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"columns": {"aeg": "Alter"}}, "the schema has no column 'aeg' (did you mean 'age'?)"),
        ({"columns": {"sex": {"factor": 2}}}, "is of type category, which has no factor"),
        (
            {"columns": {"sex": {"units": {"mm": 1}}}},
            "is of type category, which has no factor, no offset and no units",
        ),
        ({"columns": {"age": {"date": "%Y"}}}, "has no form of dates"),
        ({"columns": {"age": {"values": {"a": "b"}}}}, "has no values"),
        ({"columns": {"sex": {"values": {"w": "female"}}}}, "maps to 'female', which is none of the schema's values"),
    ],
)
def test_a_mapping_that_does_not_go_with_the_schema(mapping, words):
    with pytest.raises(UserError) as error:
        TableMapping(**mapping).check(SCHEMA)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"encoding": "latin-99"}, "encoding 'latin-99' is unknown"),
        ({"decimal": ";"}, "decimal must be one of"),
        ({"columns": {"age": {"factor": 0}}}, "factor must not be 0"),
        ({"columns": {"age": {"units": {"days": 0}}}}, "factor must not be 0"),
        ({"columns": {"age": {"units": {"days": "a"}}}}, "column 'age': units: input should be a valid number"),
        ({"columns": {"age": {"units": "days"}}}, "column 'age': units: input should be"),
        ({"columns": {"age": {"form": "Alter"}}}, "unknown setting 'form'"),
        ({"columns": {"sex": {"values": {"no": True}}}}, "put them in quotes"),
        ({"columns": ["age"]}, "columns must name columns"),
    ],
)
def test_what_a_mapping_may_not_say(mapping, words):
    with pytest.raises(UserError) as error:
        TableMapping(**mapping)
    assert words in str(error.value)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(-1e12, 1e12, allow_nan=False).map(lambda x: 0.0 if x == 0 else x),
            st.sampled_from(["f", "m"]),
            st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)),
        ),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from([",", "."]),
    st.randoms(),
)
def test_any_layout_of_the_same_rows_gives_the_same_features(tmp_path_factory, rows, decimal, random):
    schema = TableSchema(columns={"x": "number", "sex": {"type": "category", "values": ["f", "m"]}, "seen": "date"})
    names = ["x", "sex", "seen"]
    random.shuffle(names)
    lines = [";".join(names)]
    for x, sex, seen in rows:
        cells = {"x": repr(x).replace(".", decimal), "sex": f" {sex}", "seen": seen.strftime("%d/%m/%Y")}
        lines.append(";".join(cells[name] for name in names))
    mapping = TableMapping(decimal=decimal, columns={"seen": {"date": "%d/%m/%Y"}})
    folder = tmp_path_factory.mktemp("layout")
    typed = read(folder, "\n".join(lines), schema, mapping)
    epoch = datetime.date(1970, 1, 1)
    expected = [[x, float(sex == "f"), float(sex == "m"), (seen - epoch).days] for x, sex, seen in rows]
    np.testing.assert_array_equal(typed.X, expected)


def test_an_id_that_is_no_text_is_a_fault_and_changes_no_other_id(tmp_path):
    schema = TableSchema(columns={"patient": "id", "age": "number"})
    path = tmp_path / "north.parquet"
    for ids, expected in (([b"a", b" b "], ["a", "b"]), ([1.0, 2.5, 2.0**60], ["1", "2.5", str(2.0**60)])):
        parquet.write_table(pa.table({"patient": ids, "age": list(range(len(ids)))}), path)
        assert list(Typed(schema).read([File(path, "north.parquet")]).ids)[:2] == expected[:2]
    parquet.write_table(pa.table({"patient": [b"a", b"\xff", b"b"], "age": [1, 2, 3]}), path)
    with pytest.raises(TableFaults, match="patient: 1 cell is no text, first in row 2"):
        Typed(schema).read([File(path, "north.parquet")])


def test_arrow_gets_utf8_and_calls_no_python_from_its_threads(tmp_path, monkeypatch):
    """Its own conversion of encodings does, and a process that ends meanwhile aborts, or never ends."""
    given = []

    def watched(file, reading, *options):
        given.append((type(file), reading.encoding))
        return original(file, reading, *options)

    original = csv.open_csv
    monkeypatch.setattr(csv, "open_csv", watched)
    (tmp_path / "north.csv").write_text('size,note\n1,größer\n2,"klein,\r\nkleiner"\n', encoding="cp1252", newline="")
    with open_columns(File(tmp_path / "north.csv", "north.csv"), "cp1252") as source:
        read_in = [column.to_pylist() for columns in source.cells(["note", "size"]) for column in columns]
    assert read_in == [["größer", "klein,\r\nkleiner"], ["1", "2"]]
    assert given == [(pa.OSFile, "utf8")]


def test_few_cells_without_a_value_may_be_missing_ones(tmp_path):
    lines = "\n".join(f"{'k.A.' if i == 7 else i},{'-' if i == 9 else 'f'}," for i in range(20))
    schema = TableSchema(columns={"age": "number", "sex": {"type": "category", "values": ["f"]}, "crp": "number"})
    with pytest.raises(UserError) as error:
        read(tmp_path, f"age,sex,crp\n{lines}\n", schema)
    spelling = "missing cells with a spelling such as k.A.? missing: in the mapping"
    assert f"age: 1 cell is no number, first in row 8 ({spelling})" in str(error.value)
    assert f"first in row 10 (values: in the mapping; {spelling})" in str(error.value)
    assert "crp: 20 cells are missing, first in row 1 (missing: in the schema, such as drop-rows or mean)" in str(
        error.value
    )


@pytest.mark.parametrize("code", [99, "99", 99.0, "99.0"], ids=repr)
@pytest.mark.parametrize("kind", [pa.int16(), pa.float32(), pa.string(), pa.decimal128(5, 1)], ids=str)
def test_a_code_that_is_a_number_is_missing_in_every_spelling_and_type(tmp_path, code, kind):
    values = {pa.string(): ["40", "99", "51"], pa.decimal128(5, 1): map(Decimal, ("40", "99", "51"))}
    cells = pa.array(values.get(kind, [40, 99, 51]), kind)
    parquet.write_table(pa.table({"age": cells}), tmp_path / "a.parquet")
    schema = TableSchema(columns={"age": {"type": "number", "range": [0, 120], "missing": "drop-rows"}})
    typed = Typed(schema, TableMapping(missing=[code])).read([File(tmp_path / "a.parquet", "a.parquet")])
    assert typed.X[:, 0].tolist() == [40, 51]
