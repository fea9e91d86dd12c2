"""Settings that cannot be are refused in words: those that algorithms share by all that have them, then those of each."""

import pytest

from flareclust._foundation.errors import UserError
from flareclust.protocol.registry import algorithms, get

NAN, INFINITE = float("nan"), float("inf")

#: By parameter: values that no algorithm takes that has it, and what is said of them.
SHARED = [
    ("n_init", 0, "n_init must be an integer from 1 to 10000(, or None)?, got 0"),
    ("restarts", 0, "restarts must be an integer from 1 to 10000, got 0"),
    ("restarts", "many", "restarts must be an integer"),
    ("local_iter", 0, "local_iter must be an integer from 1 to 100000, got 0"),
    ("local_iter", True, "local_iter must be an integer"),
    ("max_iter", 0, "max_iter must be an integer from 1 to 100000, got 0"),
    ("min_count", 0, "min_count must be an integer of at least 1, got 0"),
    ("min_count", 1.5, "min_count must be an integer"),
    ("rounds", -1, "rounds must be an integer from [01] to (10000|5000), got -1"),
    ("rounds", 2.5, "rounds must be an integer"),
    ("rounds", True, "rounds must be an integer"),
    ("polish", -1, "polish must be an integer from 0 to 10000, got -1"),
    ("polish", 1.5, "polish must be an integer"),
    ("polish", True, "polish must be an integer"),
    ("tol", -1e-3, "tol must be a number of at least 0, got -0.001"),
    ("tol", NAN, "tol must be a number"),
    ("weighted", 1, "weighted must be true or false"),
    ("greedy", 1, "greedy must be true or false"),
    ("boxes", "yes", "boxes must be true or false"),
    ("choose_k", 1, "choose_k must be true or false"),
    ("clusterer", "kmean", "clusterer must be one of .*did you mean 'kmeans'"),
    ("clusterer", "k-means", "clusterer must be one of .*did you mean 'kmeans'"),
    ("clusterer", 3, "clusterer must be one of kmeans, "),
    ("seeds", "mean", r"seeds must be one of means, rows; got 'mean' \(did you mean 'means'\?\)"),
    ("seeds", "row", r"seeds must be one of means, rows; got 'row' \(did you mean 'rows'\?\)"),
    ("scale", "yes", "scale must be one of none, standard(, robust, range)?; got 'yes'"),
    ("scale", 1, "scale must be one of none, standard(, robust, range)?; got 1"),
    ("phi", "cosin", "phi must be one of euclidean, cosine; got 'cosin' .did you mean 'cosine'"),
    ("phi", "manhattan", "phi must be one of euclidean, cosine"),
    ("k_local", 0, "k_local must be an integer of at least 1(, or None)?, got 0"),
]

#: What else is refused as `start` where it may be centroids.
STARTS = [
    (None, "got None"),
    ([[1.0, 2.0], [3.0]], "got lists of different lengths"),
    ([[0, 1], [2, 3], [4]], "got lists of different lengths"),
    ([[1.0, 2.0]], "got 1, 1 of them different"),
    ([[0, 1], [2, 3]], "got 2, 2 of them different"),
    ([[0, 1], [2, 3], [0, 1]], "got 3, 2 of them different"),
    ([1.0, 2.0], r"got \[1\.0, 2\.0\]"),
    ([0, 1, 2], r"got \[0, 1, 2\]"),
    ([], r"got \[\]"),
    ([[], []], r"got \[\[\], \[\]\]"),
    ([[1.0], [NAN]], "got NaN, infinite or huge values"),
    ([["1"], ["2"]], r"got \[\['1'\], \['2'\]\]"),
    ([[True], [False]], "got "),
    ({"a": 1}, "got "),
]

#: By algorithm.
OWN = [
    *((name, {"rounds": 0}, "rounds must be an integer from 1 to 10000, got 0") for name in ("lloyd", "ffcm", "fkm")),
    ("minibatch", {"rounds": 0}, "rounds must be an integer from 1 to 10000, got 0"),
    ("minibatch", {"batch_size": 10}, "minibatch has no parameter 'batch_size'"),
    ("mavg", {"rounds": 3}, "mavg has no parameter 'rounds'"),
    ("lloyd", {"start": "kmean"}, r"start must be one of .*kmeans.*did you mean 'kmeans'"),
    ("fkm", {"start": "kmean"}, "did you mean 'kmeans'"),
    ("ffcm", {"start": "kmeans++"}, "did you mean 'k-means"),
    ("ffcm", {"fuzzifier": 1}, "fuzzifier must be a number greater than 1, got 1"),
    *(("ffcm", {"fuzzifier": value}, "fuzzifier must be") for value in (0.5, NAN, "2")),
    ("ffcm", {"support": "um2"}, r"support must be one of um, u; got 'um2' \(did you mean 'um'"),
    ("ffcm", {"version": "v3"}, "version must be one of v1, v2; got 'v3'"),
    ("ffcm", {"version": 2}, "version must be one of v1, v2; got 2"),
    ("dkmpp", {"cluster": "kmeans"}, "did you mean 'clusterer'"),
    ("dkmpp", {"clusterer": "spektral"}, "did you mean 'spectral'"),
    ("dkmpp", {"clusterer": 3}, "clusterer must be one of kmeans, spectral, convex"),
    ("pooled", {"weights": True}, "no parameter 'weights'.*did you mean 'weighted'"),
    ("pooled", {"k_min": 1}, "k_min must be an integer of at least 2"),
    ("pooled", {"k_min": 5}, "k_min=5 is more than k=3; give the smaller number"),
    ("pooled", {"k_min": True}, "k_min must be"),
    ("pooled", {"criterion": "silhouete"}, "did you mean 'silhouette'"),
    ("portfolio", {"members": ["feca", "kfedd"]}, "members must be one of .*; got 'kfedd'.*did you mean 'kfed'"),
    ("portfolio", {"members": ["feca", "feca"]}, "members must be a list of different names"),
    ("portfolio", {"members": []}, "members must be a list of different names"),
    ("portfolio", {"members": "feca, feka"}, "members must be one of .*; got 'feka'.*did you mean 'feca'"),
    ("portfolio", {"members": [3]}, "members must be one of"),
    ("portfolio", {"members": [["feca"]]}, "members must be"),
    ("portfolio", {"members": 3}, "members must be a list"),
    ("portfolio", {"members": {"feca": 1}}, "members must be a list"),
    ("masked", {"method": "C"}, "method must be one of auto, A, B"),
    ("masked", {"k_local": 4}, "more than k=3"),
    ("masked", {"k_local": {"site-1": "silhuette"}}, "did you mean 'silhouette'"),
    *(
        ("masked", {"alpha": value}, "alpha must be a number greater than 0 and of at most 1")
        for value in (0, -0.1, 1.0001, NAN, INFINITE, "0.8", None, True)
    ),
    ("proxy", {"distribution": "gausian"}, "distribution must be one of gaussian, dirichlet.*did you mean 'gaussian'"),
    ("proxy", {"covariance": "ledoit_wolf"}, "covariance must be one of .*did you mean 'ledoit-wolf'"),
    ("proxy", {"box": True}, "no parameter 'box'.*did you mean 'boxes'"),
    ("proxy", {"k_local": "auto"}, 'k_local must be an integer, "silhouette"'),
    ("proxy", {"distribution": "dirichlet", "scale": "standard"}, "scale=standard does not go with"),
    ("proxy", {"distribution": "dirichlet", "boxes": True}, "boxes=true does not go with"),
    *(
        ("proxy", {"w": value}, "w must be auto or a number greater than 1 and of at most 20, got")
        for value in (1, 1.0, INFINITE, NAN, "2", 21, True)
    ),
]

#: How `start` is named in each of these sentences.
GIVEN = "start must be one of .*, or k=3 different centroids as lists of as many numbers each; "

CASES = [
    *(
        (name, {key: value}, said)
        for key, value, said in SHARED
        for name in algorithms()
        if key in get(name).parameters()
    ),
    *((name, {"start": start}, GIVEN + said) for start, said in STARTS for name in ("lloyd", "kprototypes", "ffcm")),
    *OWN,
]


@pytest.mark.parametrize(("name", "params", "said"), CASES, ids=[f"{name} {params}" for name, params, _ in CASES])
def test_a_setting_that_cannot_be_is_refused(name, params, said):
    with pytest.raises(UserError, match=said):
        get(name).build(3, 0, params)


@pytest.mark.parametrize("name", algorithms())
def test_a_misspelt_setting_is_refused_with_the_one_that_may_be_meant(name):
    for known in get(name).parameters():
        if len(known) > 1:
            with pytest.raises(UserError, match=rf"{name} has no parameter '{known[:-1]}' \(did you mean '{known}'"):
                get(name).build(3, 0, {known[:-1]: 1})
