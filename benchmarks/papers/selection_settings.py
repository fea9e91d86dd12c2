"""How a model is trained with chosen clients; apart from the training, which needs torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """How a model is trained.

    Attributes:
        rounds: of federated averaging.
        m: clients that train in a round.
        d: candidates that are asked for their loss.
        updates: steps of a client in a round.
        batch: rows of a step.
        lr: step size.
        k: clusters that k-FED looks for.
        k_local: k', clusters that it looks for on each device.
        lloyd_rounds: of k-FED's server.
    """

    rounds: int
    m: int
    d: int
    updates: int
    batch: int
    lr: float
    k: int
    k_local: int
    lloyd_rounds: int = 10
