"""DP Gaussian mixture, the site's side: what DP Lloyd asks for to find the start, then noisy sums of expectation steps.

Source: Park, Foulds, Chaudhuri, Welling, DP-EM: Differentially Private Expectation Maximization (2017), for mixtures of Gaussians,
with the authors' code (github.com/mijungi/dpem_code); iterations are composed as zero-concentrated differential privacy (Bun, Steinke
2016), one of the two ways that the paper has. It has one holder of all rows.

Readings and deviations:
1. The paper adds noise to weights, means and covariances, 2 k + 1 times in an iteration; of means and covariances the code divides the
   sensitivity by the rows of the component, which follow from the rows. Here noise is on the sums of the expectation step, so that
   sums of all sites add up, numbers of rows are protected, and one noise covers all three (`flareclust.core.dp.mixture_sums` has the
   sensitivity, and its proof).
2. In the paper rows lie in the ball of radius 1. Here a row is clipped at the site's bounds, and its distance from a component at a
   number of the component's standard deviations, by the mixture that the server sent. So the noise is in proportion to the component,
   and not to the whole box.
3. Noise is that of DP Lloyd: discrete Gaussian, from OpenDP, all of it at every site, or with secure sums a share of one noise.
4. The start: `updates` updates of DP Lloyd, which see `executors/dp_lloyd.py`. Updates and iterations cost the same share each; the
   server states it.
5. Unlike in `gmm` every component is described: noise protects single rows. No likelihood is sent, as a row can change it without
   limit.
"""

from flareclust._foundation.typing import Message
from flareclust.core import mixtures
from flareclust.core.dp import mixture_sums
from flareclust.executors import dp_lloyd, gmm
from flareclust.federation.executor import ClusteringExecutor
from flareclust.federation.stages import check_centroids
from flareclust.privacy.dp import site as dp_site
from flareclust.protocol.params import MOST_ROUNDS, both
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema
from flareclust.protocol.steps import Step
from flareclust.protocol.task import Task


class DPGMMParams(dp_lloyd.DPLloydParams):
    """Parameters of DP Gaussian mixtures."""

    rounds: int = both(
        6, "Iterations, among which the budget is split, with the updates before them.", ge=1, le=MOST_ROUNDS // 2
    )
    updates: int = both(1, "Updates of DP Lloyd before the iterations.", ge=1, le=MOST_ROUNDS // 2)
    covariance: mixtures.Covariance = both(
        "full",
        "The covariances of the components: of any form (full), the same of all (tied), without correlations (diag), or round (spherical).",
    )


class DPGMMExecutor(ClusteringExecutor):
    """A site of a DP Gaussian mixture."""

    params: DPGMMParams
    private = True
    parts = dp_lloyd.DPLloydExecutor.parts

    steps = {
        **dp_lloyd.DPLloydExecutor.steps,
        gmm.EXPECTATION: Step(Schema(rows="K", shifts="K d", m2="t"), "expect", "maximize", summed=True),
    }
    placed_by = gmm.GMMExecutor.placed_by

    local = dp_lloyd.DPLloydExecutor.local
    bounds = dp_lloyd.DPLloydExecutor.bounds
    outline = dp_lloyd.DPLloydExecutor.outline
    second_moments = dp_lloyd.DPLloydExecutor.second_moments
    axes = dp_lloyd.DPLloydExecutor.axes
    update = dp_lloyd.DPLloydExecutor.update
    labels = gmm.GMMExecutor.labels
    details = gmm.GMMExecutor.details

    @classmethod
    def warm_up(cls) -> None:
        """Compile the kernels of mixtures beside the others."""
        super().warm_up()
        mixtures.warm_up()
        mixture_sums.warm_up()

    def expect(self, task: Task, rows: SiteRows) -> Message:
        """Return noisy sums of an expectation step: `rows`, `shifts` and `m2`, as `NoisySums` has them."""
        noise, covariance = dp_site.Noise.granted_for_sums(self.params, rows), self.params.covariance
        check_centroids(task.arrays.get("centroids"), rows.d, self.params.k)
        mixture, share = gmm.asked_mixture(task, covariance), dp_site.sent_share(task.arrays)
        sums = mixture_sums.expectation_sums(rows.X, noise.box, mixture, covariance, rows.aborted)
        sensitivity = mixture_sums.mixture_sensitivity()
        noisy = noise.add_to_sums(sums, sensitivity, share, f"iteration of round {task.round}")
        return mixture_sums.in_units(noisy, *mixture.means.shape)._asdict()
