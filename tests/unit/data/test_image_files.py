"""Folders of images: which files are read, in which order, as which numbers, and what is refused."""

import os

import numpy as np
import pytest
from PIL import Image

from flareclust._foundation.errors import UserError
from flareclust.data import image_files
from flareclust.data.memory import RowStore
from flareclust.data.tables import File, Numbers, read_table
from tests.unit.data.image_cases import colour, grey, write


def refused(folder, text):
    with pytest.raises(UserError, match=text) as error:
        read_table(folder)
    assert "\0" not in str(error.value)
    return str(error.value)


# --- what is read ---
def test_rows_are_the_pixels_in_the_order_of_relative_paths(tmp_path):
    places = ("b.png", "a/2.png", "a/10.png", "a-b/1.png", "C.PNG")
    for number, name in enumerate(places):
        write(tmp_path / name, grey(number, 3, 5))
    table = read_table(tmp_path)
    order = sorted(places)
    assert image_files._image_names(tmp_path) == order
    assert table.columns is None
    assert list(table.ids) == order
    assert table.X.dtype == np.float64
    np.testing.assert_array_equal(table.X, [grey(places.index(name), 3, 5).ravel() for name in order])


def test_colours_lie_together_pixel_by_pixel(tmp_path):
    write(tmp_path / "1.png", colour(1, 3, 5))
    np.testing.assert_array_equal(read_table(tmp_path).X, [colour(1, 3, 5).ravel()])
    assert image_files.first_shape(tmp_path) == (3, 5, 3)


@pytest.mark.parametrize("suffix", image_files.IMAGE_SUFFIXES)
def test_every_format_is_read(tmp_path, suffix):
    flat = np.full((8, 8, 3), (200, 100, 50), np.uint8)
    write(tmp_path / f"1{suffix}", flat)
    np.testing.assert_allclose(read_table(tmp_path).X, [flat.ravel()], atol=4)


def test_hidden_and_other_files_are_left_out(tmp_path):
    write(tmp_path / "1.png", grey(1))
    write(tmp_path / "._1.png", grey(2))
    write(tmp_path / ".thumbnails" / "1.png", grey(2))
    (tmp_path / "labels.csv").write_text("1,2\n")
    assert image_files._image_names(tmp_path) == ["1.png"]
    assert image_files.has_images(tmp_path)
    assert not image_files.has_images(tmp_path / ".thumbnails" / "none")


@pytest.mark.parametrize(
    ("mode", "channels"),
    [("1", 1), ("L", 1), ("LA", 1), ("I;16", 1), ("P", 3), ("RGB", 3), ("RGBA", 3)],
)
def test_grey_stays_grey_and_all_else_becomes_rgb(tmp_path, mode, channels):
    extreme = np.where(grey(0) > 127, 255, 0).astype(np.uint8)
    pixels = extreme.astype(np.uint16) * 257 if mode == "I;16" else extreme
    write(tmp_path / "1.png", pixels, None if mode == "I;16" else mode)
    expected = np.repeat(extreme.ravel(), channels)
    np.testing.assert_array_equal(read_table(tmp_path).X, [expected])


def test_a_palette_with_transparency_keeps_its_colours(tmp_path):
    image = Image.fromarray(np.array([[0, 1]], np.uint8), mode="P")
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.save(tmp_path / "1.png", transparency=b"\x00\x80")
    np.testing.assert_array_equal(read_table(tmp_path).X, [[10, 20, 30, 40, 50, 60]])


def test_grey_with_a_transparent_value_stays_grey(tmp_path):
    write(tmp_path / "1.png", grey(0), transparency=7)
    np.testing.assert_array_equal(read_table(tmp_path).X, [grey(0).ravel()])


def test_cmyk_and_floats(tmp_path):
    write(tmp_path / "colour" / "1.jpg", colour(0), "CMYK")
    assert read_table(tmp_path / "colour").X.shape == (1, 192)
    write(tmp_path / "floats" / "1.tif", np.array([[0.5, -1.25]], np.float32))
    np.testing.assert_array_equal(read_table(tmp_path / "floats").X, [[0.5, -1.25]])


def test_the_first_frame_of_several_is_read(tmp_path):
    first, second = (Image.fromarray(grey(i)) for i in range(2))
    first.save(tmp_path / "1.tif", save_all=True, append_images=[second])
    np.testing.assert_array_equal(read_table(tmp_path).X, [grey(0).ravel()])
    first.save(tmp_path / "1.gif", save_all=True, append_images=[second])
    (tmp_path / "1.tif").unlink()
    np.testing.assert_array_equal(read_table(tmp_path).X, [grey(0).repeat(3)])  # a palette


# --- memory ---
def test_more_than_memory_goes_to_a_file(tmp_path):
    for number in range(6):
        write(tmp_path / "images" / f"{number}.png", grey(number))
    table = Numbers().read([File(tmp_path / "images", "images")], RowStore(1000, tmp_path))
    assert isinstance(table.X, np.memmap)
    np.testing.assert_array_equal(table.X, [grey(number).ravel() for number in range(6)])
    assert len(table.ids) == 6


def test_more_than_a_run_reads_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    for number in range(4):
        write(tmp_path / f"{number}.png", grey(number))
    monkeypatch.setattr(image_files, "_values", lambda image: pytest.fail("decoded"))
    monkeypatch.setenv("FLARECLUST_MEMORY", "1kB")
    refused(tmp_path, r"has 2,048 bytes of rows, more than the 1,000 ")


def test_an_image_with_too_many_pixels_is_refused_by_its_header(tmp_path, monkeypatch):
    monkeypatch.setattr(image_files, "_values", lambda image: pytest.fail("decoded"))
    monkeypatch.setattr(image_files, "_MOST_PIXELS", 63)
    write(tmp_path / "1.png", grey(0))
    refused(tmp_path, r"1\.png has more than 63 pixels")


def test_a_header_that_claims_far_more_than_the_file_has_is_refused(tmp_path):
    data = write(tmp_path / "1.bmp", grey(0)).read_bytes()
    (tmp_path / "1.bmp").write_bytes(data[:18] + (30_000).to_bytes(4, "little") * 2 + data[26:])
    refused(tmp_path, r"1\.bmp has more than 16,777,216 pixels")


# --- what is refused ---
@pytest.mark.parametrize(
    ("odd", "found"),
    [(grey(1, 8, 9), "8 x 9 x 1"), (grey(1, 4, 16), "4 x 16 x 1"), (colour(1), "8 x 8 x 3")],
)
def test_images_of_another_shape_are_refused_with_both_names(tmp_path, odd, found):
    write(tmp_path / "a.png", grey(0))
    write(tmp_path / "sub" / "b.png", odd)
    text = refused(tmp_path, rf"sub/b\.png has {found} where .*a\.png has 8 x 8 x 1 \(height x width x channels\)")
    assert "resize or convert" in text


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".bmp", ".tif", ".gif", ".webp"])
def test_a_truncated_image_is_named(tmp_path, suffix):
    write(tmp_path / "a.png", colour(0, 64, 64))
    whole = write(tmp_path / f"b{suffix}", colour(1, 64, 64)).read_bytes()
    (tmp_path / f"b{suffix}").write_bytes(whole[: len(whole) // 2])
    refused(tmp_path, rf"b\{suffix} cannot be read: the image is damaged")


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n" + bytes(20), b"%PDF-1.4"])
def test_what_is_no_image_is_named(tmp_path, content):
    write(tmp_path / "a.png", grey(0))
    (tmp_path / "b.png").write_bytes(content)
    refused(tmp_path, r"b\.png cannot be read: the image is damaged")


def test_a_folder_without_images_and_one_with_names_of_columns(tmp_path):
    refused(tmp_path, r"is a folder without images \(\.png, ")
    write(tmp_path / "1.png", grey(0))
    with pytest.raises(UserError, match="columns"):
        read_table(tmp_path, ["x"])


def test_links_to_nowhere_and_to_folders_are_refused(tmp_path):
    write(tmp_path / "images" / "1.png", grey(0))
    (tmp_path / "images" / "2.png").symlink_to(tmp_path / "nowhere.png")
    refused(tmp_path / "images", r"2\.png is no file, or its link leads nowhere")
    (tmp_path / "images" / "2.png").unlink()
    write(tmp_path / "more" / "3.png", grey(1))
    (tmp_path / "images" / "more").symlink_to(tmp_path / "more")
    refused(tmp_path / "images", r"more is a link to a folder")


class _Meanwhile(RowStore):
    """A store during whose reading another process does something once."""

    def __init__(self, what) -> None:
        super().__init__()
        self.what = what

    def check_fits(self, size, place):
        what, self.what = self.what, lambda: None
        what()
        super().check_fits(size, place)


def _swap(folder):
    (folder / "a" / "2.png").rename(folder / "a" / "0.png")
    (folder / "1.png").rename(folder / "a" / "2.png")
    (folder / "a" / "0.png").rename(folder / "1.png")


#: What happens to a folder while it is read.
CHANGES = {
    "an image": lambda folder: write(folder / "1.png", grey(7)),
    "an image below": lambda folder: write(folder / "a" / "2.png", grey(7)),
    "half of an image": lambda folder: (folder / "1.png").write_bytes((folder / "1.png").read_bytes()[:40]),
    "where a link leads": lambda folder: write(folder.parent / "3.png", grey(7)),
    "an image that takes the place of another": lambda folder: (folder / "1.png").replace(folder / "a" / "2.png"),
    "two images change places": _swap,
    "an image is gone": lambda folder: (folder / "a" / "2.png").unlink(),
}


@pytest.fixture
def folder(tmp_path):
    for number, name in enumerate(("1.png", "a/2.png")):
        os.utime(write(tmp_path / "images" / name, grey(number)), ns=(0, 10**18 + number))
    (tmp_path / "images" / "3.png").symlink_to(write(tmp_path / "3.png", grey(3)))
    return tmp_path / "images"


@pytest.mark.parametrize("change", CHANGES)
def test_a_folder_whose_images_are_written_while_it_is_read_is_not_used(folder, change):
    store = _Meanwhile(lambda: CHANGES[change](folder))
    with pytest.raises(
        UserError, match=r"^images changed while it was read, .* write a table or images to another name"
    ):
        Numbers().read([File(folder, "images")], store)


def test_what_is_written_beside_the_images_of_a_folder_changes_nothing(folder):
    def others():
        write(folder / "0.png", grey(7))
        (folder / "a" / "notes.txt").write_text("seen")

    table = Numbers().read([File(folder, "images")], _Meanwhile(others))
    assert list(table.ids) == ["1.png", "3.png", "a/2.png"]
    np.testing.assert_array_equal(table.X, [grey(number).ravel() for number in (0, 3, 1)])


def test_without_pillow_the_extra_is_named(tmp_path, monkeypatch):
    write(tmp_path / "1.png", grey(0))
    find = image_files.find_spec
    for module in ("flareclust.data.image_files", "flareclust._foundation.extras"):
        monkeypatch.setattr(f"{module}.find_spec", lambda name: None if name == "PIL" else find(name))
    refused(tmp_path, r"a folder of images, needs PIL; .*flareclust\[deep\]")
