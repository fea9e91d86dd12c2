"""Trees of micro-clusters: what leaves a site, the trees of the server against those of the pooled rows, labels."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.cluster import HDBSCAN
from sklearn.datasets import make_circles, make_moons
from sklearn.metrics import adjusted_rand_score

import flareclust
from flareclust._foundation.errors import BadMessage, JobFailed, Refusal, UserError
from flareclust.aggregators import tree as server
from flareclust.aggregators.tree import TreeAggregator
from flareclust.core import density_tree, microaggregation
from flareclust.engines.inprocess import SimulatedSite, answered, run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.evaluation import selection
from flareclust.executors.tree import TreeExecutor
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import get
from flareclust.protocol.replies import SiteReply, accept
from flareclust.protocol.rounds import Round
from flareclust.protocol.rows import SiteContext
from flareclust.protocol.task import StepName, Task
from tests.computed import computed

ASKED = Task(StepName.CLUSTER, 0, {}, "a")


def moons(n=1600, sites=4, noise=0.06):
    X, y = make_moons(n, noise=noise, random_state=0)
    parts = np.array_split(np.random.default_rng(0).permutation(n), sites)
    return {f"s{i}": X[part] for i, part in enumerate(parts)}, {f"s{i}": y[part] for i, part in enumerate(parts)}


def run(sites, k=2, policy=None, **params):
    return run_inprocess(get("tree"), params, sites, JobOptions(k=k), policy=policy)


def upload(X, **params):
    return computed(TreeExecutor(k=2, **params), ASKED, X, np.random.default_rng(0))


def merge(replies, k=2, **params):
    return TreeAggregator(k, **params).merge(Round(), replies, np.random.default_rng(0))


def sent_by(sites, policy=None, **params):
    """What each site sends."""
    algorithm = get("tree")
    held = {} if policy is None else {site: SimulatedSite.of(policy, algorithm) for site in sites}
    executor = TreeExecutor(k=2, **params)
    return {
        site: answered(executor, Task(StepName.CLUSTER, 0, {}, site), X, held.get(site)).arrays
        for site, X in sites.items()
    }


def message(centroids, counts, sse=None):
    centroids = np.array(centroids, dtype=float)
    sse = np.zeros(len(counts)) if sse is None else np.array(sse, dtype=float)
    return {"centroids": centroids, "counts": np.array(counts, dtype=np.int64), "sse": sse}


# ---- the site ----


@pytest.mark.parametrize("group_rows", [5, 10, 20])
def test_an_upload_is_means_rows_and_squares_of_groups_of_at_least_so_many_rows(group_rows):
    X = np.random.default_rng(0).normal(size=(400, 3))
    sent = upload(X, group_rows=group_rows)
    assert group_rows <= sent["counts"].min()
    assert sent["counts"].max() < 3 * group_rows
    total = sent["counts"].sum()
    assert total == 400
    mean = (sent["counts"][:, None] * sent["centroids"]).sum(axis=0) / total
    np.testing.assert_allclose(mean, X.mean(axis=0))
    squares = sent["sse"].sum() + (sent["counts"][:, None] * (sent["centroids"] - mean) ** 2).sum()
    assert squares == pytest.approx(((X - mean) ** 2).sum())


def test_an_upload_is_bounded_whatever_the_rows():
    X = np.random.default_rng(0).normal(size=(3000, 2))
    sent = upload(X, max_groups=20)
    assert len(sent["counts"]) <= 20
    assert sent["counts"].min() >= 150


def test_the_order_of_the_rows_does_not_matter():
    X = np.random.default_rng(1).normal(size=(300, 2))
    order = np.random.default_rng(2).permutation(300)
    for name, value in upload(X).items():
        np.testing.assert_allclose(upload(X[order])[name], value, rtol=1e-9)


def test_rows_far_from_all_others_are_in_no_group_and_have_no_label():
    sites, _ = moons()
    sites["s0"] = np.concatenate([sites["s0"], [[90.0, 90.0], [91.0, 90.0]]])
    assert np.abs(upload(sites["s0"])["centroids"]).max() < 10
    assert run(sites).labels["s0"][-2:].tolist() == [-1, -1]


def test_small_sites_make_one_group_and_those_below_the_floor_refuse():
    X = np.random.default_rng(0).normal(size=(6, 2))
    assert upload(X)["counts"].tolist() == [6]
    with pytest.raises(Refusal, match="no cluster of at least"):
        upload(np.ones((30, 2)))
    with pytest.raises(Refusal, match="fewer rows than min_count=10"):
        upload(X, min_count=10)


def test_a_sum_of_squares_in_one_column_is_rounded_since_rows_could_be_solved_for():
    X = np.column_stack([np.random.default_rng(0).normal(size=200), np.ones(200)])
    sse = upload(X)["sse"]
    digits = sse / 10.0 ** np.floor(np.log10(sse)) * 10
    np.testing.assert_allclose(digits, np.rint(digits), atol=1e-6)


def test_numbers_of_rows_as_multiples_take_the_squares_with_them():
    X = np.random.default_rng(0).normal(size=(200, 2))
    rng = np.random.default_rng(0)
    plain = computed(TreeExecutor(k=2), ASKED, X, rng, context=SiteContext(10))
    rounded = computed(TreeExecutor(k=2), ASKED, X, rng, context=SiteContext(10, round_counts=8))
    scale = np.maximum(np.rint(plain["counts"] / 8) * 8, 16) / plain["counts"]
    np.testing.assert_allclose(rounded["sse"], plain["sse"] * scale)


# ---- the server ----


def test_wards_clusters_are_nearly_those_of_scipy_on_the_pooled_rows():
    rng = np.random.default_rng(4)
    centers = np.array([[0, 0], [0, 8], [8, 0], [8, 8], [20, 0], [20, 9]])
    X = centers[rng.integers(6, size=1200)] + rng.normal(size=(1200, 2))
    parts = np.array_split(rng.permutation(1200), 3)
    found = run({f"s{i}": X[part] for i, part in enumerate(parts)}, k=6)
    labels = np.concatenate([found.labels[f"s{i}"] for i in range(3)])
    pooled = fcluster(linkage(X, "ward"), 6, "maxclust")[np.concatenate(parts)]
    assert adjusted_rand_score(pooled[labels >= 0], labels[labels >= 0]) > 0.95


def test_densities_clusters_are_nearly_those_of_scikit_learn_on_the_pooled_rows():
    sites, _ = moons()
    found = run(sites, shape="density")
    labels, X = (np.concatenate([of[site] for site in sites]) for of in (found.labels, sites))
    pooled = HDBSCAN(min_cluster_size=50, min_samples=40, copy=True).fit(X).labels_
    both = (labels >= 0) & (pooled >= 0)
    assert both.mean() > 0.95
    assert adjusted_rand_score(pooled[both], labels[both]) > 0.95


def test_moons_need_the_density():
    sites, classes = moons()
    for shape, low, high in (("ward", 0.2, 0.9), ("density", 0.95, 1.0)):
        found = run(sites, shape=shape)
        labels, y = (np.concatenate([of[site] for site in sites]) for of in (found.labels, classes))
        assert low < adjusted_rand_score(y[labels >= 0], labels[labels >= 0]) <= high


def test_a_centroid_is_the_mean_of_its_clusters_rows():
    replies = {"a": message([[0.0], [1.0], [50.0]], [10, 30, 20]), "b": message([[52.0], [2.0]], [20, 10])}
    done = merge(replies)
    np.testing.assert_allclose(np.sort(done.task["centroids"][:, 0]), [1.0, 51.0])
    assert done.task["group"].tolist() == [0, 0, 1, 1, 0]
    assert done.done
    assert (done.state.labelled_rows, done.state.noise_rows) == (90, 0)


def test_k_may_be_left_out():
    rng = np.random.default_rng(0)
    corners = np.array([[0, 0], [0, 40], [40, 0], [40, 40], [20, 80]])
    X = np.repeat(corners, 120, axis=0) + rng.normal(size=(600, 2))
    sites = {f"s{i}": part for i, part in enumerate(np.array_split(rng.permutation(X), 3))}
    for shape in ("ward", "density"):
        found = flareclust.run("tree", sites, shape=shape)
        assert (found.centroids_found, found.k) == (5, 5)
        assert not found.warnings
    with pytest.raises(UserError, match="k is not known"):
        flareclust.run("pooled", sites)


@pytest.mark.parametrize("shape", ["ward", "density"])
def test_without_k_no_more_clusters_are_tried_than_there_are_rows(shape):
    X = np.random.default_rng(0).normal(size=(40, 2)) + np.repeat([[0], [30]], 20, axis=0)
    sites = {"a": X[::2], "b": X[1::2]}
    found = flareclust.run("tree", sites, shape=shape, group_rows=3)
    assert found.params["cut"] == "longest"
    assert found.k <= 13
    assert flareclust.run("tree", X, n_sites=2, shape=shape).k <= 8
    with pytest.raises(UserError, match="k=41 is more than the 40 rows of all sites together"):
        flareclust.run("tree", sites, 41, shape=shape)


def rings(n=1500):
    X = make_circles(n, noise=0.04, factor=0.4, random_state=2)[0][np.random.default_rng(0).permutation(n)]
    return {f"s{i}": X[i::4] for i in range(4)}


@pytest.mark.parametrize("sites", [moons()[0], rings()], ids=["moons", "rings"])
def test_of_a_range_the_cut_that_lasts_longest_is_taken_and_not_what_kmeans_prefers(sites):
    found = flareclust.run("tree", sites, "2..8", shape="density")
    assert (found.k, found.centroids_found, found.params["cut"]) == (2, 2, 2)
    assert [record["step"] for record in found.outcome.rounds] == ["cluster", "assess"]
    assert not any("range" in text or "largest" in text for text in found.warnings)
    asked = flareclust.run("tree", sites, "2..8", shape="density", criterion="silhouette")
    assert asked.k > 2  # by the clusters of pooled
    chosen = flareclust.select_k("tree", sites, "2..8", shape="density")
    assert (chosen.k, chosen.criterion, chosen.scores, chosen.best) == (2, "cut", {}, {})
    assert selection.exported_k("tree", "2..8", None, {}) == (8, {"cut": 2})


@pytest.mark.parametrize("shape", ["ward", "density"])
def test_a_range_that_lacks_the_number_says_so(shape):
    rng = np.random.default_rng(0)
    corners = np.array([[0, 0], [0, 40], [40, 0], [40, 40], [20, 80]])
    X = rng.permutation(np.repeat(corners, 120, axis=0) + rng.normal(size=(600, 2)))
    sites = {f"s{i}": X[i::3] for i in range(3)}
    for k, end in (("2..9", ""), ("3..5", "the most that were tried"), ("5..9", "the fewest that were tried")):
        found = flareclust.run("tree", sites, k, shape=shape)
        assert found.k == 5
        assert [text for text in found.warnings if "lasts longest" in text] == (
            [text for text in found.warnings if end in text] if end else []
        )
    below = flareclust.run("tree", sites, "2..3", shape=shape)
    assert below.k <= 3
    with pytest.raises(UserError, match="cut=4 is more than k=3"):
        get("tree").build(3, params={"cut": 4})
    with pytest.raises(UserError, match="one of k, longest or an integer greater than 0"):
        get("tree").build(3, params={"cut": "best"})


def test_a_range_beyond_the_tree_says_how_many_clusters_it_has():
    found = flareclust.run("tree", moons()[0], "60..70", shape="density")
    assert any("where k=60 or more was asked for" in text for text in found.warnings)


def test_more_groups_than_a_tree_takes_are_merged_before(monkeypatch):
    sites, classes = moons(4000)
    trees, made = [], density_tree.density_linkage
    monkeypatch.setattr(density_tree, "density_linkage", lambda *groups: trees.append(groups) or made(*groups))
    run(sites, shape="density")
    monkeypatch.setattr(server, "MOST", 100)
    fewer = run(sites, shape="density")
    (whole, rows, *_), (merged, again, *_) = trees
    assert len(merged) <= 100 < len(whole)
    assert rows.sum() == again.sum()
    labels, y = (np.concatenate([of[site] for site in sites]) for of in (fewer.labels, classes))
    assert adjusted_rand_score(y[labels >= 0], labels[labels >= 0]) > 0.9


def test_fewer_clusters_than_asked_for_and_many_rows_without_a_label_are_said():
    rng = np.random.default_rng(0)
    sites = {"a": rng.normal(size=(200, 2)), "b": rng.normal(size=(200, 2))}
    (said,) = [text for text in run(sites, k=9, shape="density").warnings if "k=9" in text]
    assert "give smaller min_cluster_size" in said
    clumps = [[x + 0.1 * i] for x in (0, 10) for i in range(5)]
    sparse = [[100 * 2.0**i] for i in range(15)]  # the outermost falls off first, one by one
    aggregator = TreeAggregator(2, shape="density")
    done = merge({"a": message(clumps + sparse, [10] * 25)}, shape="density")
    assert aggregator.metrics(done) == {"noise_rows": 150}
    (said,) = aggregator.warnings(done, {"a": {"counts": np.array([200, 50])}})
    assert "60% of the rows are in no cluster" in said
    assert "shape=ward" in said
    _, said = aggregator.warnings(done, {"a": {"counts": np.array([200, 80])}})
    assert "11% of the rows are in no micro-cluster" in said


def test_sites_whose_rows_make_one_micro_cluster_are_said_and_only_such_are_too_few():
    rng = np.random.default_rng(0)
    small = {f"s{i}": rng.normal(size=(6, 2)) for i in range(9)}
    with pytest.raises(JobFailed, match="no site has enough rows for two micro-clusters"):
        run(small)
    found = run({**small, "large": rng.normal(size=(40, 2))})
    assert any("57% of the rows are at sites with a single micro-cluster" in text for text in found.warnings)
    assert not any(
        "single micro-cluster" in text for text in run({**small, "large": rng.normal(size=(80, 2))}).warnings
    )


# ---- labels ----


def test_a_row_has_the_label_of_its_own_group():
    """Of a site's rows so many have each label as its groups of that cluster have rows."""
    sites, _ = moons()
    found = run(sites, shape="density", k=2)
    tree, first = found.arrays, 0
    for site in sites:
        sent = upload(sites[site])
        own = slice(first, first + len(sent["counts"]))
        rows = [int((found.labels[site] == c).sum()) for c in range(-1, 2)]
        outside = len(sites[site]) - int(sent["counts"].sum())
        expected = [int(sent["counts"][tree["group"][own] == c].sum()) + outside * (c < 0) for c in range(-1, 2)]
        assert rows == expected
        first = own.stop


def test_with_a_policy_the_groups_are_those_that_it_shows():
    rows = np.random.default_rng(0).normal(size=(300, 3))
    sites = {"a": rows, "b": rows + 5}
    shown, groups = (
        np.concatenate(parts)
        for parts in list(zip(*microaggregation.microaggregate_with_sources(rows, 10), strict=True))[::2]
    )
    sent = sent_by(sites, policy=Policy(min_count=10))["a"]
    assert sent["counts"].min() >= 10
    np.testing.assert_array_equal(sent["counts"], np.bincount(groups))
    for g in range(len(sent["counts"])):
        np.testing.assert_allclose(sent["centroids"][g], shown[groups == g].mean(axis=0), atol=1e-12)
    larger = sent_by(sites, policy=Policy(min_count=10), group_rows=30)["a"]
    assert larger["counts"].min() >= 30


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_with_a_policy_rows_have_the_label_of_the_nearest_of_their_sites_groups(scale):
    sites, classes = moons(4000)
    found = run(sites, policy=Policy(min_count=10), shape="density", scale=scale)
    labels, y = (np.concatenate([of[site] for site in sites]) for of in (found.labels, classes))
    assert adjusted_rand_score(y[labels >= 0], labels[labels >= 0]) > 0.98


def test_a_late_site_has_the_labels_of_the_nearest_groups():
    sites, classes = moons()
    late, y = sites.pop("s3"), classes["s3"]
    found = run(sites, shape="density")
    executor = TreeExecutor(k=2)
    task = Task(StepName.PLACE, 0, executor.placing(found.arrays), "s3")
    labels = executor.answer(task, late, lambda: False).labels
    assert adjusted_rand_score(y, labels) > 0.95


def test_clusters_that_are_not_there_are_a_bad_message():
    sites, _ = moons()
    found = run(sites)
    task = {name: found.arrays[name] for name in ("centroids", "group", "group_site")}
    executor = TreeExecutor(k=2)
    for wrong in (7, -2):
        spoilt = {**task, "group": np.full_like(task["group"], wrong)}
        with pytest.raises(BadMessage, match="holds values"):
            executor.answer(Task(StepName.ASSESS, 1, spoilt, "s0"), sites["s0"], lambda: False)


def test_rows_that_have_changed_get_the_nearest_centroid_and_a_warning(caplog):
    sites, _ = moons()
    found = run(sites)
    task = {name: found.arrays[name] for name in ("centroids", "group", "group_site")}
    labels = TreeExecutor(k=2).answer(Task(StepName.ASSESS, 1, task, "s0"), sites["s0"][:200], lambda: False).labels
    expected = ((sites["s0"][:200, None] - found.centroids) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(labels, expected)
    assert "labels go by the nearest centroid" in caplog.text


# ---- hostile messages ----


@pytest.mark.parametrize(
    ("spoilt", "problem"),
    [
        ({"sse": [np.nan, 1.0]}, "NaN"),
        ({"sse": [-1.0, 1.0]}, "below 0"),
        ({"counts": [0, 5]}, "below 1"),
        ({"counts": [-3, 5]}, "below 1"),
        ({"counts": [2**50, 5]}, "above"),
        ({"centroids": [[1e200, 0.0], [0.0, 0.0]]}, "beyond"),
    ],
)
def test_an_impossible_group_is_refused_and_the_site_named(spoilt, problem):
    good = message([[0.0, 0.0], [1.0, 1.0]], [10, 12], [1.0, 2.0])
    bad = {**good, **{name: np.array(value, dtype=good[name].dtype) for name, value in spoilt.items()}}
    step = TreeExecutor.steps[StepName.CLUSTER]
    replies, problems, _ = accept(step.schema, {"a": SiteReply(good), "b": SiteReply(bad)}, ["a", "b"])
    assert list(replies) == ["a"]
    assert problem in problems["b"]


def test_more_groups_than_the_job_allows_are_refused():
    limits = TreeAggregator(2, max_groups=3).limits(Round())
    many = message(np.zeros((4, 2)), [10] * 4)
    _, problems, _ = accept(
        TreeExecutor.steps[StepName.CLUSTER].schema, {"a": SiteReply(many)}, ["a"], None, None, limits
    )
    assert "at most 3" in problems["a"]


def test_equal_groups_of_all_sites_and_groups_as_wide_as_all_are_no_fault():
    same = {name: message([[1.0, 2.0]] * 5, [10] * 5) for name in "abc"}
    for shape in ("ward", "density"):
        done = merge(same, k=3, shape=shape)
        assert np.isfinite(done.task["centroids"]).all()
    sites, _ = moons()
    honest = {site: upload(rows) for site, rows in sites.items()}
    wide = {**honest, "x": message([[0.0, 0.0]], [50], [1e12])}
    found, alone = merge(wide, shape="density"), merge(honest, shape="density")
    np.testing.assert_array_equal(found.task["group"][:-1], alone.task["group"])
    assert found.task["group"][-1] == -1  # a group that would swallow the others is in none


# ---- the result ----


def test_the_result_has_no_micro_cluster_of_a_site():
    sites, _ = moons()
    replies = sent_by(sites).values()
    sent = np.concatenate([one["centroids"] for one in replies])
    for shape in ("ward", "density"):
        found = run(sites, shape=shape)
        points, cluster = found.arrays["representatives"], found.arrays["representative_cluster"]
        apart = np.sqrt(((points[:, None] - sent) ** 2).sum(axis=2)).min(axis=1)
        assert apart.min() > 1e-6
        assert np.bincount(cluster[cluster >= 0]).max() <= server.REPRESENTATIVES
        assert found.arrays["representative_rows"].sum() == sum(one["counts"].sum() for one in replies)
        many = [name for name, value in found.arrays.items() if value.shape[:1] == (len(sent),)]
        assert sorted(many) == ["group", "group_site"]  # numbers, without the means


def test_a_cluster_of_one_micro_cluster_is_represented_by_its_centroid():
    done = merge({"a": message([[0.0], [1.0], [50.0]], [10, 30, 20])})
    np.testing.assert_allclose(done.state.representatives, done.task["centroids"])
    assert done.state.representative_cluster.tolist() == [0, 1]


def test_new_rows_belong_to_the_nearest_representative_and_not_to_the_nearest_centroid():
    sites, _ = moons()
    found = flareclust.run("tree", sites, k=2, shape="density", scale="standard")
    new, y = make_moons(600, noise=0.06, random_state=1)
    labels = found.predict(new)
    assert adjusted_rand_score(y[labels >= 0], labels[labels >= 0]) > 0.95
    own, rows = (np.concatenate([of[site] for site in sites]) for of in (found.site_labels, sites))
    assert (found.predict(rows) == own).mean() > 0.95
    assert found.predict([[90.0, 90.0]]).tolist() == [-1]


def test_placements_are_by_the_nearest_representative_of_each_cluster():
    sites, _ = moons()
    found = flareclust.run("tree", sites, k=2, shape="density", scale="standard")
    rows = np.concatenate([sites["s0"], [[90.0, 90.0]]])
    table, arrays = found.placements(rows), found.arrays
    np.testing.assert_array_equal(table["cluster"], found.predict(rows))
    scaled = (rows - arrays["mean"]) / arrays["deviation"]
    apart = np.sqrt(((scaled[:, None] - arrays["representatives"]) ** 2).sum(axis=2))
    of_cluster = np.stack([apart[:, arrays["representative_cluster"] == c].min(axis=1) for c in (0, 1)])
    np.testing.assert_allclose(table["distance"], of_cluster.min(axis=0))
    np.testing.assert_allclose(table["second_distance"], of_cluster.max(axis=0))
    np.testing.assert_array_equal(table["second"], of_cluster.argmax(axis=0))
    assert table["far"].tolist()[-1]
    assert not table["far"][:-1].mean() > 0.02


def test_a_result_has_no_model_of_centroids_to_export(tmp_path):
    found = flareclust.run("tree", moons()[0], k=2)
    with pytest.raises(UserError, match="no model for tree"):
        found.export(tmp_path / "model.skops")


def test_clusters_keep_the_numbers_of_an_earlier_result():
    sites, _ = moons()
    first = flareclust.run("tree", sites, k=2, shape="density")
    rows = np.concatenate(list(sites.values()))
    order = dict(reversed(list(sites.items())))
    again = flareclust.run("tree", {f"t{i}": X for i, X in enumerate(order.values())}, k=2, shape="density").match_to(
        first
    )
    assert (again.predict(rows) == first.predict(rows)).mean() > 0.95
