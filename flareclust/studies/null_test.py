"""Whether the rows of a run have clusters at all: its criterion against that of rows without any."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray
from flareclust._foundation.validation import check_choice, check_int
from flareclust.evaluation import criteria, null_reference, selection
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepared import Prepared
from flareclust.experiment.results.result import Result
from flareclust.experiment.submit import submit
from flareclust.protocol import registry
from flareclust.studies.repeats import experiment_of, repeatable


def check_null(runs: int, reference: str, algorithm: str, k: Any, criterion: str) -> None:
    """Raise UserError for a request that `null_test` cannot carry out."""
    if check_int("null", runs, 0) == 0:
        return
    if runs < null_reference.FEWEST:
        raise UserError(
            f"null must be 0 or at least {null_reference.FEWEST}, got {runs}: with fewer runs p is never {null_reference.LEVEL} or less"
        )
    check_choice("null_reference", reference, null_reference.REFERENCES)
    if criteria.current_rule(criterion) not in null_reference.COMPARABLE:
        raise UserError(
            f"{criterion} compares solutions of the same rows with each other, so it cannot be compared with that of other rows; take "
            f"{', '.join(null_reference.COMPARABLE)}"
        )
    if "differentially-private" in registry.get(algorithm).promises:
        raise UserError(
            f"{algorithm} is differentially private, and what compares numbers of clusters is not; leave out null"
        )
    if selection.parse_k(k)[0] == 1:
        raise UserError("one cluster cannot be compared with none; give k of 2 or more, or a range")


def null_test(
    run: Result,
    runs: int,
    *,
    reference: str = "box",
    criterion: str = criteria.USUAL,
    on_done: Callable[[int, int], None] = lambda done, total: None,
) -> null_reference.NullTest:
    """Compare the criterion of a run with that of as many runs on rows without clusters.

    Each selects from the range of k of the run, or scores its one k, by a job of `pooled`.

    Args:
        run: in this process, on rows that are here.
        runs, reference, criterion: as `null`, `null_reference` and `criterion` of `flareclust.stability`.
        on_done: called after each run with how many are done, and of how many.

    Raises:
        UserError: the rows are not here, or hold categories of a uniform box.
        JobFailed: solutions of the rows, or of rows without clusters, could not be scored.
    """
    sites, rule = repeatable(run), criteria.current_rule(criterion)
    if reference == "box" and run.params.get("categories"):
        raise UserError('a uniform box has no categories; take null_reference="permuted" (--null-reference permuted)')
    asked = Experiment(**run.experiment)
    k_range = asked.k_range or (run.k, run.k)
    known = selection.selection_of(run.arrays)
    if known is not None and rule == asked.criterion:
        observed = null_reference.best(known, rule)
    else:
        observed = _best(run, sites, k_range, rule, 0)
    if observed == -np.inf:
        raise JobFailed(
            f"{rule} is undefined for every k tried, so there is nothing to compare; try another criterion or k"
        )
    null = []
    for i in range(1, runs + 1):
        rows = null_reference.reference_rows(sites, reference, stream(run.seed, i, "null reference"))
        null.append(_best(run, rows, k_range, rule, i))
        on_done(i, runs)
    p = null_reference.p_value(observed, np.array(null))
    return null_reference.NullTest(rule, reference, k_range, observed, p, np.array(null))


def with_null_test(run: Result, test: null_reference.NullTest) -> Result:
    """Return a run with its comparison; where there is no evidence of clusters, its warnings say so first."""
    warnings = [] if test.evidence else [f"{test.sentence}; do not interpret any k"]
    return replace(run, null=test, warnings=[*warnings, *run.warnings])


def _best(run: Result, sites: dict[str, FloatArray], k_range: tuple[int, int], rule: str, i: int) -> float:
    """Return the best value of a rule over the numbers of clusters, on these rows (n_i, d) by site."""
    experiment = experiment_of(run, len(sites), run.seed + i)
    own = (
        experiment.params
        if experiment.algorithm == selection.CHOOSER
        else selection.settings(k_range, rule, experiment.params)
    )
    changed = {"algorithm": selection.CHOOSER, "params": own, "k": None, "k_range": k_range, "criterion": rule}
    outcome = submit(experiment.model_copy(update=changed), Prepared(k_range[1], sites))
    known = selection.selection_of(outcome.arrays)
    assert known is not None
    return null_reference.best(known, rule)
