"""The part of a report about clusters under differential privacy: what the released numbers say, and what is noise."""

import numpy as np

from flareclust.evaluation.noisy_profiles import FREE, NoisyProfiles
from flareclust.evaluation.profile_words import percent, value_of, with_unit
from flareclust.experiment.html_parts import Html, section, table, tag
from flareclust.experiment.report_charts import swatch, tinted

#: So many columns are shown, those first that say most.
_MOST_COLUMNS = 40


def noisy_note(profiles: NoisyProfiles) -> Html:
    """Return what a reader must know of the numbers, and which clusters may be noise."""
    unclear = profiles.unclear()
    named = tag("div", f"{unclear[:1].upper()}{unclear[1:]}.", class_="warnings") if unclear else Html("")
    return tag("div", tag("p", FREE), named)


def noisy_map(profiles: NoisyProfiles) -> Html:
    """Return a table of the clusters' released means: a line per column, tinted where they differ by more than noise."""
    k, d = profiles.mean.shape
    shown = np.where(profiles.clear[:, None], np.abs(profiles.apart), 0.0).max(axis=0)
    order = np.argsort(-shown, kind="stable")[:_MOST_COLUMNS].tolist()
    head = [
        tag("th", "column", class_="name"),
        tag("th", "all clusters", class_="n"),
        *(tag("th", swatch(c, k), f"cluster {c}", class_="n") for c in range(k)),
    ]
    rows = [
        [
            tag("td", with_unit(profiles, j), class_="name", title=profiles.columns[j]),
            tag("td", _value(profiles, float(profiles.center[j]), j), class_="n"),
            *(_cell(profiles, c, j) for c in range(k)),
        ]
        for j in order
    ]
    more = f" The {_MOST_COLUMNS} columns that differ most of {d}." if d > _MOST_COLUMNS else ""
    words = (
        "Released means of each cluster. Red is above and blue below the mean of all clusters, full colour from half of the column's "
        f"declared range on; white differs by no more than noise, grey cannot be distinguished from it.{more}"
    )
    return section(
        "What is special about each cluster", tag("p", words, class_="soft"), table(head, rows, class_="heat")
    )


def _cell(profiles: NoisyProfiles, c: int, j: int) -> Html:
    value = _value(profiles, float(profiles.mean[c, j]), j)
    of_range = float(profiles.of_range[c, j])
    part = f"{percent(abs(of_range))} of the declared range {'above' if of_range >= 0 else 'below'}"
    hint = f"{profiles.columns[j]}, cluster {c}: {value}, {part} the mean of all clusters"
    return tinted(value, float(profiles.apart[c, j]) if profiles.clear[c] else np.nan, hint)


def _value(profiles: NoisyProfiles, value: float, j: int) -> str:
    return percent(value) if profiles.shares[j] else value_of(profiles, j, value)
