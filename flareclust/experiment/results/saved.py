"""A saved result, read again."""

import csv
import json
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.display import in_unit, shown
from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.typing import IntArray
from flareclust._foundation.version import __version__
from flareclust.data.labels import LABELS_FILE
from flareclust.evaluation import null_reference
from flareclust.evaluation import stability as cluster_stability
from flareclust.evaluation.continuity import Continuity
from flareclust.experiment.results.ended import left_out
from flareclust.experiment.results.fetched import is_of_job, result_of_job
from flareclust.experiment.results.result import JSON_FIELDS, Result
from flareclust.protocol import outcome as outcome_files


def read_result(folder: Path) -> Result:
    """Return a saved result, without the rows of sites, true centroids and pictures; raise UserError for one that is not complete.

    The folder may be that of a job that NVFlare has downloaded.
    """
    folder = outcome_files.folder_of(folder)
    try:
        outcome, about = outcome_files.read(folder)
        if is_of_job(about):
            return result_of_job(outcome, about, folder)
        site_labels, site_rows = _read_labels(folder / LABELS_FILE)
        columns, plain = about["columns"], {name: about[name] for name in JSON_FIELDS}
        experiment, n_rows = about["experiment"], int(about["rows"])
        rows, matched = about.get("cluster_rows"), about.get("matched")
        more = {} if matched is None else _continuity(matched)
    except (JobFailed, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        _check_version(folder)
        raise UserError(
            f"{folder} holds no complete result of flareclust {__version__}: {_what_lacks(folder)}; name the folder that `run` or `save` has "
            "written"
        ) from error
    outcome = replace(outcome, labels=site_labels, job=about.get("job") or "")
    labels = np.full(n_rows, -1, dtype=np.int64)
    for site, places in site_rows.items():
        labels[places] = site_labels[site]
    return Result(
        **plain | {"centroids_file": str(folder.absolute() / outcome_files.ARRAYS)},
        centroids=outcome.centroids,
        labels=labels,
        site_labels=site_labels,
        site_rows=site_rows,
        arrays=outcome.arrays,
        columns=None if columns is None else tuple(columns),
        left_out={
            site: in_unit(why, str(experiment.get("row_name", "rows"))) for site, why in left_out(outcome).items()
        },
        job=about.get("job"),
        experiment=experiment,
        outcome=outcome,
        tracking=about.get("tracking", {}),
        assessed=about.get("assessed"),
        saved_rows=None if rows is None else tuple(map(int, rows)),
        stability=tuple(map(cluster_stability.ClusterStability.from_json, about.get("stability", ()))),
        repeated=about.get("repeated", {}),
        null=None if about.get("null") is None else null_reference.NullTest.from_json(about["null"]),
        schema=about.get("schema", ""),
        date=about.get("date", ""),
        words={name: tuple(values) for name, values in about.get("words", {}).items()},
        **more,
    )


def _what_lacks(folder: Path) -> str:
    """Return what keeps a folder from being read as a result, in a few words."""
    if not folder.is_dir():
        return "it is a file" if folder.exists() else "there is no such folder"
    files = outcome_files.SUMMARY, outcome_files.ARRAYS, outcome_files.ROUNDS
    lacking = [name for name in files if not (folder / name).is_file()]
    return (
        f"there is no {' and no '.join(lacking)}" if lacking else f"one of {', '.join(files)}, {LABELS_FILE} is damaged"
    )


def _check_version(folder: Path) -> None:
    """Raise UserError where a result is complete, but of another version, as those of 0.1, which had other fields."""
    try:
        written = json.loads((folder / outcome_files.SUMMARY).read_text())["flareclust"]
    except (OSError, ValueError, LookupError, TypeError):
        return
    if isinstance(written, str) and written != __version__ and zipfile.is_zipfile(folder / outcome_files.ARRAYS):
        raise UserError(
            f"the result in {folder} is of flareclust {shown(written)}, in a form that {__version__} cannot read: run it again with this "
            "version, or read it with that one"
        )


def _continuity(matched: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a result says of an earlier one, whose numbers it has."""
    values = dict(matched)
    numbers = values.pop("job_numbers")
    return {
        "matched_to": str(values.pop("to")),
        "job_numbers": None if numbers is None else tuple(map(int, numbers)),
        "continuity": Continuity.from_json(values),
    }


def _read_labels(file: Path) -> tuple[dict[str, IntArray], dict[str, IntArray]]:
    """Return the labels by site, and which rows of the data each site has; both empty where there is no file."""
    labels: dict[str, list[int]] = {}
    rows: dict[str, list[int]] = {}
    if file.exists():
        with file.open(newline="", encoding="utf-8") as lines:
            for line in csv.DictReader(lines):
                labels.setdefault(line["site"], []).append(int(line["label"]))
                rows.setdefault(line["site"], []).append(int(line["data_row"]))
    by_site = ({site: np.array(values, dtype=np.int64) for site, values in one.items()} for one in (labels, rows))
    return next(by_site), next(by_site)
