"""What has moved since a run: rows that came later beside those of the run, by cluster and by column."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from flareclust._foundation.display import some
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.evaluation import profile_words
from flareclust.evaluation.profiles import Profiles

#: A column has moved from so many standard deviations on, and a cluster's share from so large a part of the rows on, where chance
#: moves it by a third of that at most.
_FAR, _SHARE, _CHANCE = 0.2, 0.05, 3.0

#: So many clusters or columns are named in a sentence.
_MOST = 5


@dataclass(frozen=True)
class Moved:
    """Rows that came later beside those of a run.

    Attributes:
        profiles: of the run.
        site: whose rows of the run are compared; "" for those of all sites.
        rows_then, rows_now: of each cluster (k,).
        then, now: means of the columns (d,); NaN where nothing is known.
        apart: how many standard deviations of the run's rows `now` is from `then` (d,); NaN for constant columns.
        error: standard error of `apart` (d,).
    """

    profiles: Profiles
    site: str
    rows_then: IntArray
    rows_now: IntArray
    then: FloatArray
    now: FloatArray
    apart: FloatArray
    error: FloatArray

    @property
    def shares(self) -> tuple[FloatArray, FloatArray]:
        """Return the share of each cluster (k,) in the run and now."""
        then, now = (rows / max(int(rows.sum()), 1) for rows in (self.rows_then, self.rows_now))
        return then, now

    def sentences(self) -> Iterator[str]:
        """Give which shares and which columns have moved by more than chance, a sentence each; one where none has."""
        then, now = self.shares
        n = np.maximum([self.rows_then.sum(), self.rows_now.sum()], 1)
        both = (self.rows_then + self.rows_now) / n.sum()
        chance = _CHANCE * np.sqrt(both * (1 - both) * (1 / n[0] + 1 / n[1]))
        far_shares = np.flatnonzero(np.abs(now - then) > np.maximum(_SHARE, chance))
        if len(far_shares):
            named = [
                f"cluster {c} from {profile_words.percent(then[c])} to {profile_words.percent(now[c])}"
                for c in far_shares
            ]
            yield f"shares have moved: {some(named, _MOST)}"
        far = np.abs(np.nan_to_num(self.apart)) > np.maximum(_FAR, _CHANCE * np.nan_to_num(self.error))
        columns = sorted(np.flatnonzero(far).tolist(), key=lambda j: -abs(self.apart[j]))
        if columns:
            named = [
                f"{profile_words.with_unit(self.profiles, j)} by {self.apart[j]:+.1f} standard deviations"
                for j in columns
            ]
            yield f"columns have moved: {some(named, _MOST)}"
        if not len(far_shares) and not columns:
            yield "neither shares of clusters nor columns have moved by more than chance"


def moved_since(profiles: Profiles, site: str, X: FloatArray, labels: IntArray) -> Moved:
    """Return what has moved since a run.

    Args:
        profiles: of the run.
        site: whose rows these are; where the run has described rows of a site of this name they are compared, else those of all.
        X: later rows (n, d) in the units of the run's columns; NaN for missing cells.
        labels: their clusters (n,); -1 for none.
    """
    sites, means = profiles.site_rows or {}, profiles.site_means
    center, deviation = profiles.overall
    rows, then, cells = profiles.rows, center, profiles.cells.sum(axis=0)
    if known := site in sites and means is not None:
        assert means is not None
        rows, then = sites[site], means[list(sites).index(site)]
        cells = np.full(len(then), rows.sum())
    known_cells = np.isfinite(X)
    n = known_cells.sum(axis=0)
    now = np.where(n > 0, np.where(known_cells, X, 0.0).sum(axis=0) / np.maximum(n, 1), np.nan)
    unit, error = np.where(deviation > 0, deviation, np.nan), np.sqrt(1 / np.maximum(cells, 1) + 1 / np.maximum(n, 1))
    counts = np.bincount(labels[labels >= 0], minlength=len(rows)).astype(np.int64)
    return Moved(profiles, site if known else "", rows, counts, then, now, (now - then) / unit, error)
