"""Runs with a range of k: which k the federation's rows speak for, from one upload at the largest.

`pooled` can try all of them in its own job, and so can mixtures, by BIC or ICL, and trees, by what cut lasts longest. For any other algorithm a job of `pooled` chooses
first, and the algorithm then runs with what it chose.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flareclust._foundation.display import all_of
from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array, Message
from flareclust.evaluation import criteria
from flareclust.evaluation.scores import SCORES_OF, values_needed_for
from flareclust.protocol import registry
from flareclust.protocol.outcome import SITE_BY_SITE, Outcome

CHOOSER = "pooled"

_PREFIX = "choice_"

#: The array with the id of the NVFlare job that chose k, of a run that had another job for that.
_JOB = f"{_PREFIX}job"

#: What is reported of every k that was tried.
_SCORES = ("inertia", "calinski_harabasz", "simplified_silhouette", "davies_bouldin", "separated")

#: The setting of mixtures that says what chooses the number of components, the array with its value for each of them, and its values.
_OWN_CRITERION, _TRIED, _OWN_RULES = "k_criterion", "tried", ("bic", "icl")

#: The setting that takes the smallest number to try, of the algorithms that choose by themselves: mixtures and trees.
_SMALLEST = {"gmm": "k_min", "tree": "cut"}

#: Settings of an algorithm that the job that chooses has, too.
_SHARED = (
    *("min_count", "small_clusters", "local_kmeans", "scale", "metric", "missing"),
    *("compare", "table_ranges", "categories"),
)


def parse_k(k: object) -> tuple[int | None, tuple[int, int] | None]:
    """Return (k, None) for a number, (None, (minimum, maximum)) for a range such as "5..25", (5, 25) or range(5, 26); None stays None.

    UserError where it is neither, or the range is reversed or starts below 2.
    """
    if k is None or (isinstance(k, int) and not isinstance(k, bool)):
        return k, None
    if isinstance(k, np.integer):
        return int(k), None
    if isinstance(k, range) and k.step == 1 and len(k):
        k = f"{k[0]}..{k[-1]}"
    elif isinstance(k, tuple) and len(k) == 2 and all(type(end) is int for end in k):
        k = f"{k[0]}..{k[1]}"
    if isinstance(k, tuple | list | range):
        raise UserError(f'k: expected an integer or a range such as "5..25", (5, 25) or range(5, 26); got {k!r}')
    text = str(k).strip()
    if re.fullmatch(r"-?\d{1,18}", text) and isinstance(k, str):
        return int(text), None
    if not (found := re.fullmatch(r"(\d{1,18})\.\.(\d{1,18})", text)):
        raise UserError(f"k: expected an integer or a range such as 5..25, got {k!r}")
    minimum, maximum = int(found[1]), int(found[2])
    if minimum > maximum:
        raise UserError(f"the range of k {text} is reversed; write {maximum}..{minimum}")
    if minimum < 2:
        raise UserError(f"a range of k must start at 2 or more, got {text}: one cluster cannot be compared with others")
    return None, (minimum, maximum)


def settings(k_range: tuple[int, int], criterion: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the job that chooses, for an algorithm with these `params`."""
    own = {name: params[name] for name in _SHARED if name in params}
    return {**own, "k_min": k_range[0], "criterion": criterion}


def own_settings(
    algorithm: str, k_range: tuple[int, int], criterion: str, params: Mapping[str, Any], *, secure_sums: bool = False
) -> dict[str, Any] | None:
    """Return the settings with which an algorithm with these `params` chooses from a range in its own job; None where it cannot.

    Mixtures and trees do so by their own criterion, unless another one is asked for; with secure sums they cannot.
    """
    if algorithm == CHOOSER:
        return settings(k_range, criterion, params)
    by_itself = algorithm in _SMALLEST and criterion == criteria.USUAL and not secure_sums
    return {_SMALLEST[algorithm]: k_range[0]} if by_itself else None


def own_criterion(algorithm: str, criterion: str | None) -> dict[str, Any]:
    """Return the setting of mixtures that a criterion is, as in --criterion icl; none for other criteria and algorithms."""
    own = criterion in _OWN_RULES and _OWN_CRITERION in registry.get(algorithm).parameters()
    return {_OWN_CRITERION: criterion} if own else {}


def exported_k(algorithm: str, k: str, criterion: str | None, params: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return the k of an exported job, of a range the largest, and its settings; UserError for a range that takes two jobs."""
    number, k_range = parse_k(k)
    if k_range is None and criterion is not None:
        raise UserError("--criterion selects k from a range, such as --k 5..25; leave it out, or give a range")
    if k_range is None:
        assert number is not None
        return number, dict(params)
    params = {**params, **own_criterion(algorithm, criterion)}
    rule = criteria.current_rule(criteria.USUAL if criterion is None or criterion in _OWN_RULES else criterion)
    own = own_settings(algorithm, k_range, rule, params)
    if own is None:
        raise UserError(
            f"{algorithm} with a range of k is two jobs, the first of which chooses: export {CHOOSER} with --k {k.strip()}, and then "
            f"{algorithm} with the k that it has chosen; flareclust run does both"
        )
    return k_range[1], {**params, **own}


def check_sizes(k_range: tuple[int, int], criterion: str, shapes: Iterable[tuple[int, int]]) -> None:
    """Raise UserError where no site, (rows, columns) each and without a policy, has enough rows to score the solutions."""
    values, d = max(((n * d, d) for n, d in shapes), default=(0, 0))
    first, last = k_range
    asked = SCORES_OF[criteria.STEP_OF[criterion]]

    def needed(maximum: int) -> int:
        c = maximum - first + 1  # and the overall mean
        return values_needed_for(1 + c, 1 + c * (first + maximum) // 2, maximum, asked, d)

    if values >= needed(last):
        return
    longer = range(first + 1, last)
    possible = bisect_right(longer, values, key=needed)
    advice = f"end the range at {longer[possible - 1]} or less" if possible else "give one k"
    raise UserError(
        f"no site has enough rows to compare k={first}..{last} by {criterion} without disclosing them: the largest has "
        f"{values} values (rows times columns) and {needed(last)} are needed; {advice}, or have fewer sites of more rows (n_sites, --n-sites)"
    )


def chosen_k(arrays: Message) -> int | None:
    """Return the number of clusters that was chosen, None where there was no choice."""
    if _TRIED in arrays:
        return len(arrays["centroids"])
    return int(arrays["chosen_k"]) if "chosen_k" in arrays else None


def joined(choosing: Outcome, run: Outcome) -> Outcome:
    """Return the outcome of the run, with the rounds, the costs and the judgement of the job that chose its k."""
    later = [{**record, "round": int(str(record["round"])) + choosing.n_rounds} for record in run.rounds]
    scores = {name: value for name, value in choosing.arrays.items() if name.startswith(_PREFIX) or name == "chosen_k"}
    job = {_JOB: np.array(choosing.job)} if choosing.job else {}
    return replace(
        run,
        arrays={**run.arrays, **scores, **job},
        rounds=[record for record in choosing.rounds if record["step"] != "assess"] + later,
        bytes_up=choosing.bytes_up + run.bytes_up,
        bytes_down=choosing.bytes_down + run.bytes_down,
        seconds_local=choosing.seconds_local + run.seconds_local,
        seconds_merge=choosing.seconds_merge + run.seconds_merge,
        warnings=_warnings_of(choosing.warnings, run.warnings),
    )


def _warnings_of(choosing: Sequence[str], run: Sequence[str]) -> list[str]:
    """Return the warnings of both jobs: what both say once, and which are of the job that chose k alone."""
    sent_first, sent_then = ([one for one in own if one.startswith(SITE_BY_SITE)] for own in (choosing, run))
    which = f"the job of {CHOOSER} that chose k"
    sent = [f"{one} in {which}" for one in sent_first]
    if sent_first and sent_then:
        sent = [f"{sent[0]}, and to {sent_then[0].removeprefix(SITE_BY_SITE)} in the job of the run"]
    first = [f"in {which}: {one}" for one in choosing if one not in (*sent_first, *run)]
    return [*(sent or sent_then), *first, *(one for one in run if one not in sent_then)]


def selection_of(arrays: Mapping[str, Array]) -> criteria.KSelection | None:
    """Return what is known of every k that was tried, from a result's arrays; None where there was no choice."""
    if f"{_PREFIX}k" not in arrays:
        return None
    unknown = np.full(len(arrays[f"{_PREFIX}k"]), np.nan)  # of criteria that came after the result
    return criteria.KSelection(*(arrays.get(_PREFIX + name, unknown) for name in criteria.KSelection._fields))


def rule_of(arrays: Mapping[str, Array], criterion: str, params: Mapping[str, Any]) -> str:
    """Return the rule that chose the number of clusters, of a run that was asked for a `criterion`; mixtures and trees have their own."""
    own = str(params[_OWN_CRITERION]) if _TRIED in arrays else "cut" if isinstance(params.get("cut"), int) else ""
    return own or criteria.current_rule(criterion)


def summary(arrays: Mapping[str, Array], params: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the choice of a run with these `params` as plain values: the k tried, their scores, the k of every rule that can be
    computed, and the NVFlare job that chose, where it is not that of the run."""
    if _TRIED in arrays:
        rule, tried = str(params[_OWN_CRITERION]), arrays[_TRIED]
        ks = [int(params["k_min"]) + i for i in range(len(tried))]
        return {"k": ks, rule: tried.tolist(), "rules": {rule: ks[int(np.argmin(tried))]}}
    if (known := selection_of(arrays)) is None:
        return None
    scores = {**known._asdict(), "simplified_silhouette": known.silhouette}
    values = {name: [None if np.isnan(v) else float(v) for v in scores[name]] for name in _SCORES}
    deciding = [rule for rule in criteria.measured(known) if criteria.decides(known, rule)]
    return {
        "k": known.k.tolist(),
        **values,
        "rules": {rule: int(known.k[criteria.choose(known, rule)]) for rule in deciding},
        **({"job": str(arrays[_JOB])} if _JOB in arrays else {}),
    }


def tie(arrays: Mapping[str, Array], rule: str) -> str:
    """Return a sentence about numbers of clusters that a rule likes as much as the one it chose, or nearly; empty where there are none."""
    if (known := selection_of(arrays)) is None:
        return ""
    same, near = criteria.tied(known, rule), criteria.nearly_tied(known, rule)
    if len(same) > 1:
        return f"{rule} likes k={all_of(same)} equally, and the smallest was taken; look at the other rules"
    if near:
        return (
            f"{rule} hardly prefers k={same[0]} to k={all_of(near)}, within {criteria.NEAR:.0%} of it: either may be right; look at the "
            "other rules, and compare the clusters of each"
        )
    return ""


def at_end(arrays: Mapping[str, Array], rule: str, params: Mapping[str, Any]) -> str:
    """Return a sentence where the k that a rule chose is an end of the range, beyond which another may be better; else empty."""
    known = summary(arrays, params)
    if known is None or len(known["k"]) < 2 or rule not in known["rules"]:
        return ""
    k, first, last = known["rules"][rule], min(known["k"]), max(known["k"])
    if k == last or (k == first and k > 2):
        end, other = ("largest", "larger") if k == last else ("smallest", "smaller")
        return f"k={k} is the {end} of the range {first}..{last}, and {rule} may prefer a {other} one; widen the range"
    return ""
