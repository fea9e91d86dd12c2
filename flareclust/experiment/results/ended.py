"""A run that is over: its rows and labels here, how many rows the assessment covers, and what the user is warned of.

The sites of a provisioned federation do not say how many rows they have. Of runs on them there are three sources:

1. What they reported before the assessment: the rows of their clusters and of their columns. None of these is above the
   number of rows, so where the assessment is of fewer, it left some out.
2. A policy of the run's own. Provisioned sites have theirs, which nobody else knows.
3. Nothing. The assessment can then be of all rows, as it is at sites without a policy; the tables of the result say that the
   number of rows is not known here, and there is no warning.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from flareclust._foundation.display import in_unit, shown, some
from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust.core.mixtures import FACTORS
from flareclust.core.profiles import moments_of_all
from flareclust.data.cells import log_helps, without_log
from flareclust.data.tables import Table
from flareclust.evaluation import agreement, criteria
from flareclust.evaluation import selection as choice
from flareclust.evaluation.batch_effects import shifted_sites, site_shares
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepared import Prepared, tables_of
from flareclust.experiment.results.dropped_rows import dropped_rows
from flareclust.federation import ASSESSED, IN_ASSESSMENT
from flareclust.federation.exchanges import refusal_texts
from flareclust.preparation import result as partial
from flareclust.preparation.columns import decides_distances, outweighing
from flareclust.preparation.scaling import OPEN_GAPS, of_directions, scaling_of
from flareclust.preparation.units import odd_between_sites
from flareclust.privacy.dp import server as dp_server
from flareclust.privacy.policy import Policy
from flareclust.privacy.secure_aggregation.masking import LEAST_SITES
from flareclust.protocol import registry
from flareclust.protocol.cluster_arrays import SITE_ROWS, SITE_SHARES
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import Algorithm

#: Share of the rows below which the assessment says little about all of them: where a policy leaves out small cells, inertia
#: falls with every row; elsewhere.
_COVERED_UNDER_POLICY, _COVERED = 0.99, 0.9

#: So many sites are named in a warning.
_MOST_NAMED = 5

#: So many rows of a cluster at a site, in mean, tell where the cluster lies there; where rows stand in groups, of ten at least.
_TELLING, _TELLING_GROUPS = 20.0, 100.0

#: Arrays of a result whose entries add up to rows that the sites reported.
_REPORTED = ("received_counts", "counts", "rows_in_all")

#: Share of the rows in no cluster that a site sent above which a result has a warning: up to 1.3 % where it cost nothing.
_WITHHELD = 0.02

#: Davies-Bouldin index above which clusters are five times as wide as their centroids are apart, and none to speak of.
_OVERLAP = 10.0

#: Share of the rows beyond the bounds of the sites' policies above which a result has a warning.
_MOST_CLIPPED = 0.05

#: Standard deviations of its noise by which an inertia must be below that of a single mean.
_SURE = 2.0

#: Beyond so many refusals those with the same reason are one warning.
_MOST_REFUSALS = 3

#: Rows of a cluster at each site below which groups of them give centroids that may be off (docs/policies.md).
_ROWS_PER_CLUSTER = 50

#: Groups that are wider than this part of a component change its covariance.
_WIDE = 0.5

#: Share of the rows below which a cluster may be of outliers, or of wrong cells in a column.
_OUTLIERS = 0.05

#: A column in a warning of the server, counted from 1, and of how many.
_PLACE = re.compile(r"\bcolumn (\d+) of (\d+)\b")

_SMALL_CELLS = "so inertia is of these {rows} alone, and cannot be compared with that of another run"


def left_out(outcome: Outcome) -> dict[str, str]:
    """Return why sites took no part; those that failed in the assessment only took part."""
    return {site: why for site, why in outcome.refused.items() if not why.endswith(IN_ASSESSMENT)}


@dataclass(frozen=True)
class Ended:
    """A run that is over: what was asked, what it ran on, and what the engine returned."""

    experiment: Experiment
    prepared: Prepared
    outcome: Outcome

    @cached_property
    def algorithm(self) -> Algorithm:
        """Return the algorithm."""
        return registry.get(self.experiment.algorithm)

    @property
    def row_name(self) -> str:
        """Return what the run calls rows."""
        return self.experiment.row_name

    @property
    def k(self) -> int:
        """Return the number of clusters that was asked for; of a range, the one that was chosen."""
        return choice.chosen_k(self.outcome.arrays) or self.prepared.k

    @cached_property
    def params(self) -> dict[str, Any]:
        """Return the settings of the algorithm, also those that follow from the data and from a range of k."""
        asked, own = self.experiment, None
        if asked.k_range is not None:
            own = choice.own_settings(
                asked.algorithm, asked.k_range, asked.criterion, asked.params, secure_sums=asked.secure_sums
            )
        return self.algorithm.parameters() | dict(self.prepared.params) | asked.params | (own or {})

    @property
    def names(self) -> tuple[str, ...] | None:
        """Return the names of the centroids' columns, where they have any."""
        arrays = self.outcome.arrays
        return partial.columns_of(arrays).names if partial.is_partial(arrays) else self.prepared.columns

    @cached_property
    def places(self) -> Mapping[str, IntArray]:
        """Return the places of each site's rows in the data: where they were split from, or one site after the other by name.

        Rows in files that gave no labels are not counted; nobody here knows how many there are.
        """
        if self.prepared.index is not None:
            return self.prepared.index
        places, at = {}, 0
        for site, rows in sorted(self.prepared.sites.items()):
            n = len(self.outcome.labels.get(site, () if isinstance(rows, Path) else rows))
            places[site] = np.arange(at, at + n)
            at += n
        return places

    @cached_property
    def labels(self) -> IntArray:
        """Return the labels (n,) in the order of the data set, or of the sites' names; -1 where a site gave none, or no site has the row."""
        dataset = self.prepared.dataset
        labels = np.full(sum(map(len, self.places.values())) if dataset is None else len(dataset.X), -1, dtype=np.int64)
        for site, found in self.outcome.labels.items():
            labels[self.places[site]] = found
        return labels

    @cached_property
    def assessed(self) -> dict[str, int | None] | None:
        """Return over how many `rows` the metrics are, `of` how many of the sites that took part, None where that is not known.

        None where there was no assessment, and under differential privacy, where it is not disclosed.
        """
        outcome = self.outcome
        records = [one for one in outcome.rounds if ASSESSED in cast("dict[str, float]", one["diagnostics"])]
        if not records or "differentially-private" in self.algorithm.promises:
            return None
        absent = left_out(outcome)
        sites = records[-1]["sites"]  # also one that an earlier exchange was too much for; of devices their number
        answered = set(sites) if isinstance(sites, list) else set()
        own = {site for site in outcome.sites if site not in absent or site in answered}
        unknown = {site for site in own if site not in self.places or isinstance(self.prepared.sites.get(site), Path)}
        known = not unknown - set(outcome.labels)
        rows = int(cast("dict[str, float]", records[-1]["diagnostics"])[ASSESSED])
        return {"rows": rows, "of": sum(len(self.places[site]) for site in own) if known else None}

    def warnings(self) -> list[str]:
        """Return what the user should know, a sentence each."""
        unassigned = sum(int((found < 0).sum()) for found in self.outcome.labels.values())
        found = [
            *self._of_clusters(),
            *self._of_the_choice(),
            *self._of_the_assessment(),
            *self._of_withheld_rows(),
            *dropped_rows(self, left_out(self.outcome)),
            *filter(None, [self.prepared.outcome_hint]),
            *(of_columns := [*self._of_columns(), *self._of_codes()]),
            *partial.warnings(self.outcome.arrays, unassigned),
            *self._of_shifted_sites(of_columns),
        ]
        return [in_unit(text, self.row_name) for text in found]

    def _of_clusters(self) -> Iterator[str]:
        outcome, k, refused = self.outcome, self.k, sorted(self.outcome.refused.items())
        texts, said = refusal_texts(outcome.refused), " ".join(outcome.warnings)
        if any(f" {text}" not in said for text in texts):  # the warning of an interrupted refinement has them
            yield from texts if len(refused) > _MOST_REFUSALS else map(" ".join, refused)
        yield from map(self._with_names, outcome.warnings)
        if len(outcome.centroids) < k:
            small = sorted(site for site, rows in self.places.items() if 0 < len(rows) < k)
            named = f": {some(small, _MOST_NAMED)} {'has' if len(small) == 1 else 'have'} fewer {self.row_name} than k"
            why = named if small else ""
            if not self.algorithm.federated:
                why = f", since no more {self.row_name} are different; take k={len(outcome.centroids)} at most"
            yield f"{len(outcome.centroids)} centroids were found where k={k} were asked for{why}"
        clipped = outcome.metrics.get("clipped_share")
        if clipped is not None and clipped > _MOST_CLIPPED:
            yield (
                f"about {clipped:.0%} of the {self.row_name} are beyond the bounds of the sites' policies and were moved to them; clusters there "
                "are misplaced unless the bounds are widened (differential_privacy: bounds)"
            )
        inertia, scatter = outcome.metrics.get("inertia"), float(outcome.arrays.get("total_scatter", np.inf))
        certain = outcome.metrics.get("inertia_signal_to_noise")
        if inertia and certain and inertia * (1 + _SURE / certain) >= scatter:
            yield (
                f"by their noisy sums the clusters are not clearly better than a single mean of all {self.row_name}: noise is large beside "
                f"{outcome.centroids.shape[1]} columns. What helps: more {self.row_name}, a larger epsilon, or fewer columns"
            )
        overlap = outcome.metrics.get("davies_bouldin")
        if overlap is not None and overlap > _OVERLAP:
            yield (
                f"the clusters lie on top of one another (Davies-Bouldin index {overlap:.0f}): several centroids are nearly the "
                "same; look at the picture, and try fewer clusters or other settings"
            )

    def _with_names(self, text: str) -> str:
        """Return a warning of the server, which knows columns by their places, with the name of a column where it is known here."""
        names = self.names or ()
        return _PLACE.sub(
            lambda found: f"column {names[int(found[1]) - 1]!r}" if int(found[2]) == len(names) else found[0], text
        )

    def _of_the_choice(self) -> Iterator[str]:
        """Give where the rule that chose k likes others as much, or nearly, or may prefer one beyond the range."""
        asked = self.experiment
        rule = asked.criterion if asked.k_range else str(asked.params.get("criterion", criteria.USUAL))
        arrays, rule = self.outcome.arrays, choice.rule_of(self.outcome.arrays, rule, self.params)
        yield from filter(None, (choice.tie(arrays, rule), choice.at_end(arrays, rule, self.params)))

    def _of_the_assessment(self) -> Iterator[str]:
        """Give where groups of rows make the result doubtful, or rows left out of the assessment its metrics."""
        groups, covered = self._of_groups(), self._of_rows_left_out()
        if groups and covered:
            yield f"{groups}. {covered[0].upper()}{covered[1:]}"
        else:
            yield from filter(None, (groups, covered))

    def _of_rows_left_out(self) -> str:
        """Return a sentence where so many rows were left out of the assessment that its metrics say little; else nothing."""
        if (assessed := self.assessed) is None:
            return ""
        rows, of, policy = assessed["rows"] or 0, assessed["of"], self.experiment.policy is not None
        unit, small_cells = self.row_name, _SMALL_CELLS.format(rows=self.row_name)
        found = f"the assessment is of {rows:,} {unit}"
        if not rows:
            why = f": every cell has fewer {unit} than the sites' policy lets out" if policy else ""
            return f"the assessment is of no {unit}, so there are no inertia, silhouette and Davies-Bouldin index{why}"
        if of is None:
            arrays = {} if left_out(self.outcome) else self.outcome.arrays
            reported = max((int(arrays[name].sum()) for name in _REPORTED if name in arrays), default=0)
            if rows <= _COVERED_UNDER_POLICY * reported:
                found += f", where the sites reported {reported:,} before; how many they have is not known here. Sites'"
                return f"{found} policies leave out small cells, {small_cells}"
            if policy:
                found += "; how many the sites have is not known here, and their"
                return f"{found} policies leave out small cells, {small_cells}"
        elif not policy and rows < _COVERED * of:
            return f"the assessment is of {rows:,} of {of:,} {unit}; its metrics say nothing about the others"
        elif policy and rows <= _COVERED_UNDER_POLICY * of:
            few = 0 < of - rows < Policy.of(self.experiment.policy or {}).min_count  # which the total of all would tell
            of_all = "" if few else f" of {of:,}"
            return (
                f"the assessment is of {rows:,}{of_all} {unit}: the sites' policy leaves out small cells, {small_cells}"
            )
        return ""

    def _of_groups(self) -> str:
        """Return a sentence where groups of rows mix clusters, since sites have few rows of each or for so long a range of k.

        Else nothing. Where the sites' policies are not known here, they may have them.
        """
        asked, k, absent = self.experiment, self.k, left_out(self.outcome)
        here = asked.policy is not None
        if "differentially-private" in self.algorithm.promises or not (here or asked.engine == "production"):
            return ""
        floor = Policy.of(asked.policy or {}).min_count
        sizes = [len(rows) for site, rows in self.places.items() if site not in absent and len(rows)]
        if not sizes:  # unknown here: the mean of what was assessed
            sizes = [((self.assessed or {}).get("rows") or 0) // max(1, len(self.outcome.sites) - len(absent))]
        rows, groups = float(np.median(sizes)), f"groups of {floor} or more"
        whose = "their policy makes" if here else "their policies, unless they say otherwise, make"
        last = asked.k_range[1] if asked.k_range else 0
        if 0 < rows < last * floor:
            most = max(2, int(rows // floor))
            return (
                f"sites have about {rows:.0f} {self.row_name}, of which {whose} {groups}: {most} at most, where up to k={last} was tried, so "
                f"k={k} may be far too small. End the range at {most}, give the k that you expect, or join small sites"
            )
        if 0 < rows < _ROWS_PER_CLUSTER * k:
            wrong, helps = "centroids may be off", "Take fewer clusters, or join small sites"
            if rows < floor * k:
                wrong = "groups mix clusters, and the centroids are probably wrong"
                helps += self._noise_instead(sum(sizes), len(sizes))
            each = f"sites have about {rows / k:.0f} {self.row_name} for each of {k} clusters"
            return f"{each}, of which {whose} {groups}: {wrong}. {helps}"
        d, mixture = self.outcome.centroids.shape[1], FACTORS in self.outcome.arrays
        # So many groups of a component fill its volume: each is as wide as this part of it.
        if mixture and rows > 0 and (wide := (floor * k / rows) ** (1 / d)) > _WIDE:
            each = f"sites have about {rows / k:.0f} {self.row_name} for each of {k} components in {d} columns, of which {whose} {groups}"
            return (
                f"{each}, about {wide:.0%} as wide as a component: covariances are too wide along narrow axes, and components that differ by "
                "their form only may be mixed. Take fewer columns, or join small sites"
            )
        return ""

    def _noise_instead(self, rows: int, sites: int) -> str:
        """Return what says that noise costs less than groups, where all rows together stand out of it; else nothing."""
        private = registry.get("dp-lloyd")
        server, d = private.build(self.k, 0, {})[1].secured(), self.outcome.centroids.shape[1]
        needed = dp_server.SEVERAL * server.rows_needed(d, sites)
        if self.algorithm.partial or sites < LEAST_SITES or rows < needed:
            return ""
        terms = f"dp-lloyd with secure_sums and epsilon={private.parameters()['epsilon']:g}"
        return f", or take noise in place of groups: {terms}, for which {rows:,} {self.row_name} at {sites} sites are enough"

    def _of_withheld_rows(self) -> Iterator[str]:
        """Give where many rows were in no cluster that a site sent: as far as the algorithm keeps their numbers of rows."""
        asked, arrays = self.experiment, self.outcome.arrays
        params = self.algorithm.parameters() | asked.params
        reported = next((arrays[name] for name in _REPORTED[:2] if name in arrays), None)
        if reported is None or self.assessed is None or asked.secure_sums or asked.samples or asked.policy is not None:
            return
        rows, sent = self.assessed["rows"] or 0, int(reported.sum())
        lacking = round(rows * (1 - params.get("trim_rows", 0.0))) - sent
        if lacking <= _WITHHELD * rows:
            return
        remedies = ["fewer clusters", "larger sites"]
        if params.get("small_clusters") == "withhold":
            remedies.insert(0, "small_clusters=dissolve")
        if params["min_count"] > self.algorithm.parameters()["min_count"]:
            remedies.insert(0, "a smaller min_count")
        totals = any(step.counted for step in self.algorithm.executor_class().steps.values())
        remedies.insert(0, "secure_sums" if totals else "portfolio with secure_sums")
        yield (
            f"{lacking:,} of {rows:,} {self.row_name} were in no cluster that a site sent, and centroids may lie far from them: clusters "
            "below min_count, whose mean is a row, or of one row repeated without others to describe it with stay at the site; use "
            f"{', '.join(remedies[:-1])} or {remedies[-1]}"
        )

    @property
    def _protected(self) -> bool:
        """Whether sites' rows may not be joined here, as a policy, secure sums or differential privacy say."""
        asked, private = self.experiment, "differentially-private" in self.algorithm.promises
        return asked.policy is not None or asked.secure_sums or private

    def _of_codes(self) -> Iterator[str]:
        """Give which columns have codes for missing cells, where the sites' tables are here and may be joined."""
        if not self._protected:
            gone, tables = left_out(self.outcome), tables_of(self.prepared, skip_unreadable=True)
            yield from agreement.coded_cells({site: table for site, table in tables.items() if site not in gone})

    def _of_shifted_sites(self, said: Sequence[str]) -> list[str]:
        """Return whether sites have the same clusters at different places, by a profile, or by the rows where they may be joined here.

        Nothing of columns of which something is said already that would explain it.
        """
        arrays, (k, d) = self.outcome.arrays, self.outcome.centroids.shape
        names = self.names or tuple(f"column {j + 1}" for j in range(d))
        known = [(shown(name), shown(without_log(name) or name)) for name in names]  # as features and as columns
        new = np.array([not any(one in text for one in own for text in said) for own in known])
        if SITE_SHARES in arrays:
            least = _TELLING_GROUPS if self.experiment.policy is not None else _TELLING
            return shifted_sites(names, arrays[SITE_ROWS], new * arrays[SITE_SHARES], least)
        if self._protected or partial.is_partial(arrays):
            return []
        tables = {
            site: own.X for site, own in tables_of(self.prepared, skip_unreadable=True).items() if own.X.shape[1] == d
        }
        labels = {
            site: own for site, own in self.outcome.labels.items() if site in tables and len(own) == len(tables[site])
        }
        found = [
            moments_of_all(tables[site], own, k) for site, own in labels.items() if not np.isnan(tables[site]).any()
        ]
        if len(found) < 2:
            return []
        rows, means, squares = (np.array(part) for part in zip(*found, strict=True))
        return shifted_sites(names, rows, new * site_shares(rows, means, squares.sum(axis=(0, 1))), _TELLING)

    def _skewed(self, names: Sequence[str], categories: BoolArray) -> Iterator[str]:
        """Give the columns whose logarithms would be better, where a schema can say so and sites' rows may be joined here."""
        sites = self.prepared.sites.values()
        here = not any(isinstance(rows, Path) for rows in sites) and not self.prepared.parted
        if self.experiment.table_schema is None or self._protected or not here or not sites:
            return
        tables = [rows.X if isinstance(rows, Table) else np.asarray(rows) for rows in sites]
        if {X.shape[1] for X in tables} != {len(names)}:
            return
        X = np.concatenate(tables)
        found = [
            name for name, x, category in zip(names, X.T, categories, strict=True) if not category and log_helps(x)
        ]
        if found:
            yield (
                f"strongly skewed, so that a few large values decide clusters: {some(found, _MOST_NAMED, 'more columns')}; transform: log in "
                "the schema takes their logarithms"
            )

    def _of_columns(self) -> Iterator[str]:
        """Give columns that sites may not mean alike, and one that decides the distances where nothing was scaled."""
        arrays, prepared, d = self.outcome.arrays, self.prepared, self.outcome.centroids.shape[1]
        names = self.names or tuple(f"column {j + 1}" for j in range(d))
        if "missing_cells" in arrays:
            rows = arrays["rows_in_all"] if "rows_in_all" in arrays else arrays["rows_by_site"] @ arrays["column_masks"]
            yield from filter(
                None, [agreement.missing_cells(names, arrays["missing_cells"], rows, left_open=OPEN_GAPS in arrays)]
            )
        # Columns of categories go by number, or by name where sites have different columns.
        settings = {**prepared.params, **self.experiment.params}
        valued = {column for group in settings.get("categories") or () for column in group}
        categories = np.array([j in valued or name in valued for j, name in enumerate(names)])
        if not prepared.parted:
            units = dict(zip(names, prepared.units, strict=False))
            yield from odd_between_sites(arrays, names, categories, left_out(self.outcome), units)
        yield from self._skewed(names, categories)
        unscaled = scaling_of(arrays) is None and not of_directions(arrays)
        if not partial.is_partial(arrays) and "scale" in self.algorithm.parameters() and unscaled:
            widest = outweighing(names, np.ptp(self._large_clusters(), axis=0))
            if widest is not None:
                yield decides_distances(widest, "scale=standard")
        if "gamma" in arrays and "site_deviations" in arrays and settings.get("scale", "none") == "none":
            numbers = np.where(categories, 0.0, np.median(np.nan_to_num(arrays["site_deviations"]), axis=0))
            if (widest := outweighing(names, numbers, mixed=True)) is not None:
                yield decides_distances(widest, "scale=standard", mixed=True)

    def _large_clusters(self) -> FloatArray:
        """Return the centroids (c, d) of clusters that are more than outliers; all of them where labels are not known."""
        centroids, labels = self.outcome.centroids, self.labels[self.labels >= 0]
        large = np.bincount(labels, minlength=len(centroids))[: len(centroids)] > _OUTLIERS * len(labels)
        return centroids[large] if large.sum() > 1 else centroids
