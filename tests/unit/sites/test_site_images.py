"""A site whose rows are a folder of images: names of images stay at the site, links do not lead out of the root."""

import logging
import os

import numpy as np
import pytest

from flareclust._foundation.errors import Refusal
from flareclust.sites.check import check
from tests.unit.data.image_cases import colour, grey, write
from tests.unit.sites.site_cases import refusal, site

PATIENT = "dr-x-4711"


def test_the_path_of_a_site_can_be_a_folder_of_images(local):
    for number in range(3):
        write(local / "images" / f"{number}.png", grey(number))
    table = site(local, path="images").table()
    np.testing.assert_array_equal(table.X, [grey(number).ravel() for number in range(3)])
    assert list(table.ids) == ["0.png", "1.png", "2.png"]
    assert len(site(local, path="images", max_rows=3).table().X) == 3
    with pytest.raises(Refusal, match="fewer than the min_rows"):
        site(local, path="images", min_rows=4).table(reader_owns_them=True)


def test_folders_of_a_pattern_are_joined_in_the_order_of_their_names(local):
    write(local / "b" / "1.png", grey(1))
    write(local / "a" / "2.png", grey(2))
    table = site(local, path="[ab]").table()
    np.testing.assert_array_equal(table.X, [grey(2).ravel(), grey(1).ravel()])
    write(local / "b" / "1.png", colour(1))
    assert "b has 192 columns where a has 64" in refusal(site(local, path="[ab]"), owner=True)


@pytest.mark.parametrize(
    ("fault", "sent"),
    [
        (colour(1), "images has # x # x # where images has # x # x #"),
        (b"damaged", "images cannot be read: the image is damaged"),
    ],
)
def test_names_of_images_stay_at_the_site(local, caplog, fault, sent):
    write(local / "images" / "0.png", grey(0))
    odd = local / "images" / PATIENT / "1.png"
    if isinstance(fault, bytes):
        odd.parent.mkdir()
        odd.write_bytes(fault)
    else:
        write(odd, fault)
    data = site(local, path="images")
    with caplog.at_level(logging.WARNING):
        assert sent in refusal(data)
    assert f"images/{PATIENT}/1.png" in caplog.text
    with pytest.raises(Refusal, match=f"images/{PATIENT}/1.png"):
        data.table(reader_owns_them=True)


def test_links_out_of_the_root_are_refused_and_those_within_are_read(local):
    outside = write(local.parent / "outside" / "1.png", grey(1))
    write(local / "stored" / "2.png", grey(2))
    (local / "images").mkdir()
    (local / "images" / "2.png").symlink_to(local / "stored" / "2.png")
    np.testing.assert_array_equal(site(local, path="images").table().X, [grey(2).ravel()])
    (local / "images" / "1.png").symlink_to(outside)
    assert "images is not under the root" in refusal(site(local, path="images"))
    assert len(site(local, path="images", root=os.sep, name="a").files()) == 1


def test_a_check_names_the_shape_and_lists_no_pixels(local):
    (local.parent / "startup").mkdir()
    for number in range(3):
        write(local / "images" / f"{number}.png", colour(number, 6, 9))
    site(local, path="images")
    checked = check(local.parent, "a")
    assert checked.facts["images"] == "3 of height x width x channels 6x9x3"
    assert checked.facts["ids"] == "relative paths"
    assert (checked.rows.number, list(checked.rows.columns)) == (3, [])
    assert not any("column" in hint for hint in checked.hints)
