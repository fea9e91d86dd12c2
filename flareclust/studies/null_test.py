"""Whether the rows of a run have clusters at all: their silhouettes and valleys against those of rows without any."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.validation import check_choice, check_int
from flareclust.evaluation import null_reference, selection
from flareclust.experiment.config import Experiment
from flareclust.experiment.results.result import Result
from flareclust.preparation import scaling
from flareclust.protocol import registry
from flareclust.studies.repeats import repeatable


def check_null(runs: int, reference: str, algorithm: str, k: Any) -> None:
    """Raise UserError for a request that `null_test` cannot carry out."""
    if check_int("null", runs, 0) == 0:
        return
    if runs < null_reference.FEWEST:
        raise UserError(
            f"null must be 0 or at least {null_reference.FEWEST}, got {runs}: with fewer runs p is never {null_reference.LEVEL} or less"
        )
    for name in reference.split(","):
        check_choice("null_reference", name.strip(), null_reference.REFERENCES)
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
    reference: str = null_reference.USUAL,
    on_done: Callable[[int, int], None] = lambda done, total: None,
) -> null_reference.NullTest:
    """Compare the rows of a run, filled and scaled as in it, with rows without clusters, by k-means on all of them together.

    Args:
        run: in this process, on rows that are here; its range of k is tried, or its one k.
        runs: number of times that rows are drawn from each reference.
        reference: as `null_reference` of `flareclust.stability`.
        on_done: called after each run with how many are done, and of how many.

    Raises:
        UserError: the rows are not here, or fewer than clusters.
    """
    k_range, arrays = Experiment(**run.experiment).k_range or (run.k, run.k), {**run.arrays, "centroids": run.centroids}
    X, site = null_reference.sampled(repeatable(run), stream(run.seed, 0, "null reference"))
    X, names = scaling.filled(arrays, X), dict.fromkeys(name.strip() for name in reference.split(","))
    draws = {name: null_reference.reference_rows(X, site, name, run.params.get("categories") or ()) for name in names}
    own = null_reference.judged(scaling.as_clustered(arrays, X), k_range, stream(run.seed, 0, "null clusters"))
    judged = {name: [own] for name in names}
    for i in range(1, runs + 1):
        for name, draw in draws.items():
            rows = scaling.as_clustered(arrays, draw(stream(run.seed, i, f"null {name}")))
            judged[name].append(null_reference.judged(rows, k_range, stream(run.seed, i, "null clusters")))
        on_done(i, runs)
    comparisons = [one for name in names for one in null_reference.compared(name, np.array(judged[name]))]
    return null_reference.NullTest(k_range, tuple(comparisons))


def with_null_test(run: Result, test: null_reference.NullTest) -> Result:
    """Return a run with its comparison; where there is no evidence of clusters, its warnings say so first."""
    warnings = [] if test.evidence else [f"{test.sentence}; do not interpret any k"]
    return replace(run, null=test, warnings=[*warnings, *run.warnings])
