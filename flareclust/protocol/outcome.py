"""What a finished federation leaves behind: result.npz, result.json and rounds.jsonl, without pickle."""

import json
import shlex
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.own_files import write_atomically
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.protocol.steps import counts_of
from flareclust.protocol.task import StepName

#: The steps that are no clustering rounds, and how the names of those end that ask for numbers of rows only.
_NO_ROUNDS, _COUNTS = frozenset((*StepName.BEFORE_ROUNDS, StepName.ASSESS, *StepName.PROFILING)), counts_of("")

#: What is raised for files that are damaged, or were not written by `write`.
_DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, EOFError, zipfile.BadZipFile)

#: What stands under the names in result.json.
_KINDS: Mapping[str, type | tuple[type, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("metrics", "refused", "bytes", "seconds", "params"), dict),
        **dict.fromkeys(("sites", "warnings", "disabled_sites"), list),
        **dict.fromkeys(("k", "seed"), int),
        "algorithm": str,
        "columns": (list, type(None)),
    }
)

#: What the warning begins with that names the steps whose replies secure sums cannot mask.
SITE_BY_SITE = "secure_sums masked the sums over sites; replies that are no sums reached the server as they are, site by site: those to "

#: The folder of a downloaded job that holds its result.
_WORKSPACE = "workspace"

ARRAYS, SUMMARY, ROUNDS = "result.npz", "result.json", "rounds.jsonl"

#: Arrays of a result of algorithms that choose a device: names of the sites, and whether each computed on a GPU.
_DEVICE_SITE, _DEVICE_GPU = "device_site", "device_gpu"


@dataclass(frozen=True)
class Outcome:
    """What every engine returns.

    Attributes:
        arrays: `centroids` (k, d) and the algorithm's other final and server-side arrays.
        metrics: `inertia`, `simplified_silhouette`, `davies_bouldin` over the rows of all sites that answered the
            assessment (None where undefined); empty without assessment.
        rounds: one record per exchange: round, step, sites, refused, bytes, seconds and the algorithm's diagnostics. Of the
            engine devices, `sites` and `refused` are numbers, and `newly_refused` names those refused in this exchange.
        sites: all sites of the job.
        refused: why a site was left out, by site, in words that follow its name.
        bytes_up: bytes of arrays sent by all sites.
        bytes_down: bytes of arrays sent to all sites.
        seconds_local: longest local computation of each exchange, added up.
        seconds_merge: time in the aggregator.
        labels: final cluster of each row by site; only where the engine may see them (in-process, simulator, POC).
        warnings: what the user should know beside that, a sentence each.
        job: id of the NVFlare job at its server; empty where there was none.
    """

    arrays: Message
    metrics: Mapping[str, float | None]
    rounds: list[dict[str, object]]
    sites: list[str]
    refused: Mapping[str, str]
    bytes_up: int
    bytes_down: int
    seconds_local: float
    seconds_merge: float
    labels: dict[str, IntArray] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    job: str = ""

    @property
    def centroids(self) -> FloatArray:
        """Return the final centroids (k, d)."""
        return self.arrays["centroids"]

    @property
    def n_rounds(self) -> int:
        """Return the number of clustering rounds."""
        return sum(is_round(record) for record in self.rounds)


def is_round(record: Mapping[str, object]) -> bool:
    """Return whether a record of rounds.jsonl is of a clustering round: not of what comes before the rounds or after them."""
    step = str(record["step"])
    return step not in _NO_ROUNDS and not step.endswith(_COUNTS)


def numbers_of_sites(record: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many sites took part in an exchange, and how many were left out by then."""
    taking_part, left_out = (one if isinstance(one, int) else len(one) for one in (record["sites"], record["refused"]))
    return taking_part, left_out


def names_of_sites(outcome: Outcome, step: str) -> list[str]:
    """Return the sites in the first exchange of a step, none where there was none; UserError where names were not kept."""
    left_out: set[str] = set()
    for record in outcome.rounds:
        sites = record["sites"]
        left_out |= cast("dict[str, str]", record.get("newly_refused", {})).keys()
        if record["step"] == step:
            names = sites if isinstance(sites, list) else [site for site in outcome.sites if site not in left_out]
            if len(names) != numbers_of_sites(record)[0]:
                raise UserError(
                    "the engine devices does not keep which sites a cohort had; run without cohort and dropout, or with the "
                    "engine inprocess"
                )
            return names
    return []


def devices(arrays: Mapping[str, Any]) -> dict[str, str] | None:
    """Return what each site computed on, cpu or cuda, by name; None where a result does not say."""
    if _DEVICE_SITE not in arrays or _DEVICE_GPU not in arrays:
        return None
    pairs = zip(arrays[_DEVICE_SITE].tolist(), arrays[_DEVICE_GPU].tolist(), strict=True)
    return {str(site): "cuda" if on_gpu else "cpu" for site, on_gpu in pairs}


def write(outcome: Outcome, folder: Path, about: Mapping[str, Any]) -> None:
    """Write the three files; result.json comes last and in one step, so its presence means that all is there.

    Args:
        outcome: what to write; the labels stay out, for they belong to the sites.
        folder: existing folder.
        about: what the job was: algorithm, k, seed, params, version. Where it names a field of the outcome, such as
            metrics with more in them, it counts.
    """
    np.savez(folder / ARRAYS, allow_pickle=False, **outcome.arrays)
    (folder / ROUNDS).write_text("".join(map(_line, outcome.rounds)))
    summary = {
        "centroids_found": len(outcome.centroids),
        "rounds": outcome.n_rounds,
        "sites": outcome.sites,
        "refused": dict(outcome.refused),
        "warnings": list(outcome.warnings),
        "metrics": dict(outcome.metrics),
        "seconds": {"local_max": outcome.seconds_local, "merge": outcome.seconds_merge},
        "bytes": {"up": outcome.bytes_up, "down": outcome.bytes_down},
        **({} if (found := devices(outcome.arrays)) is None else {"devices": found}),
        **about,
    }
    with write_atomically(folder / SUMMARY, mode=None) as file:
        file.write(json.dumps(summary, indent=2, allow_nan=False) + "\n")


def _line(record: Mapping[str, object]) -> str:
    """Return the line of rounds.jsonl for an exchange."""
    return json.dumps(record, allow_nan=False) + "\n"


def append_round(record: Mapping[str, object], folder: Path) -> None:
    """Add one exchange to rounds.jsonl while the job runs, so that its progress can be followed."""
    with (folder / ROUNDS).open("a") as file:
        file.write(_line(record))


def fetch_command(job: str, kit: str | Path) -> str:
    """Return the command that gets the result of a job from its server again."""
    return f"flareclust fetch {job} --kit {shlex.quote(str(kit))}"


def folder_of(folder: Path) -> Path:
    """Return the folder with a result: the one that is named, or the one inside it where NVFlare has downloaded a job."""
    inside = folder / _WORKSPACE
    return inside if not (folder / SUMMARY).exists() and (inside / SUMMARY).exists() else folder


def read(folder: Path) -> tuple[Outcome, dict[str, Any]]:
    """Return the outcome (without labels) and the summary that `write` wrote, see `folder_of`; JobFailed where the folder holds no complete result."""
    folder = folder_of(folder)
    try:
        summary = json.loads((folder / SUMMARY).read_text())
        with zipfile.ZipFile(folder / ARRAYS), np.load(folder / ARRAYS, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        rounds = read_rounds(folder)
        _check_kinds(summary, rounds, arrays)
        outcome = Outcome(
            arrays=arrays,
            rounds=rounds,
            **{name: summary[name] for name in ("metrics", "sites", "refused")},
            bytes_up=summary["bytes"]["up"],
            bytes_down=summary["bytes"]["down"],
            seconds_local=summary["seconds"]["local_max"],
            seconds_merge=summary["seconds"]["merge"],
            warnings=list(summary.get("warnings", ())),
        )
    except _DAMAGED as error:
        raise JobFailed(
            f"no complete result in {folder}: {SUMMARY} or {ARRAYS} is missing or damaged ({type(error).__name__})"
        ) from error
    return outcome, summary


def _check_kinds(summary: Any, rounds: list[Any], arrays: Mapping[str, Any]) -> None:
    """Raise ValueError or TypeError where a part of a result is not of the kind that `write` gives it."""
    if not isinstance(summary, dict):
        raise TypeError(f"{SUMMARY} is no object")
    for name, kind in _KINDS.items():
        if name in summary and not isinstance(summary[name], kind):
            raise ValueError(f"{name} in {SUMMARY}")
    texts = [*summary["sites"], *summary["refused"].values()]
    texts += [*(summary.get("columns") or ()), *summary.get("disabled_sites", ())]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"sites, refused or columns in {SUMMARY}")
    if not all(isinstance(record, dict) and isinstance(record.get("step"), str) for record in rounds):
        raise ValueError(ROUNDS)
    if "centroids" not in arrays or arrays["centroids"].ndim != 2 or arrays["centroids"].dtype.kind != "f":
        raise ValueError(f"centroids in {ARRAYS}")


def read_rounds(folder: Path) -> list[dict[str, object]]:
    """Read rounds.jsonl; a line that is still being written is left out."""
    path = folder / ROUNDS
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
