"""The files of a saved result."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import installed
from flareclust._foundation.own_files import close_files, create, make_folder
from flareclust._foundation.version import __version__
from flareclust.data.labels import LABELS_FILE
from flareclust.evaluation import selection as choice
from flareclust.experiment.config import Experiment
from flareclust.experiment.result import Result
from flareclust.features import result as partial
from flareclust.protocol import outcome as outcome_files
from flareclust.protocol.outcome import Outcome

PICTURE, CHOICE_PICTURE, TREE_PICTURE = "picture.png", "choice.png", "tree.png"
#: What a saved result is made of; the summary says that the others are there.
FILES = (
    PICTURE,
    CHOICE_PICTURE,
    TREE_PICTURE,
    LABELS_FILE,
    outcome_files.ARRAYS,
    outcome_files.ROUNDS,
    outcome_files.SUMMARY,
)


def check_out(folder: Path) -> None:
    """Raise UserError unless a result may be written to `folder`: new, empty, or an older result."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise UserError(f"{existing} is a file; --out must name a folder")
    if not os.access(existing, os.W_OK):
        raise UserError(f"{existing} cannot be written to; choose another folder")
    if folder.is_dir() and {path.name for path in folder.iterdir()} - set(FILES):
        raise UserError(f"{folder} holds other files than a result; choose a new folder")


def save(result: Result, outcome: Outcome, experiment: Experiment, folder: Path) -> Result:
    """Write the result's files to `folder` in one step; return the result with `centroids_file` set.

    The folder holds result.npz, result.json, rounds.jsonl, labels.csv and picture.png; choice.png where k was chosen, and
    tree.png where clusters were merged in a tree.
    It appears complete or not at all, for its owner only. Without matplotlib (the extra `plots`) there are no pictures.
    """
    check_out(folder)
    try:
        return _saved(result, outcome, experiment, folder.absolute())
    except OSError as error:
        raise UserError(
            f"the result cannot be written to {folder} ({error.strerror}); choose another folder"
        ) from error


def _saved(result: Result, outcome: Outcome, experiment: Experiment, folder: Path) -> Result:
    make_folder(folder.parent)
    result = replace(result, centroids_file=str(folder / outcome_files.ARRAYS))
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        new = Path(scratch) / "new"
        new.mkdir()
        about = {
            **result.to_json(),
            "experiment": experiment.model_dump(mode="json", exclude={"tracking_uri"}),
            "flareclust": __version__,
        }
        about["columns"] = None if result.columns is None else list(result.columns)
        outcome_files.write(outcome, new, about)
        if result.site_labels:
            _write_labels(result, new)
        if installed("plots"):
            _draw(result, new)
        close_files(new)  # they show rows and labels; until now nobody else could enter the folder around them
        _put(new, folder)
    return result


def _draw(result: Result, folder: Path) -> None:
    """Write the pictures of a result."""
    from flareclust.plotting.selection import choice_picture
    from flareclust.plotting.style import save as save_picture
    from flareclust.plotting.tree import merge_picture

    if result.sites or partial.is_partial(result.arrays):
        save_picture(result.plot(), folder / PICTURE)
    if "tree_left" in result.arrays:
        save_picture(merge_picture(result.arrays, result.centroids_found, result.params["w"]), folder / TREE_PICTURE)
    if (known := choice.selection_of(result.arrays)) is not None:
        save_picture(choice_picture(known), folder / CHOICE_PICTURE)


def _write_labels(result: Result, folder: Path) -> None:
    """Write the labels of all sites, as only an engine that sees the rows can: site, number of the row there, label."""
    with create(folder / LABELS_FILE) as file:
        file.write("site,row,label\n")
        for site, labels in sorted(result.site_labels.items()):
            file.writelines(f"{site},{row},{label}\n" for row, label in enumerate(labels.tolist()))


def _put(new: Path, folder: Path) -> None:
    """Move the files of `new` to `folder`; an older result there is replaced file by file, its summary first gone."""
    if not folder.exists():
        new.rename(folder)
        return
    (folder / outcome_files.SUMMARY).unlink(missing_ok=True)
    for name in FILES:
        if (new / name).exists():
            os.replace(new / name, folder / name)
        else:
            (folder / name).unlink(missing_ok=True)
