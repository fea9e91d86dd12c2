"""Folders of images: one image per row, pixel by pixel (height, width, channels), in the order of their relative paths.

Grey images have one channel, all others three (RGB): palettes become colours, and transparency is left out. Values are
from 0 to 255, also those of grey images of 16 bits; of TIFF files with other numbers they are as in the file. Of several
frames the first is read.

Sizes are checked in a file's header, before its pixels are decoded. Names of images are marked in messages
(`flareclust.data.file_formats.marked`): they may be those of patients.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.errors import FlareclustError, UserError
from flareclust._foundation.extras import require
from flareclust._foundation.typing import FloatArray
from flareclust.data.file_formats import DAMAGED, FileFingerprint, Piece, Source, marked, no_id, real_path
from flareclust.data.memory import RowStore

if TYPE_CHECKING:
    from PIL.Image import Image

#: Endings of the files that are read, in small letters.
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".gif", ".webp")

#: The decoders that may look at them, whatever a file's ending.
_FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "GIF", "WEBP")

#: More pixels than images that are clustered pixel by pixel have; each takes 8 bytes per channel.
_MOST_PIXELS = 1 << 24

#: Modes of Pillow with one channel of brightness; transparency is a further one in some.
_GREY = frozenset({"1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N", "F"})

#: From 16 bits to 8: 65535 becomes 255.
_FROM_16_BITS = 257.0


#: Height, width and channels.
Shape = tuple[int, int, int]


def _image_names(folder: Path) -> list[str]:
    """Return the relative paths of the images in a folder and its subfolders, with `/`, sorted; hidden ones are left out.

    UserError where a folder cannot be listed, or is a link.
    """
    found = []
    for at, folders, files in os.walk(folder, onerror=_refuse_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in folders:
            if (Path(at) / name).is_symlink():
                place = marked((Path(at) / name).relative_to(folder).as_posix())
                raise UserError(f"{place} is a link to a folder; put a folder with the images, or links to them, there")
        for name in files:
            if _is_image(name):
                found.append((Path(at) / name).relative_to(folder).as_posix())
    return sorted(found)


def image_ids(folder: Path) -> list[str]:
    """Return the ids of a folder's rows, as `open_images` gives them: the relative paths; UserError as `_image_names`."""
    return [_printable(name) for name in _image_names(folder)]


def has_images(folder: Path) -> bool:
    """Return whether a folder or a subfolder has an image; what cannot be listed has none."""
    return any(_is_image(name) for _, _, files in os.walk(folder) for name in files)


def first_shape(folder: Path) -> Shape:
    """Return height, width and channels of a folder's first image; UserError as `open_images`."""
    with open_images(folder, folder.name) as source:
        assert source.shape is not None
        return source.shape


def named(shape: Sequence[int], by: str = "x") -> str:
    """Return a shape as the parameter `image` has it: "48x64x3"."""
    return by.join(map(str, shape))


@contextmanager
def open_images(folder: Path, place: str, root: Path | None = None, id_name: str | None = None) -> Iterator[Source]:
    """Open a folder of images of one shape; the ids of its rows are their relative paths.

    Args:
        root: folder under which every image must lie once links are followed; None for anywhere.
        id_name: the name of a column with ids, which images do not have.

    Raises:
        UserError: there are no images, there is no Pillow, or an image is damaged, too large, of another shape than
            the first, or changed before all were read.
    """
    if id_name is not None:
        raise no_id(place)
    if find_spec("PIL") is None:
        require("deep", f"{place}, a folder of images,")
    names = [] if folder.resolve() == folder.resolve().parent else _image_names(folder)  # not of all folders there are
    if not names:
        raise UserError(
            f"{place} is a folder without images ({', '.join(IMAGE_SUFFIXES)}); a table is one file, such as a csv file"
        )
    reader = _Images(folder, place, root)

    def read(positions: Sequence[int] | None, store: RowStore) -> Iterator[Piece]:
        del positions  # there are no names to choose by
        step = max(1, store.piece // (8 * width))
        for start in range(0, len(names), step):
            part = names[start : start + step]
            rows = np.empty((len(part), width))
            for row, name in zip(rows, part, strict=True):
                row[:] = reader.pixels(name, shape, names[0])
            yield Piece(rows, np.array([_printable(name) for name in part]))

    with FileFingerprint.kept(folder, place, names):
        with reader.opened(names[0]) as image:
            shape = _shape(image)
        width = shape[0] * shape[1] * shape[2]
        yield Source(None, read, n=len(names), width=width, shape=shape)


class _Images:
    """Decodes the images of a folder, and says which one is at fault."""

    def __init__(self, folder: Path, place: str, root: Path | None) -> None:
        self._folder, self._place, self._root = folder, place, root

    def called(self, name: str) -> str:
        """Return what messages call an image: folder and relative path, between marks."""
        return marked(f"{self._place}/{_printable(name)}")

    @contextmanager
    def opened(self, name: str) -> Iterator["Image"]:
        """Open an image whose header states no more pixels than images have."""
        from PIL import Image

        file = real_path(self._folder / name, self.called(name), self._root, "put the image itself there")
        if not file.is_file():
            raise UserError(f"{self.called(name)} is no file, or its link leads nowhere")
        try:
            with Image.open(file, formats=_FORMATS) as image:
                if image.width * image.height > _MOST_PIXELS:
                    raise Image.DecompressionBombError
                yield image
        except FlareclustError:  # some are ValueErrors, too, but say already what is wrong
            raise
        except Image.DecompressionBombError:
            raise UserError(f"{self.called(name)} has more than {_MOST_PIXELS:,} pixels; make it smaller") from None
        except OSError as error:
            raise UserError(f"{self.called(name)} cannot be read: {error.strerror or 'the image is damaged'}") from None
        except DAMAGED:
            raise UserError(f"{self.called(name)} cannot be read: the image is damaged") from None

    def pixels(self, name: str, shape: Shape, first: str) -> FloatArray:
        """Return an image's pixels (height * width * channels,), which must have the shape of the first."""
        with self.opened(name) as image:
            if (own := _shape(image)) != shape:
                raise UserError(
                    f"{self.called(name)} has {named(own, ' x ')} where {self.called(first)} has {named(shape, ' x ')} (height x "
                    "width x channels): all images of a site must have one size, and be all grey or all in colour; "
                    "resize or convert them first"
                )
            return _values(image).ravel()


def _is_image(name: str) -> bool:
    return not name.startswith(".") and Path(name).suffix.lower() in IMAGE_SUFFIXES


def _shape(image: "Image") -> Shape:
    """Return height, width and channels as the header states them."""
    return image.height, image.width, 1 if image.mode in _GREY else 3


def _values(image: "Image") -> FloatArray:
    """Decode an image: (height, width) where it is grey, else (height, width, 3)."""
    if image.mode.startswith("I;16"):
        return np.asarray(image).astype(np.float64) / _FROM_16_BITS
    if image.mode in ("I", "F"):
        return np.asarray(image, np.float64)
    if image.mode == "P" and "transparency" in image.info:
        return np.asarray(image.convert("RGBA").convert("RGB"), np.float64)
    return np.asarray(image.convert("L" if image.mode in _GREY else "RGB"), np.float64)


def _printable(name: str) -> str:
    """Return a name that can be printed and written: names of files need not be Unicode."""
    return name.encode(errors="replace").decode()


def _refuse_unreadable(error: OSError) -> None:
    raise UserError(f"a folder of images cannot be listed: {error.strerror}") from None
