"""The steps of an experiment as plain functions: submit, evaluate, save. `flareclust.run` and the flows call them."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.extras import installed
from flareclust._foundation.own_files import close_files, create, make_folder
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust._foundation.version import __version__
from flareclust.data.datasets import Dataset
from flareclust.data.labels import LABELS_FILE, read_labels
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions, RunSettings
from flareclust.engines.pooled import run_pooled
from flareclust.evaluation import selection as choice
from flareclust.evaluation.metrics import sigma, truth_metrics
from flareclust.experiment.config import Experiment
from flareclust.experiment.external import partial_truth
from flareclust.experiment.prepare import Prepared, arrays_of, names_of, tables_of
from flareclust.experiment.result import Result
from flareclust.experiment.round_metrics import with_round_metrics
from flareclust.features import result as partial
from flareclust.federation import ASSESSED, IN_ASSESSMENT, OnRound
from flareclust.privacy.policy import DP, Policy
from flareclust.protocol import outcome as outcome_files
from flareclust.protocol import registry
from flareclust.protocol.outcome import Outcome

PICTURE, CHOICE_PICTURE, TREE_PICTURE = "picture.png", "choice.png", "tree.png"
#: Davies-Bouldin index above which clusters are five times as wide as their centroids are apart, and none to speak of.
OVERLAP = 10.0
#: Share of the rows below which the assessment says little about all of them.
COVERED = 0.99
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


def submit(
    experiment: Experiment, prepared: Prepared, on_round: OnRound = lambda record: None, token: str | None = None
) -> Outcome:
    """Run the federation in the experiment's engine; with a range of k, first the one that chooses.

    Args:
        experiment: what was asked.
        prepared: what it runs on.
        on_round: gets a record per exchange.
        token: of this experiment, the same when it is tried again; a provisioned federation then finds its job.

    Raises:
        JobFailed: it started and did not reach a result.
        UserError: a setting is wrong.
    """
    if prepared.sites and experiment.min_sites is not None and experiment.min_sites > len(prepared.sites):
        raise UserError(f"min_sites={experiment.min_sites} is more than the {len(prepared.sites)} sites that there are")
    outcome = _chosen_and_run(experiment, prepared, on_round, token)
    _check_enough_rows(prepared)
    return outcome


def _check_enough_rows(prepared: Prepared) -> None:
    """Raise JobFailed where k was more than all rows there are, and the sites did not mind; files are left to them."""
    sizes = [len(rows) for rows in prepared.sites.values() if not isinstance(rows, Path)]
    if sizes and len(sizes) == len(prepared.sites) and prepared.k > sum(sizes):
        raise JobFailed(f"k={prepared.k} is more than the {sum(sizes)} rows of all sites together; give a smaller k")


def _chosen_and_run(experiment: Experiment, prepared: Prepared, on_round: OnRound, token: str | None) -> Outcome:
    """Run the algorithm with its k, or with the one that is chosen first."""
    params, k = experiment.params, prepared.k

    def run(name: str, params: Mapping[str, Any], k: int, *, assess: bool = True) -> Outcome:
        own = None if token is None else f"{token}-{name}-{k}"
        return _run(experiment, prepared, name, params, _options(experiment, k, assess=assess), on_round, own)

    if experiment.k_range is None:
        return with_round_metrics(run(experiment.algorithm, params, k), prepared)
    choosing = choice.settings(experiment.k_range, experiment.choose_by, params)
    if experiment.algorithm == choice.CHOOSER:
        return run(choice.CHOOSER, {**params, **choosing}, k)
    chosen = run(choice.CHOOSER, choosing, k, assess=False)
    k = choice.chosen_k(chosen.arrays) or k
    return choice.joined(chosen, with_round_metrics(run(experiment.algorithm, params, k), prepared))


def _options(experiment: Experiment, k: int, *, assess: bool) -> JobOptions:
    shared = {name: getattr(experiment, name) for name in RunSettings.model_fields}
    usual = JobOptions.model_fields["deadline"].default
    return JobOptions(k=k, assess=assess, deadline=max(usual, 3 * experiment.task_timeout), **shared)


def _run(
    experiment: Experiment,
    prepared: Prepared,
    name: str,
    params: Mapping[str, Any],
    options: JobOptions,
    on_round: OnRound,
    token: str | None,
) -> Outcome:
    algorithm = registry.get(name)
    policy = None if experiment.policy is None else Policy.of(experiment.policy)
    if not algorithm.federated:
        return run_pooled(algorithm, params, tables_of(prepared), options, prepared.index)
    if experiment.engine == "inprocess":
        return run_inprocess(algorithm, params, prepared.sites, options, on_round, prepared.reading, policy)
    if experiment.engine in ("poc", "production"):
        return _run_remote(experiment, algorithm, params, options, on_round, token)
    # Imported here: psutil and NVFlare's job classes are not needed in-process.
    from flareclust.engines.simulator import run_simulator, temporary_folder

    with temporary_folder() as scratch:
        return run_simulator(
            algorithm, params, prepared.sites, options, Path(scratch), on_round, prepared.reading, policy
        )


#: Why a site of a POC is missing that had no part in the job at all.
OFF = "was not connected when the job began; see flareclust poc status"


def _run_remote(
    experiment: Experiment,
    algorithm: registry.Algorithm,
    params: Mapping[str, Any],
    options: JobOptions,
    on_round: OnRound,
    token: str | None,
) -> Outcome:
    """Run the job on sites that are there already; those of a POC are ours, and their labels may be read."""
    from flareclust.engines.provisioned import run_production

    if experiment.engine == "production":
        return run_production(algorithm, params, options, Path(experiment.kit or ""), on_round, token=token)
    from flareclust.engines.poc import federation as poc

    federation = poc.find(Path(experiment.kit or poc.DEFAULT))
    options = options.among(list(federation.sites))
    outcome = run_production(algorithm, params, options, federation.admin_kit, on_round, token=token)
    off = {site: OFF for site in federation.sites if site not in outcome.sites}
    outcome = replace(outcome, sites=sorted({*outcome.sites, *off}), refused=off | dict(outcome.refused))
    for site, own in federation.kits.items():
        if (own / outcome.job / LABELS_FILE).exists():
            outcome.labels[site] = read_labels(own / outcome.job)
    return outcome


def evaluate(experiment: Experiment, prepared: Prepared, outcome: Outcome, seconds: float) -> Result:
    """Compare the outcome with the truth, where there is one, and put everything into a `Result`.

    Args:
        experiment: what was asked.
        prepared: what it ran on.
        outcome: what the engine returned.
        seconds: wall time from before the data were loaded until now.
    """
    dataset = prepared.dataset
    labels = _pooled_labels(prepared, outcome)
    metrics: dict[str, float | None] = dict(outcome.metrics)
    if dataset is not None:
        known = labels >= 0
        y = dataset.y[known] if dataset.y is not None and known.any() else None
        metrics |= truth_metrics(outcome.centroids, labels[known], y=y, true_centroids=_comparable(dataset, outcome))
        policy = None if experiment.policy is None else Policy.of(experiment.policy)
        identity = experiment.algorithm, experiment.params, experiment.seed
        metrics |= partial_truth(*identity, prepared, outcome, labels, policy)
        if dataset.centroids is not None and "received_radii" in outcome.arrays:
            received = outcome.arrays["received_centroids"], outcome.arrays["received_radii"]
            metrics["sigma_max"] = _finite(float(sigma(*received, dataset.centroids).max()))
    algorithm = registry.get(experiment.algorithm)
    return Result(
        algorithm=experiment.algorithm,
        engine=experiment.engine,
        seed=experiment.seed,
        k=choice.chosen_k(outcome.arrays) or prepared.k,
        clients=len(prepared.sites) or len(outcome.sites),
        params=algorithm.parameters() | experiment.params | _choosing(experiment),
        rounds=outcome.n_rounds,
        seconds={"total": seconds, "local_max": outcome.seconds_local, "merge": outcome.seconds_merge},
        bytes={"up": outcome.bytes_up, "down": outcome.bytes_down},
        centroids_found=len(outcome.centroids),
        metrics=metrics,
        centroids_file=None,
        warnings=[
            *_warnings(choice.chosen_k(outcome.arrays) or prepared.k, outcome),
            *_coverage(experiment, prepared, outcome),
            *partial.warnings(outcome.arrays, sum(int((found < 0).sum()) for found in outcome.labels.values())),
        ],
        centroids=outcome.centroids,
        labels=labels,
        site_labels=outcome.labels,
        arrays=outcome.arrays,
        sites=_shown(prepared, outcome),
        true_centroids=None if dataset is None else _comparable(dataset, outcome),
        columns=_names(prepared, outcome),
        job=outcome.job or None,
        left_out={site: why for site, why in outcome.refused.items() if not why.endswith(IN_ASSESSMENT)},
    )


def _names(prepared: Prepared, outcome: Outcome) -> tuple[str, ...] | None:
    """Return the names of the centroids' columns, where they have any."""
    return partial.columns_of(outcome.arrays).names if partial.is_partial(outcome.arrays) else prepared.columns


def _comparable(dataset: Dataset, outcome: Outcome) -> FloatArray | None:
    """Return the true centroids in the order of the result's columns; None where it has no such or not all entries."""
    if dataset.centroids is None or not partial.is_partial(outcome.arrays):
        return dataset.centroids
    known, names = names_of(dataset), partial.columns_of(outcome.arrays).names
    if not outcome.arrays[partial.MASK].all() or set(names) != set(known):
        return None
    return dataset.centroids[:, [known.index(name) for name in names]]


def _choosing(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that a range of k has added to those of the experiment."""
    if experiment.k_range is None or experiment.algorithm != choice.CHOOSER:
        return {}
    return choice.settings(experiment.k_range, experiment.choose_by, experiment.params)


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


def _pooled_labels(prepared: Prepared, outcome: Outcome) -> IntArray:
    """Return the labels (n,) in the order of the data set, or of the sites' names; -1 where a site gave none, or no site has the row."""
    if prepared.index is None:
        parts = [
            outcome.labels.get(site, np.full(0 if isinstance(rows, Path) else len(rows), -1, dtype=np.int64))
            for site, rows in sorted(prepared.sites.items())
        ]
        return np.concatenate([np.zeros(0, dtype=np.int64), *parts])
    assert prepared.dataset is not None
    labels = np.full(len(prepared.dataset.X), -1, dtype=np.int64)
    for site, found in outcome.labels.items():
        labels[prepared.index[site]] = found
    return labels


def _shown(prepared: Prepared, outcome: Outcome) -> dict[str, FloatArray]:
    """Return the rows of the sites that a picture can show: those that fit the centroids."""
    d = outcome.centroids.shape[1]
    if partial.is_partial(outcome.arrays) and (
        not outcome.arrays["column_masks"].all() or "columns_in_all" in outcome.arrays
    ):
        return {}
    rows = arrays_of(prepared, skip_unreadable=True)
    return {site: X for site, X in rows.items() if len(X) and X.shape[1] == d and np.isfinite(X).all()}


def _warnings(k: int, outcome: Outcome) -> list[str]:
    warnings = [*(f"{site} {reason}" for site, reason in sorted(outcome.refused.items())), *outcome.warnings]
    if len(outcome.centroids) < k:
        warnings.append(f"{len(outcome.centroids)} centroids were found where k={k} were asked for")
    overlap = outcome.metrics.get("davies_bouldin")
    if overlap is not None and overlap > OVERLAP:
        warnings.append(
            f"the clusters lie on top of one another (Davies-Bouldin index {overlap:.0f}): several centroids are nearly the "
            "same; look at the picture, and try fewer clusters or other settings"
        )
    return warnings


def _coverage(experiment: Experiment, prepared: Prepared, outcome: Outcome) -> list[str]:
    """Return a warning where policies left so many rows out of the assessment that its metrics say little."""
    rows = sum(len(X) for site, X in prepared.sites.items() if site not in outcome.refused and not isinstance(X, Path))
    diagnostics = [cast("dict[str, float]", record["diagnostics"]) for record in outcome.rounds]
    assessed = [values[ASSESSED] for values in diagnostics if values.get(ASSESSED) is not None]
    if experiment.policy is None or experiment.policy.get(DP) or not assessed or assessed[-1] > COVERED * rows:
        return []
    why = (
        f"the assessment is of {assessed[-1]:.0f} of {rows} rows: the sites' policy leaves out small cells, so inertia is "
        "smaller than that of all rows, and cannot be compared with that of another run"
    )
    return [why]


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
