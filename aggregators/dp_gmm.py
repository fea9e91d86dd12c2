"""DP Gaussian mixture, the server's side: maximisation steps from noisy totals over the sites.

Source: Park, Foulds, Chaudhuri, Welling, DP-EM: Differentially Private Expectation Maximization (2017).

Readings and deviations:
1. The start is that of DP Lloyd, with `updates` of its updates: round components about its centroids, whose variances add up to the
   squared radius that the last update leaves (`aggregators/dp_lloyd.py`). The paper starts at random.
2. A fixed number of iterations: a rule that stops by the likelihood would spend on it. The paper has a fixed number, too.
3. An iteration goes all of the way to the noisy mixture where noise is small, and less far where it is large, by the gain of a Kalman
   filter, so that the noise of the iterations averages out. The paper goes all of the way.
4. Changes of means and of the forms of covariances are shrunk by as much as noise alone makes them (James and Stein); the mean
   variance of a component is not (`flareclust.core.dp.mixtures`).
5. A covariance with noise need not be positive. As in the authors' code small eigenvalues are cut off, there at 0.001 in the unit of the
   ball; here at a fifth of the variance before, and at the square of a hundredth of the widest radius of a cluster.
6. Rows that a component has beyond the limit count at the limit. The variances that so are lost to a normal distribution are added again.
7. A component with fewer rows than two standard deviations of their noise keeps mean and covariance in that iteration.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from flareclust._foundation.display import all_of
from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.dp_lloyd import DPLloydAggregator, DPLloydState, box_of, totals
from flareclust.aggregators.gmm import check_size
from flareclust.core import mixtures
from flareclust.core.dp import axes as dp_axes
from flareclust.core.dp import mixture_sums
from flareclust.core.dp import mixtures as dp_mixtures
from flareclust.core.dp import sums as dp_sums
from flareclust.core.rounds import remember
from flareclust.executors import dp_gmm, dp_lloyd, gmm
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.privacy.dp import server as dp_server
from flareclust.privacy.dp import site as dp_site
from flareclust.protocol import cluster_arrays
from flareclust.protocol.rounds import Round
from flareclust.protocol.sizes import MOMENTS

_Round = Round[DPLloydState]

#: A variance of which noise makes more than this part says little.
_BLURRED = 0.5


class DPGMMAggregator(ClusteringAggregator):
    """The server of a DP Gaussian mixture. With secure sums, totals hold one noise of all sites.

    Result beside that of DP Lloyd: `weights` (k,), `covariances` (k, d, d) or (k, d), and `factors`, their Cholesky factors.
    """

    params: dp_gmm.DPGMMParams
    executor = dp_gmm.DPGMMExecutor
    state = DPLloydState

    @property
    def _lloyd(self) -> DPLloydAggregator:
        """Return the server of DP Lloyd that finds the start, among whose updates are the iterations as far as the budget goes."""
        params = self.params
        own = {name: getattr(params, name) for name in dp_lloyd.DPLloydParams.own("server")}
        lloyd = DPLloydAggregator(params.k, params.seed, **own | {"rounds": params.updates + params.rounds})
        return lloyd.secured() if self.secure else lloyd

    def begin(self) -> _Round:
        """Ask for the sites' bounds."""
        return self._lloyd.begin()

    def limits(self, round_: _Round) -> dict[str, int]:
        """Return the most entries of a reply: of a grid, its cells."""
        return {} if round_.step == gmm.EXPECTATION else self._lloyd.limits(round_)

    def rows_needed(self, d: int, sites: int) -> int:
        """Return with how many rows in all noise moves a mean by half a radius at most."""
        return math.ceil(dp_sums.CLEAR * self.params.k * self._noise(self._lloyd.update_share(d), sites) * math.sqrt(d))

    def _noise(self, share: float, sites: int) -> float:
        """Return the standard deviation of the noise of the shifts of an iteration."""
        return self._lloyd.deviation(mixture_sums.mixture_sensitivity(), share, sites) / dp_sums.UNIT

    def bounds(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Span the box, and ask for what the start is found with."""
        after = self._lloyd.bounds(round_, replies, rng)
        assert after.state.box is not None
        check_size(self.params.covariance, self.params.k, len(after.state.box.low))
        return replace(
            after, diagnostics={"rows_needed": float(self.rows_needed(len(after.state.box.low), len(replies)))}
        )

    def merge(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Find centroids from the cells of a grid."""
        return self._lloyd.merge(round_, replies, rng)

    def outline(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Begin with centroids about the mean."""
        return self._lloyd.outline(round_, replies, rng)

    def second_moments(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Ask for cells along the main axes, or begin with centroids about the mean."""
        return self._lloyd.second_moments(round_, replies, rng)

    def axes(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Find centroids from cells along the main axes."""
        return self._lloyd.axes(round_, replies, rng)

    def update(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Move the centroids, or after the last update make the first mixture."""
        after = self._lloyd.update(round_, replies, rng)
        assert after.state.history is not None
        if len(after.state.history) - 1 < self.params.updates:
            return after
        sent, noise = list(replies.values()), after.diagnostics["noise"]
        total = dp_sums.ClusterSums(*totals(dp_lloyd.UPDATE, sent))
        radii = dp_axes.settled_radii(round_.task["radii"], total, noise, box_of(round_))
        centroids, counts = after.task["centroids"], after.state.counts
        assert counts is not None
        mixture = dp_mixtures.started(
            centroids, radii[: len(centroids)], counts.astype(np.float64), self.params.covariance
        )
        return replace(after, task=self._sent(mixture, after.task[dp_site.SHARE]), step=gmm.EXPECTATION)

    def maximize(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Return the next mixture, or the end."""
        covariance, share, sent = self.params.covariance, round_.task[dp_site.SHARE], list(replies.values())
        before, box, history = mixtures.received_mixture(round_.task, covariance), box_of(round_), round_.state.history
        assert history is not None
        done = len(history) - 1 - self.params.updates
        sums = mixture_sums.NoisySums(
            *(np.sum([reply[name] for reply in sent], axis=0) for name in mixture_sums.NoisySums._fields)
        )
        sums = mixture_sums.received(sums, covariance)
        noise = self._noise(float(share), round_.state.summed_sites if self.secure else len(sent))
        mixture = dp_mixtures.next_mixture(before, sums, noise, covariance, done, box)
        clear = np.maximum(sums.rows, 0) / (noise * math.sqrt(len(box.low)))
        state = replace(
            round_.state,
            history=remember(history, mixture.means, self.params.k),
            counts=np.rint(np.maximum(sums.rows, 0)).astype(np.int64),
            all_rows=max(float(sums.rows.sum()), 0.0),
            signal_to_noise=clear,
        )
        diagnostics = {
            "noise": noise,
            "moved": float(np.sqrt(((mixture.means - before.means) ** 2).sum(axis=1)).max()),
            dp_server.BUDGET_SHARE: float(share),
            cluster_arrays.SIGNAL: float(np.median(clear)),
        }
        if done + 1 < self.params.rounds:
            return Round(self._sent(mixture, share), False, diagnostics, state, gmm.EXPECTATION)
        reach = dp_server.reach_of(dp_mixtures.radii_of(mixture), box)
        return Round({**mixture.arrays(), cluster_arrays.REACH: reach}, True, diagnostics, state)

    def _sent(self, mixture: mixtures.Mixture, share: FloatArray) -> Message:
        """Return what the sites are sent of a mixture: it, how many second moments are asked for, and what they cost."""
        asked = mixtures.n_second_moments(self.params.covariance, *mixture.means.shape)
        return {**mixture.arrays(), MOMENTS: np.array(asked), dp_site.SHARE: share}

    def result(self, round_: _Round) -> Message:
        """Return the arrays of the result, with covariances."""
        mixture = mixtures.received_mixture(round_.task, self.params.covariance)
        return {**super().result(round_), "covariances": mixture.covariances}

    def warnings(self, round_: _Round, assessed: Mapping[str, Message]) -> list[str]:
        """Say so where noise is large beside the components, or where it is not, beside their variances."""
        state, params = round_.state, self.params
        d = len(box_of(round_).low)
        needed = self.rows_needed(d, state.summed_sites)
        found = dp_server.poor_signal(params, round_, needed, noises=1 if self.secure else None, shares_noise=True)
        if found or state.counts is None:
            return found
        blurs = dp_mixtures.blur(state.counts.astype(np.float64), round_.diagnostics["noise"], params.covariance, d)
        blurred = np.flatnonzero(blurs > _BLURRED)
        if blurred.size:
            which = f"component {blurred[0]}" if len(blurred) == 1 else f"components {all_of(blurred.tolist())}"
            simpler = {"full": ", or covariance=tied or diag", "diag": ", or covariance=spherical"}.get(
                params.covariance, ""
            )
            found.append(
                f"noise alone makes up to {blurs[blurred].max():.2g} times the variances of {which} along some axis, so covariances and "
                f"probabilities say little there. What helps: a larger epsilon, more rows, a smaller k{simpler}"
            )
        return found
