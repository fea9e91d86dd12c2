"""What a terminal shows of profiles: the size of each cluster, what is special about it, and how to tell it apart."""

from collections.abc import Iterator

from rich.markup import escape
from rich.table import Table

from flareclust._foundation.display import printable
from flareclust.evaluation.noisy_profiles import FREE, NoisyProfiles
from flareclust.evaluation.profile_words import percent, rule_of, sentence
from flareclust.evaluation.profiles import Profiles, profiles_of
from flareclust.experiment.results.profiled import shown_noisy_profiles
from flareclust.experiment.results.result import Result

#: So many clusters are printed.
_MOST = 20


def profile_lines(result: Result) -> Iterator[str | Table]:
    """Give the table of clusters, then plain lines about the tree; nothing for a result without profiles."""
    if (noisy := shown_noisy_profiles(result)) is not None:
        yield from _table(noisy, list(range(len(noisy.rows))), "rows, noisy")
        yield from filter(None, (noisy.unclear(), noisy.unknown(), FREE))
        return
    profiles = profiles_of(result.arrays, result.columns)
    if profiles is None:
        return
    described = [cluster for cluster, rows in enumerate(profiles.rows.tolist()) if rows]
    yield from _table(profiles, described, "rows")
    if none := len(profiles.rows) - len(described):
        what = "cluster is" if none == 1 else "clusters are"
        who = "no site has" if profiles.site_rows is not None else "the sites do not have"
        yield f"{none} {what} not described: {who} enough of {'its' if none == 1 else 'their'} rows (three, or min_count)"
    yield from _tree(profiles)


def _table(profiles: Profiles | NoisyProfiles, described: list[int], rows: str) -> Iterator[str | Table]:
    """Give the table of the clusters that are described, and how many more there are."""
    table = Table(box=None)
    table.add_column("cluster", justify="right")
    table.add_column(rows, justify="right", no_wrap=True)
    table.add_column("what is special about it")
    for cluster in described[:_MOST]:
        table.add_row(str(cluster), f"{profiles.rows[cluster]:,}", escape(printable(sentence(profiles, cluster))))
    yield table
    if (more := len(described) - _MOST) > 0:
        yield f"and {more} more clusters; report.html has all of them"


def _tree(profiles: Profiles) -> Iterator[str]:
    """Give how well the tree does, and of each cluster the leaf that finds most of it."""
    tree = profiles.tree
    if tree is None or len(leaves := tree.leaves()) < 2:
        return
    yield f"a tree of {len(leaves)} leaves puts {percent(tree.accuracy)} of the rows into their cluster; its largest ones:"
    for cluster in range(min(len(profiles.rows), _MOST)):
        if (leaf := rule_of(profiles, cluster)) is not None:
            yield f"  cluster {cluster}: {leaf.text} ({percent(leaf.found)} of the cluster, {percent(leaf.purity)} right)"
