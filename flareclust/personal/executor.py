"""Federated averaging and IFCA, the device's side: train the server's model on own rows, and test it on rows held out.

Sources: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data" (2017), Algorithm 1; of IFCA,
where a device chooses the model with the smallest loss on own rows in every round, and trains that one: Ghosh et al., "An
Efficient Framework for Clustered Federated Learning" (2020), Algorithm 1, model averaging.

A site's table has a column of classes, and may have one that says which rows are held out; otherwise these are drawn.

Readings and deviations:
1. A site sends its weights times its number of rows, and that number: sums over rows, which secure sums mask.
2. A model is tested when it arrives, so a round needs one exchange; the last model is tested in a further one.
3. A site with fewer than `min_count` rows to train with does not train, and one with fewer held out does not test.
4. Sites with a policy refuse: means of rows have no class.
5. Where sites are selected, one is selected by the loss of the model on the rows that it trains with.
6. Of IFCA a site sends the weights of all k models, zeros but for the one that it has trained, so that sums over sites have
   them by model, and secure sums mask the choice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
from pydantic import model_validator

from flareclust._foundation.errors import BadMessage, Refusal, UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.settings import OneOf
from flareclust._foundation.typing import Array, FloatArray, Message
from flareclust.core.client_selection import POW_D_KFED, RANDOM
from flareclust.executors.linear_evaluation import MOST_CLASSES, classes_of
from flareclust.federation.executor import ClusteringExecutor
from flareclust.personal.learners import (
    LARGEST,
    NOT_FINITE,
    TRAINING,
    Among,
    Learner,
    Weights,
    all_bounded,
    by_rows,
    flat,
    picked,
    stacked_models,
)
from flareclust.personal.models import MODELS, make_learner
from flareclust.personal.rows import CLASS_COLUMN, Labelled, drawn
from flareclust.personal.selection import ALL, NO_ONE_LOSS, SELECTS, check_select
from flareclust.preparation import settings
from flareclust.privacy.enforcement import against_classes
from flareclust.privacy.secure_aggregation.server import of_other_width
from flareclust.protocol.params import MOST_ITERATIONS, MOST_ROUNDS, both, server, site
from flareclust.protocol.rows import SiteContext, SiteRows
from flareclust.protocol.schema import MOST_COLUMNS, Schema, counts, real, whole
from flareclust.protocol.stages import SiteExchange, Stage
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task


class _Sizes(Schema):
    """Columns and classes of sites, whose columns must be as many."""

    def compare(self, message: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Raise BadMessage where no table has so many."""
        if not (1 <= message["columns"] <= MOST_COLUMNS and 1 <= message["classes"] <= MOST_CLASSES):
            raise BadMessage("columns, classes: expected numbers that a table can have")

    def at_odds(self, replies: Mapping[str, Message]) -> dict[str, str]:
        """Return the sites that have another number of columns than most."""
        return of_other_width(replies, None) if replies else {}


class _Tested(Schema):
    """What was tested, and more."""

    def compare(self, message: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Raise BadMessage where more rows got their class than were tested."""
        if message["correct"] > message["tested"]:
            raise BadMessage("correct: holds more rows than tested")


class FedAvgParams(settings.ClusteringParams):
    """Parameters of federated averaging; `k` is the number of models, 1."""

    model: Annotated[str, OneOf(MODELS)] = both("linear", "mlp, or linear, which needs no extra.")
    hidden: int = both(200, "Hidden units of mlp.", ge=1, le=100_000)
    class_column: str = site(CLASS_COLUMN, "Name of the column with classes 0, 1, ....", min_length=1)
    test_column: str | None = site(
        None, "Name of a column that is 1 for rows held out, else 0; None to draw them.", min_length=1
    )
    test_share: float = site(0.2, "Share of a site's rows that is held out, where they are drawn.", gt=0, lt=1)
    lr: float = site(0.01, "Step size.", gt=0)
    updates: int = site(10, "Local updates of a round; of linear, passes over the rows.", ge=1, le=MOST_ITERATIONS)
    batch: int = site(10, "Rows of an update of mlp.", ge=1)
    classes: int | None = server(
        None, "Number of classes; None for the largest that a site has.", ge=2, le=MOST_CLASSES
    )
    rounds: int = server(50, "How often the sites train.", ge=1, le=MOST_ROUNDS)
    select: Annotated[str, OneOf(SELECTS)] = server(
        ALL, "Which sites train in a round: all, or per_round of them by random, pow-d or pow-d-kfed."
    )
    per_round: int | None = server(None, "Number of sites that train in a round; None for all.", ge=1)
    candidates: int | None = server(
        None, "Number of sites that are asked for their loss before; None for twice per_round.", ge=1
    )
    clusters: dict[str, list[int]] | None = server(None, "Of pow-d-kfed: the clusters of each site, by name.")
    cluster: int | None = server(None, "Number of k-FED's cluster whose sites train; None for other sites.", ge=0)
    places: dict[str, int] | None = both(
        None, "Place of each site among all parts of a run, by name, whose random numbers it gets; None for its own."
    )
    parts: int | None = both(None, "Number of all parts of that run.", ge=1)

    @model_validator(mode="after")
    def _places_among_parts(self) -> "FedAvgParams":
        if (self.places is None) != (self.parts is None):
            raise UserError("places and parts go together; give both or neither")
        return self

    @model_validator(mode="after")
    def _selected(self) -> "FedAvgParams":
        check_select(self.select, self.per_round, self.candidates)
        if (self.clusters is None) == (self.select == POW_D_KFED):
            raise UserError("clusters and select=pow-d-kfed go together; give both or neither")
        return self


class FedAvgExecutor(ClusteringExecutor):
    """A site of federated averaging."""

    params: FedAvgParams

    describes = False  # moments by centroids that a server sends would be of the class, too

    steps = MappingProxyType(
        {
            StepName.SIZES: Step(_Sizes(columns=whole(""), classes=whole("")), "sizes"),
            StepName.ROWS: Step(
                _Sizes(columns=whole(""), classes=whole(""), rows=counts("")), "sizes_and_rows", "sizes", jobs="plain"
            ),
            # Not with secure sums: of rows that a crafted model singles out.
            StepName.LOSSES: Step(Schema(loss=real("", minimum=0)), "losses", jobs="plain", counts=False),
            StepName.TRAIN: Step(
                _Tested(weights="p", counts=counts(""), correct=counts(""), tested=counts("")), "local", summed=True
            ),
            StepName.TEST: Step(_Tested(correct=counts(""), tested=counts("")), "test", summed=True),
        }
    )

    def views(self) -> list[Stage]:
        """Show rows with their class, and whether they are held out."""
        return [_LabelledRows(self.params)]

    def sizes(self, task: Task, rows: SiteRows) -> Message:
        """Return the numbers of columns and of classes."""
        _check_ungrouped(rows.context)
        rows.check_sums()
        return {"columns": np.array(rows.X.shape[1] - 2), "classes": np.array(int(rows.X[:, -2].max()) + 1)}

    def sizes_and_rows(self, task: Task, rows: SiteRows) -> Message:
        """Return these, and the number of rows to train with."""
        sizes = self.sizes(task, rows)
        return {**sizes, "rows": np.array(self._trainable(_halves(rows.X)[0], rows.context))}

    def losses(self, task: Task, rows: SiteRows) -> Message:
        """Return the mean loss of the server's model on the rows to train with."""
        learner, model, _ = self._received(task, rows)
        train, _ = _halves(rows.X)
        if not self._trainable(train, rows.context):
            raise Refusal("was asked for the loss of rows it does not train with, since they are fewer than min_count")
        loss = learner.losses(model, learner.hold([train]))[0, 0]
        if not np.isfinite(loss):
            raise Refusal(f"cannot be selected: the loss of the model on its rows {NOT_FINITE}")
        return {"loss": np.array(float(loss))}

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Test the server's model and train it."""
        learner, model, chosen = self._received(task, rows)
        train, _ = _halves(rows.X)
        n, trained = self._trainable(train, rows.context), model
        if n:
            place = self._place(task)
            rng = rows.rng if place is None else stream(self.params.seed, task.round - 1, TRAINING)
            trained = learner.train(model, learner.hold([train]), rng, place)
        if not all_bounded(trained):
            raise Refusal(
                f"trained weights beyond {LARGEST:g}, so the loss diverged; use a smaller lr, or scale the columns"
            )
        sent = self.sent(by_rows(flat(trained, 0), n), n, chosen)
        return {**sent, **self._tested(learner, model, rows.X, rows.context)}

    def test(self, task: Task, rows: SiteRows) -> Message:
        """Test the server's model."""
        learner, model, _ = self._received(task, rows)
        return self._tested(learner, model, rows.X, rows.context)

    def chosen(self, learner: Learner[Any], models: Weights, train: Labelled) -> int:
        """Return the number of the model that the site trains and tests."""
        return 0

    def sent(self, weighted: FloatArray, rows: int, chosen: int) -> Message:
        """Return what the site sends of a model that it has trained: weights times rows (s,), and rows."""
        return {"weights": weighted, "counts": np.array(rows)}

    def _tested(self, learner: Learner[Any], model: Weights, data: FloatArray, context: SiteContext) -> Message:
        _, test = _halves(data)
        if len(test) < max(context.min_count, 1):
            return {"correct": np.array(0), "tested": np.array(0)}
        right = learner.correct(model, np.zeros(1, dtype=np.int64), learner.hold([test]))
        return {"correct": np.array(int(right[0])), "tested": np.array(len(test))}

    def _trainable(self, train: Labelled, context: SiteContext) -> int:
        """Return how many rows the site trains with."""
        return len(train) if len(train) >= context.min_count else 0

    def _place(self, task: Task) -> Among | None:
        if self.params.places is None or self.params.parts is None:
            return None
        if task.site not in self.params.places:
            raise Refusal("is not among the places of the job's settings")
        return [self.params.places[task.site]], self.params.parts

    def _received(self, task: Task, rows: SiteRows) -> tuple[Learner[Any], Weights, int]:
        """Return the kind of model that the server says, the weights of the site's own (1, ...), and its number."""
        _check_ungrouped(rows.context)
        rows.check_sums()
        sizes = task.arrays.get("model")
        d, least = rows.X.shape[1] - 2, int(rows.X[:, -2].max()) + 1
        if sizes is None or sizes.shape != (2,) or sizes[0] != d or not least <= sizes[1] <= MOST_CLASSES:
            raise BadMessage(f"model: expected {d} columns and {least} classes or more, as the site has")
        p, classes = self.params, max(int(sizes[1]), 2)
        how = {"hidden": p.hidden, "updates": p.updates, "batch": p.batch}
        try:
            learner = make_learner(p.model, d, classes, lr=p.lr, **how)
        except UserError as error:
            raise Refusal(f"cannot take part: {error}") from None
        like = learner.start(1, np.random.default_rng(0))
        size = self.params.k * len(flat(like, 0))
        Schema(weights="p").check({"weights": task.arrays.get("weights")}, {"p": size})  # type: ignore[dict-item]
        models = stacked_models(task.arrays["weights"], like, self.params.k)
        chosen = self.chosen(learner, models, _halves(rows.X)[0])
        return learner, picked(models, np.array([chosen])), chosen


@dataclass(frozen=True)
class _LabelledRows(Stage):
    """Shows the algorithm the columns of the model, the class and whether a row is held out, in this order."""

    params: FedAvgParams

    def before(self, exchange: SiteExchange) -> SiteExchange:
        """Return the exchange with these rows."""
        p, table = self.params, exchange.rows.table
        names, y = table.columns or (), classes_of(table, p.class_column)
        if p.test_column is None:
            if len(y) < 2:
                raise Refusal("has one row, where it needs one to train and one to test with")
            held = drawn(len(y), p.test_share, p.seed, exchange.task.site)
        elif p.test_column in names:
            held = table.X[:, names.index(p.test_column)] != 0
        else:
            raise Refusal("has no column of the name that test_column says")
        inputs = [j for j, name in enumerate(names) if name not in (p.class_column, p.test_column)]
        if not inputs:
            raise Refusal("has no column beside that of the classes")
        return replace(exchange, rows=exchange.rows.of(np.column_stack([table.X[:, inputs], y, held])))


class IFCAParams(FedAvgParams):
    """Parameters of IFCA; `k` is the number of models."""

    @model_validator(mode="after")
    def _without_losses(self) -> "IFCAParams":
        if self.select not in (ALL, RANDOM):
            raise UserError(f"select is {self.select}, and {NO_ONE_LOSS}")
        return self


class IFCAExecutor(FedAvgExecutor):
    """A site of IFCA."""

    params: IFCAParams

    steps = MappingProxyType(
        {
            **FedAvgExecutor.steps,
            StepName.TRAIN: Step(
                _Tested(weights="p", counts=counts("k"), correct=counts(""), tested=counts("")), "local", summed=True
            ),
            StepName.TEST: Step(
                _Tested(counts=counts("k"), correct=counts(""), tested=counts("")), "test", summed=True
            ),
        }
    )

    def test(self, task: Task, rows: SiteRows) -> Message:
        """Choose once more, and test the model chosen."""
        learner, model, chosen = self._received(task, rows)
        by_model = self.sent(np.zeros(0), self._trainable(_halves(rows.X)[0], rows.context), chosen)
        return {"counts": by_model["counts"], **self._tested(learner, model, rows.X, rows.context)}

    def chosen(self, learner: Learner[Any], models: Weights, train: Labelled) -> int:
        """Return the number of the model with the smallest loss on the rows to train with."""
        return int(learner.losses(models, learner.hold([train]))[:, 0].argmin())

    def sent(self, weighted: FloatArray, rows: int, chosen: int) -> Message:
        """Return weights times rows (k * s,) and rows (k,) by model."""
        weights, by_model = np.zeros((self.params.k, len(weighted))), np.zeros(self.params.k, dtype=np.int64)
        weights[chosen], by_model[chosen] = weighted, rows
        return {"weights": weights.ravel(), "counts": by_model}


def _halves(data: FloatArray) -> tuple[Labelled, Labelled]:
    """Return the rows to train with and those held out."""
    rows, held = Labelled(np.ascontiguousarray(data[:, :-2]), data[:, -2].astype(np.int64)), data[:, -1] != 0
    return rows.take(~held), rows.take(held)


def _check_ungrouped(context: SiteContext) -> None:
    if context.grouped:
        raise against_classes("cannot train a model of classes")
