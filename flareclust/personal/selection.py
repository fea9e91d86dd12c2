"""Which devices train in each round of federated averaging: all, or those that client selection takes.

How they are chosen is `flareclust.core.client_selection`, the same in one process, in jobs, and in NVFlare's own controllers.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated

from pydantic import Field, model_validator

from flareclust._foundation.errors import UserError
from flareclust._foundation.settings import OneOf, Settings
from flareclust.core.client_selection import METHODS, POW_D_KFED, RANDOM, Selection

#: All devices train in every round.
ALL = "all"
SELECTS = (ALL, *METHODS)

#: Why IFCA's devices are not selected by their losses.
NO_ONE_LOSS = "ifca has k models, so a device has no one loss; use random, or the method global"

#: The settings of a selection.
_SELECTED_BY = ("select", "per_round", "candidates")


class SelectionSettings(Settings):
    """Which devices train in a round."""

    select: Annotated[str, OneOf(SELECTS)] = Field(
        default=ALL,
        description="Which devices train in a round: all, or per_round of them by random, pow-d, pow-d-kfed.",
    )
    per_round: int | None = Field(
        default=None, ge=1, description="Of select: how many train in a round; with kfed, in each cluster."
    )
    candidates: int | None = Field(
        default=None, ge=1, description="Of pow-d: how many are asked for their loss; None for twice per_round."
    )

    @model_validator(mode="after")
    def _of_selection(self) -> "SelectionSettings":
        check_select(self.select, self.per_round, self.candidates)
        return self

    def selection(self, clusters: Mapping[str, Collection[int]] | None, seed: int) -> Selection | None:
        """Return how devices are chosen, None for all of them; `clusters` are those of each device, for pow-d-kfed."""
        if self.select == ALL or self.per_round is None:
            return None
        return Selection(self.select, self.per_round, self.candidates, clusters, seed)

    def selection_params(self) -> dict[str, object]:
        """Return the parameters of a job that selects its sites; none where all train."""
        return {} if self.select == ALL else {name: getattr(self, name) for name in _SELECTED_BY}


def check_select(select: str, per_round: int | None, candidates: int | None) -> None:
    """Raise UserError where settings of a selection are missing, or have no effect."""
    if select == ALL:
        for name, value in (("per_round", per_round), ("candidates", candidates)):
            if value is not None:
                raise UserError(
                    f"{name} is {value} without effect: all devices train in every round; leave it out, or set select"
                )
    elif per_round is None:
        raise UserError(f"select={select} needs per_round, the number of devices that train in a round")
    elif candidates is not None and select == RANDOM:
        raise UserError(
            f"candidates is {candidates} without effect: random asks for no losses; leave it out, or use select=pow-d"
        )
    elif candidates is not None and candidates <= per_round:
        raise UserError(
            f"candidates is {candidates} where per_round is {per_round}: all of them would train, whatever their losses; ask "
            "more, or use select=random"
        )


def check_method(method: str, select: str) -> None:
    """Raise UserError where a method does not select devices in this way."""
    why = None
    if select != ALL and method == "local":
        why = "each device trains its own model in every round; leave it out, or use another method"
    elif select not in (ALL, RANDOM) and method == "ifca":
        why = NO_ONE_LOSS
    elif select == POW_D_KFED and method == "kfed":
        why = "the devices of a model are of one cluster; use pow-d, or the method global"
    if why is not None:
        raise UserError(f"select is {select} without effect: {why}")


def check_fewer(per_round: int | None, candidates: int | None, sizes: Sequence[int]) -> None:
    """Raise UserError where a selection is of more devices than train any model; `sizes` are how many train each."""
    if per_round is None:
        return
    most = max(sizes)
    among = f"{most} devices train a model" if len(sizes) == 1 else f"no model has more than {most} devices"
    if per_round >= most:
        raise UserError(
            f"per_round is {per_round} without effect: {among}, so all would train; use a smaller one, or leave out select"
        )
    if candidates is not None and candidates > most:
        raise UserError(f"candidates is {candidates}, and {among}; ask at most {most}")
