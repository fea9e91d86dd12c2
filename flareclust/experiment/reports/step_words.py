"""What the steps are called in words, for people who read a report and not the code."""

from collections.abc import Mapping
from types import MappingProxyType

from flareclust.protocol import registry

#: The steps of all algorithms. Those in which DeepFeCA clusters embedded rows ("feca_cluster") follow from the others.
WORDS: Mapping[str, str] = MappingProxyType(
    {
        "keys": "keys of secure sums",
        "describe": "names of columns, numbers of rows and, where the job needs them, means and spread of the columns",
        "names": "names of columns, in hashed form",
        "moments": "means and spread of the columns",
        "known_moments": "known cells of the columns, with their means and spread",
        "scales": "location and spread of the columns",
        "known_scales": "location and spread of the columns, over the known cells",
        "odd_columns": "columns that are unlike those of the other sites: how many sites have such",
        "bins": "numbers of values in bins of the columns",
        "finer_bins": "numbers of values in finer bins of the columns",
        "bounds": "bounds of the columns, from the sites' policies",
        "outline": "noisy number of rows, with noisy sums of their values and squares",
        "second_moments": "noisy number of rows, with noisy sums of their values and products",
        "axes": "noisy numbers of rows in cells along the main axes",
        "shape": "size of the images and number of classes",
        "cluster": "clusters or starting points",
        "fuzzy": "means of fuzzy clusters",
        "sample": "means of clusters in a random sample of the rows",
        "spread": "means and deviations of clusters",
        "spread_counts": "sizes of clusters, asked for before means and deviations",
        "update": "means of clusters",
        "update_counts": "sizes of clusters, asked for before means",
        "train": "weights of the network, with its loss",
        "score": "how well solutions fit",
        "score_inertia": "how well solutions fit, by squared distances",
        "score_silhouette": "how well solutions fit, by squared distances and silhouettes",
        "assess": "the assessment: sizes and sums of distances",
        "place": "numbers of late rows that have got a cluster",
        "profile": "the profiles: means and deviations of clusters",
        "profile_bins": "the profiles: counts in bins",
        "profile_totals_counts": "the profiles: sizes of clusters",
        "profile_totals": "the profiles: means and deviations of clusters, of all sites together",
        "profile_known": "the profiles: means and deviations of known cells",
        "profile_known_bins": "the profiles: known cells in bins",
        "linear_moments": "the linear evaluation: sums of products of the features",
        "linear_gradient": "the linear evaluation: gradients, and numbers of rows that are in the right class",
    }
)


def step_words(step: str) -> str:
    """Return a step in words; a step of a user's own algorithm has none, and is its name without underscores."""
    if step in WORDS:
        return WORDS[step]
    algorithm, _, inner = step.partition("_")
    if inner in WORDS and algorithm in {one.name for one in registry.BUILT_IN}:
        return f"{WORDS[inner]}; of embedded rows, by {algorithm}"
    return step.replace("_", " ")
