"""The centroids of an earlier result as those that a run starts from."""

from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from flareclust._foundation.errors import UserError
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepared import Prepared
from flareclust.experiment.results.matching import columns_differ
from flareclust.experiment.results.picture import is_embedded
from flareclust.preparation import result as partial
from flareclust.protocol import registry

if TYPE_CHECKING:
    from flareclust.experiment.results.result import Result

_START = "start"

#: The settings that decide in which space the centroids are, with what they are where an algorithm has none of that name.
_SPACE = {"scale": "none", "metric": "euclidean"}

#: The algorithm whose centroids have modes of categories in them.
_MODES = "kprototypes"


def started_from(experiment: Experiment, prepared: Prepared, earlier: "Result", name: str) -> Prepared:
    """Return a federation whose run starts from the centroids of an earlier result, which is called `name` in texts.

    They are in the units of the columns: where these are scaled, it is by the spread of the rows that the new run has.

    Raises:
        UserError: they cannot start this run; the text says why.
    """
    if problem := _why_not(experiment, prepared, earlier):
        raise UserError(f"start_from (--start): the run cannot start from {name}: {problem}")
    centroids, columns = earlier.centroids, prepared.columns
    if columns is not None and earlier.columns is not None:
        centroids = centroids[:, [earlier.columns.index(one) for one in columns]]
    return replace(prepared, params={**prepared.params, _START: centroids.tolist()})


def _why_not(experiment: Experiment, prepared: Prepared, earlier: "Result") -> str:
    """Return why the centroids of a result cannot start a run, in a few words; "" if they can."""
    able = [one.name for one in registry.algorithms().values() if _takes_centroids(one)]
    if experiment.algorithm not in able:
        one_shot = "one-shot" in registry.get(experiment.algorithm).promises
        why = "asks each site once, and nothing is there to begin with" if one_shot else "makes its own start"
        begin = f"take an algorithm that begins with centroids: {', '.join(able)}"
        return f"{experiment.algorithm} {why}; leave out --start, or {begin}"
    if _START in experiment.params:
        return f"the setting {_START} says another start; leave out one of the two"
    if experiment.k_range is not None:
        return "k is to be chosen from a range; give the k of that result, or leave out --start"
    modes = _MODES in {experiment.algorithm} ^ {earlier.algorithm}  # one of the two has modes
    if partial.is_partial(earlier.arrays) or is_embedded(earlier.arrays) or modes:
        return f"{earlier.algorithm} has clusters of another kind than {experiment.algorithm}"
    asked = {**prepared.params, **experiment.params}
    for setting, usual in _SPACE.items():
        now, before = asked.get(setting, usual), earlier.params.get(setting, usual)
        if now != before:
            return f"it was made with {setting}={before}, and this run has {setting}={now}"
    if (found := len(earlier.centroids)) != prepared.k:
        return f"it has {found} centroids, and k is {prepared.k}"
    return columns_differ(prepared.columns, earlier.columns)


def _takes_centroids(algorithm: registry.Algorithm) -> bool:
    """Return whether the caller may give an algorithm k centroids to start from."""
    field = algorithm.params_class().own().get(_START)
    return field is not None and list[list[float]] in get_args(field.annotation)
