"""What every algorithm promises, as functions that anyone can call on an algorithm of their own.

    from flareclust.checks import check_algorithm
    check_algorithm(my_algorithm)          # an Algorithm, as in the registry

`ALWAYS` hold for every federated algorithm; those of `PROMISES` for the algorithms that name them in their registry
line. A check raises `PromiseBroken`, which says what was promised and what happened.
"""

from collections.abc import Callable, Iterator, Mapping
from inspect import signature
from itertools import product
from typing import Any

import numpy as np

from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.errors import Aborted, Refusal
from flareclust.executors.base import CLUSTER, Task
from flareclust.message import SECONDS, nbytes
from flareclust.metrics import pooled_label_free
from flareclust.outcome import Outcome
from flareclust.registry import Algorithm
from flareclust.replies import SiteReply, accept
from flareclust.seeding import stream
from flareclust.typing import FloatArray, Message, never

Check = Callable[[Algorithm], None]


class PromiseBroken(AssertionError):
    """An algorithm does not do what it promises."""


def check_algorithm(algorithm: Algorithm) -> None:
    """Check every promise of an algorithm; raise `PromiseBroken` at the first that does not hold."""
    for _, check in checks_for(algorithm):
        check(algorithm)


def checks_for(algorithm: Algorithm) -> Iterator[tuple[str, Check]]:
    """Yield the name and the function of every check that applies to an algorithm."""
    if not algorithm.federated:
        return
    yield from ((check.__name__.removeprefix("check_"), check) for check in ALWAYS)
    for promise in sorted(algorithm.promises):
        if promise not in PROMISES:
            raise PromiseBroken(f"{algorithm.name} promises {promise!r}, which no check knows: {sorted(PROMISES)}")
        yield promise, PROMISES[promise]


# ---- federations to try algorithms on ----


def blobs(k: int, d: int, per_cluster: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return well separated round clusters: rows (k * per_cluster, d) in the clusters' order, centers (k, d)."""
    corners = np.array(list(product((-10.0, 10.0), repeat=d)))
    if k > len(corners):
        raise ValueError(f"at most {len(corners)} separated clusters in {d} dimensions")
    centers = corners[rng.permutation(len(corners))[:k]]
    rows = np.repeat(centers, per_cluster, axis=0)
    return rows + rng.normal(size=rows.shape), centers


def iid_sites(m: int = 4, k: int = 4, d: int = 3, seed: int = 0) -> tuple[dict[str, FloatArray], FloatArray]:
    """Return m sites (n_i, d) that all see all k clusters, and the clusters' centers (k, d)."""
    rng = np.random.default_rng(seed)
    rows, centers = blobs(k, d, 60 * m, rng)
    order = rng.permutation(len(rows))
    return {f"site-{i + 1}": rows[part] for i, part in enumerate(np.array_split(order, m))}, centers


def _run(algorithm: Algorithm, sites: Mapping[str, FloatArray], k: int, seed: int = 0, **params: Any) -> Outcome:
    return run_inprocess(algorithm, params, sites, JobOptions(k=k, seed=seed))


def _first_reply(algorithm: Algorithm, rows: FloatArray, k: int, **params: Any) -> Message:
    """Return what a site with these rows sends first, or raise its Refusal."""
    executor, aggregator = algorithm.build(k, 0, params)
    task = Task(CLUSTER, 0, dict(aggregator.begin().task), "site-1")
    arrays = dict(executor.answer(task, rows, never).arrays)
    arrays.pop(SECONDS)
    return arrays


def _ensure(condition: bool, algorithm: Algorithm, text: str) -> None:
    if not condition:
        raise PromiseBroken(f"{algorithm.name}: {text}")


# ---- promises of all ----


def check_arguments_survive(algorithm: Algorithm) -> None:
    """Constructor arguments are attributes of the same name, and none has a name that NVFlare takes for its own."""
    for side in algorithm.build(3):
        for name in signature(type(side)).parameters:
            _ensure(hasattr(side, name), algorithm, f"{type(side).__name__} does not keep its argument {name!r}")
            _ensure(name not in ("name", "path", "class_path"), algorithm, f"an argument may not be called {name!r}")


def check_both_sides_agree(algorithm: Algorithm) -> None:
    """Both sides use one schema, and what a site sends fits it."""
    executor, aggregator = algorithm.build(4)
    _ensure(executor.reply is aggregator.reply, algorithm, "executor and aggregator have different schemas")
    sites, _ = iid_sites()
    executor.reply.check(_first_reply(algorithm, sites["site-1"], k=4), {"d": 3})


def check_same_seed_same_centroids(algorithm: Algorithm) -> None:
    """The same seed gives the same bits, in whatever order the sites are listed."""
    rng = np.random.default_rng(0)  # without clusters, so that every random choice shows
    sites = {f"site-{i}": rng.normal(size=(80, 3)) for i in range(4)}
    first = _run(algorithm, sites, k=4, seed=7)
    again = _run(algorithm, dict(reversed(sites.items())), k=4, seed=7)
    _ensure(np.array_equal(first.centroids, again.centroids), algorithm, "the order of the sites changed the result")


def check_result_is_finite_and_at_most_k(algorithm: Algorithm) -> None:
    """There are 1 to k finite centroids with the data's columns."""
    sites, _ = iid_sites()
    for k in (1, 2, 4, 7):
        centroids = _run(algorithm, sites, k=k).centroids
        shape = centroids.shape
        _ensure(1 <= shape[0] <= k and shape[1] == 3, algorithm, f"k={k} gave centroids of shape {shape}")
        _ensure(bool(np.isfinite(centroids).all()), algorithm, f"k={k} gave NaN or infinite centroids")


def check_nothing_sent_is_a_row(algorithm: Algorithm) -> None:
    """No vector that leaves a site equals a row of its data, however odd the data are."""
    rng = np.random.default_rng(1)
    ordinary = rng.normal(size=(50, 3))
    lonely = np.concatenate([ordinary, 1e3 * np.eye(3)])
    repeated = np.concatenate([ordinary, np.full((20, 3), 99.0)])
    # k-means stops on its tolerance here, just when a row has joined another one that was alone until then.
    crowd = np.random.default_rng(32).uniform(-3, 3, 1001)
    joined = np.tile(np.concatenate([crowd, [30.8, 60.0]])[:, None], 3)
    whole = np.repeat(np.arange(9.0)[:, None], 3, axis=1) + np.repeat([0.0, 90.0, 900.0], 3)[:, None]
    odd = (ordinary, lonely, repeated, repeated[-20:], ordinary[:5], joined, whole)
    for rows, min_count, k in product(odd, (1, 2), (3, 5)):
        try:
            reply = _first_reply(algorithm, rows, k=k, min_count=min_count)
        except Refusal:
            continue
        for name, field in algorithm.executor_class().reply.fields.items():
            if field.axes[-1:] == ("d",):
                vectors = reply[name].reshape(-1, rows.shape[1])
                gap = np.abs(vectors[:, None] - rows[None]).max(axis=2).min(initial=np.inf)
                _ensure(bool(gap > 1e-12), algorithm, f"{name} holds a row of the site's data")


def check_small_clusters_stay(algorithm: Algorithm) -> None:
    """Clusters below min_count never leave a site."""
    rng = np.random.default_rng(2)
    far = 1e4 + rng.normal(size=(4, 3))
    rows = np.concatenate([rng.normal(size=(60, 3)), far])
    reply = _first_reply(algorithm, rows, k=3, min_count=5)
    if "counts" in reply:
        _ensure(bool(reply["counts"].min() >= 5), algorithm, "a cluster below min_count=5 was sent")
    if "centroids" in reply:
        reach = np.abs(reply["centroids"]).max()
        _ensure(bool(reach < 5e3), algorithm, "the centroid of four rows was sent although min_count=5")


def check_size_does_not_grow_with_rows(algorithm: Algorithm) -> None:
    """A reply of ten times as many rows is not longer than k allows."""
    rng = np.random.default_rng(3)
    few, many = (nbytes(_first_reply(algorithm, rng.normal(size=(n, 3)), k=4)) for n in (100, 1000))
    _ensure(many <= 2 * few, algorithm, f"100 rows sent {few} bytes, 1000 rows {many}")


def check_bad_site_is_left_out(algorithm: Algorithm) -> None:
    """A site with NaN is named and changes nothing for the others."""
    sites, _ = iid_sites(m=5)
    without = _run(algorithm, {site: rows for site, rows in sites.items() if site != "site-3"}, k=4)
    broken = sites["site-3"].copy()
    broken[4, 1] = np.nan
    outcome = _run(algorithm, sites | {"site-3": broken}, k=4)
    _ensure(list(outcome.refused) == ["site-3"], algorithm, f"refused {outcome.refused} instead of site-3 alone")
    same = np.array_equal(outcome.centroids, without.centroids)
    _ensure(same, algorithm, "a refused site changed the others' result")


def check_bad_replies_are_named(algorithm: Algorithm) -> None:
    """A reply with missing, extra, mistyped, misshapen or infinite arrays is refused by the site's name."""
    sites, _ = iid_sites(m=2)
    schema = algorithm.executor_class().reply
    good = _first_reply(algorithm, sites["site-1"], k=4)
    for name, value in good.items():
        spoilt = value.astype(np.float64)
        spoilt.flat[0] = np.nan
        mutants: list[Any] = [
            {other: array for other, array in good.items() if other != name},
            good | {"rows": np.zeros(3)},
            good | {name: value.astype(np.complex128)},
            good | {name: value[..., None]},
            good | {name: spoilt},
            good | {name: value.tolist()},
            good | {name: [[1.0], [1.0, 2.0]]},
            good | {1: value},
            good | {name: np.full(value.shape, 1e200)},
        ]
        for mutant in mutants:
            answers = {"site-1": SiteReply(good), "site-2": SiteReply(mutant)}
            replies, problems, _ = accept(schema, answers, list(answers))
            named = list(replies) == ["site-1"] and list(problems) == ["site-2"]
            _ensure(named, algorithm, f"a spoilt {name!r} was not refused: {problems}")


def check_degenerate_sites(algorithm: Algorithm) -> None:
    """One row, repeated rows, a constant column, fewer rows than k: a defined reply or a refusal, and never NaN."""
    rng = np.random.default_rng(4)
    sites, _ = iid_sites(m=4)
    flat = rng.normal(size=(40, 3))
    flat[:, 1] = 5.0
    odd = {
        "one row": rng.normal(size=(1, 3)),
        "no rows": np.empty((0, 3)),
        "one row repeated": np.full((30, 3), 2.5),
        "two rows repeated": np.repeat(rng.normal(size=(2, 3)), 15, axis=0),
        "a constant column": flat,
        "fewer rows than k": rng.normal(size=(3, 3)),
        "huge values": 1e150 * rng.normal(size=(40, 3)),
        "tiny values": 1e-150 * rng.normal(size=(40, 3)),
    }
    for what, rows in odd.items():
        outcome = _run(algorithm, sites | {"site-odd": rows}, k=4)
        finite = bool(np.isfinite(outcome.centroids).all())
        _ensure(finite, algorithm, f"a site with {what} led to centroids that are not finite")
        others = set(outcome.refused) - {"site-odd"}
        _ensure(not others, algorithm, f"a site with {what} led to the refusal of {others}")


def check_abort_stops(algorithm: Algorithm) -> None:
    """A site that is told to stop does."""
    sites, _ = iid_sites()
    executor, aggregator = algorithm.build(4)
    task = Task(CLUSTER, 0, dict(aggregator.begin().task), "site-1")
    try:
        executor.local(task, sites["site-1"], stream(0, 0, "site-1"), lambda: True)
    except Aborted:
        return
    raise PromiseBroken(f"{algorithm.name}: local() went on to the end although aborted() was true")


def check_assessment_equals_pooled(algorithm: Algorithm) -> None:
    """Inertia, simplified silhouette and Davies-Bouldin equal those of the pooled rows to 1e-9."""
    sites, _ = iid_sites()
    outcome = _run(algorithm, sites, k=4)
    pooled = np.concatenate(list(sites.values()))
    for name, value in pooled_label_free(pooled, outcome.centroids).items():
        found = outcome.metrics[name]
        equal = found is value is None or bool(np.isclose(found, value, rtol=1e-9, atol=0))  # type: ignore[arg-type]
        _ensure(equal, algorithm, f"{name} is {found} from the sites' sums and {value} on the pooled rows")


ALWAYS: tuple[Check, ...] = (
    check_arguments_survive,
    check_both_sides_agree,
    check_same_seed_same_centroids,
    check_result_is_finite_and_at_most_k,
    check_nothing_sent_is_a_row,
    check_small_clusters_stay,
    check_size_does_not_grow_with_rows,
    check_bad_site_is_left_out,
    check_bad_replies_are_named,
    check_degenerate_sites,
    check_abort_stops,
    check_assessment_equals_pooled,
)

# ---- promises of some ----


def check_one_shot(algorithm: Algorithm) -> None:
    """One exchange is enough."""
    sites, _ = iid_sites()
    rounds = _run(algorithm, sites, k=4).n_rounds
    _ensure(rounds == 1, algorithm, f"took {rounds} rounds")


def check_recovers_iid(algorithm: Algorithm) -> None:
    """Separated clusters that every site sees are found, each center within the standard error of some sites."""
    for seed in range(5):
        sites, centers = iid_sites(m=5, k=5, seed=seed)
        _ensure_found(algorithm, _run(algorithm, sites, k=5, seed=seed).centroids, centers)


def check_recovers_non_iid(algorithm: Algorithm) -> None:
    """Separated clusters are found where no site sees more than two of six."""
    for seed in range(5):
        rows, centers = blobs(6, 3, 120, np.random.default_rng(seed))
        cluster = np.repeat(np.arange(6), 120)
        pairs = [(0, 1), (2, 3), (4, 5), (1, 2), (3, 4)]
        sites = {f"site-{i + 1}": rows[np.isin(cluster, pair)] for i, pair in enumerate(pairs)}
        _ensure_found(algorithm, _run(algorithm, sites, k=6, seed=seed, **_few(algorithm, 2)).centroids, centers)


def _few(algorithm: Algorithm, k_local: int) -> dict[str, int]:
    """Return the setting that tells sites how many clusters they have, for algorithms that have one."""
    return {"k_local": k_local} if "k_local" in algorithm.parameters() else {}


def check_uneven_k(algorithm: Algorithm) -> None:
    """Sites may look for different numbers of clusters, given by name in the setting `k_local`."""
    rows, centers = blobs(4, 3, 100, np.random.default_rng(0))
    sites = {"a": rows[:100], "b": rows[100:400], "c": rows[:200]}
    outcome = _run(algorithm, sites, k=4, k_local={"a": 1, "b": 3, "c": 2})
    _ensure_found(algorithm, outcome.centroids, centers)


def check_small_sites(algorithm: Algorithm) -> None:
    """A site with fewer rows than k takes part."""
    sites, _ = iid_sites(m=4)
    small = np.random.default_rng(0).normal(size=(6, 3))
    outcome = _run(algorithm, sites | {"site-small": small}, k=8)
    _ensure(not outcome.refused, algorithm, f"refused {outcome.refused}")


def check_translation(algorithm: Algorithm) -> None:
    """Moving all rows moves the centroids with them."""
    sites, _ = iid_sites()
    shift = np.array([100.0, -50.0, 25.0])
    here = _run(algorithm, sites, k=4).centroids
    there = _run(algorithm, {site: rows + shift for site, rows in sites.items()}, k=4).centroids
    _ensure(bool(np.allclose(there - shift, here, atol=1e-9)), algorithm, "the centroids did not move with the rows")


def _ensure_found(algorithm: Algorithm, centroids: FloatArray, centers: FloatArray) -> None:
    """Ensure a centroid within 0.5 of every center, where clusters have standard deviation 1 and stand 20 apart."""
    gaps = np.linalg.norm(centers[:, None] - centroids[None], axis=2).min(axis=1)
    _ensure(bool(gaps.max() < 0.5), algorithm, f"a cluster was missed by {gaps.max():.2f}")


PROMISES: dict[str, Check] = {
    "one-shot": check_one_shot,
    "recovers-iid": check_recovers_iid,
    "recovers-non-iid": check_recovers_non_iid,
    "uneven-k": check_uneven_k,
    "small-sites": check_small_sites,
    "translation": check_translation,
}
