"""Choosing the clients of each round in NVFlare's own controllers that average models, such as `FedAvg`.

These controllers call `sample_clients` at the start of a round and send the training task to the clients that it
returns; NVFlare's own method draws them at random. `ClientSelection` puts the methods of
`flareclust.core.client_selection` in its place: `class Mine(ClientSelection, Scaffold)`. `SelectiveFedAvg` is that with `FedAvg`.

Where losses are needed, the candidates get the current model in a task of its own before the training task. Its name,
`validate`, is the one that NVFlare's Client API knows as evaluation, so a training script answers it where
`flare.is_evaluate()`, with `FLModel(metrics={"loss": ...})`. Nothing else of a reply is used.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.app_common.workflows.base_fedavg import BaseFedAvg
from nvflare.app_common.workflows.fedavg import FedAvg

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.published import published
from flareclust._foundation.validation import check_int
from flareclust.core.client_selection import POW_D, Selection


class ClientSelection(BaseFedAvg):
    """What a controller of NVFlare gets ahead of its own class to have its clients chosen.

    Args:
        args: of the controller.
        method: "random", "pow-d" or "pow-d-kfed".
        candidates: d, how many clients are asked for their loss; None for twice those that train.
        rows: number of rows by client, which candidates are drawn in proportion to; None for equal chances.
        clusters: numbers of the clusters that a client has rows of, by client, for "pow-d-kfed"; see
            `flareclust.core.client_selection.clusters_by_client`. A client that is not there is a cluster of its own.
        seed: of the draws.
        loss_task: name of the task that asks for the loss.
        loss_metric: name of the loss among the metrics of a reply.
        loss_timeout: seconds that candidates have for it; those that are late cannot be chosen in this round.
        kwargs: of the controller.

    Raises:
        UserError: a setting is wrong.
    """

    def __init__(
        self,
        *args: Any,
        method: str = POW_D,
        candidates: int | None = None,
        rows: Mapping[str, int] | None = None,
        clusters: Mapping[str, Sequence[int]] | None = None,
        seed: int = 0,
        loss_task: str = "validate",
        loss_metric: str = "loss",
        loss_timeout: int = 600,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.method = method
        self.candidates = None if candidates is None else check_int("candidates", candidates, minimum=1)
        self.rows = None if rows is None else {site: check_int(f"rows of {site}", n, 1) for site, n in rows.items()}
        self.clusters = None if clusters is None else {site: list(own) for site, own in clusters.items()}
        self.seed = seed
        self.loss_task = loss_task
        self.loss_metric = loss_metric
        self.loss_timeout = check_int("loss_timeout", loss_timeout, minimum=1)
        self._current: FLModel | None = None
        Selection(method, 1, clusters=self.clusters, seed=seed)  # it checks them before the job is there

    def load_model(self) -> FLModel:
        """Load the first model, and keep it for the candidates."""
        self._current = super().load_model()
        return self._current

    def update_model(self, model: FLModel, aggr_result: FLModel) -> FLModel:
        """Update the model from the averaged one, and keep it for the candidates of the next round."""
        self._current = super().update_model(model, aggr_result)
        return self._current

    def sample_clients(self, num_clients: int | None = None) -> list[str]:
        """Return the names of the clients that train in this round.

        Args:
            num_clients: m; None, or as many as there are, for all clients, of which no loss is asked.

        Raises:
            UserError: `rows` lacks a client, or there are fewer candidates than clients that are to train.
            JobFailed: no candidate has sent a loss.
        """
        names = sorted(client.name for client in self.engine.get_clients())
        m = num_clients or len(names)
        if m >= len(names):
            self.info(f"all {len(names)} clients train")
            return names
        selection = Selection(self.method, m, self.candidates, self.clusters, self.seed)
        rows = dict.fromkeys(names, 1) if self.rows is None else self.rows
        if unknown := [name for name in names if name not in rows]:
            raise UserError(f"rows has no number for {', '.join(unknown)}; give one for each client of the job")
        weights = {name: rows[name] for name in names}
        chosen, _ = selection.choose(weights, self.current_round or 0, self._losses)
        self.info(f"{self.method} chose {', '.join(chosen)}")
        return chosen

    def _losses(self, asked: Sequence[str]) -> dict[str, float]:
        """Ask clients for the loss of the current model on their rows; return those that are known, in the clients' order."""
        losses: dict[str, float] = {}

        def receive(client_task: ClientTask, fl_ctx: FLContext) -> None:
            name = client_task.client.name
            loss, problem = _loss_of(client_task.result, self.loss_metric)
            if loss is None:
                self.warning(f"{name} cannot be chosen in this round: it {problem}")
            else:
                losses[name] = loss
            client_task.result = None  # the task is kept until it ends

        # Not by `send_model_and_wait`: it takes every reply for one of training, and tells NVFlare's widgets so.
        given = getattr(self, "model", None)  # FedAvg's argument, which goes before a model that it would load
        current = self._current or (given if isinstance(given, FLModel) else FLModel(params=given or {}))
        rounds = {"current_round": self.current_round or 0, "total_rounds": self.num_rounds}
        message = self._build_shareable(FLModel(ParamsType.FULL, current.params, **rounds))
        task = Task(self.loss_task, message, timeout=self.loss_timeout, result_received_cb=receive)
        everyone: dict[str, Any] = {"targets": list(asked), "min_responses": len(asked)}
        self.broadcast_and_wait(task, self.fl_ctx, **everyone, abort_signal=self.abort_signal)
        if self.abort_signal.triggered:
            return dict.fromkeys(asked, 0.0)  # the controller looks at the signal next
        if not losses:
            raise JobFailed(
                f"none of the {len(asked)} candidates of round {self.current_round} has sent a finite loss, by the job's "
                "loss_metric, in answer to its loss_task; the log says why"
            )
        return {name: losses[name] for name in asked if name in losses}


@published
class SelectiveFedAvg(ClientSelection, FedAvg):
    """NVFlare's `FedAvg` with a choice of clients by their losses and clusters.

    Arguments that are not here are described at `ClientSelection` and at NVFlare's `FedAvg`, whose defaults they have.
    The first model comes from the persistor of that name.

    Args:
        num_clients: m, how many clients train in a round.
        num_rounds: how many rounds there are.
    """

    def __init__(
        self,
        num_clients: int = 3,
        num_rounds: int = 5,
        method: str = POW_D,
        candidates: int | None = None,
        rows: dict[str, int] | None = None,
        clusters: dict[str, list[int]] | None = None,
        seed: int = 0,
        loss_task: str = "validate",
        loss_metric: str = "loss",
        loss_timeout: int = 600,
        persistor_id: str = "persistor",
        task_name: str = "train",
        task_check_period: float = 0.5,
        stop_cond: str | None = None,
        patience: int | None = None,
        aggregation_weights: dict[str, float] | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        given |= {name: check_int(name, given[name], minimum=1) for name in ("num_clients", "num_rounds")}
        super().__init__(**given)
        # NVFlare writes an argument into a job from the attribute of its name.
        self.task_check_period = task_check_period


def _loss_of(reply: Any, metric: str) -> tuple[float | None, str]:
    """Return the loss in a client's reply, or None and what is wrong with it, in words that follow the client's name."""
    code = reply.get_return_code()
    if code != ReturnCode.OK:
        return None, f"failed with NVFlare's return code {code}"
    try:
        metrics = FLModelUtils.from_shareable(reply).metrics
    except Exception as error:  # noqa: BLE001 - whatever a client sends must not end the job
        return None, f"sent a reply that is no model ({type(error).__name__})"
    if not isinstance(metrics, Mapping) or metric not in metrics:
        return None, f"sent no metric {metric!r}"
    try:
        loss = float(metrics[metric])
    except (TypeError, ValueError):
        return None, f"sent a {metric!r} that is no number"
    return (loss, "") if math.isfinite(loss) else (None, f"sent a {metric!r} that is not finite")
