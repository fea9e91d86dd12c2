"""No path, link or pattern leads out of the folder of a site's rows."""

import numpy as np
import pytest

from flareclust.sites.config import write_config
from flareclust.sites.files import folder_of
from flareclust.sites.rows import SiteData
from tests.unit.sites.site_cases import X, refusal, site


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
    np.testing.assert_array_equal(wide.table().X, X)


def test_links_within_the_root_are_followed_also_where_the_root_is_a_link(local, tmp_path):
    (tmp_path / "store" / "v2").mkdir(parents=True)
    np.save(tmp_path / "store" / "v2" / "a.npy", X)
    (tmp_path / "store" / "current.npy").symlink_to("v2/a.npy")
    (local / "data").symlink_to(tmp_path / "store")
    np.testing.assert_array_equal(site(local, path="data/current.npy").table().X, X)
    np.testing.assert_array_equal(site(local, path="current.npy", root="data").table().X, X)


@pytest.mark.parametrize("path", ["../outside.npy", "inner/../../outside.npy", "inner/../../*.npy", "{outside}"])
def test_with_a_root_no_path_leads_out_of_it(local, path):
    (local / "data" / "inner").mkdir(parents=True)
    np.save(local / "data" / "rows.npy", X)
    np.save(local / "outside.npy", X)
    assert site(local, path="rows.npy", root="data").table().X.shape == X.shape
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
    np.testing.assert_array_equal(SiteData.of(local, "site-1").table().X, X)
    np.testing.assert_array_equal(SiteData(local / "link.npy").table().X, X)


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
