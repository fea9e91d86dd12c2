"""The part of a report about columns: which tell the clusters apart, and each cluster's mean in them."""

import numpy as np

from flareclust.evaluation.profile_words import number, percent, value_of, with_unit
from flareclust.evaluation.profiles import Profiles
from flareclust.experiment.reports.charts import meter, swatch, tinted
from flareclust.experiment.reports.html_parts import Html, section, table, tag
from flareclust.plotting.style import cluster_colour
from flareclust.protocol.profile_arrays import CELLS

#: So many columns are shown, those first that differ most; and up to so many clusters with numbers in their cells.
_MOST_COLUMNS, WITH_NUMBERS = 40, 12

#: Up to so many clusters fit on a sheet of paper in the usual size.
_ON_PAPER = 6


def heat_map(profiles: Profiles) -> Html:
    """Return a table of the clusters' means: a line per column, tinted by how far each is from that of all rows."""
    eta = np.nan_to_num(profiles.eta_squared, nan=-1.0)
    order = np.argsort(-eta, kind="stable")[:_MOST_COLUMNS].tolist()
    k, dense = len(profiles.rows), len(profiles.rows) > WITH_NUMBERS
    clusters = [_cluster(c, k, dense) for c in range(k)]
    head = [
        tag("th", "column", class_="name"),
        tag("th", "all rows", class_="n"),
        *clusters,
        "differs between clusters",
    ]
    rows = [
        [
            tag("td", with_unit(profiles, j), class_="name", title=profiles.columns[j]),
            *_cells(profiles, j, dense),
            _between(profiles, j),
        ]
        for j in order
    ]
    more = f" The {_MOST_COLUMNS} columns that differ most of {len(eta)}." if len(eta) > _MOST_COLUMNS else ""
    gaps = " Missing cells are left out." if CELLS in profiles.arrays else ""
    words = (
        "Means of each cluster, for categories the share of rows. Red is above and blue below the mean of all rows, full colour "
        "from two standard deviations on. The last column is the share of a column's variation that lies between clusters (eta "
        f"squared).{gaps}{more}"
    )
    return section(
        "What is special about each cluster",
        tag("p", words, class_="soft"),
        table(head, rows, class_="heat dense" if dense else heat_class(k)),
        *_categories(profiles),
    )


def heat_class(k: int) -> str:
    """Return the class of a table with the numbers of k clusters, which is printed smaller where they are many."""
    return "heat many" if k > _ON_PAPER else "heat"


def _cluster(c: int, k: int, dense: bool) -> Html:
    if dense:
        return tag("th", c, class_="n", style=f"background:{cluster_colour(c, k)};color:#fff")
    return tag("th", swatch(c, k), f"cluster {c}", class_="n")


def _cells(profiles: Profiles, j: int, dense: bool) -> list[Html]:
    center, deviation = profiles.overall[0][j], profiles.overall[1][j]
    cells = [tag("td", _value(profiles, center, j), class_="n")]
    for c, z in enumerate(profiles.z[:, j]):
        value = _value(profiles, profiles.mean[c, j], j)
        hint = f"{profiles.columns[j]}, cluster {c}: {value}"
        if not profiles.shares[j] and np.isfinite(profiles.sd[c, j]):
            low, middle, high = (
                value_of(profiles, j, profiles.quantiles[name][c, j]) for name in ("q25", "median", "q75")
            )
            hint += f", standard deviation {number(profiles.sd[c, j], deviation)}, median {middle} ({low} to {high})"
        cells.append(tinted("" if dense else value, z if profiles.rows[c] else np.nan, hint))
    return cells


def _value(profiles: Profiles, value: float, j: int) -> str:
    if not np.isfinite(value):
        return "–"  # noqa: RUF001
    return percent(value) if profiles.shares[j] else value_of(profiles, j, value)


def _between(profiles: Profiles, j: int) -> Html:
    eta = float(profiles.eta_squared[j])
    return tag("td", meter(eta), percent(eta) if np.isfinite(eta) else "constant")


def _categories(profiles: Profiles) -> list[Html]:
    known = {name: v for name, v in profiles.cramers_v.items() if np.isfinite(v)}
    if not known:
        return []
    words = ", ".join(f"{name} {v:.2f}" for name, v in known.items())
    return [tag("p", f"Cramer's V of categories and clusters, 0 for none to 1 for the same: {words}.", class_="soft")]
