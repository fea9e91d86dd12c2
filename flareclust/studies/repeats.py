"""A run once more, in this process: with other rows by site, or another seed."""

from collections.abc import Mapping
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepared import Prepared
from flareclust.experiment.results.evaluate import evaluate
from flareclust.experiment.results.picture import is_embedded
from flareclust.experiment.results.result import Result
from flareclust.experiment.submit import submit
from flareclust.protocol import registry


def check_repeatable(algorithm: str, settings: Mapping[str, Any]) -> None:
    """Raise UserError for an algorithm or arguments of `run` that repeats in this process cannot have."""
    if registry.get(algorithm).partial:
        raise UserError(
            f"{algorithm} is for sites with different columns, and repeats need the same ones at every site; take another "
            "algorithm, such as lloyd"
        )
    if settings.get("engine", "inprocess") != "inprocess" or settings.get("kit") is not None:
        raise UserError(
            "runs are repeated in this process, with the rows of all sites, which real sites do not give; leave out engine and kit"
        )
    for name in ("out", "track", "resume", "progress"):
        if settings.get(name):
            raise UserError(f"runs that are repeated write no files and are not tracked; leave out {name}")


def repeatable(reference: Result) -> dict[str, FloatArray]:
    """Return the rows (n_i, d) of the sites that took part in a run; raise UserError where they are no tables of the same columns."""
    sites = {site: X for site, X in reference.sites.items() if site not in reference.left_out}
    if is_embedded(reference.arrays) or not sites:
        raise UserError(f"{reference.algorithm} cannot be repeated here: repeats need rows that are tables of numbers")
    return sites


def run_again(reference: Result, sites: Mapping[str, FloatArray], seed: int) -> Result:
    """Return the result of a run with its settings and its k, on other rows (n_i, d) by site.

    Raises:
        UserError: there are fewer rows than clusters.
        JobFailed: the federation did not reach a result.
    """
    experiment = _experiment_of(reference, len(sites), seed)
    own = experiment.params  # a choice of mixtures and trees themselves is made again
    chooses = own.get("k_min") is not None if "k_criterion" in own else isinstance(own.get("cut"), int)
    k = experiment.k if chooses and experiment.k else reference.k
    experiment, prepared = experiment.model_copy(update={"k": k, "k_range": None}), Prepared(k, sites)
    return evaluate(experiment, prepared, submit(experiment, prepared), 0.0)


def _experiment_of(reference: Result, n_sites: int, seed: int) -> Experiment:
    """Return the experiment of a run for so many sites and another seed, with the settings that followed from its data."""
    asked = Experiment(**reference.experiment)
    chosen = {} if asked.k_range is None else {"k_min", "criterion", "cut"}
    params: dict[str, Any] = {name: value for name, value in reference.params.items() if name not in chosen}
    if "compare" in params:
        params["compare"] = "none"  # the sites' columns were compared in the reference run
    changed = {"params": params, "seed": seed, "n_sites": n_sites, "profile": False}
    return asked.model_copy(update=changed | asked.for_sites(n_sites))
