"""What the rows' outcome is, as a schema names it under `outcome`: a time to an event, or a value."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field, model_validator

from flareclust._foundation.display import all_of, some
from flareclust._foundation.settings import Settings
from flareclust._foundation.typing import FloatArray
from flareclust._foundation.validation import did_you_mean
from flareclust.core.outcomes import Kind, OutcomeForm

if TYPE_CHECKING:
    from flareclust.data.schema.columns import ColumnSchema

#: What columns are called that are known with the outcome only, in words between `_`: times of follow-up, events, last contacts.
_KNOWN_LATER = re.compile(
    r"(^|_)(days?|weeks?|months?|until|duration|follow_?up|fu_?time|fu_?stat|surv[a-z]*|os|pfs|dfs|rfs|efs|death|dead|died|deceased|vital_status"
    r"|event|cens[a-z]*|relapsed?|recurren[a-z]*|last_(seen|contact|visit)|tage|monate|tod|verstorben|überleb[a-z]*|rezidiv|ereignis)(_|$)"
    r"|^(time|status)$|^time_to_|(^|_)obs(ervation)?_time(_|$)"
)

#: Columns with such a word are known before, also in days or weeks.
_KNOWN_BEFORE = re.compile(r"(^|_)(age|alter|birth|born|gestation[a-z]*)(_|$)")


#: What an outcome can be.
_EXPECTED = "time, event and until, such as {time: days, event: died=yes, until: 1800}, or value alone"


class OutcomeSchema(Settings):
    """What happened to the rows: a time to an event, or a value. It is no feature, so that no clustering depends on it."""

    time: str | None = Field(
        default=None, description="The column of numbers with the time to the event, or to the last look."
    )
    event: str | None = Field(
        default=None,
        description="Which rows had the event: a value of a category, as died=yes, or a column of the numbers 0 and 1.",
    )
    value: str | None = Field(
        default=None, description="In the place of time and event, a column of type category, ordered or number."
    )
    every: float = Field(default=1.0, gt=0, description="Width of the intervals of times, in their unit.")
    until: float | None = Field(default=None, gt=0, description="The last time; later events do not count.")

    @model_validator(mode="after")
    def _one_kind(self) -> "OutcomeSchema":
        timed = (self.time, self.event, self.until)
        if (self.value is None) != all(timed) or (self.value is not None and any(timed)):
            raise ValueError(f"outcome: {self._problem}expected {_EXPECTED}")
        return self

    @property
    def _problem(self) -> str:
        """Return what is missing, or too much."""
        if self.value is not None:
            return "value stands alone, without time, event and until; "
        missing = [name for name in ("time", "event", "until") if not getattr(self, name)]
        if len(missing) == 3:
            return ""
        end = " (until is the last time that counts, in the unit of the times)" if "until" in missing else ""
        return f"{all_of(missing)} {'is' if len(missing) == 1 else 'are'} missing{end}; "

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of its columns."""
        if self.time is None or self.event is None:
            return (str(self.value),)
        return self.time, self.event.partition("=")[0]

    def check(self, columns: Mapping[str, "ColumnSchema"]) -> None:
        """Raise ValueError where the columns of the schema do not fit."""
        for name in self.columns:
            if name not in columns:
                raise ValueError(f"outcome: no column {name!r}{did_you_mean(name, list(columns))}")
            if columns[name].transform is not None:
                raise ValueError(f"outcome: column {name!r} has a transform, which is for features")
        kinds = [columns[name].type for name in self.columns]
        if self.value is not None and kinds[0] not in ("category", "ordered", "number"):
            raise ValueError(f"outcome: value needs a column of type category, ordered or number, not {kinds[0]}")
        if self.time is not None and kinds[0] != "number":
            raise ValueError(f"outcome: time needs a column of type number, not {kinds[0]}")
        if self.event is not None:
            name, _, value = self.event.partition("=")
            values = columns[name].values or ()
            if kinds[1] not in ("category", "number") or (value in values) != (kinds[1] == "category"):
                raise ValueError(
                    f"outcome: event needs a value of a column of type category, as died=yes, or a column of type number with 0 and 1; got "
                    f"{self.event!r}, and {name} is of type {kinds[1]}"
                    + (f" with the values {', '.join(values)}" if values else "")
                )
        self.form(columns)  # raises where the grid is too fine

    def form(self, columns: Mapping[str, "ColumnSchema"]) -> OutcomeForm:
        """Return how rows are counted by their outcome."""
        if self.value is None:
            return OutcomeForm("time", every=self.every, until=self.until or 1.0)
        column = columns[self.value]
        kind: Kind = "category" if column.type == "category" else "ordered" if column.type == "ordered" else "number"
        return OutcomeForm(kind, values=len(column.values or ()))

    def words(self, columns: Mapping[str, "ColumnSchema"], outcomes: FloatArray | None) -> str:
        """Return what the outcome is, and how many of a site's rows (n, w) have it, in a line for those who own them.

        Without rows, the site's mapping lacks the columns of the outcome.
        """
        form, (name, unit, *values) = self.form(columns), self.names(columns)
        unit = f" {unit}" if unit else ""
        of_values = f"one of {', '.join(values)}" + (", in this order" if form.kind == "ordered" else "")
        what = {
            "time": f"time ({self.time}) to {name}, in {form.shape[1] - 1:,} intervals of {self.every:g}{unit} until {form.until:g}",
            "number": f"{name}, a number{f' in{unit}' if unit else ''}",
        }.get(form.kind, f"{name}, {of_values}")
        if outcomes is None:
            return f"{what}; the site does not have it (lacks in its mapping)"
        known = np.asarray(~np.isnan(outcomes).any(axis=1))
        found = f"{what}; {known.sum():,} of {len(known):,} rows have it"
        if form.kind != "time":
            return found
        late = known & (outcomes[:, 0] > form.until)
        events = known & (outcomes[:, 1] > 0) & ~late
        return f"{found}: {events.sum():,} with the event by then, {late.sum():,} there for longer"

    def hint(self, features: Iterable[str]) -> str:
        """Return a sentence where features of the schema are called as if they were known with the outcome only; "" for none."""
        odd = [name for name in features if is_known_later(name)]
        if not odd:
            return ""
        columns, they = ("column", "it is") if len(odd) == 1 else ("columns", "they are")
        time = "" if self.value is None else ", or name a time in the outcome: {time: ..., event: ..., until: ...}"
        return (
            f"{columns} {some(list(map(repr, odd)), 12)}: by the name known with the outcome ({self.event or self.value}) only, yet {they} among "
            "the features, so that the clusters are made of what they are compared by; if so, make the type ignore in the schema"
            + time
        )

    def names(self, columns: Mapping[str, "ColumnSchema"]) -> tuple[str, ...]:
        """Return what the outcome is called, the unit of its times or numbers, and the values of a category."""
        column = columns[self.columns[0]]
        return (self.event or str(self.value), column.unit or "", *(column.values or ()))


def is_known_later(name: str) -> bool:
    """Return whether a column is called as if its cells were known with the outcome only, such as `follow_up` or `survivalDays`."""
    words = re.sub(r"[\W_]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)).lower()
    return _KNOWN_LATER.search(words) is not None and _KNOWN_BEFORE.search(words) is None
