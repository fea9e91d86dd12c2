"""What a site's configuration may name: files under its root, by name or pattern, with limits; and nothing else."""

import glob
import os
import re
from pathlib import Path

import numpy as np
import psutil
import pytest
import yaml

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.typing import never_abort
from flareclust.core.chunks import is_mapped
from flareclust.data.labels import keep_labels
from flareclust.executors.lloyd import LloydExecutor
from flareclust.protocol.task import CLUSTER, Task
from flareclust.sites.config import CONFIG_FILE, SiteConfig, write_config, write_site
from flareclust.sites.files import folder_of
from flareclust.sites.rows import SiteData
from tests.paths import ROOT

X = np.arange(12.0).reshape(6, 2)


@pytest.fixture
def local(tmp_path):
    """The folder `local` of a site, inside one whose name nobody else may learn."""
    folder = tmp_path / "clinic-of-dr-x" / "local"
    folder.mkdir(parents=True)
    return folder


def site(local, name="site-1", **keys):
    (local / CONFIG_FILE).write_text(yaml.safe_dump(keys))
    return SiteData.of(local, name)


def refusal(data, *, owner=False):
    with pytest.raises(Refusal) as refused:
        data.table(reader_owns_them=owner)
    text = str(refused.value)
    assert "dr-x" not in text
    assert "/" not in text
    return text


# --- the root ---


def test_a_link_out_of_the_folder_that_the_path_names_is_refused(local, tmp_path):
    np.save(tmp_path / "others.npy", X)
    (local / "rows.npy").symlink_to(tmp_path / "others.npy")
    text = refusal(site(local, path="rows.npy"))
    assert text.startswith("cannot use its rows: rows.npy is not under the root")
    assert "others" not in text


def test_a_folder_linked_out_is_refused_and_a_wider_root_allows_it(local, tmp_path):
    (tmp_path / "others").mkdir()
    np.save(tmp_path / "others" / "a.npy", X)
    (local / "data").symlink_to(tmp_path / "others")
    assert "root" in refusal(site(local, path="data/a.npy", root="."))
    assert "root" in refusal(site(local, path="*/a.npy"))
    wide = site(local, path=str(local / "data" / "a.npy"), root=str(tmp_path))
    np.testing.assert_array_equal(wide.rows(), X)


def test_links_within_the_root_are_followed_also_where_the_root_is_a_link(local, tmp_path):
    (tmp_path / "store" / "v2").mkdir(parents=True)
    np.save(tmp_path / "store" / "v2" / "a.npy", X)
    (tmp_path / "store" / "current.npy").symlink_to("v2/a.npy")
    (local / "data").symlink_to(tmp_path / "store")
    np.testing.assert_array_equal(site(local, path="data/current.npy").rows(), X)
    np.testing.assert_array_equal(site(local, path="current.npy", root="data").rows(), X)


@pytest.mark.parametrize("path", ["../outside.npy", "inner/../../outside.npy", "inner/../../*.npy", "{outside}"])
def test_with_a_root_no_path_leads_out_of_it(local, path):
    (local / "data" / "inner").mkdir(parents=True)
    np.save(local / "data" / "rows.npy", X)
    np.save(local / "outside.npy", X)
    assert site(local, path="rows.npy", root="data").rows().shape == X.shape
    data = site(local, path=path.format(outside=local / "outside.npy"), root="data")
    assert "outside.npy is not under the root" in refusal(data, owner=True)
    assert f"{'*' if '*' in path else 'outside'}.npy is not under the root" in refusal(data)


def test_a_root_is_no_prefix_of_a_name(local):
    for folder in ("data", "data-of-others"):
        (local / folder).mkdir()
        np.save(local / folder / "rows.npy", X)
    path = str(local / "data-of-others" / "rows.npy")
    assert "root" in refusal(site(local, path=path, root="data"))


def test_a_ring_of_links_and_a_broken_link_are_refused(local):
    (local / "a.npy").symlink_to("b.npy")
    (local / "b.npy").symlink_to("a.npy")
    (local / "broken.npy").symlink_to("absent.npy")
    assert "a.npy" in refusal(site(local, path="a.npy"))
    assert "broken.npy: no such file" in refusal(site(local, path="broken.npy"))


def test_the_link_is_not_read_again_after_it_was_checked(local, tmp_path):
    """What is opened is the file that was found to lie under the root."""
    np.save(local / "rows.npy", X)
    (local / "link.npy").symlink_to("rows.npy")
    (file,) = site(local, path="link.npy").files()
    assert file.path == (local / "rows.npy").resolve()
    assert file.place == "link.npy"


def test_simulated_sites_may_link_to_anything(local, tmp_path):
    np.save(tmp_path / "mine.npy", X)
    (local / "link.npy").symlink_to(tmp_path / "mine.npy")
    write_config(local, str(local / "link.npy"))
    np.testing.assert_array_equal(SiteData.of(local, "site-1").rows(), X)
    np.testing.assert_array_equal(SiteData(local / "link.npy").rows(), X)


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("/data/rows.csv", "/data"),
        ("/data/*.csv", "/data"),
        ("/data/20??/[ab]/*.csv", "/data"),
        ("/data/**/x.csv", "/data"),
        ("*.csv", "."),
    ],
)
def test_the_folder_that_a_path_names_ends_where_the_pattern_begins(tmp_path, path, folder):
    assert str(folder_of(type(tmp_path)(path))) == folder


# --- patterns ---


def test_files_are_joined_in_the_order_of_their_names(local):
    for name in ("b.csv", "a.csv", "c.csv"):
        (local / name).write_text(f"x,y\n{ord(name[0])},1\n")
    (local / "d.txt").write_text("no table")
    np.testing.assert_array_equal(site(local, path="*.csv").rows()[:, 0], [97, 98, 99])
    np.testing.assert_array_equal(site(local, path="[ac].csv").rows()[:, 0], [97, 99])
    (local / "2024").mkdir()
    (local / "2024" / "z.csv").write_text("x,y\n5,1\n")
    np.testing.assert_array_equal(site(local, path="**/*.csv").rows()[:, 0], [5, 97, 98, 99])


def test_columns_in_another_order_are_read_by_name(local):
    (local / "1.csv").write_text("x,y\n1,2\n")
    (local / "2.csv").write_text("y,x\n4,3\n")
    table = site(local, path="?.csv").table()
    assert table.columns == ("x", "y")
    np.testing.assert_array_equal(table.X, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(site(local, path="?.csv", columns=["y"]).rows(), [[2], [4]])


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ("x,z\n3,4\n", "2.csv has other columns than 1.csv; on one side only: 'y', 'z'"),
        ("x\n3\n", "2.csv has other columns than 1.csv; on one side only: 'y'"),
        ("3,4\n5,6\n", "2.csv and 1.csv must both have names of columns, or neither"),
        ("x,y\n3,\n", "2.csv: 1 cell is missing, NaN or infinite, first in row 1, column 'y'"),
        ("x,y\n", "2.csv has no rows below its header"),
        ("", "2.csv is empty"),
    ],
)
def test_the_file_that_differs_is_named(local, other, reason):
    (local / "1.csv").write_text("x,y\n1,2\n")
    (local / "2.csv").write_text(other)
    assert reason in refusal(site(local, path="?.csv"), owner=True)


def test_arrays_without_names_must_be_as_wide(local):
    np.save(local / "1.npy", X)
    np.save(local / "2.npy", X[:, :1])
    assert "2.npy has 1 columns where 1.npy has 2" in refusal(site(local, path="?.npy"), owner=True)
    np.save(local / "2.npy", X + 1)
    np.testing.assert_array_equal(site(local, path="?.npy").rows(), np.concatenate([X, X + 1]))


def test_with_may_lack_all_files_must_lack_the_same_columns(local):
    (local / "1.csv").write_text("x,y\n1,2\n")
    (local / "2.csv").write_text("x\n3\n")
    keys = {"path": "?.csv", "columns": ["x", "y", "z"], "agreement": "may-lack"}
    assert "2.csv has other columns than 1.csv; on one side only: 'y'" in refusal(site(local, **keys), owner=True)


def test_exact_agreement_looks_at_every_file(local):
    (local / "1.csv").write_text("x,y\n1,2\n")
    (local / "2.csv").write_text("x,y,z\n1,2,3\n")
    keys = {"path": "?.csv", "columns": ["x", "y"], "agreement": "exact"}
    assert "on one side only: z" in refusal(site(local, **keys))
    (local / "2.csv").write_text("y,x\n4,3\n")
    np.testing.assert_array_equal(site(local, **keys).rows(), [[1, 2], [3, 4]])


def test_a_pattern_without_files_and_one_with_a_folder_are_refused(local):
    assert "*.csv: no file matches" in refusal(site(local, path="*.csv"))
    (local / "a.csv").mkdir()
    assert "a.csv is a folder" in refusal(site(local, path="*.csv"), owner=True)


PATIENT = "smith_john_19610403"  # the name of a file, which the operator's pattern does not hold


@pytest.mark.parametrize(
    ("name", "text", "path", "reason"),
    [
        (f"{PATIENT}.csv", "x,y\n1,a\n", "*.csv", "*.csv: column 'y' is not numeric, first in row #"),
        (f"{PATIENT}.csv", "x,z\n3,4\n", "*.csv", "*.csv has other columns than *.csv; on one side only: 'y', 'z'"),
        (f"{PATIENT}.csv", "3,4\n5,6\n", "*.csv", "*.csv and *.csv must both have names of columns"),
        (f"{PATIENT}.csv", "x,y\n3,\n", "*.csv", "*.csv: # cell is missing, NaN or infinite"),
        (f"{PATIENT}.csv", "", "*.csv", "*.csv is empty"),
        (f"{PATIENT}.csv", None, "*.csv", "*.csv is a folder"),
        (f"a b\n{PATIENT}.csv", "", "*.csv", "*.csv is empty"),
        (f"1.csv {PATIENT}.csv", "", "*.csv", "*.csv is empty"),
        (f"a.{PATIENT}", "x,y\n3,4\n", "?.*", "?.*: unknown suffix; a table has one of .npy"),
        (f"{PATIENT}.npz", "damaged", "*.npz", "*.npz is not a NumPy file"),
        (f"{PATIENT}.parquet", "damaged", "*.parquet", "*.parquet is not a parquet file"),
        (f"{PATIENT}/2.csv", "x,y\n3,\n", "**/*.csv", "*.csv: # cell is missing"),
    ],
)
def test_names_of_matched_files_stay_at_the_site(local, caplog, name, text, path, reason):
    """What travels has the pattern in their place; the site's own log and the owner's own texts have them."""
    (local / "1.csv").write_text("x,y\n1,2\n")
    (local / name).parent.mkdir(exist_ok=True)
    if text is None:
        (local / name).mkdir()
    else:
        (local / name).write_text(text)
    data = site(local, path=path)
    travels = refusal(data)
    assert travels.startswith(f"cannot use its rows: {reason}")
    assert "smith" not in travels
    own = name.rpartition("/")[2]
    assert own in caplog.text
    assert own in refusal(data, owner=True)
    assert "\0" not in travels + caplog.text + refusal(data, owner=True)


def test_the_name_of_a_matched_link_stays_at_the_site(local, tmp_path):
    np.save(tmp_path / "others.npy", X)
    (local / f"{PATIENT}.npy").symlink_to(tmp_path / "others.npy")
    assert "smith" in refusal(site(local, path="*.npy"), owner=True)
    assert refusal(site(local, path="*.npy")).startswith("cannot use its rows: *.npy is not under the root")
    (local / f"{PATIENT}.npy").unlink()
    (local / f"{PATIENT}.npy").symlink_to(f"{PATIENT}.npy")
    assert "smith" not in refusal(site(local, path="*.npy"))


def test_with_exact_agreement_the_name_of_a_matched_file_stays_at_the_site(local):
    (local / f"{PATIENT}.csv").write_text("x,y,z\n1,2,\n")
    keys = {"path": "*.csv", "columns": ["x", "y"], "agreement": "exact"}
    assert refusal(site(local, **keys)).startswith("cannot use its rows: *.csv: # cell is missing")


# --- the folder of the labels ---


JOB = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"


@pytest.mark.parametrize(
    ("path", "labels", "refused"),
    [
        ("../data/*.csv", "../data", True),
        ("../data/*", "../data", True),
        ("../data/0?[0-9a-f]*.csv", "../data", True),
        ("../data/[!g-z]*-????-*.c*", "../data", True),
        ("../data/**/*.csv", "../data/labels", True),
        ("../data/**/*.csv", "../data/a/labels", True),
        ("../data/**", "../data/a/labels", True),
        ("../data/*/*.csv", "../data/labels", True),
        ("../dat?/*.csv", "../data", True),
        ("../data/*.csv", "../data/labels", False),
        ("../data/*/*.csv", "../data", False),
        ("../data/**/*.csv", "../data/.labels", False),
        ("../data/visits-*.csv", "../data", False),
        ("../data/[!0-9a-f]*.csv", "../data", False),
        ("../data/????.csv", "../data", False),
        ("../data/*.parquet", "../data", False),
        ("../data/rows.csv", "../data", False),
        ("../data/*.csv", "../labels", False),
    ],
)
@pytest.mark.parametrize("there", [False, True])
def test_a_pattern_that_would_read_labels_as_rows_is_refused(local, path, labels, refused, there):
    """Whether or not the folder is there yet; and what is not refused does not match the labels file of a job."""
    (local / "../data").mkdir()
    if there:
        (local / labels).mkdir(parents=True, exist_ok=True)
    if refused:
        with pytest.raises(Refusal, match="path is a pattern that matches the files in its labels folder") as caught:
            site(local, path=path, labels=labels)
        assert "data" not in str(caught.value)
        assert site(local, path=path).labels is None
    else:
        data = site(local, path=path, labels=labels)
    if there:
        kept = keep_labels(local / JOB, local / labels, np.array([1]), None, None)
        found = glob.glob(str(local / path), recursive=True)
        assert refused == (kept.resolve() in [Path(file).resolve() for file in found])
        assert refused or kept.resolve() not in ([] if not found else [file.path for file in data.files()])


def test_a_linked_folder_of_labels_is_recognised(local):
    (local / "data").mkdir()
    (local / "labels").symlink_to("data")
    with pytest.raises(Refusal, match="would read labels as rows"):
        site(local, path="data/*.csv", labels="labels")


# --- rows that are used from where they lie ---


MANY = np.random.default_rng(0).normal(size=(100, 2))


def change(file, how):
    match how:
        case "longer":
            np.save(file, np.vstack([MANY, MANY]))
        case "other numbers":
            with file.open("r+b") as stream:
                stream.seek(-8, os.SEEK_END)
                stream.write(np.float64(77).tobytes())
            os.utime(file, ns=(0, file.stat().st_mtime_ns + 10_000_000))
        case "gone":
            file.unlink()


@pytest.mark.parametrize("how", ["longer", "other numbers", "gone"])
@pytest.mark.parametrize("path", ["rows.npy", "*.npy"])
def test_a_site_refuses_where_its_file_changes_under_a_job(local, path, how):
    np.save(local / "rows.npy", MANY)
    table = site(local, path=path, memory=1000).table()
    assert is_mapped(table.X)
    lloyd = LloydExecutor(k=2, min_count=2)
    task = Task(CLUSTER, 0, {}, "site-1")
    assert "centroids" in lloyd.answer(task, table, never_abort).arrays
    change(local / "rows.npy", how)
    with pytest.raises(Refusal, match="its file changed while the job ran") as refused:
        lloyd.answer(task, table, never_abort)
    assert "npy" not in str(refused.value)


def test_nothing_leaves_a_site_whose_file_changes_while_it_computes(local):
    np.save(local / "rows.npy", MANY)
    table = site(local, path="rows.npy", memory=1000).table()

    class Slow(LloydExecutor):
        def local(self, *args):
            change(local / "rows.npy", "other numbers")
            return super().local(*args)

    with pytest.raises(Refusal, match="its file changed while the job ran"):
        Slow(k=2, min_count=2).answer(Task(CLUSTER, 0, {}, "site-1"), table, never_abort)


def test_a_file_that_was_read_into_memory_may_change(local):
    np.save(local / "rows.npy", X)
    table = site(local, path="rows.npy").table()
    change(local / "rows.npy", "longer")
    table.check_unchanged()
    np.testing.assert_array_equal(table.X, X)


def test_a_file_called_like_a_pattern_is_that_file(local):
    np.save(local / "rows[1].npy", X)
    np.save(local / "rows1.npy", X + 1)
    np.testing.assert_array_equal(site(local, path="rows[1].npy").rows(), X)


def test_the_sites_name_stands_in_patterns(local):
    (local / "site-1").mkdir()
    np.save(local / "site-1" / "a.npy", X)
    np.testing.assert_array_equal(site(local, path="{site}/*.npy").rows(), X)


@pytest.mark.parametrize("name", ["*", "site?", "[a]", "..", ".", "", "a/b", "a\\b", "a\0b"])
def test_a_sites_name_chooses_no_other_file(local, name):
    with pytest.raises(Refusal, match="name cannot stand in a path"):
        site(local, name, path="{site}/rows.npy")
    assert site(local, name, path="rows.npy").path == local / "rows.npy"


# --- what else the configuration says ---


def test_the_format_is_said_where_the_name_does_not_tell(local):
    (local / "rows.dat").write_text("x,y\n1,2\n")
    assert "rows.dat: unknown suffix; a table" in refusal(site(local, path="rows.dat"))
    np.testing.assert_array_equal(site(local, path="rows.dat", format="csv").rows(), [[1, 2]])
    (local / "rows").write_text("x,y\n1,2\n")
    np.testing.assert_array_equal(site(local, path="rows", format="csv").rows(), [[1, 2]])


@pytest.mark.parametrize(
    ("limits", "owner", "others"),
    [
        (
            {"min_rows": 7},
            "there are 6 rows, fewer than the min_rows of 7",
            "there are # rows, fewer than the min_rows",
        ),
        ({"max_rows": 5}, "there are 6 rows, more than the max_rows of 5", "there are # rows, more than the max_rows"),
    ],
)
def test_outside_its_limits_a_site_refuses_and_tells_no_number(local, limits, owner, others):
    np.save(local / "rows.npy", X)
    data = site(local, path="rows.npy", **limits)
    assert owner in refusal(data, owner=True)
    assert others in refusal(data)
    assert "6" not in refusal(data)
    assert "7" not in refusal(data)


def test_within_its_limits_a_site_takes_part(local):
    np.save(local / "rows.npy", X)
    assert len(site(local, path="rows.npy", min_rows=6, max_rows=6).rows()) == 6


@pytest.mark.parametrize(
    ("said", "size"), [("4GB", 4 * 10**9), ("1.5 MiB", 3 * 2**19), ("64k", 64_000), (4096, 4096), ("1TB", 10**12)]
)
def test_memory_is_a_number_of_bytes_or_a_size(local, said, size):
    assert site(local, path="rows.npy", memory=said).memory == size


def test_by_default_rows_take_at_most_half_of_the_memory(local):
    assert site(local, path="rows.npy").memory == psutil.virtual_memory().total // 2


def test_more_rows_than_memory_are_mapped_and_the_same(local):
    np.save(local / "rows.npy", X)
    for memory, mapped in ((96, False), (95, True)):
        rows = site(local, path="rows.npy", memory=memory).rows()
        assert is_mapped(rows) is mapped
        np.testing.assert_array_equal(rows, X)


def test_the_scratch_folder_of_the_site_comes_before_that_of_the_job(local, tmp_path):
    (local / "rows.csv").write_text("x\n" + "1\n" * 9)
    keys = {"path": "rows.csv", "memory": 8}
    assert is_mapped(site(local, **keys).table(scratch=local).X)
    assert "scratch folder cannot take them (No such file" in refusal(site(local, scratch="gone", **keys))
    with pytest.raises(Refusal, match="scratch folder cannot take them"):
        site(local, **keys).table(scratch=tmp_path / "gone")


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"format": "xlsx"}, "format is none of npy, npz, csv"),
        ({"format": 3}, "format is no text"),
        ({"root": ["a"]}, "root is no text"),
        ({"root": ""}, "root is no text"),
        ({"id": 7}, "id is no text"),
        ({"id": "age", "columns": ["age", "crp"]}, "id is among its columns"),
        ({"min_rows": 0}, "min_rows is not an integer"),
        ({"min_rows": True}, "min_rows is not an integer"),
        ({"max_rows": "many"}, "max_rows is not an integer"),
        ({"min_rows": 9, "max_rows": 8}, "max_rows is less than its min_rows"),
        ({"memory": "much"}, 'memory is no size such as "4GB"'),
        ({"memory": "4 XB"}, "memory is no size"),
        ({"memory": -1}, "memory is no size"),
        ({"memory": 0}, "memory is no size"),
        ({"memory": True}, "memory is no size"),
        ({"scratch": 1}, "scratch is no text"),
        ({"labels": {}}, "labels is no text"),
        ({"lables": "x"}, "unknown keys in local/flareclust.yaml: lables (did you mean 'labels'"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(local, keys, reason):
    with pytest.raises(Refusal) as refused:
        site(local, path="rows.npy", **keys)
    assert reason in str(refused.value)
    assert "dr-x" not in str(refused.value)


def test_folders_are_relative_to_local_and_the_path_to_the_root(local):
    data = site(local, path="rows.npy", root="../data", scratch="s", labels="/labels")
    assert data.path == local / "../data" / "rows.npy"
    assert (data.root, data.scratch, str(data.labels)) == (local / "../data", local / "s", "/labels")


@pytest.mark.skipif(os.name != "posix", reason="Windows has no modes of files")
def test_a_written_configuration_is_for_the_sites_account_and_read_back(local):
    np.savez(local / "ä b.npz", X=X, columns=["x", "y"], pid=np.arange(6))
    mask = os.umask(0)
    try:
        file = write_site(local, "ä b.npz", ["y"], id_name="pid", root=str(local), format="npz")
    finally:
        os.umask(mask)
    assert file.stat().st_mode & 0o777 == 0o600
    table = SiteData.of(local, "site-1").table()
    assert table.columns == ("y",)
    assert list(table.ids) == list("012345")
    with pytest.raises(UserError, match="is there already"):
        write_site(local, "other.npz")


def test_all_wrong_values_are_named_at_once(local):
    with pytest.raises(Refusal) as caught:
        site(local, path="rows.npy", format=3, memory="much", min_rows=0)
    assert str(caught.value) == (
        "has a local/flareclust.yaml whose format is no text; min_rows is not an integer of at least 1; "
        'memory is no size such as "4GB"'
    )


def test_the_table_of_the_documentation_has_every_key():
    section = (ROOT / "docs" / "site-data.md").read_text().split("## All keys")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", section, flags=re.MULTILINE)
    assert re.findall(r"`(\w+)`", " ".join(rows)) == list(SiteConfig.model_fields)
    assert all(field.description for field in SiteConfig.model_fields.values())
