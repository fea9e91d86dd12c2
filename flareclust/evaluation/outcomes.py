"""What the outcomes of a result say of its clusters: survival curves, shares or means with 95 % intervals, and a test over clusters.

All of it is computed from numbers of rows by cluster and outcome, so it is what the rows of all sites together give, up to the
intervals that times are counted in (`flareclust.core.outcomes`).

- Times: Kaplan, Meier (1958), with Greenwood's variance and the log(-log) interval; the log-rank test over all clusters, also
  stratified by site (Mantel 1966; Peto et al. 1977).
- Categories: shares with Wilson's interval (1927) and Pearson's chi-square test; with an order the test of Kruskal, Wallis (1952),
  corrected for ties.
- Numbers: means with Student's interval and Welch's test (1951), for clusters whose variances differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray
from flareclust.core.outcomes import OutcomeForm
from flareclust.protocol import cluster_arrays as keys

#: The quantile of the normal distribution that 95 % intervals reach to.
_Z = 1.959963984540054


@dataclass(frozen=True)
class OutcomeTest:
    """A test of whether outcomes are alike in all clusters.

    Attributes:
        name: of the test.
        statistic, degrees: its value, and the degrees of freedom (of Welch's test, those of the numerator).
        p: chance of such a value, or a larger one, where outcomes are alike.
    """

    name: str
    statistic: float
    degrees: int
    p: float

    @property
    def p_text(self) -> str:
        """Return p in words."""
        return "p < 0.0001" if self.p < 0.0001 else f"p = {self.p:.4f}"

    @property
    def sentence(self) -> str:
        """Return what the test came to."""
        freedom = f"{self.degrees} degree{'s' if self.degrees > 1 else ''} of freedom"
        return f"{self.name}: {self.statistic:.4g} with {freedom}, {self.p_text}"


@dataclass(frozen=True)
class ClusterOutcomes:
    """The outcomes of a result's clusters; `arrays` are those of the result (`flareclust.protocol.cluster_arrays`)."""

    arrays: Mapping[str, Array]

    @cached_property
    def form(self) -> OutcomeForm:
        """Return what was asked."""
        return OutcomeForm.of(self.arrays[keys.OUTCOME_FORM])

    @property
    def counts(self) -> IntArray:
        """Return rows (o, k, t) by kind, cluster, and time or value; not of numbers."""
        return np.asarray(self.arrays[keys.OUTCOME_COUNTS])

    @property
    def rows(self) -> IntArray:
        """Return the rows (k,) of each cluster whose outcome counts."""
        if self.form.kind == "number":
            return np.asarray(self.arrays[keys.OUTCOME_MOMENTS][0], dtype=np.int64)
        return np.asarray(self.counts.sum(axis=(0, 2)))

    @property
    def not_counted(self) -> IntArray:
        """Return the rows (k,) of each cluster that are in no outcome, since a site has too few of them; 0 where that is not known."""
        return np.asarray(self.arrays.get(keys.OUTCOME_NOT_COUNTED, np.zeros_like(self.rows)))

    @property
    def noise(self) -> float:
        """Return the standard deviation of the noise of differential privacy in each number of rows; 0 without it."""
        return float(self.arrays.get(keys.OUTCOME_NOISE, 0.0))

    @property
    def changed(self) -> bool:
        """Return whether numbers of rows have noise, or sites round them: intervals and tests would take that for chance."""
        return bool(self.noise or (self.form.kind != "number" and self.arrays.get(keys.OUTCOME_ADJUSTED, 0)))

    @property
    def name(self) -> str:
        """Return what the outcome is called."""
        return self._names[0]

    @property
    def unit(self) -> str:
        """Return the unit of times or numbers, "" for none."""
        return self._names[1]

    @property
    def values(self) -> tuple[str, ...]:
        """Return the values of a category."""
        return self._names[2:] or tuple(map(str, range(self.form.values)))

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(map(str, self.arrays.get(keys.OUTCOME_NAMES, ()))) or ("outcome", "")

    # ---- times ----

    @property
    def at_risk(self) -> IntArray:
        """Return how many rows (k, t) of each cluster are still there just before the end of each interval."""
        return np.asarray(self.counts.sum(axis=0)[:, ::-1].cumsum(axis=1)[:, ::-1])

    @property
    def survival(self) -> FloatArray:
        """Return the share (k, t) of each cluster without the event after each interval; NaN without rows."""
        left = 1.0 - self.counts[1] / np.maximum(self.at_risk, 1)
        return np.where(self.rows[:, None] > 0, np.cumprod(left, axis=1), np.nan)

    @property
    def bands(self) -> tuple[FloatArray, FloatArray]:
        """Return the lower and upper ends (k, t) of the 95 % intervals; 1 before the first event, NaN once nobody is left, or of `changed`."""
        if self.changed:
            return np.full(self.survival.shape, np.nan), np.full(self.survival.shape, np.nan)
        n, d, share = self.at_risk, self.counts[1], self.survival
        with np.errstate(divide="ignore", invalid="ignore"):
            spread, log = np.sqrt(np.cumsum(np.where(d > 0, d / (n * (n - d)), 0.0), axis=1)), np.log(share)
            ends = [np.exp(-np.exp(np.log(-log) + sign * _Z * spread / log)) for sign in (-1, 1)]
        low, high = (np.where(share == 1.0, 1.0, np.where(share > 0, end, np.nan)) for end in ends)
        return low, high

    @property
    def medians(self) -> FloatArray:
        """Return the first time (k,) at which half of a cluster or less is without the event; inf where there is none."""
        below = self.survival <= 0.5 + 1e-12  # a product of up to 4,000 shares has rounding errors
        return np.where(below.any(axis=1), self.form.times[below.argmax(axis=1)], np.inf)

    @property
    def gone(self) -> BoolArray:
        """Return of which clusters (k,) the last rows leave before the last time without the event, so that their share then is not known."""
        return np.asarray((self.at_risk[:, -1] == 0) & (self.survival[:, -1] > 0))

    def curves(self) -> dict[str, list[Any]]:
        """Return a line per cluster and time at which rows leave: numbers of rows, survival and its interval."""
        low, high = self.bands
        at = self.counts.sum(axis=0) > 0
        cluster, place = np.nonzero(at)
        columns: dict[str, Array] = {"at_risk": self.at_risk, "events": self.counts[1], "censored": self.counts[0]}
        columns |= {"survival": self.survival, "lower": low, "upper": high}
        columns = {"cluster": cluster, "time": self.form.times[place]} | {
            name: one[at] for name, one in columns.items()
        }
        return {name: one.tolist() for name, one in columns.items()}

    # ---- all kinds ----

    def table(self) -> dict[str, list[Any]]:
        """Return a line per cluster, or per cluster and value of a category: rows, and what they have, with its 95 % interval."""
        if self.form.kind == "time":
            events = self.counts[1].sum(axis=1)
            low, high = (np.where(self.gone | (events == 0), np.nan, end[:, -1]) for end in self.bands)
            share = np.where(self.gone, np.nan, self.survival[:, -1])
            columns = {"events": events, "median": self.medians, "survival": share, "lower": low, "upper": high}
            return self._by_cluster(columns)
        return self._means() if self.form.kind == "number" else self._shares()

    def _shares(self) -> dict[str, list[Any]]:
        count, n = self.counts[0], self.rows[:, None]
        with np.errstate(invalid="ignore"):
            share = count / n
            middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
            spread = np.nan if self.changed else np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
            reach = _Z / (1 + _Z**2 / n) * spread
        k, t = count.shape
        return {
            "cluster": np.repeat(np.arange(k), t).tolist(),
            "value": list(self.values) * k,
            "rows": count.ravel().tolist(),
            "not_counted": np.repeat(self.not_counted, t).tolist(),
            "share": share.ravel().tolist(),
            "lower": np.maximum(middle - reach, 0.0).ravel().tolist(),
            "upper": np.minimum(middle + reach, 1.0).ravel().tolist(),
        }

    def _means(self) -> dict[str, list[Any]]:
        from scipy.special import stdtrit

        n, mean, squares = self.arrays[keys.OUTCOME_MOMENTS]
        with np.errstate(divide="ignore", invalid="ignore"):
            deviation = np.sqrt(squares / (n - 1))
            reach = stdtrit(np.maximum(n - 1, 1), 0.975) * deviation / np.sqrt(n)
        mean, deviation, reach = (np.where(n > 1, one, np.nan) for one in (mean, deviation, reach))
        return self._by_cluster({"mean": mean, "sd": deviation, "lower": mean - reach, "upper": mean + reach})

    def _by_cluster(self, columns: Mapping[str, Array]) -> dict[str, list[Any]]:
        """Return columns (k,) behind the cluster, its rows, and those in no outcome."""
        first = {"cluster": np.arange(len(self.rows)), "rows": self.rows, "not_counted": self.not_counted}
        return {name: one.tolist() for name, one in {**first, **columns}.items()}

    def tests(self) -> list[OutcomeTest]:
        """Return the test over all clusters; of times also that stratified by site, where the sites' numbers are known; none of `changed`."""
        if self.changed or int((self.rows > 0).sum()) < 2:
            return []
        if self.form.kind == "number":
            n, _, squares = moments = self.arrays[keys.OUTCOME_MOMENTS]
            usable = (n > 1) & (squares > 0)
            return [_welch(*moments[:, usable])] if usable.sum() > 1 else []
        if self.form.kind != "time":
            found = [(_chi_square if self.form.kind == "category" else _kruskal_wallis)(self.counts[0])]
        else:
            found = [_log_rank("log-rank test", self.counts[None])]
            if len(self.arrays.get(keys.OUTCOME_SITES, ())) > 1:
                found.append(_log_rank("log-rank test, stratified by site", self.arrays[keys.OUTCOME_SITE_COUNTS]))
        return [test for test in found if test.degrees]

    @property
    def why_no_test(self) -> str:
        """Return why there is no test, where there is none."""
        if self.changed:
            return f"it would take {'noise' if self.noise else 'rounded numbers'} for differences"
        if int((self.rows > 0).sum()) < 2:
            return "fewer than two clusters have known outcomes"
        if self.form.kind == "number":
            return "fewer than two clusters have values that differ"
        if self.form.kind == "time":
            return "no event " + ("while rows of two clusters are there" if self.counts[1].any() else "in any cluster")
        return "all values are alike"


def outcomes_of(arrays: Mapping[str, Array]) -> ClusterOutcomes | None:
    """Return the outcomes of a result's clusters; None where it has none."""
    return ClusterOutcomes(arrays) if keys.OUTCOME_FORM in arrays else None


def _log_rank(name: str, counts: IntArray) -> OutcomeTest:
    """Return the log-rank test over clusters from rows (m, 2, k, t) by stratum, kind, cluster and time."""
    k = counts.shape[2]
    away, variance = np.zeros(k), np.zeros((k, k))
    for own in counts:
        n_of, d_of = own.sum(axis=0)[:, ::-1].cumsum(axis=1)[:, ::-1], own[1]
        n, d = n_of.sum(axis=0), d_of.sum(axis=0)
        at = (d > 0) & (n > 1)
        share, weight = n_of[:, at] / n[at], d[at] * (n[at] - d[at]) / (n[at] - 1)
        away += (d_of[:, at] - d[at] * share).sum(axis=1)
        variance += np.diag((weight * share).sum(axis=1)) - (weight * share) @ share.T
    # Clusters that share no stratum are not compared, so the rank may be less than their number minus one.
    degrees = int(np.linalg.matrix_rank(variance, tol=1e-9 * max(np.diag(variance).max(), 1.0), hermitian=True))
    statistic = float(away @ np.linalg.pinv(variance, rcond=1e-9, hermitian=True) @ away) if degrees else 0.0
    return OutcomeTest(name, statistic, degrees, _upper_tail(statistic, degrees))


def _chi_square(counts: IntArray) -> OutcomeTest:
    """Return Pearson's test of a table (k, t) of rows by cluster and value."""
    table = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    statistic, degrees = float(((table - expected) ** 2 / expected).sum()), (table.shape[0] - 1) * (table.shape[1] - 1)
    return OutcomeTest("chi-square test", statistic, degrees, _upper_tail(statistic, degrees))


def _kruskal_wallis(counts: IntArray) -> OutcomeTest:
    """Return the test of Kruskal and Wallis of a table (k, t) of rows by cluster and value, which are in order."""
    table = counts[counts.sum(axis=1) > 0]
    ties, sizes, total = table.sum(axis=0), table.sum(axis=1), int(table.sum())
    ranks = np.cumsum(ties) - (ties - 1) / 2
    sums = table @ ranks
    raw = 12 / (total * (total + 1)) * (sums**2 / sizes).sum() - 3 * (total + 1)
    of_ties = 1 - (ties.astype(np.float64) ** 3 - ties).sum() / (float(total) ** 3 - total)
    degrees = len(table) - 1 if of_ties > 0 else 0
    statistic = float(raw / of_ties) if degrees else 0.0
    return OutcomeTest("Kruskal-Wallis test", statistic, degrees, _upper_tail(statistic, degrees))


def _welch(n: FloatArray, mean: FloatArray, squares: FloatArray) -> OutcomeTest:
    """Return Welch's test over clusters from rows, means and sums of squared deviations (k,)."""
    from scipy.special import fdtrc

    weight = n * (n - 1) / squares
    k, total = len(n), weight.sum()
    center, spread = (weight * mean).sum() / total, ((1 - weight / total) ** 2 / (n - 1)).sum()
    between = (weight * (mean - center) ** 2).sum() / (k - 1)
    statistic = float(between / (1 + 2 * (k - 2) / (k**2 - 1) * spread))
    return OutcomeTest("Welch's test", statistic, k - 1, float(fdtrc(k - 1, (k**2 - 1) / (3 * spread), statistic)))


def _upper_tail(statistic: float, degrees: int) -> float:
    from scipy.special import chdtrc

    return float(chdtrc(degrees, statistic)) if degrees else 1.0
