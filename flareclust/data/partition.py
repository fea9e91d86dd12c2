"""How a data set is split over sites: who owns which row.

A split is asked for by a specification such as "dirichlet:0.3"; `SPECS` lists them. Every row goes to exactly one site
(with `owners:N`, to one at the most), and the same generator seed gives the same split. Those that assign the columns too,
so that the sites have different ones, are listed here and carried out by `partition_features.split_features`.
n rows, d features, m sites.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array, FloatArray, IntArray
from flareclust._foundation.validation import did_you_mean
from flareclust.data import partition_draws as draws
from flareclust.data.tables import check_rows


@dataclass(frozen=True)
class Form:
    """What a specification looks like and means, for the command line's help.

    Attributes:
        usage: how it is written.
        text: what it does.
        value: what follows the colon; a share lies between 0 and 1.
        needs_labels: whether it needs the class of every row.
        value_may_lack: whether it may be written without its value.
        needs_owners: whether it needs to know whose each row is.
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


_VALUES: Mapping[str, str] = MappingProxyType(
    {
        "positive": "a positive number",
        "whole": "an integer of at least 1",
        "share": "a number between 0 and 1",
    }
)


#: What may be written after the value; the first is meant where nothing is.
_OPTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType({"beta": ("nearest", "redraw")})

#: The set-ups of a paper on sites with different columns.
_BENCHMARKS: Mapping[str, str] = MappingProxyType(
    {
        "har-a1": "data set har: walking and sitting at 30 sites at random, 30 % of a site's columns at the next one, too",
        "har-a2": "data set har: walking and sitting, a site per person, 10 % of the columns at every site",
        "qmnist-a1": "data set qmnist: digits 0, 3, 7 at 10 sites at random, 30 % of a site's columns at the next one, too",
        "qmnist-a2": "data set qmnist: digits 0, 3, 7 of ten writers, a site each, 10 % of the columns at every site",
        "dim-a1": "a dim data set: 10 sites with 7 to 15 of the 16 clusters each, two for each of five sets of columns; "
        "30 % of a set in the next one, too",
        "dim-a2": "as dim-a1, but 10 % of the columns at every site, and each cluster cut along its first column",
    }
)

SPECS: Mapping[str, Form] = MappingProxyType(
    {
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
            "beta:B[,redraw]",
            "sites have random locations and draw the rows near them; small B: more local",
            "positive",
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
            "next site: the columns that tell the classes apart best, where there are labels",
            "share",
            splits_columns=True,
        ),
        "features-shared": Form(
            "features-shared:S",
            "rows at random, sites of equal size; a share S of the columns at every site, those that tell the classes "
            "apart best where there are labels, and each of the others at one site",
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
)


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
        """Return whether the sites get different columns: then `partition_features.split_features` carries it out."""
        return SPECS[self.name].splits_columns


def parse(spec: str | Spec) -> Spec:
    """Parse a specification such as "iid", "clusters:3" or "beta:0.1,redraw".

    Raises:
        UserError: the name is unknown, or the value is missing, superfluous or out of range.
    """
    name, colon, rest = str(spec).strip().partition(":")
    if (form := SPECS.get(name)) is None:
        raise UserError(f"unknown partition {name!r}{did_you_mean(name, SPECS)}; choose one of {_usages()}")
    if form.value == "no":
        if colon:
            raise UserError(f"partition {name!r} takes no value, got {rest!r}; write {form.usage!r}")
        return Spec(name)
    if not rest:
        if form.value_may_lack and not colon:
            return Spec(name)
        raise UserError(f"partition {name!r} needs a value; write {form.usage!r}")
    number, comma, option = rest.partition(",")
    if comma and option not in _OPTIONS.get(name, ()):
        raise UserError(f"partition {name!r} has no option {option!r}; write {form.usage!r}")
    return Spec(name, _value(name, form, number), option or None)


def _value(name: str, form: Form, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    less_than = 1 if form.value == "share" else math.inf
    if not 0 < value < less_than or (form.value == "whole" and value != int(value)):
        raise UserError(f"partition {name!r} needs {_VALUES[form.value]}, got {number!r}; write {form.usage!r}")
    return value


def _usages(names: Iterable[str] = SPECS) -> str:
    return ", ".join(SPECS[name].usage for name in names)


def partition(
    spec: str | Spec,
    X: FloatArray,
    y: ArrayLike | None,
    m: int,
    rng: np.random.Generator,
    owners: ArrayLike | None = None,
) -> dict[str, IntArray]:
    """Split n rows over m sites.

    - `iid`: a random permutation cut into m parts whose sizes differ by one at most.
    - `dirichlet:A`: "by client" (Hsu, Qi, Brown 2019, arXiv 1909.06335). Sizes as for `iid`; each site draws a class
      mix from Dir(A, ..., A), then rows without replacement; when a class runs out, the mix is renormalised over the
      rest. Sites draw in their order, so the last ones take what is left.
    - `dirichlet-class:A`: each class is cut into m shares drawn from Dir(A, ..., A). Sites may come out empty.
    - `clusters:C`: each site holds C random classes, each class has at least one holder and is split evenly over its
      holders (the structured partition of Dennis, Li, Smith 2021, arXiv 2103.00697, sec. 4.2). Sites hold fewer
      classes only where classes have fewer rows than they would have holders.
    - `power:A`: rows at random, sizes proportional to i^-A but at least one row.
    - `beta:B`: each site has a location, uniform in the bounding box of X, and draws a row at Euclidean distance r with
      probability 1 - exp(-B / r) (Garst, Reinders 2024, arXiv 2310.01195, eq. 2); a row drawn by several sites goes to
      one of them at random. The paper does not say where a row goes that nobody draws. Here it goes to the
      nearest location, as in the data sets that the authors published (docs/adr/0005-beta-partition.md); with
      `beta:B,redraw` it is drawn again until somebody does, computed without a loop
      (`partition_draws.draw_until_drawn`), which is far less local. B is a length in the unit of X: far below the
      distances, nearest splits by distance alone and redrawing by inverse distance, whatever B. Sites may come out
      empty.
    - `owners`: a site per owner, in the order of the owners' numbers, so that m is as many as there are and the
      argument m is not looked at; nothing is drawn. `owners:N`: the N owners with the lowest numbers; the rows of the
      others belong to no site.

    Args:
        spec: one of `SPECS`, or what `parse` returned.
        X: (n, d) rows.
        y: (n,) class of each row, for the specifications that need it; else None.
        m: number of sites, 1 to n.
        rng: the generator that draws the split.
        owners: (n,) whose each row is, for `owners`; else not looked at.

    Returns:
        "site-1" ... "site-m", each with its row numbers in ascending order.

    Raises:
        UserError: the specification is wrong, is "none" or assigns columns, too; labels or owners are missing or do not
            fit, m is not between 1 and n, or `clusters` cannot place the classes.
    """
    spec = parse(spec)
    if spec.splits_columns:
        raise UserError(
            f"partition '{spec}' assigns columns as well as rows, and partition() assigns rows only; "
            "call flareclust.data.feature_partition.split_features"
        )
    if spec.name == "none":
        splits = _usages(name for name in SPECS if name != "none")
        raise UserError(
            "partition 'none' does not split: the data must then be a folder with one file per site, or a mapping "
            f"from site names to rows. To split one data set choose one of {splits}"
        )
    X = check_rows(X, where="data to split", allow_empty=True)
    n = len(X)
    if spec.name == "owners":
        return _by_owner(spec, owners, n)
    check_sites(m, n)
    classes = _classes(spec, y, n)
    match spec:
        case Spec("iid"):
            owner = draws.assigned(draws.equal_sizes(n, m), rng)
        case Spec("power", float(a)):
            owner = draws.assigned(draws.power_sizes(n, m, a), rng)
        case Spec("dirichlet", float(a)):
            owner = draws.dirichlet_by_site(classes, m, a, rng)
        case Spec("dirichlet-class", float(a)):
            owner = draws.dirichlet_by_class(classes, m, a, rng)
        case Spec("clusters", float(c)):
            owner = draws.clusters(classes, m, int(c), rng)
        case Spec("beta", float(b), option):
            owner = draws.beta(X, m, b, (option or _OPTIONS["beta"][0]) == "nearest", rng)
        case _:
            raise AssertionError(f"partition {spec} is listed and has no case here")
    return {f"site-{i + 1}": np.flatnonzero(owner == i) for i in range(m)}


def check_sites(m: object, n: int) -> None:
    """Refuse a number of sites that is not whole and between 1 and n, the number of rows.

    Raises:
        UserError: it is not.
    """
    if isinstance(m, bool) or not isinstance(m, (int, np.integer)) or m < 1:
        raise UserError(f"the number of sites must be an integer of at least 1, got {m!r}")
    if m > n:
        raise UserError(f"more sites ({m}) than rows ({n}); every site needs at least one row")


def check_labels(spec: Spec, y: ArrayLike | None, n: int) -> Array:
    """Return the n rows' classes (n,) as they are.

    Raises:
        UserError: there are none, or not one per row.
    """
    if y is None:
        raise UserError(
            f"partition '{spec}' needs a class label for every row, and the data have none; {_undemanding()} work without"
        )
    labels = np.asarray(y)
    if labels.shape != (n,):
        raise UserError(f"expected one label per row, shape ({n},), got shape {labels.shape}")
    return labels


def check_owners(spec: Spec, owners: ArrayLike | None, n: int) -> Array:
    """Return the n rows' owners (n,) as they are.

    Raises:
        UserError: there are none, or not one per row.
    """
    if owners is None:
        raise UserError(
            f"partition '{spec}' needs to know whose each row is, which is known of the data sets garst_grid, femnist, "
            f"qmnist and har only; {_undemanding()} work without"
        )
    owner = np.asarray(owners)
    if owner.shape != (n,):
        raise UserError(f"expected one owner per row, shape ({n},), got shape {owner.shape}")
    return owner


def _classes(spec: Spec, y: ArrayLike | None, n: int) -> IntArray:
    """Return the class of each row as 0 ... number of classes - 1, empty where the specification needs none."""
    if not SPECS[spec.name].needs_labels:
        return np.empty(0, dtype=np.int64)
    return np.unique(check_labels(spec, y, n), return_inverse=True)[1].astype(np.int64)


def _by_owner(spec: Spec, owners: ArrayLike | None, n: int) -> dict[str, IntArray]:
    owner = check_owners(spec, owners, n)
    numbers = np.unique(owner)
    m = len(numbers) if spec.value is None else int(spec.value)
    if m > len(numbers):
        raise UserError(f"partition '{spec}' asks for {m} owners, but there are only {len(numbers)}; write 'owners'")
    return {f"site-{i + 1}": np.flatnonzero(owner == number) for i, number in enumerate(numbers[:m])}


def _undemanding() -> str:
    """Return how to write the splits that need neither labels nor owners."""
    return _usages(
        name
        for name, form in SPECS.items()
        if not (form.needs_labels or form.needs_owners or form.splits_columns) and name != "none"
    )
