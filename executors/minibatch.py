"""Mini-batch k-means as NVFlare does it, the site's side: seeds once, then per round the means of a random sample.

Source: NVFlare's recipe `nvflare.app_opt.sklearn.KMeansFedAvgRecipe` and the client of its example
`examples/advanced/sklearn-kmeans`, which runs one step of scikit-learn's MiniBatchKMeans in every round; after Sculley
(2010), Web-scale k-means clustering.

Readings and deviations:
1. One step of MiniBatchKMeans with `batch_size` = n is: n rows drawn with replacement, the nearest of the centroids
   that were sent for each, and per centroid the mean of its drawn rows, with how many they are. Written out here.
2. The example draws with `random_state=0` in every round, so the same sample of about 63 % of the rows each time. Here
   every round and site has a sample of its own.
3. The example sends the k-means++ seeds, which are rows. Here they are the means of the seeds' cells (the rows nearest
   to each), unless `seeds="rows"`. A site with fewer than `min_count` rows per seed draws fewer; in the example it fails.
4. Groups of fewer than `min_count` different rows of the sample, of one row repeated, or whose mean is a row, are not
   sent. Where scikit-learn returns the centroid it was given, with a count of 0, nothing is sent. A site with no group
   to send sends an empty reply, and stays.
"""

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core.disclosure import describable
from flareclust.core.lloyd import labels_of, sums_by_label
from flareclust.federation.executor import ClusteringExecutor
from flareclust.preparation.settings import ScaledParams, SeedsParams
from flareclust.protocol.params import MOST_ROUNDS, server
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema, counts, index
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

#: The step of one round after the start: which centroids (`cluster`) have rows in the sample, their means and numbers.
SAMPLE = "sample"


class MiniBatchParams(SeedsParams, ScaledParams):
    """Parameters of NVFlare's mini-batch scheme."""

    rounds: int = server(4, "Exchanges after the seeds.", ge=1, le=MOST_ROUNDS)


class MiniBatchExecutor(ClusteringExecutor):
    """A site of NVFlare's mini-batch scheme."""

    params: MiniBatchParams
    steps = {
        StepName.CLUSTER: Step(Schema(centroids="k d")),
        SAMPLE: Step(
            Schema(
                may_be_empty=True, centroids="k d", counts=counts("k", minimum=1), cluster=index("k", less_than="K")
            ),
            "sample",
            "sample",
        ),
    }

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Draw seeds."""
        return {"centroids": rows.seeds(self.params.k, self.params.seeds).centroids}

    def sample(self, task: Task, rows: SiteRows) -> Message:
        """Draw a sample and return its means."""
        rows.check_enough()
        times = np.bincount(rows.rng.integers(len(rows.X), size=len(rows.X)), minlength=len(rows.X))
        return _sample_means(rows.X, times, task.arrays["centroids"], rows.context.min_count)


def _sample_means(data: FloatArray, times: IntArray, centroids: FloatArray, min_count: int) -> Message:
    """Return the means of a sample's rows nearest to each of the centroids (k, d), and how many rows each is of.

    `times` (n,) says how often each of the rows (n, d) was drawn; groups below `min_count` different rows are not sent.
    """
    labels = labels_of(data, centroids)
    size = np.bincount(labels, weights=times, minlength=len(centroids))
    present = np.flatnonzero(size)
    # Offsets from the centroid keep the precision where the data lie far from zero.
    offsets = (x - column[labels] for x, column in zip(data.T, centroids.T, strict=True))
    sums, means = np.column_stack([sums_by_label(labels, times * x, len(centroids)) for x in offsets]), centroids.copy()
    means[present] += sums[present] / size[present, None]
    sample_labels = np.where(times > 0, labels, -1)
    # Two checks: the mean must be of enough drawn rows, and must not equal a row that was not drawn.
    keep = np.flatnonzero(
        describable(data, sample_labels, means, min_count) & describable(data, labels, means, min_count)
    )
    return {"centroids": means[keep], "counts": size[keep].astype(np.int64), "cluster": keep}
