"""What a run found, made once; terminal, report.html, notebooks, MLflow's note and Prefect's page show of it what they have room for."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from flareclust._foundation.display import in_unit, measured
from flareclust._foundation.typing import IntArray
from flareclust.core.mixtures import most_likely
from flareclust.evaluation import profile_words
from flareclust.evaluation import selection as choice
from flareclust.evaluation.noisy_profiles import FREE, NoisyProfiles
from flareclust.evaluation.profiles import Profiles, profiles_of
from flareclust.evaluation.verdict import Verdict, verdict_on
from flareclust.experiment.config import REMOTE
from flareclust.experiment.results.profiled import shown_noisy_profiles
from flareclust.experiment.results.sizes import floor_of, shown_sizes, size_text, withholds
from flareclust.preparation.assignment import mixture_of
from flareclust.preparation.scaling import as_clustered, filled
from flareclust.privacy.dp import server as dp_server
from flareclust.privacy.dp import site as dp_site
from flareclust.protocol.cluster_arrays import OUTCOME_NOISE, ROWS_READ
from flareclust.protocol.task import StepName

if TYPE_CHECKING:
    from flareclust.experiment.results.result import Result

#: Of measures of mixtures, which values are better.
_BETTER = {"log_likelihood": "higher", "bic": "lower", "icl": "lower"}

#: A row of a mixture is uncertain where its most probable component is less so.
_CERTAIN = 0.8

#: So many clusters are listed where there is little room.
MOST_CLUSTERS = 20


@dataclass(frozen=True)
class Summary:
    """What a run found.

    Attributes:
        result: of the run.
        title: how many centroids were found at how many sites, in words.
        measures: the metrics by name, as text.
        profiles: what describes the clusters, exact or noisy; None where nothing does.
        continuity: how the clusters are numbered by those of an earlier run; "" where they are not.
        choice: how k was chosen; None where it was given.
        assessed: over how many rows the metrics are, also where nobody here knows of how many; "" where that is not disclosed.
    """

    result: "Result"
    title: str
    measures: Mapping[str, str]
    profiles: Profiles | NoisyProfiles | None
    continuity: str
    choice: Mapping[str, Any] | None
    assessed: str

    @property
    def row_name(self) -> str:
        """Return what the run calls rows."""
        return self.result.row_name

    @property
    def verdict(self) -> Verdict:
        """Return whether the clusters can be trusted."""
        result = self.result
        silhouette = result.metrics.get("simplified_silhouette")
        return verdict_on(result.stability, result.null, silhouette, remote=result.engine in REMOTE, rows=self.row_name)

    @property
    def unread(self) -> str:
        """Return what is to say of rows that the sites' tables have and this run had not; "" where it read the tables itself.

        Real sites tell how many have a missing cell, by a schema (`READ`), and nothing else: a single row with the id of another would
        be one that others know of. The tables of a POC are read here as well, and warnings count these rows.
        """
        if self.result.engine != "production":
            return ""
        return (
            f"how many {self.row_name} each site left out in reading its table, since "
            f"{'' if ROWS_READ in self.result.arrays else 'a cell is missing, '}an id comes twice or was withdrawn, only the site knows: its log of the job says it, and flareclust site check KIT there"
        )

    @property
    def no_warnings(self) -> str:
        """Return what stands for warnings where there are none: of real sites, whose rows were not read here, with what that leaves open."""
        if self.result.engine != "production":
            return "No warnings."
        return (
            "No warnings of what the sites sent. Whether columns are skewed or hold codes for missing cells, and which rows were left out, is not "
            "looked at here: flareclust site check KIT does at each site."
        )

    @property
    def noisy(self) -> NoisyProfiles | None:
        """Return the profiles of a result under differential privacy."""
        return self.profiles if isinstance(self.profiles, NoisyProfiles) else None

    @property
    def exact(self) -> Profiles | None:
        """Return the profiles of every other result."""
        return self.profiles if isinstance(self.profiles, Profiles) else None

    def measure_name(self, name: str) -> str:
        """Return a metric's name in words; of a mixture with which values are better."""
        better = f" ({_BETTER[name]} is better)" if name in _BETTER else ""
        return f"{in_unit(name.replace('_', ' '), self.row_name)}{better}"

    @cached_property
    def uncertain(self) -> str:
        """Return how many rows have no component of a mixture that is clearly the most probable one; "" for other algorithms.

        Of rows that are not here, where it is said. Under the run's own policy no number below its floor is.
        """
        result = self.result
        arrays = {**result.arrays, "centroids": result.centroids}
        if (mixture := mixture_of(arrays)) is None:
            return ""
        if not result.sites:
            return "known at the sites only: labels.csv there" if result.engine in REMOTE else ""
        X = np.concatenate(list(result.sites.values()))
        _, probability, _ = most_likely(np.ascontiguousarray(as_clustered(arrays, filled(arrays, X))), mixture)
        n = int(np.count_nonzero(probability < _CERTAIN))
        if self.floor and n < self.floor:
            return f"fewer than {self.floor}"
        return f"{n:,} ({profile_words.percent(n / len(X))})"

    @cached_property
    def unlabelled(self) -> int:
        """Return how many of the rows assessed a tree leaves without a label; 0 for other algorithms."""
        rows, labelled = (self.result.assessed or {}).get("rows"), self.result.arrays.get("labelled_rows")
        return 0 if rows is None or labelled is None else max(rows - int(labelled), 0)

    @property
    def labelled(self) -> str:
        """Return what rows with a label are called."""
        return f"labelled {self.row_name}" if self.unlabelled else self.row_name

    @property
    def numbers_of_rows(self) -> list[tuple[str, str]]:
        """Return the numbers of rows that stand below the measures, each after what it is a number of."""
        n, total = self.unlabelled, (self.result.assessed or {}).get("rows") or 1
        none = f"fewer than {self.floor}" if n < self.floor else f"{n:,} ({profile_words.percent(n / total)})"
        found = {f"uncertain {self.row_name} (probability below {_CERTAIN:g})": self.uncertain}
        found |= {f"{self.row_name} without a label": none if n else "", f"{self.row_name} assessed": self.assessed}
        return [(name, number) for name, number in found.items() if number]

    @property
    def chosen(self) -> str:
        """Return from which numbers k was chosen, of a run with a `choice`, and in which NVFlare job, where there was one for that."""
        known = self.choice or {"k": ()}
        k, job = known["k"], f" in the NVFlare job {known['job']} of {choice.CHOOSER}" if "job" in known else ""
        return f"k={self.result.k} was {f'chosen from {k[0]}..{k[-1]}' if len(k) > 1 else 'the only number tried'}{job}"

    @property
    def rule(self) -> str:
        """Return the rule that chose k, of a run with a `choice`."""
        return choice.rule_of(self.result.arrays, str(self.result.experiment.get("criterion", "")), self.result.params)

    @property
    def sizes(self) -> IntArray | None:
        """Return the rows of each cluster (k,) that every view shows: of the labels where they are here, else as described; None if unknown.

        Under differential privacy the noisy numbers, whatever is known of the rows here.
        """
        known = shown_sizes(self.result) if self.noisy is None else self.noisy.rows
        return self.exact.rows if known is None and self.exact is not None else known

    @property
    def floor(self) -> int:
        """Return how many rows each group has at least that the run's own policy puts in the place of rows; 0 where there are none."""
        return floor_of(self.result)

    @property
    def described_units(self) -> str:
        """Return what a tree and its shares are of: rows, or groups of them where a policy puts these in their place."""
        if self.floor:
            return f"groups of {self.row_name}"
        return self.row_name + " (or groups of them, at sites with a policy)" * (self.result.engine in REMOTE)

    @property
    def counted(self) -> str:
        """Return of which rows sizes are, and of which means and rules; "" where both are of all."""
        if (profiles := self.exact) is None or self.sizes is None:
            return self._withheld
        rows, total, described = self.labelled, int(self.sizes.sum()), int(profiles.rows.sum())
        if not (self.result.labels >= 0).any():
            said = f"sizes, means and rules are of the {described:,} {rows} that the sites have described"
            groups = f"; one with a policy describes groups of {rows} in their place"
            return said + groups * (self.result.engine in REMOTE)
        if self.floor:
            return self._counted_under_policy(total, described)
        if described == total:
            return ""
        why = "of a cluster at their site (fewer than three, or than min_count)"
        left = (
            f"; not counted there: {total - described:,} {rows}, which are too few {why}" if total > described else ""
        )
        return f"sizes are of all {total:,} {rows}, each in the {self._own} cluster; means and rules are of {described:,} {rows}{left}"

    @property
    def _own(self) -> str:
        """Return in which cluster a row is."""
        return "most probable" if mixture_of({**self.result.arrays, "centroids": self.result.centroids}) else "nearest"

    @property
    def _withheld(self) -> str:
        """Return what stands for sizes that the run's own policy withholds; "" where all are shown."""
        if not withholds(self.result):
            return ""
        where = "in all" if self.result.experiment.get("secure_sums") else "at a site"
        return (
            f"sizes and totals leave out {self.row_name} in clusters that have fewer than {self.floor} {where}, as the policy does (few: "
            "none are left)"
        )

    def _counted_under_policy(self, total: int, described: int) -> str:
        """Return `counted` under the run's own policy, without numbers from which one that it withholds follows."""
        rows, floor, missing = self.labelled, self.floor, total - described
        sizes = self._withheld or f"sizes are of all {total:,} {rows}, each in the {self._own} cluster"
        groups = f"means and rules are of groups of {floor} or more similar {rows} in their place"
        if self._withheld or 0 < missing < floor:
            return f"{sizes}; {groups}, without {rows} in no group"
        left = f"; not counted there: {missing:,} {rows}, which are in no group" if missing > 0 else ""
        return f"{sizes}; {groups}, which stand for {described:,}{left}"

    def size(self, cluster: int) -> str:
        """Return the rows of a cluster as text, of known `sizes`; what they are below where a policy withholds them."""
        rows = self.profiles.rows if self.sizes is None and self.profiles is not None else self.sizes
        return "" if rows is None else size_text(int(rows[cluster]), self.floor)

    def words(self, cluster: int) -> str:
        """Return what is special about a cluster, in one line; "" without profiles."""
        return "" if self.profiles is None else profile_words.sentence(self.profiles, cluster)

    def described(self) -> list[int]:
        """Return the clusters of whose rows something is known."""
        if self.profiles is None:
            return []
        return [c for c, rows in enumerate(self.profiles.rows.tolist()) if rows or self.noisy is not None]

    def notes(self) -> Iterator[str]:
        """Give what must be said below a list of the clusters: what is noise, who is not described, how the tree does."""
        if self.noisy is not None:
            yield from filter(None, (self.noisy.unclear(), self.noisy.unknown(), FREE))
        if (profiles := self.exact) is None:
            return
        if none := len(profiles.rows) - len(self.described()):
            what = "cluster is" if none == 1 else "clusters are"
            who = "no site has" if profiles.site_rows is not None else "the sites do not have"
            enough = f"enough of {'its' if none == 1 else 'their'} {self.row_name} (three, or min_count)"
            yield f"{none} {what} not described: {who} {enough}"
        tree = profiles.tree
        if tree is None or len(leaves := tree.leaves()) < 2:
            return
        yield f"a tree of {len(leaves)} leaves puts {profile_words.percent(tree.accuracy)} of the {self.described_units} into their cluster; its largest ones:"
        for c in range(min(len(profiles.rows), MOST_CLUSTERS)):
            if (leaf := profile_words.rule_of(profiles, c)) is not None:
                yield f"  cluster {c}: {leaf.text} ({profile_words.percent(leaf.found)} of the cluster, {profile_words.percent(leaf.purity)} right)"
        yield f"  (estimates, and rules may look better than they are: fewer than min_count {self.row_name} of a cluster that a rule parts from its others at a site are counted with the others)"


def summarise(result: "Result") -> Summary:
    """Return what a run found."""
    since, rows, assessed = result.continuity, result.assessed, ""
    # Beside those shown, the number of rows assessed may tell a number of rows that the policy withholds.
    few = rows is not None and rows["of"] is not None and 0 < rows["of"] - (rows["rows"] or 0) < floor_of(result)
    if rows is not None and not (withholds(result) or few):
        of = "; how many the sites have is not known here" if rows["of"] is None else f" of {rows['of']:,}"
        assessed = f"{rows['rows'] or 0:,}{of}"
    return Summary(
        result=result,
        title=f"{result.centroids_found} of {result.k} centroids, {result.took_part}",
        measures={
            n: no_value(n) if value is None else measured(n, value, 4) for n, value in result.ranked_metrics.items()
        },
        profiles=shown_noisy_profiles(result) or profiles_of(result.arrays, result.columns, result.row_name),
        continuity="" if since is None else since.summary(result.matched_to or "", result.row_name),
        choice=choice.summary(result.arrays, result.params),
        assessed=assessed,
    )


def no_value(name: str) -> str:
    """Return why a metric has no value."""
    return "within its noise" if name == "clipped_share" else "undefined"


def budget_split(result: "Result", named: Callable[[str], str] = str, between: str = ", ") -> str:
    """Return the share of the job's rho that each step cost: "cluster 50 %, update 3 x 15 %, assess 5 %"; "" without privacy.

    What outcomes cost beside it follows.
    `named` gives the words for a step, by default its name; `between` separates the steps.
    """
    shares: list[tuple[str, float]] = []
    for record in () if result.outcome is None else result.outcome.rounds:
        diagnostics = cast("Mapping[str, float]", record["diagnostics"])
        if dp_server.BUDGET_SHARE in diagnostics:
            shares.append((str(record["step"]), diagnostics[dp_server.BUDGET_SHARE]))
        elif shares and record["step"] == StepName.ASSESS:
            shares.append((StepName.ASSESS, dp_site.ASSESSMENT_SHARE))
    parts = [(step, share, len(list(alike))) for (step, share), alike in groupby(shares)]
    split = between.join(f"{named(step)} {f'{n} x ' if n > 1 else ''}{100 * share:.3g} %" for step, share, n in parts)
    if OUTCOME_NOISE in result.arrays:
        split += f"; outcomes have a budget of their own: epsilon {result.params['outcome_epsilon']:g}"
    return split
