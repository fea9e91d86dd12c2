"""`flareclust site check --show-values`: cells that do not fit, on the site's own terminal and nowhere else."""

import sys

import numpy as np
import pytest

from flareclust.sites.config import write_site
from tests.command_line import call
from tests.unit.sites.check_cases import rows

SCHEMA = "columns:\n  patient: id\n  age: {type: number, range: [0, 120]}\n  sex: {type: category, values: [f, m]}\n"
MAPPING = {"columns": {"sex": {"values": {"w": "f"}}}}


def table(kit):
    ages = [20, 21, "t[b]wo\x1b", 230, *range(24, 60)]
    sexes = ["w", "m", "f", "?", *["m"] * 36]
    return rows(kit, patient=[f"p{i}" for i in range(40)], age=ages, sex=sexes)


def write(kit, file, **keys):
    (kit / "local" / "schema.yaml").write_text(SCHEMA)
    write_site(kit / "local", str(file), **keys)


def shown(capsys):
    printed = capsys.readouterr()
    return [" ".join(line.split()) for line in printed.out.splitlines()], printed.err


def test_a_terminal_shows_cells_that_do_not_fit_with_their_rows(kit, capsys, monkeypatch, caplog):
    write(kit, table(kit), schema="schema.yaml", mapping=MAPPING)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert call("site", "check", kit, "--show-values") == 2
    lines, errors = shown(capsys)
    assert "age 3 't[b]wo\\x1b' no number" in lines
    assert "age 4 '230' outside 0 to 120" in lines
    assert "sex 4 '?' none of the schema's values" in lines
    for text in (errors, caplog.text):
        assert "230" not in text
        assert "t[b]wo" not in text
    assert call("site", "check", kit) == 2
    assert "230" not in "".join(shown(capsys)[0])


def test_each_fault_of_a_table_has_a_line_of_its_own(kit, capsys):
    write(kit, table(kit), schema="schema.yaml", mapping=MAPPING)
    assert call("site", "check", kit) == 2
    errors = capsys.readouterr().err.splitlines()
    at = next(i for i, line in enumerate(errors) if line.endswith(" does not fit the schema:"))
    assert errors[at].startswith(f"error: {kit.name} cannot use its rows: ")
    assert [line.split(" (")[0] for line in errors[at + 1 : at + 4]] == [
        "  age: 1 cell is outside 0 to 120, first in row 4",
        "  age: 1 cell is no number, first in row 3",
        "  sex: 1 cell is none of the schema's values, first in row 4",
    ]


def test_where_the_output_is_no_terminal_values_are_shown_on_demand_only(kit, capsys):
    write(kit, table(kit), schema="schema.yaml", mapping=MAPPING)
    assert call("site", "check", kit, "--show-values") == 2
    lines, errors = shown(capsys)
    assert lines == []
    assert "the output is no terminal: files and logs may be read by others; give --yes" in " ".join(errors.split())
    assert call("site", "check", kit, "--show-values", "--yes") == 2
    assert "age 4 '230' outside 0 to 120" in shown(capsys)[0]


def test_of_each_fault_the_first_cells_are_shown(kit, capsys):
    write(kit, rows(kit, patient=[f"p{i}" for i in range(90)], age=["x"] * 90, sex=["m"] * 90), schema="schema.yaml")
    assert call("site", "check", kit, "--show-values", "--yes") == 2
    found = [line for line in shown(capsys)[0] if line.startswith("age ")]
    assert len(found) == 20
    assert found[-1] == "age 20 'x' no number"


def test_tables_of_numbers_show_texts_and_gaps(kit, capsys):
    file = rows(kit, patient=["a", "b", "c"], age=[1, "two", 3], crp=[1, 2, ""])
    write_site(kit / "local", str(file), id_name="patient", columns=["age", "crp"])
    assert call("site", "check", kit, "--show-values", "--yes") == 2
    lines = shown(capsys)[0]
    assert "age 2 'two' no number" in lines
    assert "crp 3 '' missing" in lines


def test_where_all_fits_or_nothing_has_a_name_that_is_said(kit, capsys):
    file = rows(kit, patient=["a", "b", "c"], age=[1, 2, 3], sex=["f", "m", "m"])
    write(kit, file, schema="schema.yaml")
    assert call("site", "check", kit, "--show-values", "--yes") == 0
    assert "no cell that does not fit" in shown(capsys)[0]
    (kit / "local" / "flareclust.yaml").unlink()
    np.save(kit.parent / "rows.npy", np.eye(3))
    write_site(kit / "local", str(kit.parent / "rows.npy"))
    assert call("site", "check", kit, "--show-values", "--yes") == 0
    assert any(line.startswith("no values: north cannot use its rows: rows.npy") for line in shown(capsys)[0])
    (kit / "local" / "flareclust.yaml").unlink()
    assert call("site", "check", kit, "--show-values", "--yes") == 2
    assert any("no values: north has no local/flareclust.yaml" in line for line in shown(capsys)[0])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_every_type_of_cell_is_shown_as_it_is_in_the_file(kit, capsys, kind):
    import pyarrow as pa
    from pyarrow import csv, parquet

    cells = pa.table({"patient": ["a", "b"], "age": [1.5, 1e9], "sex": ["m", "f"]})
    file = kit.parent / f"north.{kind}"
    (csv.write_csv if kind == "csv" else parquet.write_table)(cells, file)
    write(kit, file, schema="schema.yaml")
    assert call("site", "check", kit, "--show-values", "--yes") == 2
    assert any(line.startswith("age 2 '1000000000") for line in shown(capsys)[0])
