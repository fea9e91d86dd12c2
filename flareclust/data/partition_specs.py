"""How a split is asked for: the specifications, such as "dirichlet:0.3", and how they are read."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from flareclust._foundation.errors import UserError
from flareclust._foundation.validation import did_you_mean, is_number


@dataclass(frozen=True)
class Form:
    """What a specification looks like and means, for the command line's help.

    Attributes:
        usage: how it is written.
        text: what it does.
        value: what follows the colon; a share lies between 0 and 1.
        needs_labels, needs_owners: whether it needs the class of every row, and to know whose each row is.
        value_may_lack: whether it may be written without its value.
        fixes_sites: whether the number of sites follows from the data or the set-up, whatever is asked for.
        splits_columns: whether it assigns the columns, too.
    """

    usage: str
    text: str
    value: Literal["no", "positive", "whole", "share"] = "no"
    needs_labels: bool = False
    value_may_lack: bool = False
    needs_owners: bool = False
    fixes_sites: bool = False
    splits_columns: bool = False


#: What must follow the colon, in words.
_VALUES = {"positive": "a positive number", "whole": "an integer of at least 1", "share": "a number between 0 and 1"}

#: What may be written after the value; the first is meant where nothing is.
OPTIONS: Mapping[str, tuple[str, ...]] = {"beta": ("nearest", "redraw")}

#: The set-ups of a paper on sites with different columns.
_BENCHMARKS = {
    "har-a1": "data set har: walking and sitting at 30 sites at random, 30 % of a site's columns at the next one, too",
    "har-a2": "data set har: walking and sitting, a site per person, 10 % of the columns at every site",
    "qmnist-a1": "data set qmnist: digits 0, 3, 7 at 10 sites at random, 30 % of a site's columns at the next one, too",
    "qmnist-a2": "data set qmnist: digits 0, 3, 7 of ten writers, a site each, 10 % of the columns at every site",
    "dim-a1": "a dim data set: 10 sites with 7 to 15 of the 16 clusters each, two for each of five sets of columns; "
    "30 % of a set in the next one, too",
    "dim-a2": "as dim-a1, but 10 % of the columns at every site, and each cluster cut along its first column",
}

SPECS: Mapping[str, Form] = {
    "iid": Form("iid", "rows at random, sites of equal size"),
    "dirichlet": Form(
        "dirichlet:A",
        "sites of equal size, each with a class mix drawn from Dir(A); small A: few classes",
        "positive",
        True,
    ),
    "dirichlet-class": Form(
        "dirichlet-class:A", "each class spread over the sites by shares drawn from Dir(A)", "positive", True
    ),
    "clusters": Form("clusters:C", "each site holds rows of C classes only", "whole", True),
    "power": Form("power:A", "rows at random, site i has a size proportional to i^-A", "positive"),
    "beta": Form(
        "beta:B[,redraw]", "sites have random locations and draw the rows near them; small B: more local", "positive"
    ),
    "owners": Form(
        "owners[:N]",
        "a site per owner that the data name, such as a writer; with N, the first N owners and their rows only",
        "whole",
        value_may_lack=True,
        needs_owners=True,
        fixes_sites=True,
    ),
    "none": Form("none", "no split: the sites own their files", fixes_sites=True),
    "features-overlap": Form(
        "features-overlap:S",
        "rows at random, sites of equal size; every site has some columns only, a share S of them in common with the "
        "next site: the columns that separate the classes best, where there are labels",
        "share",
        splits_columns=True,
    ),
    "features-shared": Form(
        "features-shared:S",
        "rows at random, sites of equal size; a share S of the columns at every site, those that separate the classes "
        "best where there are labels, and each of the others at one site",
        "share",
        splits_columns=True,
    ),
    **{
        name: Form(
            name,
            text,
            needs_labels=True,
            needs_owners=name in ("har-a2", "qmnist-a2"),
            fixes_sites=True,
            splits_columns=True,
        )
        for name, text in _BENCHMARKS.items()
    },
}


@dataclass(frozen=True)
class Spec:
    """A parsed specification: its name in `SPECS`, its value and its option where it takes them."""

    name: str
    value: float | None = None
    option: str | None = None

    def __str__(self) -> str:
        value = "" if self.value is None else ":" + repr(float(self.value)).removesuffix(".0")
        return self.name + value + (f",{self.option}" if self.option else "")

    @property
    def splits_columns(self) -> bool:
        """Return whether the sites get different columns: then `flareclust.data.feature_partition.split_features` does it."""
        return SPECS[self.name].splits_columns


def parse(spec: str | Spec) -> Spec:
    """Parse a specification such as "iid", "clusters:3" or "beta:0.1,redraw"; UserError where name or value are none."""
    name, colon, rest = str(spec).strip().partition(":")
    if (form := SPECS.get(name)) is None:
        raise UserError(f"unknown partition {name!r}{did_you_mean(name, SPECS)}; choose one of {usages()}")
    if form.value == "no":
        if colon:
            raise UserError(f"partition {name!r} takes no value, got {rest!r}; write {form.usage!r}")
        return Spec(name)
    if not rest:
        if form.value_may_lack and not colon:
            return Spec(name)
        raise UserError(f"partition {name!r} needs a value; write {form.usage!r}")
    number, comma, option = rest.partition(",")
    if comma and option not in OPTIONS.get(name, ()):
        raise UserError(f"partition {name!r} has no option {option!r}; write {form.usage!r}")
    return Spec(name, _value(name, form, number), option or None)


def _value(name: str, form: Form, number: str) -> float:
    value = float(number) if is_number(number) else math.nan
    less_than = 1 if form.value == "share" else math.inf
    if not 0 < value < less_than or (form.value == "whole" and value != int(value)):
        raise UserError(f"partition {name!r} needs {_VALUES[form.value]}, got {number!r}; write {form.usage!r}")
    return value


def usages(names: Iterable[str] = SPECS) -> str:
    """Return how the specifications of these names are written."""
    return ", ".join(SPECS[name].usage for name in names)
