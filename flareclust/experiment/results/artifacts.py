"""The files of a saved result, written in one step."""

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.extras import installed
from flareclust._foundation.own_files import check_target, close_files, create, fallbacks, make_folder, write_rows
from flareclust._foundation.version import __version__
from flareclust.data.labels import LABELS_FILE
from flareclust.evaluation import selection as choice
from flareclust.evaluation.disclosure import DISCLOSURE
from flareclust.experiment.reports.page import report_page
from flareclust.experiment.results.disclosure import CHOICE_PICTURE, PICTURE, REPORT, TREE_PICTURE, disclosure_of
from flareclust.experiment.results.picture import has_tree, picture_of, tree_of
from flareclust.federation.checkpoint import CHECKPOINT, PART
from flareclust.platform.poc import state as poc_state
from flareclust.preparation import result as partial
from flareclust.protocol import outcome as outcome_files

if TYPE_CHECKING:
    from flareclust.experiment.results.result import Result

#: What a saved result is made of; the summary says that the others are there. A checkpoint is gone when they are.
_FILES = (
    *(PICTURE, CHOICE_PICTURE, TREE_PICTURE, REPORT, DISCLOSURE, LABELS_FILE),
    *(outcome_files.ARRAYS, outcome_files.ROUNDS, outcome_files.SUMMARY, CHECKPOINT, PART),
)


def has_checkpoint(folder: Path) -> bool:
    """Return whether `folder` holds the checkpoint of an interrupted run."""
    return (folder / CHECKPOINT).exists()


def check_resume(folder: Path) -> None:
    """Raise UserError unless `folder` holds the checkpoint of an interrupted run."""
    if not has_checkpoint(folder) and (folder / outcome_files.SUMMARY).exists():
        raise UserError(f"{folder} holds a finished result, so there is nothing to resume; see flareclust.load_result")


def check_unused(folder: Path) -> None:
    """Raise UserError where `folder` holds a result, which a run from the command line replaces on request only."""
    if (folder / outcome_files.SUMMARY).exists():
        check_target(folder, _FILES)
        raise UserError(
            f"{folder} holds the result of another run; name a new folder with --out, or replace the result with --overwrite"
        )


def check_out(folder: Path, *, resume: bool = False) -> None:
    """Raise UserError unless a result may be written to `folder`: new, empty, or an older result; or a run to resume."""
    check_target(folder, _FILES)
    if not resume and has_checkpoint(folder):
        raise UserError(
            f"{folder} holds the checkpoint of an interrupted run; resume it (--resume {folder}, or resume=), remove it, or "
            "choose a new folder"
        )


def save(result: "Result", folder: Path, *, resume: bool = False) -> "Result":
    """Write the result's files to `folder` in one step; return the result with `centroids_file` set.

    The folder holds result.npz, result.json, rounds.jsonl, labels.csv, report.html, disclosure.json and picture.png; choice.png where k was chosen, and
    tree.png where there is a tree.
    It appears complete or not at all, for its owner only. Without matplotlib (the extra `plots`) there are no pictures.
    With `resume` the folder may hold the checkpoint of the run, which is removed.
    """
    if result.centroids_file == str(folder.absolute() / outcome_files.ARRAYS) and not result.sites:
        return result  # loaded from there, where its pictures are
    check_out(folder, resume=resume)
    try:
        return _saved(result, folder.absolute())
    except OSError as error:
        raise UserError(
            f"the result cannot be written to {folder} ({error.strerror}); choose another folder"
        ) from error


def keep(result: "Result", folder: Path) -> "Result":
    """Save a result as `save` does; where the folder cannot be written any more, in another one that a warning names.

    Raises:
        JobFailed: the result could be written nowhere; on provisioned sites the server still has it.
    """
    try:
        return save(result, folder, resume=True)
    except UserError as error:
        reasons = [str(error)]
    again = f"; the server keeps the result of the job {result.job}: {_fetch_command(result)}" if result.job else ""
    for other in fallbacks(folder.name):
        warning = f"the result is in {other}: {reasons[0]}{again}"
        try:
            return save(replace(result, warnings=[*result.warnings, warning]), other)
        except UserError as error:
            reasons.append(str(error))
    raise JobFailed(f"the result could not be kept: {'; '.join(reasons)}{again}")


def _fetch_command(result: "Result") -> str:
    """Return the command that gets the result from the server of its job again."""
    kit = str(result.experiment.get("kit") or poc_state.DEFAULT)
    if result.experiment.get("engine") == "poc":
        kit = str(Path(kit) / poc_state.KITS / poc_state.LEAD)
    return outcome_files.fetch_command(result.job or "", kit)


def _saved(result: "Result", folder: Path) -> "Result":
    if (outcome := result.outcome) is None:
        raise UserError("only a result of `run` or `load_result` can be saved")
    make_folder(folder.parent)
    result = replace(result, centroids_file=str(folder / outcome_files.ARRAYS))
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        new = Path(scratch) / "new"
        new.mkdir()
        columns, rows = result.columns, result.cluster_rows
        about = {**result.to_json(), "experiment": dict(result.experiment), "flareclust": __version__}
        about |= {"columns": None if columns is None else list(columns), "rows": len(result.labels)}
        about |= {"cluster_rows": None if rows is None else rows.tolist()}
        more = {
            "schema": result.schema,
            "date": result.date,
            "words": dict(result.words),
            "tracking": dict(result.tracking),
        }
        outcome_files.write(outcome, new, about | {name: value for name, value in more.items() if value})
        if result.site_labels:
            _write_labels(result, new)
        if installed("plots"):
            _draw(result, new)
        (new / REPORT).write_text(report_page(result), encoding="utf-8")
        record = json.dumps(disclosure_of(result), indent=2, allow_nan=False)
        (new / DISCLOSURE).write_text(record + "\n", encoding="utf-8")
        close_files(new)  # they show rows and labels; until now nobody else could enter the folder around them
        _put(new, folder)
    return result


def _draw(result: "Result", folder: Path) -> None:
    """Write the pictures of a result."""
    from flareclust.experiment.plotting.selection import choice_picture
    from flareclust.experiment.plotting.style import save as save_picture

    if result.sites or partial.is_partial(result.arrays):
        save_picture(picture_of(result), folder / PICTURE)
    if has_tree(result.arrays):
        save_picture(tree_of(result), folder / TREE_PICTURE)
    if (known := choice.selection_of(result.arrays)) is not None:
        save_picture(choice_picture(known), folder / CHOICE_PICTURE)


def _write_labels(result: "Result", folder: Path) -> None:
    """Write the labels of all sites, as only an engine that sees the rows can: site, number of the row there and in the data.

    Rows with ids have them in a last column.
    """
    with create(folder / LABELS_FILE) as file:
        write_rows(file, [["site", "row", "label", "data_row", *(["id"] if result.ids else [])]])
        for site, labels in sorted(result.site_labels.items()):
            # One after the other: lists of all take memory.
            columns = [map(int, labels), map(int, result.site_rows[site]), *([result.ids[site]] if result.ids else [])]
            write_rows(file, ([site, row, *cells] for row, cells in enumerate(zip(*columns, strict=True))))


def _put(new: Path, folder: Path) -> None:
    """Move the files of `new` to `folder`; an older result there is replaced file by file, its summary first gone."""
    if not folder.exists():
        new.rename(folder)
        return
    (folder / outcome_files.SUMMARY).unlink(missing_ok=True)
    for name in _FILES:
        if (new / name).exists():
            os.replace(new / name, folder / name)
        else:
            (folder / name).unlink(missing_ok=True)
