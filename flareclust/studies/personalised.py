"""`flareclust.personalise`: models of devices whose rows are of different clusters."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flareclust._foundation.extras import require
from flareclust._foundation.own_files import check_target
from flareclust.personal.methods import OnRound
from flareclust.personal.result import PersonalResult, default_folder, save
from flareclust.personal.run import run_personal
from flareclust.personal.settings import PersonalSettings


def personalise(
    data: str | Path | tuple[Any, Any] | Mapping[str, tuple[Any, Any]] = "digits",
    k: int | None = None,
    *,
    out: str | Path | None = None,
    track: bool = False,
    on_round: OnRound = lambda index, accuracy, up, down: None,
    **settings: Any,
) -> PersonalResult:
    """Train one model per cluster of devices, and test it on rows that each device holds out.

    Args:
        data: a data set with classes, a file (an npz with `y`, or a table whose column `label` holds the class), rows and
            classes (X, y), or such pairs by device name, which are not partitioned.
        k: number of clusters, for the methods kfed and ifca and for `select="pow-d-kfed"`.
        out: folder for the result's files; None for none, unless tracked.
        track: whether to log an MLflow run.
        on_round: called after each round with its number, the accuracy of each device and the bytes up and down so far.
        **settings: `method` (kfed, ifca, global, local), `model` (mlp, or linear, which needs no extra), `devices`,
            `partition`, `rounds`, `lr`, `updates`, `engine` (inprocess, or simulator for NVFlare jobs), ...; see `flareclust.personal.settings.PersonalSettings`.

    Raises:
        UserError: the request cannot be carried out as stated.
        JobFailed: the loss diverged, or the devices' rows could not be clustered.

    Example:
        >>> import flareclust
        >>> result = flareclust.personalise("iris", k=2, devices=4, model="linear", rounds=5)
        >>> result.accuracy.shape
        (5, 4)
    """
    named = isinstance(data, str | Path)
    chosen = PersonalSettings(data=str(data) if named else "own data", k=k, **settings)
    given: Any = None if named else data
    if track:
        require("tracking", "an MLflow run (track=True; --no-track leaves it out)")
    folder = None if out is None else Path(out)
    if track and folder is None:
        folder = default_folder(chosen.name)
    if folder is not None:
        check_target(folder)
    result = run_personal(chosen, given, on_round)
    if folder is not None:
        result = save(result, folder)
    if track:
        from flareclust.tracking import run_logging

        result = run_logging.log_personal(result, chosen.name)
    return result
