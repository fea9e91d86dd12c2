"""What a user gets of personalised models, and the files that it is kept in."""

import json
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import installed, require
from flareclust._foundation.own_files import check_target, close_files, make_folder
from flareclust._foundation.typing import FloatArray
from flareclust._foundation.version import __version__
from flareclust.evaluation.disclosure import DISCLOSURE
from flareclust.personal.disclosure import personal_disclosure
from flareclust.personal.learners import Weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SUMMARY, _ROUNDS, _CURVE = "result.json", "rounds.jsonl", "curve.png"

#: What a round's row holds of the devices' accuracies.
_OF_ROUND: Mapping[str, Callable[[FloatArray], Any]] = MappingProxyType(
    {"accuracy": np.mean, "least": np.min, "largest": np.max}
)


@dataclass(frozen=True, eq=False)
class PersonalResult:
    """The result of `flareclust.personalise`.

    Attributes:
        settings: what was asked for.
        names: of the devices.
        classes: in the order of their numbers.
        models: the weights of each model by name, stacked (k, ...); of the method local one model per device.
        models_of: by device, the numbers of the models that it uses, and its rows to train each with; None where the device is
            a site whose rows are not known here.
        accuracy: (rounds, m) share of each device's held-out rows that got their class, after each round; NaN where a device
            was lost, or was not tested: in jobs only those that are asked in the next round are. Means are over the others.
        bytes: `up` and `down`, of weights and of the one-shot clustering, over all rounds; `clustering_up` and
            `clustering_down` are among them.
        seconds: wall time.
        selected: names of the devices that trained in each round, where they are selected; else empty.
        scaling: `mean` and `deviation` (d,), what is taken away from the columns and then divides them before a model is used;
            empty where they were not scaled.
        folder: where the files are; None where there are none.
        run_id: of the MLflow run; None where it was not tracked.
        warnings: what you should know beside that.
    """

    settings: Mapping[str, Any]
    names: Sequence[str]
    classes: Sequence[object]
    models: Weights = field(repr=False)
    models_of: Mapping[str, Mapping[int, int | None]] = field(repr=False)
    accuracy: FloatArray = field(repr=False)
    bytes: Mapping[str, int]
    seconds: float
    selected: Sequence[Sequence[str]] = ()
    scaling: Mapping[str, FloatArray] = field(default_factory=dict, repr=False)
    folder: str | None = None
    run_id: str | None = None
    warnings: Sequence[str] = ()

    @property
    def final_accuracy(self) -> float:
        """Return the mean over the devices of the accuracy after the last round."""
        return float(np.nanmean(self.accuracy[-1]))

    @property
    def model_files(self) -> list[str]:
        """Return the name of each model's file."""
        return [f"model-{j}.npz" for j in range(len(next(iter(self.models.values()))))]

    def rounds(self) -> list[dict[str, float]]:
        """Return a row per round: its number, mean, least and largest accuracy of the devices; the number alone where none is known."""
        found = []
        for number, row in enumerate(self.accuracy, start=1):
            known = row[~np.isnan(row)]
            values = {name: float(of(known)) for name, of in _OF_ROUND.items()} if len(known) else {}
            found.append({"round": number, **values})
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the plain values, as `flareclust personalise --json` prints them."""
        shares = zip(self.names, self.accuracy[-1], strict=True)
        return {
            "settings": dict(self.settings),
            "accuracy": self.final_accuracy,
            "accuracy_of": {name: None if np.isnan(x) else float(x) for name, x in shares},
            "models": len(next(iter(self.models.values()))),
            "models_of": {name: {str(j): n for j, n in used.items()} for name, used in self.models_of.items()},
            "classes": list(self.classes),
            "bytes": dict(self.bytes),
            "seconds": self.seconds,
            "selected": [list(names) for names in self.selected] or None,
            "folder": self.folder,
            "run_id": self.run_id,
            "warnings": list(self.warnings),
            "flareclust": __version__,
        }

    def disclosure(self) -> dict[str, Any]:
        """Return the disclosure record: whether models and accuracies may be released, and why; docs/disclosure.md has its fields."""
        drawn = [_ROUNDS, *([_CURVE] if installed("plots") else [])]
        return personal_disclosure(self, self.model_files, drawn, _SUMMARY)

    def plot(self) -> "Figure":
        """Return a picture of the accuracy after each round."""
        require("plots", "a picture")

        return _curve(self.accuracy, str(self.settings["method"]))


def usual_warnings(used: int, models: int, accuracy: FloatArray) -> list[str]:
    """Return what to say of models that no device uses, and of devices that were not tested after the last round."""
    found = []
    if used < models:
        found.append(f"{used} of {models} models are in use; no device's rows are in the clusters of the others")
    if untested := int(np.isnan(accuracy[-1]).sum()):
        found.append(
            f"{untested} of {len(accuracy[-1])} devices were not tested after the last round; means are over the others"
        )
    return found


def default_folder(name: str) -> Path:
    """Return where the files of a run go unless you name a folder."""
    return Path("flareclust-runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"


def save(result: PersonalResult, folder: Path) -> PersonalResult:
    """Write model-<number>.npz for each model, with what scales its rows, rounds.jsonl, curve.png (with the extra `plots`), result.json and disclosure.json.

    The folder appears complete or not at all, for its owner only.
    """
    check_target(folder)
    result = replace(result, folder=str(folder.absolute()))
    try:
        make_folder(folder.absolute().parent)
        with tempfile.TemporaryDirectory(dir=folder.absolute().parent, prefix=f".{folder.name}-") as scratch:
            new = Path(scratch) / "new"
            new.mkdir()
            _write(result, new)
            close_files(new)
            if folder.is_dir():
                folder.rmdir()
            new.rename(folder)
    except OSError as error:
        raise UserError(
            f"the result cannot be written to {folder} ({error.strerror}); choose another folder"
        ) from error
    return result


def _write(result: PersonalResult, folder: Path) -> None:
    for j, file in enumerate(result.model_files):
        weights = {name: value[j] for name, value in result.models.items()}
        np.savez(folder / file, allow_pickle=False, **weights, **result.scaling)
    rounds: list[dict[str, Any]] = result.rounds()
    if result.selected:
        rounds = [{**row, "sites": list(names)} for row, names in zip(rounds, result.selected, strict=True)]
    (folder / _ROUNDS).write_text("".join(json.dumps(row) + "\n" for row in rounds))
    if installed("plots"):
        from flareclust.experiment.plotting import style

        style.save(result.plot(), folder / _CURVE)
    (folder / _SUMMARY).write_text(json.dumps(result.to_json(), indent=2, allow_nan=False) + "\n")
    (folder / DISCLOSURE).write_text(json.dumps(result.disclosure(), indent=2, allow_nan=False) + "\n")


def _curve(accuracy: FloatArray, method: str) -> "Figure":
    """Draw the mean accuracy over the devices, and the band in which the middle half of the devices lies.

    Accuracies (rounds, m) are from 0 to 1; NaN where a device was not tested.
    """
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    from flareclust.experiment.plotting import style

    figure = style.page(7, 4)
    axes, rounds = figure.add_subplot(1, 1, 1), 1 + np.flatnonzero(~np.isnan(accuracy).all(axis=1))
    known = accuracy[rounds - 1]
    low, high = np.nanquantile(known, (0.25, 0.75), axis=1)
    marker = "o" if len(rounds) == 1 else None  # a line of one point is not seen
    axes.plot(rounds, np.nanmean(known, axis=1), color=style.PALETTE[0], linewidth=1.6, marker=marker, gid="mean")
    axes.fill_between(rounds, low, high, color=style.PALETTE[0], alpha=0.2, linewidth=0, gid="half")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("round", color=style.INK)
    axes.set_ylabel("accuracy on held-out rows", color=style.INK)
    style.open_frame(axes)
    style.headline(axes, f"{method}: {100 * np.nanmean(accuracy[-1]):.1f} % after {len(accuracy)} rounds")
    style.caption(figure, f"mean over {accuracy.shape[1]} devices, and the band of the middle half of them")
    return figure
