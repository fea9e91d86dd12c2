"""How a model is trained with chosen clients; apart from the training, which needs torch."""

from dataclasses import dataclass, replace

from benchmarks.papers.selection_data import Population, speakers, two_classes
from flareclust._foundation.seeding import stream
from flareclust.core.client_selection import METHODS

#: pow-d with the classes of a device in the place of k-FED's clusters: what the best of clusterings would give.
CLASSES = "pow-d-classes"


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


@dataclass(frozen=True)
class Setting:
    """A population of devices and how a model is trained on it.

    Attributes:
        data: "mnist" or "shakespeare".
        devices: how many there are.
        rows: of all devices, where that is a choice.
        training: see there.
    """

    data: str
    devices: int
    rows: int | None
    training: Settings

    @property
    def methods(self) -> tuple[str, ...]:
        """Return the names of its methods; the speakers of a play have all of the classes."""
        return METHODS if self.rows is None else (*METHODS, CLASSES)

    @property
    def cell(self) -> dict[str, str]:
        """Return what its lines are found by."""
        return {"data": self.data, "d": str(self.training.d)}

    def population(self, seed: int) -> Population:
        """Return the devices of a seed."""
        rng = stream(seed, 0, "partition")
        return speakers(self.devices, rng) if self.rows is None else two_classes(self.devices, self.rows, rng)


def settings(quick: bool) -> list[Setting]:
    """Return the settings of the figure; they were chosen with seeds 100 and 101, which are none of its own."""
    digits = Settings(rounds=100, m=10, d=20, updates=10, batch=32, lr=0.05, k=10, k_local=2)
    letters = Settings(rounds=60, m=10, d=20, updates=20, batch=32, lr=0.5, k=10, k_local=4)
    if quick:
        return [Setting("mnist", 60, 4_000, replace(digits, rounds=15))]
    mnist = Setting("mnist", 500, 30_000, digits)
    return [mnist, replace(mnist, training=replace(digits, d=50)), Setting("shakespeare", 109, None, letters)]
