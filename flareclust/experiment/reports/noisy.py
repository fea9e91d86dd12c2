"""The part of a report about clusters under differential privacy: what the released numbers say, and what is noise."""

from collections.abc import Sequence

import numpy as np

from flareclust.evaluation.noisy_profiles import FREE, NoisyProfiles
from flareclust.evaluation.profile_words import percent, value_of, with_unit
from flareclust.experiment.reports.charts import swatch, tinted
from flareclust.experiment.reports.columns import WITH_NUMBERS, heat_class
from flareclust.experiment.reports.html_parts import Html, section, table, tag

#: So many columns are shown, those first that say most.
_MOST_COLUMNS = 40

#: What stands for a mean that is no more than noise.
NOTHING = "–"  # noqa: RUF001


def noisy_note(profiles: NoisyProfiles) -> Html:
    """Return what a reader must know of the numbers, and which clusters may be noise."""
    found = [tag("p", f"{one[0].upper()}{one[1:]}.") for one in (profiles.unclear(), profiles.unknown()) if one]
    return tag("div", tag("p", FREE), tag("div", *found, class_="warnings") if found else Html(""))


def noisy_map(profiles: NoisyProfiles) -> Html:
    """Return a table of the clusters' released means: a line per column, tinted where they differ by more than noise."""
    k, d = profiles.mean.shape
    shown = np.where(profiles.clear[:, None], np.abs(profiles.apart), 0.0).max(axis=0)
    order = np.argsort(-shown, kind="stable")[:_MOST_COLUMNS].tolist()
    parts = [_part(profiles, order, range(first, min(first + WITH_NUMBERS, k))) for first in range(0, k, WITH_NUMBERS)]
    more = f" The {_MOST_COLUMNS} columns that differ most of {d}." if d > _MOST_COLUMNS else ""
    words = (
        "Released means of each cluster. Red is above and blue below the mean of all clusters, full colour from half of the column's "
        f"declared range on. A number in grey differs from that mean by no more than noise. {NOTHING} stands where noise hides the mean: of a "
        f"cluster that cannot be distinguished from it, or of a column whose declared range is no wider.{more}"
    )
    return section("What is special about each cluster", tag("p", words, class_="soft"), *parts)


def _part(profiles: NoisyProfiles, order: Sequence[int], clusters: range) -> Html:
    """Return the table of some clusters, with the columns in this order."""
    k, lost = len(profiles.mean), profiles.center_in_noise
    head = [
        tag("th", "column", class_="name"),
        tag("th", "all clusters", class_="n"),
        *(tag("th", swatch(c, k), f"cluster {c}", class_="n") for c in clusters),
    ]
    rows = [
        [
            tag("td", with_unit(profiles, j), class_="name", title=profiles.columns[j]),
            _nothing() if lost[j] else tag("td", _value(profiles, float(profiles.center[j]), j), class_="n"),
            *(_cell(profiles, c, j) for c in clusters),
        ]
        for j in order
    ]
    return table(head, rows, class_=heat_class(len(clusters)))


def _cell(profiles: NoisyProfiles, c: int, j: int) -> Html:
    if profiles.in_noise[c, j]:
        return _nothing()
    value = _value(profiles, float(profiles.mean[c, j]), j)
    of_range = float(profiles.of_range[c, j])
    part = f"{percent(abs(of_range))} of the declared range {'above' if of_range >= 0 else 'below'}"
    hint = f"{profiles.columns[j]}, cluster {c}: {value}, {part} the mean of all clusters"
    apart = float(profiles.apart[c, j])
    return tinted(value if apart else tag("span", value, class_="soft"), apart, hint)


def _nothing() -> Html:
    """Return the cell of a mean that is no more than noise."""
    return tinted(NOTHING, np.nan)


def _value(profiles: NoisyProfiles, value: float, j: int) -> str:
    return percent(value) if profiles.shares[j] else value_of(profiles, j, value)
