"""Sites whose rows are folders of images: which folders these are, and the size of their images."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from flareclust._foundation.errors import UserError
from flareclust.data.image_files import IMAGE_SUFFIXES, Shape, first_shape, has_images, image_ids, named
from flareclust.data.tables import Rows
from flareclust.protocol import registry

#: The parameter that says which shape the images in the rows have.
IMAGE = "image"


def folders_of_images(folder: Path) -> list[Path]:
    """Return the folders in a folder that have images in them, in the order of their names.

    Raises:
        UserError: the images lie in the folder itself, so that it is not known whose they are; or some folders have images
            and others have none.
    """
    inside = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    folders = [path for path in inside if path.is_dir()]
    found = [path for path in folders if has_images(path)]
    if found and len(found) < len(folders):
        empty = next(path for path in folders if path not in found)
        raise UserError(f"{empty} has no images ({', '.join(IMAGE_SUFFIXES)}), as the folders of other sites have")
    if not found and any(path.suffix.lower() in IMAGE_SUFFIXES for path in inside):
        raise UserError(
            f"{folder} has images, but no folder per site; put the images of each site into a folder with its name, such as "
            f"{folder / 'site-1'}"
        )
    return found


def ids_of_images(sites: Mapping[str, Rows]) -> dict[str, list[str]]:
    """Return the ids of the rows of all sites where they are folders of images, else nothing.

    A folder that cannot be listed has none; its site says so itself.
    """
    folders = {site: rows for site, rows in sites.items() if isinstance(rows, Path) and rows.is_dir()}
    if len(folders) < len(sites):
        return {}
    ids: dict[str, list[str]] = {site: [] for site in folders}
    for site, folder in folders.items():
        with suppress(UserError):
            ids[site] = image_ids(folder)
    return ids


def image_settings(algorithm: str, sites: Mapping[str, Rows]) -> dict[str, str]:
    """Return the `image` of an algorithm that has this parameter: the shape of the images in the sites' folders.

    A square image's shape follows from the number of columns, others' do not: a row of 48 x 64 x 3 numbers could be one of
    96 x 96. Empty where there are no folders; a site that cannot be read says so itself.

    Raises:
        UserError: sites have images of different shapes.
    """
    if IMAGE not in registry.get(algorithm).parameters():
        return {}
    shapes: dict[str, Shape] = {}
    for site, rows in sites.items():
        if isinstance(rows, Path) and rows.is_dir():
            with suppress(UserError):
                shapes[site] = first_shape(rows)
    if not shapes:
        return {}
    first, shape = next(iter(shapes.items()))
    for site, own in shapes.items():
        if own != shape:
            raise UserError(
                f"{site} has images of {named(own)} where {first} has {named(shape)} (height x width x channels): images of "
                "all sites must have one size, and be all grey or all in colour; resize or convert them first"
            )
    return {IMAGE: named(shape)}
