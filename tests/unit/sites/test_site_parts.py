"""A site whose table is a folder of parquet parts, as Spark and Dask write it."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from flareclust._foundation.errors import Refusal
from flareclust.core.chunks import is_mapped
from tests.unit.sites.site_cases import refusal, site


def write(file, **columns):
    file.parent.mkdir(parents=True, exist_ok=True)
    pa.parquet.write_table(pa.table(columns), file)


@pytest.fixture
def spark(local):
    """A folder as Spark writes it: a mark of success, checksums, an empty part, and columns in another order."""
    folder = local / "visits.parquet"
    write(folder / "part-00000-3f2a.c000.snappy.parquet", age=[1.0, 2.0], patient=["p1", "p2"], crp=[10, 20])
    write(
        folder / "part-00001-3f2a.c000.snappy.parquet",
        age=pa.array([], "float64"),
        patient=pa.array([], "string"),
        crp=pa.array([], "int64"),
    )
    write(folder / "part-00002-3f2a.c000.snappy.parquet", crp=[30.5], age=[3.0], patient=["p3"])
    (folder / "_SUCCESS").touch()
    (folder / ".part-00000-3f2a.c000.snappy.parquet.crc").write_bytes(b"crc")
    (folder / "._SUCCESS.crc").write_bytes(b"crc")
    return folder


def test_parts_are_read_by_name_one_after_the_other(local, spark):
    table = site(local, path="visits.parquet", id="patient").table()
    assert table.columns == ("age", "crp")
    np.testing.assert_array_equal(table.X, [[1, 10], [2, 20], [3, 30.5]])
    assert list(table.ids) == ["p1", "p2", "p3"]


def test_columns_can_be_chosen_and_the_path_can_be_a_folder_without_an_ending(local, spark):
    spark.rename(local / "visits")
    np.testing.assert_array_equal(site(local, path="visits/", columns=["crp"]).table().X, [[10], [20], [30.5]])


def test_parts_that_do_not_fit_in_memory_are_put_on_disk(local, spark):
    table = site(local, path="visits.parquet", columns=["age", "crp"], memory=16).table(scratch=local)
    assert is_mapped(table.X)
    np.testing.assert_array_equal(table.X[:, 0], [1, 2, 3])


def test_part_2_of_dask_comes_before_part_10(local):
    for number in (0, 1, 2, 10, 11):
        write(local / "rows" / f"part.{number}.parquet", x=[float(number)])
    write(local / "rows" / "_metadata", x=[99.0])
    write(local / "rows" / "_common_metadata", x=[99.0])
    np.testing.assert_array_equal(site(local, path="rows").table().X[:, 0], [0, 1, 2, 10, 11])


def test_a_schema_reads_parts_as_well(local, spark):
    (local / "schema.yaml").write_text("columns: {patient: id, age: {type: number}, crp: {type: number}}")
    table = site(local, path="visits.parquet", schema="schema.yaml").table()
    np.testing.assert_array_equal(table.X, [[1, 10], [2, 20], [3, 30.5]])
    assert list(table.ids) == ["p1", "p2", "p3"]


@pytest.mark.parametrize("change", ["column", "text"])
def test_a_part_with_other_columns_is_named_at_the_site_and_its_folder_elsewhere(local, spark, change):
    other = {"column": {"age": [4.0], "weight": [70.0]}, "text": {"age": ["four"], "crp": [1.0]}}[change]
    write(spark / "part-00003-of-dr-x.parquet", **other, patient=["p4"])
    data = site(local, path="visits.parquet", id="patient")
    with pytest.raises(Refusal, match=r"part-00003-of-dr-x\.parquet"):
        data.table(reader_owns_them=True)
    assert "visits.parquet" in refusal(data)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["_temporary/0/x"], "was not written to its end"),
        (["_delta_log/0.json"], "files also hold rows that were deleted"),
        ([".hoodie/x"], "files also hold rows that were deleted"),
        (["notes.txt"], "has other files or folders beside its parquet files"),
        (["more/part-00000.parquet"], "has other files or folders beside its parquet files"),
        (["year=2024/part-00000.parquet"], "folders named after the values of a column"),
    ],
)
def test_what_is_no_plain_table_is_refused_once(local, spark, names, told):
    for name in names:
        (spark / name).parent.mkdir(exist_ok=True, parents=True)
        (spark / name).write_bytes(b"")
    text = refusal(site(local, path="visits.parquet", id="patient"))
    assert told in text
    assert "2024" not in text


def test_a_table_of_partitions_alone_is_refused(local):
    write(local / "visits" / "year=2024" / "month=1" / "part-00000.parquet", x=[1.0])
    assert "folders named after the values of a column" in refusal(site(local, path="visits"))


def test_parts_without_any_row_are_refused(local):
    for number in range(2):
        write(local / "rows" / f"part.{number}.parquet", x=pa.array([], "float64"))
    assert "there are no rows in any of # parts" in refusal(site(local, path="rows"))


def test_a_part_that_is_a_link_out_of_the_root_is_refused(local, spark):
    write(local.parent / "elsewhere" / "secret.parquet", age=[9.0], patient=["p9"], crp=[9])
    (spark / "part-00009.parquet").symlink_to(local.parent / "elsewhere" / "secret.parquet")
    assert "is not under the root" in refusal(site(local, path="visits.parquet", id="patient"))
