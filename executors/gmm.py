"""Gaussian mixture, the site's side: local clusters to start from, then the sums of expectation steps.

Source: Dempster, Laird, Rubin (1977), Maximum likelihood from incomplete data via the EM algorithm; over sites, whose sums add up,
after Nowak (2003), Distributed EM algorithms for density estimation and clustering in sensor networks, section III.

Readings and deviations:
1. What a site adds up of a component is its responsibilities, and these times the rows' differences from the mean that it was sent
   and the products of the differences. The totals over sites are those over the pooled rows, wherever these lie.
2. A component is described only if it is of enough rows at the site (`flareclust.core.mixtures.expectation`): no row has more than a
   share of 1 / m of its weight, with m = `min_count`, or as many rows as have more values than the numbers that are sent of a
   component; and no row with its copies has more than half. EM has no such rule. Where copies are more than the other rows are per
   cluster, for k clusters, they count only so much, so that they do not take one component after the other out of the mixture.
3. Responsibilities, likelihood and entropy are those in the mixture of the components that are described. So every row counts the same in
   all rounds, and a component that is left out in one round and described in the next gives away no row.
4. Where weights leave as multiples, the sums over them are scaled alike.
5. The start: the site's own k-means sends centroids and numbers of rows. With secure sums, or a start that is given, no clusters
   are sent, and the start is made of totals (`flareclust.aggregators.gmm`). With `start=mixtures` the site sends a mixture of its own rows,
   in which it may describe every component that it sends.
6. A row belongs to the component of its largest responsibility. That responsibility and the row's density stay at the site, in its
   file of labels.
"""

from collections.abc import Mapping
from typing import Annotated, Any, get_args

import numpy as np
from pydantic import ValidationInfo, field_validator, model_validator

from flareclust._foundation.errors import BadMessage, Refusal, UserError
from flareclust._foundation.settings import OneOf
from flareclust._foundation.typing import Array, FloatArray, IntArray, Message
from flareclust.core import mixtures
from flareclust.core.disclosure import rounded
from flareclust.core.profiles import moments_of_all
from flareclust.core.rounds import check_start
from flareclust.federation import refinement
from flareclust.federation.executor import ClusteringExecutor
from flareclust.preparation.settings import ScaledParams
from flareclust.protocol.params import MOST_ROUNDS, MOST_STARTS, both, server, site
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import MOST_ROWS, Schema, counts, real, weights
from flareclust.protocol.sizes import MOMENTS
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

#: The step of one iteration.
EXPECTATION = "expectation"

#: The steps in which a site sends a mixture of its own rows, with full covariances or with diagonal ones, and the start that asks for it.
FIT, FIT_DIAGONAL, MIXTURES = "fit", "fit_diagonal", "mixtures"

#: Iterations of a site's own mixture at the most.
_OWN_ROUNDS = 100

#: What can choose the number of components.
CRITERIA = ("bic", "icl")


class GMMParams(ScaledParams):
    """Parameters of Gaussian mixtures."""

    # The server must know it, too: with secure sums it is the least number of rows of a total.
    min_count: int = both(
        2, "Clusters with fewer rows are not sent, nor components of which a row is more than this part.", ge=1
    )
    n_init: int = site(10, "Starts of the local k-means; the best one counts.", ge=1, le=MOST_STARTS)
    covariance: mixtures.Covariance = both(
        "full",
        "The covariances of the components: of any form (full), the same of all (tied), without correlations (diag), or round (spherical).",
    )
    rounds: int = server(
        100,
        "Iterations at the most; the exchanges of the start are not counted. 0, with start=mixtures, for one message per site.",
        ge=0,
        le=MOST_ROUNDS,
    )
    tol: float = both(
        1e-3,
        "An iteration that raises the mean log-likelihood of a row by less is the last; 0 for all iterations.",
        ge=0,
    )
    k_min: int | None = server(
        None, "Smallest number of components to try, one after the other up to k; None for k components.", ge=1
    )
    k_criterion: Annotated[str, OneOf(CRITERIA)] = server(
        "bic",
        "With k_min, what chooses the number of components: the least BIC (bic), or ICL, which wants them apart (icl).",
    )
    reg_covar: float = both(1e-6, "Added to all variances, in squared units of the columns, so that none is 0.", ge=0)
    start: str | list[list[float]] = server(
        "kmeans",
        "How the start is found: k-means on the sites' clusters (kmeans), a mixture of the sites' own mixtures (mixtures), or k means as k "
        "lists of d numbers.",
    )

    @model_validator(mode="after")
    def _numbers_to_try(self) -> "GMMParams":
        if self.k_min is not None and self.k_min > self.k:
            raise UserError(f"k_min={self.k_min} is above k={self.k}; it is the smallest number of components to try")
        if self.k_min is not None and not isinstance(self.start, str):
            raise UserError("k_min tries several numbers of components, and start gives k means; leave out one of them")
        if self.rounds == 0 and self.start != MIXTURES:
            raise UserError("rounds=0 is for start=mixtures, whose mixture needs no iteration; take rounds=1 or more")
        return self

    @field_validator("start", mode="before")
    @classmethod
    def _start(cls, value: Any, known: ValidationInfo) -> Any:
        return check_start(value, known.data["k"], ("kmeans", MIXTURES)) if "k" in known.data else value


class _Sums(Schema):
    """Sums of an expectation step."""

    def compare(self, message: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Raise BadMessage where they are sums of no rows, by any type of covariances that has so many second moments."""
        sums = {name: value.T for name, value in message.items()}
        if sums["weights"].sum() > MOST_ROWS or not (sums["weights"].any() or not sums["log_likelihood"]):
            raise BadMessage("weights: expected no more than there are rows, and some where there is a log_likelihood")
        k, d = sums["shifts"].shape
        kinds = [kind for kind in get_args(mixtures.Covariance) if mixtures.n_second_moments(kind, k, d) == sizes["t"]]
        if not any(mixtures.possible(sums["weights"], sums["shifts"], sums["m2"], kind) for kind in kinds):
            raise BadMessage("m2: less than 0, or than shifts and weights of rows have; expected sums of the same rows")


#: Shifts are by column: the zeros of components that are not described are no row of zeros.
_SUMS = _Sums(
    weights=weights("k"), shifts=real("d k"), m2=real("t"), log_likelihood=real(""), entropy=real("", minimum=0)
)


class GMMExecutor(ClusteringExecutor):
    """A site of a Gaussian mixture: sends the clusters of its own k-means, and then its part of each iteration."""

    params: GMMParams
    steps = {
        StepName.CLUSTER: Step(Schema(centroids="k d", counts=counts("k")), jobs="plain"),
        FIT: Step(Schema(weights=weights("k"), centroids="k d", m2=real("k d d")), "fit", "fitted", jobs="plain"),
        FIT_DIAGONAL: Step(
            Schema(weights=weights("k"), centroids="k d", m2=real("k d")), "fit", "fitted", jobs="plain"
        ),
        refinement.SPREAD: refinement.STEPS[refinement.SPREAD],
        EXPECTATION: Step(_SUMS, "expect", "maximize", summed=True),
    }
    placed_by = ("centroids", mixtures.WEIGHTS, mixtures.FACTORS)

    @classmethod
    def warm_up(cls) -> None:
        """Compile the kernels of mixtures beside the others."""
        super().warm_up()
        mixtures.warm_up()

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Return centroids (k, d) and rows of the site's own clusters."""
        self._least(rows, self.params.covariance)
        found = rows.clusters(self.params.k, n_init=self.params.n_init)
        return {"centroids": found.centroids, "counts": found.counts}

    def spread(self, task: Task, rows: SiteRows) -> Message:
        """Describe the groups of the rows nearest to each centroid, for the first mixture."""
        return refinement.spread(task, rows)

    def fit(self, task: Task, rows: SiteRows) -> Message:
        """Fit a mixture to the site's rows, and return its components: `weights`, `centroids` and second moments about these, `m2`."""
        covariance: mixtures.Covariance = "full" if task.step == FIT else "diag"
        described, found = self._described(rows, covariance), rows.clusters(self.params.k, n_init=self.params.n_init)
        groups = moments_of_all(rows.X, rows.nearest(found.centroids), len(found.centroids))
        start = mixtures.started(*groups, covariance, self.params.reg_covar)
        if start is None:
            raise Refusal("has a column without any spread within its clusters, and reg_covar=0 leaves no mixture then")
        described |= {"rounds": _OWN_ROUNDS, "tol": self.params.tol, "reg_covar": self.params.reg_covar}
        mixture, sums = mixtures.fitted(rows.X, start, covariance, **described)
        kept = np.flatnonzero(sums.weights > 0)
        weights = sums.weights[kept]
        shifts, m2 = sums.shifts[kept] / weights[:, None], (sums.m2[kept].T / weights).T
        multiples = rounded(sums.weights, rows.context.round_counts, 1)[kept].astype(np.float64)
        spread = m2 - (shifts[:, :, None] * shifts[:, None, :] if covariance == "full" else shifts**2)
        return {"weights": multiples, "centroids": mixture.means[kept] + shifts, "m2": (spread.T * multiples).T}

    def expect(self, task: Task, rows: SiteRows) -> Message:
        """Return the site's part of an iteration: `weights`, `shifts`, `m2`, `log_likelihood` and `entropy`."""
        covariance = self.params.covariance
        found = mixtures.expectation(
            rows.X, asked_mixture(task, covariance), covariance, **self._described(rows, covariance)
        )
        total, multiples = found.weights.sum(), rounded(found.weights, rows.context.round_counts, 1)
        scale = multiples / np.where(found.weights > 0, found.weights, 1.0)
        of_all = multiples.sum() / total if total > 0 else 1.0
        of_m2 = of_all if covariance == "tied" else scale.reshape(-1, *[1] * (found.m2.ndim - 1))
        return {
            "weights": multiples,
            "shifts": (found.shifts * scale[:, None]).T,
            "m2": mixtures.packed(found.m2 * of_m2, covariance),
            "log_likelihood": np.array(found.log_likelihood * of_all),
            "entropy": np.array(found.entropy * of_all),
        }

    def labels(self, task: Task, rows: SiteRows) -> IntArray:
        """Return the component (n,) of the largest responsibility of each row."""
        return mixtures.most_likely(rows.X, mixtures.received_mixture(task.arrays, self.params.covariance))[0]

    def details(self, task: Task, rows: SiteRows) -> dict[str, FloatArray]:
        """Return the probability of each row's component, and the logarithm of the mixture's density at the row."""
        mixture = mixtures.received_mixture(task.arrays, self.params.covariance)
        return dict(zip(mixtures.CERTAINTY, mixtures.most_likely(rows.X, mixture)[1:], strict=True))

    def _described(self, rows: SiteRows, covariance: mixtures.Covariance) -> dict[str, Any]:
        """Return what decides which components are described; groups of a policy are equal rows that hide their rows."""
        grouped, least = rows.context.grouped, self._least(rows, covariance)
        count = {"least_weight": rows.context.min_count, "clusters": 1} if grouped else {"clusters": self.params.k}
        return {"least": least, "known": rows.known, "aborted": rows.aborted, **count}

    def _least(self, rows: SiteRows, covariance: mixtures.Covariance) -> int:
        """Return how many rows must stand behind a component that is sent with such a covariance; raise Refusal where there are fewer."""
        least = mixtures.least_rows(covariance, rows.d, rows.context.min_count, rows.context.repeats)
        if len(rows) < least:
            raise Refusal(
                f"has fewer than the {least} rows that covariance={covariance} takes to describe a component of {rows.d} "
                "columns; covariance=diag takes fewer"
            )
        return least


def asked_mixture(task: Task, covariance: mixtures.Covariance) -> mixtures.Mixture:
    """Return the mixture of which a server asks for an expectation step; raise BadMessage unless it is one of the job's type."""
    mixture = mixtures.received_mixture(task.arrays, covariance)
    moments, expected = task.arrays.get(MOMENTS), mixtures.n_second_moments(covariance, *mixture.means.shape)
    if moments is None or moments.shape != () or moments.dtype != np.int64 or int(moments) != expected:
        raise BadMessage(f"{MOMENTS}: expected {expected}, of a mixture with covariance={covariance}")
    return mixture
