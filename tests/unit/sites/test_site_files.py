"""A site's configuration of its rows: format, limits, memory, and the file itself."""

import os
import re

import numpy as np
import psutil
import pytest

from flareclust._foundation.errors import Refusal, UserError
from flareclust.core.chunks import is_mapped
from flareclust.sites.config import SiteConfig, write_site
from flareclust.sites.rows import SiteData
from tests.paths import ROOT
from tests.unit.sites.site_cases import X, refusal, site


# --- what else the configuration says ---
def test_the_format_is_said_where_the_name_does_not_tell(local):
    (local / "rows.dat").write_text("x,y\n1,2\n")
    assert "rows.dat: unknown suffix; a table" in refusal(site(local, path="rows.dat"))
    np.testing.assert_array_equal(site(local, path="rows.dat", format="csv").table().X, [[1, 2]])
    (local / "rows").write_text("x,y\n1,2\n")
    np.testing.assert_array_equal(site(local, path="rows", format="csv").table().X, [[1, 2]])


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
    assert len(site(local, path="rows.npy", min_rows=6, max_rows=6).table().X) == 6


@pytest.mark.parametrize(
    ("said", "size"), [("4GB", 4 * 10**9), ("1.5 MiB", 3 * 2**19), ("64k", 64_000), (4096, 4096), ("1TB", 10**12)]
)
def test_memory_is_a_number_of_bytes_or_a_size(local, said, size):
    assert site(local, path="rows.npy", memory=said).memory == size


def test_by_default_rows_take_at_most_a_quarter_of_the_memory(local):
    assert site(local, path="rows.npy").memory == psutil.virtual_memory().total // 4


def test_more_rows_than_memory_are_mapped_and_the_same(local):
    np.save(local / "rows.npy", X)
    for memory, mapped in ((96, False), (95, True)):
        rows = site(local, path="rows.npy", memory=memory).table().X
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
    assert re.findall(r"`(\w+)`", " ".join(rows)) == [
        field.alias or name for name, field in SiteConfig.model_fields.items()
    ]
    assert all(field.description for field in SiteConfig.model_fields.values())
