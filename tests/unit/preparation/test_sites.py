"""Where a site's rows come from: the forms of its own file, refusals that give nothing away."""

import re

import numpy as np
import pytest
import yaml

from flareclust._foundation.errors import Refusal
from flareclust.sites.config import CONFIG_FILE, write_config
from flareclust.sites.rows import _NUMBER, SiteData

X = np.array([[1.0, 2.0], [3.0, 4.0]])
SECRET = "73911"  # a value of a row; no refusal may hold it


@pytest.fixture
def local(tmp_path):
    """The folder `local` of a site, inside one whose name nobody else may learn."""
    folder = tmp_path / "clinic-of-dr-x" / "local"
    folder.mkdir(parents=True)
    return folder


def configure(local, text):
    (local / CONFIG_FILE).write_text(text)
    return SiteData.of(local, "site-1")


# --- forms ---


def test_an_absolute_path_is_taken_as_it_is(local, tmp_path):
    np.save(tmp_path / "rows.npy", X)
    site = configure(local, f"path: {tmp_path}/rows.npy\n")
    assert (site.path, site.columns) == (tmp_path / "rows.npy", None)
    np.testing.assert_array_equal(site.table().X, X)


def test_a_relative_path_starts_in_local_wherever_the_process_is(local, tmp_path, monkeypatch):
    np.save(local / "rows.npy", X)
    np.save(local.parent / "above.npy", X + 1)
    monkeypatch.chdir(tmp_path)
    np.testing.assert_array_equal(configure(local, "path: rows.npy\n").table().X, X)
    np.testing.assert_array_equal(configure(local, "path: ../above.npy\n").table().X, X + 1)


def test_the_sites_name_is_put_into_the_path(local):
    (local / "site-1").mkdir()
    np.save(local / "site-1" / "site-1.npy", X)
    np.testing.assert_array_equal(configure(local, "path: '{site}/{site}.npy'\n").table().X, X)


def test_a_table_gives_every_site_its_path(local):
    for i in (1, 2):
        np.save(local / f"rows{i}.npy", X * i)
    configure(local, "path: {site-1: rows1.npy, site-2: rows2.npy}")
    for i in (1, 2):
        np.testing.assert_array_equal(SiteData.of(local, f"site-{i}").table().X, X * i)
    with pytest.raises(Refusal, match="without a path to its rows"):
        SiteData.of(local, "site-3")


def test_columns_are_chosen_by_name_and_in_the_order_of_the_site(local):
    (local / "rows.csv").write_text("patient,age,crp\n7,50,1.5\n8,60,2.5\n")
    site = configure(local, "path: rows.csv\ncolumns: [crp, age]\n")
    assert site.columns == ("crp", "age")
    np.testing.assert_array_equal(site.table().X, [[1.5, 50.0], [2.5, 60.0]])


def test_without_columns_all_are_read(local):
    (local / "rows.csv").write_text("age,crp\n50,1.5\n60,2.5\n")
    assert configure(local, "path: rows.csv\ncolumns: null\n").columns is None
    np.testing.assert_array_equal(configure(local, "path: rows.csv\n").table().X, [[50.0, 1.5], [60.0, 2.5]])


@pytest.mark.parametrize("columns", [None, ["b", "a"]])
@pytest.mark.parametrize("path", ["/data/{site}.csv", {"site-1": "/data/one.csv"}, "/with: colon # and ünicode.csv"])
def test_what_write_config_writes_is_read_back(tmp_path, path, columns):
    local = tmp_path / "new" / "local"
    write_config(local, path, (tuple(columns), "may-lack") if columns else None)
    site = SiteData.of(str(local), "site-1")
    expected = {"/data/{site}.csv": "/data/site-1.csv"}.get(path, path) if isinstance(path, str) else path["site-1"]
    assert site.path == local / expected
    assert site.columns == (tuple(columns) if columns else None)
    assert site.agreement == ("may-lack" if columns else "has")


# --- refusals: they travel to the server ---


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "has no local/flareclust.yaml"),
        ("", "without a path"),
        ("just text", "without a path"),
        ("[a, b]", "without a path"),
        ("columns: [a]", "without a path"),
        ("path: 3", "without a path"),
        ("path: null", "without a path"),
        ("path: [a.csv]", "without a path"),
        ("path: {site-2: a.csv}", "without a path"),
        ("path: {site-1: 7}", "without a path"),
        ("path: a.csv\npaht: b.csv", "unknown keys in local/flareclust.yaml: paht"),
        ("path: a.csv\n3: b", "unknown keys in local/flareclust.yaml: 3"),
        ("path: [a.csv", "cannot be read as settings (line 1)"),
        ("path: a\n\tb: c", "cannot be read as settings (line 2)"),
        ("path: !!python/object/apply:os.getcwd []", "cannot be read as settings (line 1)"),
        ("path: a.csv\ncolumns: age", "columns are not a list of names"),
        ("path: a.csv\ncolumns: [1, 2]", "columns are not a list of names"),
        ("path: a.csv\ncolumns: {age: 1}", "columns are not a list of names"),
        ("path: a.csv\ncolumns: []", "columns"),
    ],
)
def test_a_configuration_that_does_not_say_where_the_rows_are_is_refused(local, text, reason):
    with pytest.raises(Refusal) as refused:
        SiteData.of(local, "site-1") if text is None else configure(local, text)
    assert reason in str(refused.value)
    assert "clinic-of-dr-x" not in str(refused.value)


def test_a_configuration_in_another_encoding_is_refused(local):
    (local / CONFIG_FILE).write_bytes("path: größe.csv".encode("latin-1"))
    with pytest.raises(Refusal, match="flareclust"):
        SiteData.of(local, "site-1")


def npz(**arrays):
    return lambda path: np.savez(path, **arrays)


def text(content):
    return lambda path: path.write_text(content)


UNUSABLE = {
    "missing.csv": (lambda path: None, "missing.csv: no such file"),
    "folder.csv": (lambda path: path.mkdir(), "folder.csv is a folder"),
    "empty.csv": (text(""), "empty.csv is empty"),
    "header.csv": (text("a,b\n"), "header.csv has no rows"),
    "rows.xlsx": (text(SECRET), "rows.xlsx: unknown suffix; a table has one of"),
    "words.csv": (text(f"a,b\n1,{SECRET}\n2,x{SECRET}\n"), "words.csv: column 'b' is not numeric, first in row 2"),
    "names.csv": (text(f"x{SECRET},y\nz,w\n"), "names.csv: column 1 is not numeric"),
    "ragged.csv": (text(f"a,b\n1,2\n{SECRET},2,3\n"), "ragged.csv: row 2 has 3 cells"),
    "nan.csv": (text(f"a,b\n{SECRET},\n3,4\n"), "nan.csv: 1 cell is missing"),
    "infinite.csv": (text(f"a,b\n{SECRET},inf\n3,4\n"), "infinite.csv: 1 cell is missing, NaN or infinite"),
    "latin.csv": (lambda path: path.write_bytes(f"a,b\n{SECRET},é\n".encode("latin-1")), "latin.csv"),
    "damaged.npy": (text(f"damaged {SECRET}"), "damaged.npy is not a NumPy file"),
    "objects.npy": (lambda path: np.save(path, np.array([[SECRET, 1]], object), allow_pickle=True), "objects.npy is"),
    "line.npy": (lambda path: np.save(path, np.array([float(SECRET)])), "line.npy: expected a 2-D array"),
    "strings.npy": (lambda path: np.save(path, np.array([[SECRET]])), "strings.npy: expected real numbers"),
    "damaged.npz": (text(f"PK {SECRET}"), "damaged.npz is not a NumPy file"),
    "two.npz": (npz(a=X, b=X * float(SECRET)), "two.npz: expected an array `X`"),
    "nan.npz": (npz(X=np.array([[float(SECRET), np.nan]])), "nan.npz: 1 cell is missing"),
    "damaged.parquet": (text(f"PAR1 {SECRET}"), "damaged.parquet is not a parquet file"),
    "damaged.arrow": (text(f"ARROW1 {SECRET}"), "damaged.arrow is not an Arrow"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_no_refusal_holds_a_folder_or_a_value(local, tmp_path, name):
    make, reason = UNUSABLE[name]
    make(local.parent / name)
    for path in (str(local.parent / name), f"../{name}", f"{{site}}/../../{name}"):
        (local / "site-1").mkdir(exist_ok=True)
        configure(local, yaml.safe_dump({"path": path}))
        with pytest.raises(Refusal, match=re.escape(reason)):
            SiteData.of(local, "site-1").table(reader_owns_them=True)
        with pytest.raises(Refusal) as refused:
            SiteData.of(local, "site-1").table()
        words = str(refused.value)
        assert words.startswith("cannot use its rows: ")
        assert _NUMBER.sub("#", reason) in words
        assert not re.search(r"(row|column|shape \(|is) \d", words), "numbers may say how many rows there are"
        assert SECRET not in words
        assert "clinic-of-dr-x" not in words
        assert str(tmp_path) not in words
        assert refused.value.__cause__ is None, "a chained error would show the folder in a log"


@pytest.mark.parametrize("name", ["rows.csv", "rows.npz", "rows.npy"])
def test_columns_that_are_not_there_are_refused_without_the_folder(local, name):
    if name.endswith("csv"):
        (local / name).write_text("age,crp\n1,2\n")
    elif name.endswith("npz"):
        np.savez(local / name, X=X, columns=np.array(["age", "crp"]))
    else:
        np.save(local / name, X)
    configure(local, f"path: {name}\ncolumns: [lactate]")
    with pytest.raises(Refusal) as refused:
        SiteData.of(local, "site-1").table()
    assert f"cannot use its rows: {name} has no column" in str(refused.value)
    assert "clinic-of-dr-x" not in str(refused.value)
