"""DeepFeCA, the client's side: cluster the network's embeddings of the rows, then train the network to tell the clusters apart.

Source: Xu, Chen, Chao, Zhang, "Jigsaw Game: Federated Clustering" (2024): Algorithm 6, lines 4, 7 and 8; training after
Caron et al. 2020, DeepCluster-v2.

Readings where the paper is open, and deviations from it:
1. Line 4: embeddings have length 1, as DeepCluster-v2's, and the server brings merged centroids to length 1. FeCA's client
   step runs on them as it is, and so do those of its rivals in Table 3 (`centroids`). So FeCA's `metric=cosine` is no setting
   here: it would bring the same rows and the same centroids to length 1 once more.
2. Line 8, "a linear classifier": its weights are the centroids C*, which training leaves as they are (DeepCluster-v2's
   prototypes). A classifier of each site's own would not be averaged, and labels change their numbers between rounds.
3. Clusters are in the space of a projection head; what is evaluated are the features before it.
4. Optimiser state begins anew in every round, and never leaves the site.
5. Not in the paper: each image is brought to mean 0 and variance 1. Rows that are no images are clustered by a small
   network for tables.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, model_validator

from flareclust._foundation.errors import BadMessage, Refusal, UserError
from flareclust._foundation.extras import require
from flareclust._foundation.typing import Array, FloatArray, IntArray, Message
from flareclust.core.disclosure import rounded
from flareclust.core.lloyd import labels_of
from flareclust.deep import images as deep_images
from flareclust.deep.embeddings import LastEmbeddings
from flareclust.executors import linear_evaluation as linear
from flareclust.executors.feca import FeCAExecutor
from flareclust.executors.ffcm import FFCMExecutor
from flareclust.executors.kfed import KFedExecutor
from flareclust.executors.mavg import MAvgExecutor
from flareclust.executors.pooled import PooledExecutor
from flareclust.federation.executor import ClusteringExecutor
from flareclust.preparation.settings import ClusteringParams, NamesParams
from flareclust.protocol.params import MOST_ITERATIONS, MOST_ROUNDS, both, server, site
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import MOST_COLUMNS, Schema, counts, real, whole
from flareclust.protocol.stages import SiteExchange, Stage
from flareclust.protocol.steps import Step
from flareclust.protocol.task import Task

if TYPE_CHECKING:
    from flareclust.deep import networks as deep_networks

#: What sites are asked for beside the steps of the centroids: the shape of their images, and training.
SHAPE, TRAIN = "shape", "train"

#: The algorithms that can find the centroids (line 4): FeCA, and its rivals of Table 3.
CENTROIDS = MappingProxyType(
    {"feca": FeCAExecutor, "kfed": KFedExecutor, "mavg": MAvgExecutor, "ffcm": FFCMExecutor, "pooled": PooledExecutor}
)

_PROTOTYPES, _WEIGHTS = Schema(prototypes="k e"), Schema(weights="p")


class _Shapes(Schema):
    """Shapes of images, which must be the same at all sites."""

    def compare(self, message: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Raise BadMessage where the shape is neither that of images nor that of a table, or there are too many classes to evaluate."""
        image = message["image"]
        table = image.shape == (3,) and not image[:2].any() and image[2] >= 1
        if not table and not (image.shape == (3,) and image.min() >= 1 and image[2] in (1, 3)):
            raise BadMessage("image: expected height, width and 1 or 3 channels")
        if image.astype(np.float64).clip(1).prod() > MOST_COLUMNS or message["cuda"] > 1:
            raise BadMessage("image: holds more pixels than any table has columns")
        if message["classes"] > linear.MOST_CLASSES:
            raise BadMessage(f"classes: holds more than {linear.MOST_CLASSES}")

    def at_odds(self, replies: Mapping[str, Message]) -> dict[str, str]:
        """Return the sites whose images have another shape than those of most sites."""
        shapes = {site: tuple(reply["image"].tolist()) for site, reply in replies.items()}
        if len(set(shapes.values())) < 2:
            return {}
        (usual, sharing), (_, next_most), *_ = Counter(shapes.values()).most_common(2)
        if sharing == next_most:  # nobody can say who is right
            return {
                site: f"has {deep_images.described(shape)}, and as many sites have others"
                for site, shape in shapes.items()
            }
        others = f"{sharing} other {'site has' if sharing == 1 else 'sites have'} {deep_images.described(usual)}"
        return {
            site: f"has {deep_images.described(shape)} where {others}"
            for site, shape in shapes.items()
            if shape != usual
        }


class DeepFeCAParams(ClusteringParams, NamesParams):
    """Parameters of DeepFeCA."""

    centroids: Literal["feca", "kfed", "mavg", "ffcm", "pooled"] = both(
        "feca", "The algorithm that finds the centroids."
    )
    k_local: int | None = both(None, "k' of k-FED, where it finds the centroids; None for its own choice.", ge=1)
    network: str = both(
        "auto",
        "small, resnet18, mlp, or the import path of a torch.nn.Module; auto: small for images, mlp for tables.",
        imports=True,
    )
    image: Annotated[str, AfterValidator(deep_images.check_image)] = site(
        "auto", "Size of the images in the rows, such as 28x28 or 32x32x3; auto for square ones, none for tables."
    )
    rounds: int = server(15, "Rounds of Algorithm 6 (T).", ge=0, le=MOST_ROUNDS)
    epochs: int = site(5, "Epochs of training in a round.", ge=1, le=MOST_ITERATIONS)
    batch: int = site(64, "Rows of one update.", ge=2)
    lr: float = site(0.05, "Learning rate of SGD.", gt=0, le=1e3)
    momentum: float = site(0.9, "Momentum of SGD.", ge=0, lt=1)
    temperature: float = site(0.1, "By what scores are divided before the softmax.", gt=0)
    augment: Literal["auto", "none", "affine", "natural"] = site(
        "auto",
        "How images are changed in training: turned and moved (affine), cropped and mirrored (natural); auto by their channels.",
    )
    class_column: str | None = both(
        None,
        "Name of the column with classes 0, 1, ..., for linear evaluation of the features; None for no evaluation.",
        min_length=1,
    )
    linear_steps: int = server(20, "Steps of the logistic regression in linear evaluation.", ge=1, le=MOST_ITERATIONS)
    device: Literal["auto", "cpu", "cuda"] = site("auto", "Where to compute; auto takes a GPU where there is one.")

    @model_validator(mode="after")
    def _k_local_of_kfed(self) -> "DeepFeCAParams":
        if self.k_local is not None:
            if self.centroids != "kfed":
                raise ValueError("k_local is of k-FED; it needs centroids=kfed")
            if self.k_local > self.k:
                raise ValueError(f"k_local={self.k_local} is more than k={self.k}")
        return self


class DeepFeCAExecutor(ClusteringExecutor):
    """A site of DeepFeCA: the centroids of its embeddings, and the network after training on its rows."""

    params: DeepFeCAParams

    describes = False  # pixels say nothing

    placed_by: ClassVar[tuple[str, ...]] = ("centroids", "weights", "image")

    steps = {
        SHAPE: Step(_Shapes(image=whole("a"), cuda=whole(""), classes=whole("")), "shape", as_is=True),
        TRAIN: Step(Schema(weights="p", counts=counts(""), loss=real("", minimum=0)), "local", summed=True),
        **linear.STEPS,
    }

    def configure(self, k: int, seed: int = 0, **settings: Any) -> None:
        """Check and keep the settings."""
        super().configure(k, seed, **settings)
        self._last = LastEmbeddings()

    def shape(self, task: Task, rows: SiteRows) -> Message:
        """Return the shape of the images, and whether a GPU computes."""
        try:
            require("deep", "deepfeca")
        except UserError as error:
            raise Refusal(f"cannot take part: {error}") from None
        from flareclust.deep import training as deep_training

        on_gpu, classes = deep_training.device_of(self.params.device).type == "cuda", 0
        if self.params.class_column is not None:
            if rows.context.grouped:
                raise Refusal(
                    "cannot evaluate with labels: its policy shows means of rows, which have no class; leave out class_column"
                )
            classes = int(linear.classes_of(rows.table, self.params.class_column).max()) + 1
        shape = self._shape(linear.without(rows.table, self.params.class_column).X)
        return {"image": shape, "cuda": np.array(on_gpu, dtype=np.int64), "classes": np.array(classes)}

    @property
    def member(self) -> ClusteringExecutor:
        """Return the algorithm that finds the centroids of the embeddings (line 4)."""
        p = self.params
        settings = {"k_local": p.k_local} if p.k_local else {}
        return CENTROIDS[p.centroids](p.k, p.seed, min_count=p.min_count, **settings)

    def views(self) -> list[Stage]:
        """Show embeddings in the place of the rows."""
        return [_Embedded(self)]

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Label the images by the nearest of the prototypes, and train the network on the labels (lines 7 and 8)."""
        from flareclust.deep import networks as deep_networks
        from flareclust.deep import training as deep_training

        rows.check_sums()
        if len(rows.X) < 2:
            raise Refusal("has one row, and a network is trained on two or more")
        p, images = self.params, self.images(rows.X)
        network, device = self.network_with(task, rows.X), deep_training.device_of(p.device)
        prototypes = self._prototypes(task)
        labels = self.pseudo_labels(self.embedded(task, network, images), prototypes, task.site)
        how = deep_training.Training(
            p.epochs, p.batch, p.lr, p.momentum, p.temperature, p.augment, draws=bool(self.imports)
        )
        try:
            loss = deep_training.train(
                network, images, labels, prototypes, how, device, int(rows.rng.integers(2**31)), rows.aborted
            )
        except Refusal as problem:
            raise Refusal(f"in round {task.round} {problem}") from None
        n = rounded(np.array(len(rows.X)), rows.context.round_counts, rows.context.min_count)
        return {"weights": n * deep_networks.weights_of(network), "counts": n, "loss": n * loss}

    def pseudo_labels(self, embedded: FloatArray, prototypes: FloatArray, site: str) -> IntArray:
        """Return what the site's images are trained to be: the prototype nearest to each embedding (line 7)."""
        return labels_of(embedded, prototypes)

    def linear_moments(self, task: Task, rows: SiteRows) -> Message:
        """Return the second moments of the features."""
        features, test = self._features(task, rows)
        return linear.moments(features, test)

    def linear_gradient(self, task: Task, rows: SiteRows) -> Message:
        """Return gradient and accuracy of a linear classifier of the features."""
        features, test = self._features(task, rows)
        classes = linear.classes_of(rows.table, self.params.class_column or "")
        return linear.gradient(features, classes, test, task.arrays)

    def _features(self, task: Task, rows: SiteRows) -> tuple[FloatArray, IntArray]:
        """Return the features (n, f) before the head, and the places of the rows that are held out."""
        if self.params.class_column is None or rows.context.grouped:
            raise Refusal("was asked for sums by class, which the job's settings or its policy exclude")
        data = linear.without(rows.table, self.params.class_column).X
        rows.check_sums()
        network, images = self.network_with(task, data), self.images(data)
        features = self.embedded(task, network, images, "backbone")
        return features, linear.held_out(len(data), self.params.seed, task.site, rows.context.min_count)

    def embedded(
        self,
        task: Task,
        network: "deep_networks.Model",
        images: FloatArray,
        part: Literal["network", "backbone"] = "network",
    ) -> FloatArray:
        """Return what the task's network, or its backbone, makes of the images (n, ...)."""
        from flareclust.deep import training as deep_training

        taken = network.backbone if part == "backbone" else network
        return self._last.of(
            task.site,
            part,
            task.arrays["weights"],
            images,
            lambda: deep_training.embed(taken, images, deep_training.device_of(self.params.device)),
        )

    def _prototypes(self, task: Task) -> FloatArray:
        """Return the checked prototypes (k, e) of a task."""
        sent = {"prototypes": task.arrays.get("prototypes")}
        if not 1 <= _PROTOTYPES.check(sent, {"e": deep_images.EMBEDDED})["k"] <= self.params.k:  # type: ignore[arg-type]
            raise BadMessage(f"prototypes: expected 1 to {self.params.k} of them")
        return task.arrays["prototypes"]

    def images(self, data: FloatArray) -> FloatArray:
        """Return the images in the rows (n, d)."""
        return deep_images.as_images(data, self._shape(data))

    def _shape(self, data: FloatArray) -> IntArray:
        """Return the shape (3,) of the images in the rows (n, d)."""
        d = data.shape[1]
        try:
            return deep_images.shape_array(deep_images.image_shape(self.params.image, d), d)
        except UserError as error:
            raise Refusal(f"cannot take its rows as images: {error}") from error

    def network_with(self, task: Task, data: FloatArray) -> "deep_networks.Model":
        """Return the network that the task brings; it is built where its weights are used."""
        from flareclust.deep import networks as deep_networks

        shape = self._shape(data)
        if not np.array_equal(task.arrays.get("image", ()), shape):
            raise BadMessage(f"image: expected {deep_images.described(shape.tolist())}, as the site has")
        _WEIGHTS.check({"weights": task.arrays.get("weights")})  # type: ignore[dict-item]
        try:
            network = deep_networks.build(self.params.network, shape, self.params.seed)
        except UserError as error:
            raise Refusal(f"cannot build the network: {error}") from error
        deep_networks.load_weights(network, task.arrays["weights"])
        return network


@dataclass(frozen=True)
class _Embedded(Stage):
    """Shows the algorithm what the task's network makes of the rows; the rows themselves where the network is trained."""

    executor: DeepFeCAExecutor

    def before(self, exchange: SiteExchange) -> SiteExchange:
        """Return the exchange with embeddings."""
        X = linear.without(exchange.rows.table, self.executor.params.class_column).X
        if exchange.task.step == TRAIN:
            return replace(exchange, rows=exchange.rows.of(X))
        network, images = self.executor.network_with(exchange.task, X), self.executor.images(X)
        embeddings = self.executor.embedded(exchange.task, network, images)
        return replace(exchange.without("weights", "image"), rows=exchange.rows.of(embeddings))
