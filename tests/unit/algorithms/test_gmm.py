"""Gaussian mixtures over sites: as on the pooled rows, from any start, under options, and what is said where they may be wrong."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

import flareclust
from flareclust._foundation.errors import JobFailed, UserError
from flareclust.aggregators.gmm import GMMAggregator, GMMState
from flareclust.core import mixtures
from flareclust.core.mixtures import Mixture
from flareclust.executors.gmm import EXPECTATION, FIT, FIT_DIAGONAL, GMMExecutor
from flareclust.protocol.registry import get
from flareclust.protocol.replies import SiteReply, accept
from flareclust.protocol.rounds import Round
from flareclust.testing.tools import exchanges, run
from tests.examples import examples

KINDS = ("full", "tied", "diag", "spherical")
GMM = get("gmm")


def stretched(rng, n=300, d=3, k=3, apart=4.0):
    """Return rows of stretched components and the component of each."""
    labels = np.repeat(np.arange(k), n)
    axes = rng.normal(size=(k, d, d))
    rows = apart * np.arange(k)[:, None].repeat(n, axis=0) + np.einsum(
        "nd,nde->ne", rng.normal(size=(k * n, d)), axes[labels]
    )
    order = rng.permutation(k * n)
    return rows[order], labels[order]


def split(X, m=4):
    return {f"site-{i}": part for i, part in enumerate(np.array_split(X, m))}


def by_type(covariances, kind):
    """Return the covariances of a result in the shape that scikit-learn has for their type."""
    return {"full": covariances, "tied": covariances[0], "diag": covariances, "spherical": covariances[:, 0]}[kind]


def pooled(X, result, kind, iterations):
    """Return scikit-learn's mixture on the pooled rows from the start of a result of one iteration less than none."""
    start = mixtures.received_mixture(result, kind)
    precisions = 1 / start.covariances if start.factors.ndim == 2 else np.linalg.inv(start.covariances)
    own = {"weights_init": start.weights / start.weights.sum(), "means_init": start.means}
    theirs = GaussianMixture(
        len(start.means), covariance_type=kind, tol=0, max_iter=iterations, precisions_init=by_type(precisions, kind),
        init_params="random", **own,
    )  # fmt: skip
    with pytest.warns(UserWarning, match="did not converge"):
        return theirs.fit(X)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("partition", ["iid", "sorted"])
def test_it_is_scikit_learns_mixture_of_the_pooled_rows_from_the_same_start(kind, partition, rng):
    X, y = stretched(
        rng, apart=4.0 if partition == "iid" else 20.0
    )  # in the one each site has rows of all, in the other of two
    parts = split(X if partition == "iid" else X[np.argsort(y, kind="stable")], 5)
    seen = exchanges(GMM, parts, k=3, covariance=kind, rounds=12, tol=0.0, min_count=1)
    start = next(one.task.arrays for one in seen if one.task.step == EXPECTATION)
    found = run(GMM, parts, k=3, covariance=kind, rounds=12, tol=0.0, min_count=1)
    theirs = pooled(X, start, kind, 12)
    np.testing.assert_allclose(found.arrays["weights"], theirs.weights_, atol=1e-5)
    np.testing.assert_allclose(found.centroids, theirs.means_, atol=1e-5)
    np.testing.assert_allclose(by_type(found.arrays["covariances"], kind), theirs.covariances_, atol=1e-5)
    assert found.metrics["log_likelihood"] == pytest.approx(theirs.score(X), abs=1e-6)
    assert found.metrics["bic"] == pytest.approx(theirs.bic(X), rel=1e-6)
    np.testing.assert_array_equal(
        np.concatenate([found.labels[site] for site in parts]), theirs.predict(np.concatenate(list(parts.values())))
    )


def test_it_is_near_that_where_sites_hold_back_what_is_of_single_rows(rng):
    """Components overlap, and most sites have a few rows only that could be of the other ones."""
    X, y = stretched(rng)
    parts = split(X[np.argsort(y, kind="stable")], 5)
    found, mixed = (run(GMM, rows, k=3, tol=1e-8).arrays for rows in (parts, split(X, 5)))
    likelihoods = [mixtures.log_densities(X, arrays).mean() for arrays in (found, mixed)]
    assert likelihoods[1] - 0.01 < likelihoods[0] <= likelihoods[1] + 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_the_likelihood_does_not_fall(kind, rng):
    X, _ = stretched(rng)
    values = [
        record["diagnostics"]["log_likelihood"]
        for record in run(GMM, split(X), k=4, covariance=kind, tol=0.0, rounds=15).rounds
        if record["step"] == EXPECTATION
    ]
    assert len(values) == 16
    assert min(np.diff(values)) > -1e-9


def test_a_tolerance_ends_the_iterations(rng):
    X, _ = stretched(rng)
    few, many = (run(GMM, split(X), k=3, tol=tol) for tol in (1e-2, 1e-7))
    assert few.n_rounds < many.n_rounds < 100
    assert few.metrics["log_likelihood"] <= many.metrics["log_likelihood"]


def test_scaled_columns_give_covariances_in_the_units_of_the_columns(rng):
    X, _ = stretched(rng)
    units = np.array([1.0, 1e3, 1e-2])
    plain, other = (flareclust.run("gmm", split(rows), k=3, scale="standard", tol=1e-9) for rows in (X, X * units))
    np.testing.assert_allclose(other.centroids, plain.centroids * units, rtol=1e-5)
    np.testing.assert_allclose(
        other.arrays["covariances"], plain.arrays["covariances"] * np.outer(units, units), rtol=1e-4
    )
    labels = mixtures.responsibilities(X, plain.arrays | {"centroids": plain.centroids}).argmax(axis=1)
    np.testing.assert_array_equal(plain.labels, labels)


@pytest.mark.parametrize("kind", KINDS)
def test_secure_sums_give_the_same_mixture_from_the_same_start(kind, rng):
    X, _ = stretched(rng)
    start = [[0.0] * 3, [4.0] * 3, [8.0] * 3]
    plain, secure = (
        flareclust.run("gmm", split(X), k=3, covariance=kind, start=start, secure_sums=secure)
        for secure in (False, True)
    )
    np.testing.assert_allclose(secure.centroids, plain.centroids, atol=1e-9)
    np.testing.assert_allclose(secure.arrays["covariances"], plain.arrays["covariances"], atol=1e-9)


def test_secure_sums_find_a_start_of_their_own(rng):
    X, y = stretched(rng)
    found = flareclust.run("gmm", split(X), k=3, secure_sums=True)
    assert found.centroids_found == 3
    assert adjusted_rand_score(y, found.labels) > 0.9


def test_stretched_components_are_found_where_k_means_finds_none(rng):
    y = np.repeat([0, 1], 400)
    X = np.stack([rng.normal(0, 20, 800), rng.normal(0, 1, 800) + 8 * y], axis=1)
    order = rng.permutation(800)
    found = flareclust.run("gmm", split(X[order]), k=2, start=[[-1.0, 0.0], [1.0, 8.0]], tol=1e-6)
    assert adjusted_rand_score(y[order], found.labels) > 0.95
    assert adjusted_rand_score(y[order], flareclust.run("portfolio", split(X[order]), k=2).labels) < 0.1


@pytest.mark.parametrize("criterion", ["bic", "icl"])
def test_a_criterion_chooses_the_number_of_components(criterion, rng):
    X = np.concatenate([rng.normal(c, 1.0, (150, 2)) for c in (0, 8, 16)])
    outcome = run(GMM, split(X[rng.permutation(450)]), k=5, k_min=1, k_criterion=criterion)
    assert len(outcome.centroids) == 3
    values = outcome.arrays["tried"]
    assert len(values) == 5
    assert values.argmin() == 2
    assert outcome.metrics[criterion] == pytest.approx(values[2])
    alone = run(GMM, split(X), k=3)
    assert outcome.metrics["bic"] == pytest.approx(alone.metrics["bic"], rel=1e-3)


def test_under_a_policy_weights_are_multiples_and_the_mixture_is_near(rng):
    X, _ = stretched(rng, n=1000)
    plain, policed = (
        flareclust.run("gmm", split(X), k=3, covariance="diag", policy=policy, start=[[0.0] * 3, [4.0] * 3, [8.0] * 3])
        for policy in (None, {"min_count": 10, "round_counts": 5})
    )
    assert (policed.arrays["support"] % 5 == 0).all()
    np.testing.assert_allclose(policed.centroids, plain.centroids, atol=0.3)
    np.testing.assert_allclose(policed.arrays["covariances"], plain.arrays["covariances"], rtol=0.3)


def test_a_likelihood_without_the_components_that_sites_hold_back_says_so(rng):
    X, y = stretched(rng, apart=3.0)
    parts = split(X[np.argsort(y, kind="stable")], 5)
    for more in ({}, {"k_min": 3}):
        held, all_described = (flareclust.run("gmm", rows, k=3, **more) for rows in (parts, split(X, 5)))
        real = mixtures.log_densities(X, held.arrays | {"centroids": held.centroids}).mean()
        assert held.metrics["log_likelihood"] < real - 1e-3
        assert any("that of your mixture is above log_likelihood" in text for text in held.warnings)
        assert not any("hold components back" in text for text in all_described.warnings)


# ---- mixtures of the sites as the start ----


@pytest.mark.parametrize("kind", KINDS)
def test_mixtures_of_the_sites_make_one_in_one_message(kind, rng):
    X, y = stretched(rng, n=600, d=2, apart=12.0)
    seen = exchanges(GMM, split(X), k=3, covariance=kind, start="mixtures", rounds=0)
    assert [one.task.step for one in seen if one.task.site == "site-0"] == [
        FIT if kind in ("full", "tied") else FIT_DIAGONAL,
        EXPECTATION,
    ]
    found = run(GMM, split(X), k=3, covariance=kind, start="mixtures", rounds=0)
    pooled_mixture = GaussianMixture(3, covariance_type=kind, n_init=3, random_state=0).fit(X)
    assert found.metrics["log_likelihood"] == pytest.approx(pooled_mixture.score(X), abs=0.03)
    assert adjusted_rand_score(y, np.concatenate([found.labels[site] for site in split(X)])) > 0.97
    assert found.n_rounds == 2


def test_a_site_sends_the_mixture_that_scikit_learn_fits_to_its_rows(rng):
    X, _ = stretched(rng, n=500, d=2, k=2, apart=15.0)
    (sent,) = (
        one.arrays
        for one in exchanges(GMM, {"a": X}, k=2, start="mixtures", rounds=0, tol=1e-9)
        if one.task.step == FIT
    )
    theirs = GaussianMixture(2, tol=1e-9, max_iter=500, means_init=sent["centroids"]).fit(X)
    np.testing.assert_allclose(sent["weights"] / sent["weights"].sum(), theirs.weights_, atol=1e-5)
    np.testing.assert_allclose(sent["centroids"], theirs.means_, atol=1e-4)
    np.testing.assert_allclose(sent["m2"] / sent["weights"][:, None, None], theirs.covariances_, atol=1e-3)


def test_iterations_go_on_from_the_sites_mixtures_to_the_pooled_optimum(rng):
    long = np.concatenate([rng.normal([0, y], [12, 1], (400, 2)) for y in (0, 6, 12)])
    parts = split(long[rng.permutation(1200)])
    usual, found = (run(GMM, parts, k=3, start=start, tol=1e-5) for start in ("kmeans", "mixtures"))
    theirs = GaussianMixture(3, tol=1e-5, means_init=[[0, 0], [0, 6], [0, 12]], max_iter=300).fit(long)
    assert found.metrics["log_likelihood"] == pytest.approx(theirs.score(long), abs=1e-3)
    assert usual.metrics["log_likelihood"] < found.metrics["log_likelihood"] - 0.1


def test_a_number_of_components_is_chosen_from_the_sites_mixtures(rng):
    X = np.concatenate([rng.normal(c, 1.0, (300, 2)) for c in (0, 8, 16)])
    found = run(GMM, split(X[rng.permutation(900)]), k=5, k_min=1, start="mixtures", rounds=0)
    assert len(found.centroids) == 3
    assert found.arrays["tried"].argmin() == 2


def test_drawn_rows_have_the_moments_of_the_components(rng):
    covariance, weights = np.array([[[4.0, 3.0], [3.0, 9.0]]]), np.array([20_000.0])
    drawn = mixtures.drawn_rows(weights, np.array([[5.0, -5.0]]), covariance * weights, 0.0, rng)
    assert drawn.shape == (20_000, 2)
    np.testing.assert_allclose(drawn.mean(axis=0), [5, -5], atol=0.1)
    np.testing.assert_allclose(np.cov(drawn.T), covariance[0], atol=0.3)
    odd = mixtures.drawn_rows(np.ones(2), np.eye(2), np.array([[[-9.0, 5.0], [1.0, 0.0]]] * 2), 1e-6, rng)
    assert np.isfinite(odd).all()


def test_no_iterations_are_for_mixtures_of_sites_that_secure_sums_do_not_send():
    with pytest.raises(UserError, match="rounds=0 is for start=mixtures"):
        GMM.build(3, 0, {"rounds": 0})
    with pytest.raises(UserError, match="start=mixtures needs the sites' own mixtures"):
        GMM.build(3, 0, {"start": "mixtures"})[1].secured()


# ---- sums that are of no rows ----


LIES = {
    "negative m2": lambda r: {**r, "m2": -100 * r["m2"]},
    "m2 below what shifts take": lambda r: {**r, "shifts": 1e3 * r["shifts"]},
    "more rows than there are": lambda r: {**r, "weights": 1e13 * r["weights"]},
    "a likelihood of no rows": lambda r: {name: 0 * r[name] for name in r} | {"log_likelihood": np.array(-5.0)},
    "shifts of no rows": lambda r: {**r, "weights": 0 * r["weights"], "log_likelihood": np.array(0.0)},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lie", LIES)
def test_a_site_whose_sums_are_of_no_rows_is_left_out_by_its_name(lie, kind, rng, monkeypatch):
    X, _ = stretched(rng, n=80)
    sites, honest = split(X), GMMExecutor.expect

    def expect(self, task, rows):
        reply = honest(self, task, rows)
        return LIES[lie](reply) if task.site == "site-1" else reply

    monkeypatch.setattr(GMMExecutor, "expect", expect)
    found = flareclust.run("gmm", sites, k=3, covariance=kind, start=[[0.5] * 3, [4.5] * 3, [8.5] * 3])
    assert list(found.left_out) == ["site-1"]
    assert "expected" in found.left_out["site-1"]


NUMBERS = st.floats(-1e3, 1e3) | st.sampled_from([0.0, 1e9, -1e9, 1e139])


@settings(max_examples=examples(200), deadline=None)
@given(kind=st.sampled_from(KINDS), k=st.integers(1, 3), d=st.integers(1, 3), data=st.data())
def test_whatever_sums_come_they_make_a_mixture_or_only_their_sender_is_refused(kind, k, d, data):
    t = mixtures.n_second_moments(kind, k, d)
    lie = {name: data.draw(hnp.arrays(float, size, elements=NUMBERS)) for name, size in
           (("weights", k), ("shifts", (d, k)), ("m2", t), ("log_likelihood", ()), ("entropy", ()))}  # fmt: skip
    lie = {**lie, "weights": np.abs(lie["weights"]), "entropy": np.abs(lie["entropy"])}
    factors = np.ones((k, d)) if kind in ("diag", "spherical") else np.tile(np.eye(d), (k, 1, 1))
    before = Mixture(np.full(k, 1 / k), np.zeros((k, d)), factors)
    own = mixtures.expectation(np.random.default_rng(k).normal(size=(90, d)), before, kind)
    honest = {"weights": own.weights, "shifts": np.ascontiguousarray(own.shifts.T), "m2": mixtures.packed(own.m2, kind),
              "log_likelihood": np.array(own.log_likelihood), "entropy": np.array(own.entropy)}  # fmt: skip
    answers = {"honest": SiteReply(honest), "lying site": SiteReply(lie)}
    replies, problems, _ = accept(
        GMMExecutor.steps[EXPECTATION].schema, answers, list(answers), {"t": t, "K": k}, limits={"k": k, "d": d}
    )
    assert "honest" in replies
    assert ("lying site" in problems) != ("lying site" in replies)
    if np.abs(lie["m2"]).max() <= 1e3 and "lying site" in replies:
        total = mixtures.Sums(own.weights + lie["weights"], own.shifts + lie["shifts"].T,
                              own.m2 + mixtures.unpacked(lie["m2"], kind, k, d), 0.0, 0.0)  # fmt: skip
        made = mixtures.maximized(before, total, kind, 0.1)
        assert made is not None
        mixtures.prepare(made)


# ---- what is said where a result may be wrong ----


def test_a_component_of_few_rows_is_named(rng):
    X = np.concatenate([rng.normal(size=(200, 4)), rng.normal(60, 1, (10, 4))])
    found = flareclust.run("gmm", {"a": X}, k=2)
    assert any("fewer rows than the 14 numbers" in text for text in found.warnings), found.warnings
    assert not any(
        "numbers of a component" in text for text in flareclust.run("gmm", {"a": X}, k=2, covariance="diag").warnings
    )


@pytest.mark.parametrize("more", [{}, {"k_min": 2}])
def test_iterations_that_have_not_converged_are_named(more, rng):
    X = np.concatenate([rng.normal([0, 0], [3, 1], (300, 2)), rng.normal([2, 0.5], [1, 3], (300, 2))])
    parts = split(X[rng.permutation(600)])
    few, enough = (flareclust.run("gmm", parts, k=2, rounds=rounds, **more) for rounds in (3, 200))
    said = [[text for text in one.warnings if "had not converged" in text] for one in (few, enough)]
    assert [len(one) for one in said] == [1, 0]
    assert "the last of 3 raised" in said[0][0]
    assert "and tol is 0.001; set more rounds" in said[0][0]
    without = flareclust.run("gmm", parts, k=2, start="mixtures", rounds=0)
    assert not any("had not converged" in text for text in without.warnings)


@pytest.mark.parametrize("start", ["kmeans", "mixtures"])
@pytest.mark.parametrize("zeros", [280, 400])
def test_equal_rows_join_one_component_and_the_result_says_so(zeros, start, rng):
    y = np.repeat(np.arange(4), (300, 300, 300, zeros))
    X = np.array([[20.0, 20.0], [30.0, 20.0], [20.0, 32.0], [0.0, 0.0]])[y]
    X[y < 3] += rng.normal(size=(900, 2))
    order = rng.permutation(len(y))
    found = flareclust.run("gmm", split(X[order]), k=4, start=start)
    alone = y[order] < 3
    assert adjusted_rand_score(y[order][alone], found.labels[alone]) > 0.99
    (empty,) = np.flatnonzero(np.bincount(found.labels, minlength=4) == 0)
    text = " ".join(found.warnings)
    assert f"component {empty} has no weight: no site describes what is mostly one row repeated" in text
    assert "so many are equal that each counts less" in text


def test_tiny_clusters_are_those_of_the_labels_and_not_of_the_nearest_means():
    server = GMM.build(3, 0, {"covariance": "diag"})[1]
    state = GMMState(support=np.array([1299.6, 0.4, 0.0]), log_likelihood=-1.0)
    np.testing.assert_array_equal(server.labelled(Round({}, state=state)), [1300, 0, 0])


def test_what_is_said_of_small_clusters_follows_that_rule(monkeypatch, rng):
    sites = split(np.concatenate([rng.normal(size=(900, 2)), rng.normal(30, 4, (20, 2))])[rng.permutation(920)])
    wide = [text for text in flareclust.run("gmm", sites, k=2).warnings if "as wide as" in text]
    monkeypatch.setattr(GMMAggregator, "labelled", lambda self, round_: np.array([917, 3, 0]))
    text = " ".join(flareclust.run("gmm", sites, k=3, start=[[0.0, 0.0], [0.5, 0.0], [30.0, 30.0]]).warnings)
    assert "few of 920 rows are in cluster 1 (3 rows): a rare group" in text
    assert wide
    assert "as wide as" not in text


def test_a_constant_column_is_named(rng):
    X = np.concatenate([rng.normal(size=(200, 2)), np.full((200, 1), 5.0)], axis=1)
    found = flareclust.run("gmm", split(X), k=2)
    assert any(text.startswith("column 2 varies by no more than reg_covar") for text in found.warnings), found.warnings
    assert "leave out constant columns, or set scale" in " ".join(found.warnings)
    scaled = " ".join(flareclust.run("gmm", split(X), k=2, scale="standard").warnings)
    assert "leave out constant columns" in scaled
    assert "or set scale" not in scaled
    with pytest.raises(JobFailed, match="raise reg_covar above 0"):
        flareclust.run("gmm", split(X), k=2, reg_covar=0.0)


STARTS = [
    {},
    {"start": "mixtures"},
    {"start": "mixtures", "rounds": 0, "k_min": 1},
    {"k_min": 1},
    {"secure_sums": True},
]


@pytest.mark.parametrize("scale", ["none", "standard"])
@pytest.mark.parametrize("more", STARTS, ids=str)
def test_constant_columns_are_named_though_round_components_do_not_show_them(more, scale, rng):
    X = np.concatenate([rng.normal(center, 1, (150, 3)) for center in (-6, 0, 6)])[rng.permutation(450)]
    flat = np.column_stack([X[:, 0], np.full(450, 0.1), X[:, 1:], np.full(450, -3e5)])
    plain, named = (
        flareclust.run("gmm", split(rows, 3), k=3, covariance="spherical", scale=scale, **more) for rows in (X, flat)
    )
    text = "columns 1 and 4 vary by no more than reg_covar=1e-06 in all components; leave out constant columns"
    assert text + (", or set scale" if scale == "none" else "") in named.warnings
    assert "vary by no more" not in " ".join(plain.warnings)


def test_round_components_with_one_mean_in_a_column_are_not_taken_for_a_constant_column(rng):
    """Their means differ along the first column only, and rows vary in both; narrow columns in other units are no constants."""
    X = np.column_stack([np.repeat([-20.0, 0.0, 20.0], 150), np.zeros(450)]) + rng.normal(size=(450, 2))
    of_groups = np.column_stack([X[:, 0], np.repeat([-1.0, 0.0, 1.0], 150)])
    for rows in (X, X * 2e-3, of_groups):
        result = flareclust.run("gmm", split(rows[rng.permutation(450)]), k=3, covariance="spherical")
        assert "by no more than" not in " ".join(result.warnings)
        assert "constant" not in result.arrays


def test_a_component_that_collapses_in_a_column_is_named(rng):
    flat = np.stack([rng.normal(30, 1, 100), np.full(100, 30.0)], axis=1)
    found = flareclust.run("gmm", {"a": np.concatenate([rng.normal(size=(200, 2)), flat])}, k=2)
    assert any("collapsed onto few values" in text for text in found.warnings), found.warnings


def test_a_site_with_fewer_rows_than_a_component_takes_is_left_out_and_says_so(rng):
    sites = split(rng.normal(size=(300, 6))) | {"small": rng.normal(size=(4, 6))}
    found = flareclust.run("gmm", sites, k=2)
    assert "fewer than the 5 rows that covariance=full takes" in found.left_out["small"]
    assert "small" not in flareclust.run("gmm", sites, k=2, covariance="diag").left_out


def test_settings_that_exclude_each_other_are_refused():
    for params, text in (
        ({"k_min": 4}, "k_min=4 is above k=3"),
        ({"k_min": 2, "start": [[0.0], [1.0], [2.0]]}, "leave out one of them"),
        ({"covariance": "round"}, "covariance"),
        ({"rounds": 0}, "rounds"),
        ({"start": [[0.0], [1.0]]}, "start"),
    ):
        with pytest.raises(UserError, match=text):
            GMM.build(3, 0, params)
    with pytest.raises(UserError, match="k_min needs the sites' own clusters"):
        GMM.build(3, 0, {"k_min": 2})[1].secured()


def test_a_range_ends_where_sites_have_too_few_rows_and_says_so(rng):
    """A site describes a component of 4 columns if it is of 4 rows or more; each has 3 rows of both clusters."""
    sites = {f"site-{i}": np.concatenate([rng.normal(center, 1, (3, 4)) for center in (-20, 20)]) for i in range(9)}
    result = flareclust.run("gmm", sites, k=5, k_min=1)
    assert len(result.arrays["tried"]) == result.centroids_found == 1
    assert "numbers of components above 1 were not tried" in " ".join(result.warnings)
    with pytest.raises(JobFailed, match="no site has a component"):
        flareclust.run("gmm", sites, k=2)


def test_numbers_of_components_are_compared_as_if_of_the_same_rows():
    server = GMM.build(3, 0, {"k_min": 1, "covariance": "diag"})[1]
    mixture = mixtures.Mixture(np.ones(1), np.zeros((1, 2)), np.ones((1, 2)))
    states = [GMMState(support=np.array([rows]), log_likelihood=-2.0 * rows, entropy=0.0) for rows in (100.0, 25.0)]
    values = [server._criterion(state, mixture, 100.0) for state in states]
    assert values == [pytest.approx(4 * np.log(100) + 400)] * 2


def test_many_columns_need_fewer_numbers(rng):
    with pytest.raises(JobFailed, match="take diag"):
        flareclust.run("gmm", split(rng.normal(size=(6000, 1100))), k=4)


def test_labels_follow_the_components_and_not_the_nearest_mean():
    executor = GMMExecutor(2, covariance="diag")
    assert executor.placed_by == ("centroids", "weights", "factors")
    arrays = {"centroids": np.array([[0.0], [10.0]]), "weights": np.full(2, 0.5), "factors": np.array([[1.0], [30.0]])}
    mixture = mixtures.received_mixture(arrays, "diag")
    np.testing.assert_array_equal(mixtures.most_likely(np.array([[0.0], [-8.0], [10.0]]), mixture)[0], [0, 1, 1])


def test_a_range_ends_before_components_collapse_onto_values_of_a_column(rng):
    """Each value of the last column could have a component without any variance there, and so any likelihood."""
    stage = np.repeat(np.arange(4.0), 150)
    X = np.column_stack([rng.normal(size=(600, 2)), stage + 0.0])
    result = flareclust.run("gmm", split(X[rng.permutation(600)]), k=8, k_min=1)
    variances = np.einsum("kdd->kd", result.arrays["covariances"])
    assert (variances > 1e-3).all()
    assert "were not tried" in " ".join(result.warnings)
    of_mixtures = flareclust.run("gmm", split(X[rng.permutation(600)]), k=8, k_min=1, start="mixtures", rounds=0)
    assert ("were not tried" in " ".join(of_mixtures.warnings)) == (len(of_mixtures.arrays["tried"]) < 8)


def test_columns_that_follow_from_others_are_named_as_the_cause(rng):
    kind = rng.integers(0, 3, 900)
    X = np.column_stack([rng.normal(size=(900, 2)), *(kind == c for c in range(3))]).astype(float)
    text = " ".join(flareclust.run("gmm", split(X), k=1).warnings)
    assert "some columns follow from others" in text
    assert "likelihood, bic and icl mean nothing" in text
    for harmless in (
        flareclust.run("gmm", split(X), k=1, covariance="diag"),
        flareclust.run("gmm", split(X[:, :4]), k=1),
    ):
        assert "follow from others" not in " ".join(harmless.warnings)
