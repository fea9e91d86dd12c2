"""What became of the clusters of an earlier result, in words."""

from collections.abc import Sequence

from flareclust.evaluation.continuity import Continuity
from flareclust.evaluation.profile_words import percent

#: From which part of its reach on a centroid has drifted, beyond what it moves by chance. Half of it means that the old
#: centroid describes the cluster's rows with a quarter more squared error.
_FAR_MOVED = 0.5

#: From which share of the rows on the clusters' shares have drifted, beyond what they change by chance.
_MANY_ROWS = 0.1


def changes(found: Continuity, name: str) -> list[str]:
    """Return what changed of the clusters of the earlier result `name`, a sentence each; nothing where all went on."""
    said = [f"cluster {a} of {name} was split into the clusters {_and(own)}" for a, own in found.parts.items()]
    said += [f"the clusters {_and(own)} of {name} were merged into cluster {r}" for r, own in found.joined.items()]
    said += [f"cluster {a} of {name} is gone" for a in found.gone]
    said += [f"cluster {r} is new since {name}" for r in found.new]
    others = [(r, a) for r, a in enumerate(found.was) if a is not None and a != r]
    return [
        *said,
        *(f"cluster {r} is what was cluster {a} of {name}, a number that there is no more" for r, a in others),
    ]


def drift(found: Continuity, name: str) -> list[str]:
    """Return how far the clusters have drifted since the earlier result `name`, a sentence each; nothing where they have not."""
    said = []
    most = found.moved_most
    if most is not None and most > _FAR_MOVED + found.moved_by_chance:
        farthest = max(range(len(found.moved)), key=lambda r: found.moved[r] or 0.0)
        said.append(
            f"drift: since {name} the centroid of cluster {farthest} has moved {percent(most)} of the distance from which on it "
            "would count as another cluster"
        )
    shares = found.shares_moved
    if shares is not None and shares > _MANY_ROWS + found.shares_by_chance:
        said.append(f"drift: {percent(shares)} of the rows are in other clusters than the shares of {name} say")
    return said


def summary(found: Continuity, name: str) -> str:
    """Return in one sentence how the clusters are numbered, and how far they have moved."""
    same = sum(a is not None for a in found.was)
    said = [f"{same} of {len(found.was)} go on"]
    if found.moved_most is not None:
        said.append(f"their centroids moved at most {percent(found.moved_most)} of the way to another cluster")
    if found.shares_moved is not None:
        said.append(f"{percent(found.shares_moved)} of the rows are in other clusters")
    return f"clusters are numbered as in {name}: {', '.join(said)}"


def _and(numbers: Sequence[int]) -> str:
    texts = list(map(str, numbers))
    return ", ".join(texts[:-1]) + f" and {texts[-1]}"
