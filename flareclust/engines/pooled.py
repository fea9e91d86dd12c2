"""Not a federation: the yardsticks, which see all rows at once."""

from collections.abc import Mapping
from time import perf_counter

import numpy as np

from flareclust.core.assessment import assessment_sums, label_free_metrics
from flareclust.engines.options import JobOptions
from flareclust.errors import UserError
from flareclust.outcome import Outcome
from flareclust.registry import Algorithm
from flareclust.typing import FloatArray


def run_pooled(
    algorithm: Algorithm, params: Mapping[str, object], sites: Mapping[str, FloatArray], options: JobOptions
) -> Outcome:
    """Run a yardstick on the pooled rows of all sites; what its `bytes_up` counts are the rows themselves.

    Raises:
        UserError: a setting is unknown, or there are fewer rows than k.
    """
    algorithm.check_names(params)
    X = np.concatenate(list(sites.values()))
    if len(X) < options.k:
        raise UserError(f"k={options.k} is more than the {len(X)} rows of all sites together")
    started = perf_counter()
    centroids = algorithm.function()(X, k=options.k, seed=options.seed, **params)
    seconds = perf_counter() - started
    labels, sums = assessment_sums(X, centroids)
    ends = np.cumsum([len(rows) for rows in sites.values()])
    return Outcome(
        arrays={"centroids": centroids},
        metrics=label_free_metrics(centroids, sums) if options.assess else {},
        rounds=[],
        sites=sorted(sites),
        refused={},
        bytes_up=int(X.nbytes),
        bytes_down=0,
        seconds_local=0.0,
        seconds_merge=seconds,
        labels=dict(zip(sites, np.split(labels, ends[:-1]), strict=True)),
    )
