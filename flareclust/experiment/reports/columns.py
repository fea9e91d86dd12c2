"""The part of a report about columns: which tell the clusters apart, and each cluster's and each site's mean in them."""

from collections.abc import Iterable

import numpy as np

from flareclust.data.cells import DAYS, without_log
from flareclust.evaluation import profile_words
from flareclust.evaluation.noisy_profiles import NoisyProfiles
from flareclust.evaluation.profiles import Profiles
from flareclust.experiment.plotting.style import cluster_colour
from flareclust.experiment.reports.html import cluster_cell, tinted
from flareclust.experiment.reports.table import Cell, Table, numbers

#: So many columns are shown, those first that differ most; and up to so many clusters with numbers in their cells.
_MOST_COLUMNS, _WITH_NUMBERS = 40, 12

#: So many sites have their means shown.
_MOST_SITES = 60

#: Up to so many clusters fit on a sheet of paper in the usual size.
_ON_PAPER = 6

#: What stands for a mean that is unknown, or no more than noise.
_NOTHING = "–"  # noqa: RUF001


def heat_tables(profiles: Profiles | NoisyProfiles) -> list[Table]:
    """Return the means of the clusters with their spread, tinted by how far each is from that of all: the columns first that differ most.

    Of skewed columns it is the median with the quartiles.
    Noisy means are in a table for every twelve clusters, since none is shown without its number.
    """
    noisy, k = isinstance(profiles, NoisyProfiles), len(profiles.rows)
    if isinstance(profiles, NoisyProfiles):  # how much a column says of the cluster that it says most of, beyond noise
        shown = np.where(profiles.clear[:, None], np.abs(profiles.apart), 0.0).max(axis=0)
    else:
        shown = profiles.eta_squared
    order = np.argsort(-np.nan_to_num(shown, nan=-1.0), kind="stable")[:_MOST_COLUMNS].tolist()
    dense, tables = not noisy and k > _WITH_NUMBERS, []
    for first in range(0, max(k, 1), _WITH_NUMBERS if noisy else max(k, 1)):
        clusters = range(first, min(first + _WITH_NUMBERS, k) if noisy else k)
        heads = [
            Cell(c, "n", f"background:{cluster_colour(c, k)};color:#fff") if dense else cluster_cell(c, k, "n")
            for c in clusters
        ]
        heads = [Cell("column", "name"), *numbers("all clusters" if noisy else "mean of all"), *heads]
        if isinstance(profiles, NoisyProfiles):
            rows = [[_name(profiles, j), *_noisy_cells(profiles, clusters, j)] for j in order]
        else:
            heads.append(Cell("differs between clusters"))
            shares = [
                Cell(profile_words.percent(eta), meter=f"{100 * eta:.0f}%") if np.isfinite(eta) else Cell("constant")
                for eta in profiles.eta_squared.tolist()
            ]
            rows = [[_name_and_spread(profiles, j, dense), *_cells(profiles, j, dense), shares[j]] for j in order]
        kind = "dense" if dense else "many" if len(clusters) > _ON_PAPER else ""
        tables.append(Table(heads, rows, f"heat {kind}".strip()))
    return tables


def columns_left_out(profiles: Profiles | NoisyProfiles) -> str:
    """Return how many columns the tables have of how many, where these are more, and of which the logarithms are clustered."""
    d = len(profiles.columns)
    logs = [profile_words.with_unit(profiles, j) for j in range(d) if without_log(profiles.unit(j)) is not None]
    means = f" Of {', '.join(logs)} logarithms are clustered (transform: log): a mean is that of the logarithms with the log scale undone, near the geometric mean."
    said = means if logs else ""
    return f"{said} The {_MOST_COLUMNS} columns that differ most of {d}." if d > _MOST_COLUMNS else said


def _name(profiles: Profiles | NoisyProfiles, j: int) -> Cell:
    return Cell(profile_words.with_unit(profiles, j), hint=profiles.columns[j])


def site_tables(profiles: Profiles) -> list[Table]:
    """Return the means of each site's described rows, tinted likewise, in tables of twelve sites; none where they are not known."""
    means, sites = profiles.site_means, list(profiles.site_rows or {})
    if means is None or len(sites) < 2:
        return []
    center, deviation = profiles.overall
    z = np.divide(means - center, deviation, out=np.zeros(means.shape), where=deviation > 0)
    order, tables = np.argsort(-np.nan_to_num(np.abs(z).max(axis=0)), kind="stable")[:_MOST_COLUMNS].tolist(), []
    for first in range(0, min(len(sites), _MOST_SITES), _WITH_NUMBERS):
        own = range(first, min(first + _WITH_NUMBERS, len(sites), _MOST_SITES))
        heads = [Cell("column", "name"), *numbers("all sites", *(sites[i] for i in own))]
        rows = [
            [
                _name(profiles, j),
                _value(profiles, float(center[j]), j),
                *(
                    tinted(_value(profiles, float(means[i, j]), j), z[i, j], f"{profiles.columns[j]}, {sites[i]}")
                    for i in own
                ),
            ]
            for j in order
        ]
        tables.append(Table(heads, rows, "heat many" if len(own) > _ON_PAPER else "heat"))
    return tables


def _name_and_spread(profiles: Profiles, j: int, dense: bool) -> Cell:
    """Return a column's name, and below it what its cells have where that is not the mean."""
    said = []
    if profiles.levels(j):
        said = ["nearest value, shares" if j in profiles.level_counts and not dense else "nearest value"]
    elif profiles.skewed[j] and not profiles.shares[j] and not dense:
        said = ["median (quartiles)"]
    return _name(profiles, j)._replace(lines=said, line_kind="spread")


def _cells(profiles: Profiles, j: int, dense: bool) -> list[object]:
    cells: list[object] = [_value(profiles, float(profiles.overall[0][j]), j)]
    log = without_log(profiles.unit(j)) is not None
    for c, z in enumerate(profiles.z[:, j]):
        shown, spread = _value(profiles, profiles.mean[c, j], j), list[str]()
        hint = f"{profile_words.with_unit(profiles, j) if log else profiles.columns[j]}, cluster {c}: {shown}"
        if (profiles.levels(j) or not profiles.shares[j]) and np.isfinite(profiles.sd[c, j]):
            said, shown, spread = (_levels_in if profiles.levels(j) else _spread_in)(profiles, j, c, shown)
            hint += said
        cell = tinted("" if dense else shown, z if profiles.rows[c] else np.nan, hint)
        cells.append(cell if dense or not spread else cell._replace(lines=spread, line_kind="spread"))
    return cells


def _quartiles(profiles: Profiles, j: int, c: int) -> list[str]:
    """Return the quartiles of a column in a cluster, the median between them."""
    return [profile_words.value_of(profiles, j, profiles.quantiles[name][c, j]) for name in ("q25", "median", "q75")]


def _levels_in(profiles: Profiles, j: int, c: int, shown: str) -> tuple[str, str, list[str]]:
    """Return of an ordered column in a cluster what the hint says more, the nearest value, and the shares of the values."""
    low, middle, high = _quartiles(profiles, j, c)
    known = np.isfinite(profiles.quantiles["median"][c, j])
    return (f", median {middle} ({low} to {high})" if known else ""), shown, profile_words.level_shares(profiles, c, j)


def _spread_in(profiles: Profiles, j: int, c: int, shown: str) -> tuple[str, str, list[str]]:
    """Return of another column in a cluster what the hint says more, its mean, and its deviation; where it is skewed median and quartiles."""
    log = without_log(profiles.unit(j)) is not None
    low, middle, high = _quartiles(profiles, j, c)
    deviation = profile_words.number(profiles.sd[c, j], profiles.overall[1][j])
    hint = f", standard deviation {deviation}{' on the log scale' if log else ''}, median {middle} ({low} to {high})"
    if profiles.skewed[j]:
        return hint, middle, [f"({low} to {high})"]
    days = " days" if profiles.unit(j) == DAYS else ""
    return hint, shown, [] if log else [f"± {deviation}{days}"]


def _value(profiles: Profiles | NoisyProfiles, value: float, j: int) -> str:
    return profile_words.value_of(profiles, j, value) if np.isfinite(value) else _NOTHING


def _noisy_cells(profiles: NoisyProfiles, clusters: Iterable[int], j: int) -> list[object]:
    """Return the released means of a column, where they are more than noise."""
    nothing = tinted(_NOTHING, np.nan)
    cells: list[object] = [nothing if profiles.center_in_noise[j] else _value(profiles, float(profiles.center[j]), j)]
    for c in clusters:
        if profiles.in_noise[c, j]:
            cells.append(nothing)
            continue
        value, apart = _value(profiles, float(profiles.mean[c, j]), j), float(profiles.apart[c, j])
        of_range = float(profiles.of_range[c, j])
        part = f"{profile_words.percent(abs(of_range))} of the declared range {'above' if of_range >= 0 else 'below'}"
        hint = f"{profiles.columns[j]}, cluster {c}: {value}, {part} the mean of all clusters"
        cells.append(tinted(value, apart, hint, "" if apart else "span"))
    return cells
