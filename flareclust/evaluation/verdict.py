"""Whether the clusters of a run can be trusted: one answer from silhouette, repeated runs and rows without clusters.

Sources: Kaufman, Rousseeuw 1990, Finding Groups in Data, chapter 2 (silhouette); Hennig 2007 (`flareclust.evaluation.stability`);
Tibshirani, Walther, Hastie 2001 (`flareclust.evaluation.null_reference`).

Each measures something else, so none overrules the others by its size:

1. Rows without clusters say whether there are any: where such rows do as well, nothing else counts.
2. Repeated runs say whether these clusters are found again. Rows without clusters are often divided the same way in each run, so this
   counts only once there are clusters.
3. The silhouette says how far clusters are apart. It is low for clusters that touch, and for balanced ones in many columns, and rows
   without clusters reach 0.63 (docs/stability.md), so it decides nothing alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flareclust._foundation.display import all_of
from flareclust.evaluation.null_reference import NullTest
from flareclust.evaluation.stability import ClusterStability

#: From this silhouette on clusters are far apart (Kaufman and Rousseeuw: "a strong structure"), and none without clusters reached it.
_APART = 0.71

#: Below this silhouette a reader wonders about clusters that are there.
_LOW = 0.51

#: What tests whether there are clusters, and whether they come back: where the rows are here, and at real sites.
_HERE = "flareclust stability with the same {rows} and settings and --null 19 tests it"
_REMOTE = "that takes the {rows} themselves, which stay at real sites: repeat the run with other seeds (--seed) and compare the profiles"


@dataclass(frozen=True)
class Verdict:
    """Whether clusters can be trusted.

    Attributes:
        word: yes, in part, no, or not tested.
        sentence: the answer, which begins with the word.
        reasons: what silhouette, repeated runs and rows without clusters say, a sentence each.
    """

    word: str
    sentence: str
    reasons: tuple[str, ...]


def verdict_on(
    stability: Sequence[ClusterStability],
    null: NullTest | None,
    silhouette: float | None,
    *,
    remote: bool = False,
    rows: str = "rows",
) -> Verdict:
    """Return whether the clusters of a run can be trusted.

    Args:
        stability: of each cluster, empty where the run was not repeated.
        null: how the rows compare with rows without clusters; None where that was not asked.
        silhouette: simplified silhouette; None where it is not known.
        remote: whether the rows are at real sites, which decides what is advised.
        rows: what rows are called.
    """
    word, answer = _answer(stability, null, (_REMOTE if remote else _HERE).format(rows=rows), rows)
    reasons = (
        *(() if null is None else (null.sentence,)),
        *_of_repeats(stability, null, rows),
        *_of_silhouette(silhouette, word),
    )
    return Verdict(word, f"{word}: {answer}", reasons)


def _answer(stability: Sequence[ClusterStability], null: NullTest | None, advice: str, rows: str) -> tuple[str, str]:
    """Return the word and what follows it."""
    if null is not None and not null.evidence:
        return "no", "rows without clusters do as well, so these may be a division that any rows would have"
    if null is not None and not stability:
        return "not tested", f"the {rows} have clusters; whether these come back was not tested: {advice}"
    known = [one for one in stability if one.word != "unknown"]
    back = [one.cluster for one in known if one.word == "stable"]
    if known and all(one.word == "unstable" for one in known):
        return "no", "none of the clusters comes back in repeated runs"
    if null is None and len(back) == len(known):
        came = "the clusters come back in repeated runs, but " if known else ""
        return "not tested", f"{came}rows without clusters were not compared; {advice}"
    if len(back) == len(known):
        return "yes", f"the {rows} have clusters, and these come back in repeated runs"
    rest = [one.cluster for one in known if one.word != "stable"]
    found = "clusters come back in repeated runs, but not their borders"
    if back:
        found = f"{_named(back)} come{'' if len(back) > 1 else 's'} back in repeated runs, {_named(rest)} may not"
    return "in part", found if null is not None else f"{found}; rows without clusters were not compared: {advice}"


def _named(clusters: Sequence[int]) -> str:
    return f"cluster{'s' if len(clusters) > 1 else ''} {all_of(clusters)}"


def _of_repeats(stability: Sequence[ClusterStability], null: NullTest | None, rows: str) -> Iterator[str]:
    indices = [one.jaccard for one in stability if one.word != "unknown"]
    if not indices:
        return
    low, high = f"{min(indices):.2f}", f"{max(indices):.2f}"
    said = f"repeated runs: Jaccard index of {low if low == high else f'{low} to {high}'}"
    if null is not None and not null.evidence:
        said += f", which says only that the {rows} are divided in the same way each time, as rows without clusters often are"
    yield said


def _of_silhouette(silhouette: float | None, word: str) -> Iterator[str]:
    if silhouette is None:
        return
    said = f"silhouette {silhouette:.2f}"
    if silhouette >= _APART:
        yield f"{said}: the clusters are far apart"
    elif word in ("yes", "in part") and silhouette < _LOW:
        yield f"{said}: low, since clusters touch or there are many columns; it measures how far they are apart, not whether they are there"
    else:
        yield f"{said}: rows without clusters can have as much, so it decides nothing"
