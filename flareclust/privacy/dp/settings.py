"""Settings of algorithms under differential privacy."""

from typing import Annotated

from pydantic import model_validator

from flareclust._foundation.errors import UserError
from flareclust._foundation.settings import OneOf
from flareclust.preparation.settings import NamesParams
from flareclust.privacy.dp.accounting import LARGEST_DELTA, LEAST_DELTA, LEAST_EPSILON, MOST_EPSILON
from flareclust.privacy.policy import PER_ID, UNITS
from flareclust.protocol.params import both

#: Most rows of an id that are used: noise for more would hide everything.
_MOST_PER_ID = 1000


class PrivateParams(NamesParams):
    """Parameters of algorithms under differential privacy."""

    epsilon: float = both(
        1.0, "What the job spends at each site, all steps together.", ge=LEAST_EPSILON, le=MOST_EPSILON
    )
    delta: float = both(
        1e-5, "With epsilon; should be well below 1 / number of rows.", ge=LEAST_DELTA, le=LARGEST_DELTA
    )
    outcome_epsilon: float | None = both(
        None,
        "What the job spends at each site beside epsilon, at the same delta, on the outcomes that a schema names; None for no outcomes.",
        ge=LEAST_EPSILON,
        le=MOST_EPSILON,
    )
    colluding: int | None = both(
        None,
        "With secure sums, how many sites may tell the server their shares of the noise; None for a third of them.",
        ge=1,
    )
    unit: Annotated[str, OneOf(UNITS)] = both(
        "row",
        "Whose presence is protected: that of a row, or that of an id with all of its rows (id), such as a patient.",
    )
    rows_per_id: int = both(
        1,
        "With unit=id, how many rows of an id are used, the first ones; the noise grows in proportion.",
        ge=1,
        le=_MOST_PER_ID,
    )

    @model_validator(mode="after")
    def _bound_of_ids(self) -> "PrivateParams":
        if self.unit != PER_ID and self.rows_per_id != 1:
            raise UserError(f"rows_per_id={self.rows_per_id} is a setting of unit=id; add unit=id, or leave it out")
        return self

    @property
    def used_per_id(self) -> int | None:
        """Return how many rows of an id are used, where ids are protected; None where rows are."""
        return self.rows_per_id if self.unit == PER_ID else None

    @property
    def rows_of_unit(self) -> int:
        """Return how many rows the unit has at most, by which it changes sums more than a single row does."""
        return self.used_per_id or 1

    @property
    def alike(self) -> list[float]:
        """Return the settings of a site's share of the noise, which must be the same at all sites for totals to be decoded."""
        colluding = -1 if self.colluding is None else self.colluding
        outcomes = [] if self.outcome_epsilon is None else [self.outcome_epsilon]
        return [self.epsilon, self.delta, colluding, self.rows_of_unit, self.unit == PER_ID, *outcomes]
