"""Estimators behave as scikit-learn's do, and give the centroids of `flareclust.run`."""

import pickle
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

import flareclust
from flareclust import JobFailed, estimators
from flareclust._foundation.errors import UserError
from flareclust._foundation.settings import OneOf
from flareclust.protocol import registry

#: What sites of differentially private algorithms state; the checks' values lie within these bounds.
PRIVATE = {"differential_privacy": {"bounds": [-1000.0, 1000.0], "epsilon": 20.0, "delta": 1e-4, "budget": 20.0}}

NAMES = [name for name in dir(estimators) if name != "FederatedClusterer"]

#: Those of different algorithms: `Portfolio` is `FederatedKMeans`.
DIFFERENT = [name for name in NAMES if name != "Portfolio"]

#: Checks of scikit-learn that cannot pass, and why.
PARTIAL = {"check_estimators_nan_inf": "predict takes NaN for a value that a row lacks"}
NOISY = dict.fromkeys(
    (
        "check_clustering",
        "check_fit_idempotent",
        "check_pipeline_consistency",
        "check_transformer_data_not_an_array",
        "check_transformer_general",
    ),
    "differential privacy draws new noise in every fit, and much of it for so few rows",
)
COSINE = {
    "check_estimators_dtypes": "a row of zeros has no direction",
    "check_fit2d_1feature": "positive numbers in one column have the same direction, and sites send no cluster of equal rows",
}

#: The end of a job whose sites have one to three rows each, as ten sites of the checks' tables do.
TOO_FEW_ROWS = r"sites took part where at least 6 are needed.*each has (fewer rows than|fewer than the|no (fuzzy centroid|cluster) of at least)|no site has (enough rows (to disclose the mean|for two micro-clusters)|a component that it may describe)"


def make(name, **settings):
    estimator = getattr(estimators, name)
    private = "differentially-private" in registry.get(estimator.algorithm).promises
    return estimator(**({"policy": PRIVATE} if private else {}), **settings)


@pytest.fixture
def rows(rng):
    return np.concatenate([rng.normal(center, 0.5, (60, 2)) for center in (0, 10, 20)])


def values(name, setting):
    """Return the values of a setting but for its default; none where the algorithm does not have it."""
    field = registry.get(getattr(estimators, name).algorithm).params_class().model_fields.get(setting)
    marks = () if field is None else field.metadata
    return [value for mark in marks if isinstance(mark, OneOf) for value in mark.names if value != field.default]


def checked(estimator, exceptions):
    """Return the checks that ended with an error that `exceptions` has, by name; all others have passed."""
    checks = check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=exceptions)
    failed = {check["check_name"]: str(check["exception"]) for check in checks if check["status"] == "failed"}
    assert not failed
    assert len(checks) > 40
    return {check["check_name"]: check["exception"] for check in checks if check["status"] == "xfail"}


def exceptions_of(name):
    promises = registry.get(getattr(estimators, name).algorithm).promises
    return PARTIAL if "partial-features" in promises else NOISY if "differentially-private" in promises else {}


@pytest.mark.parametrize("name", NAMES)
def test_scikit_learns_checks(name):
    xfailed = checked(make(name, n_clusters=2, n_sites=2), exceptions_of(name))
    assert set(xfailed) == set(exceptions_of(name)) or exceptions_of(name) is NOISY


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        (name, setting, value)
        for name in DIFFERENT
        for setting in ("missing", "metric")
        for value in values(name, setting)
    ],
)
def test_scikit_learns_checks_of_gaps_and_directions(name, setting, value):
    estimator = make(name, n_clusters=2, n_sites=2, **{setting: value})
    exceptions = COSINE if value == "cosine" else {}
    assert set(checked(estimator, exceptions)) == set(exceptions)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "DPGMM")) for name in DIFFERENT]
)
def test_scikit_learns_checks_with_defaults_pass_unless_sites_have_too_few_rows(name):
    estimator = make(name)
    every = [getattr(check, "func", check).__name__ for _, check in estimator_checks_generator(estimator)]
    noisy = exceptions_of(name) is NOISY
    for check, error in checked(estimator, dict.fromkeys(every, "ten sites have one to three rows each")).items():
        if not (noisy and check in NOISY):
            assert isinstance(error, JobFailed), check
            assert re.search(TOO_FEW_ROWS, str(error)), check


def test_every_federated_algorithm_has_an_estimator_with_its_settings():
    algorithms = {getattr(estimators, name).algorithm for name in NAMES}
    known = registry.algorithms().items()
    assert algorithms == {name for name, line in known if line.federated and "embeds" not in line.promises}
    for name in NAMES:
        estimator = getattr(estimators, name)
        settings = {**estimators.GENERAL, **registry.get(estimator.algorithm).parameters()}
        assert estimator().get_params() == settings


def test_the_default_algorithm():
    assert estimators.FederatedKMeans.algorithm == estimators.Portfolio.algorithm == "portfolio"


def test_one_table_gives_the_centroids_of_run(rows):
    model = estimators.FeCA(n_clusters=3, n_sites=4, n_init=5, random_state=7).fit(rows)
    result = flareclust.run("feca", rows, k=3, n_sites=4, n_init=5, seed=7)
    np.testing.assert_array_equal(model.cluster_centers_, result.centroids)
    np.testing.assert_array_equal(model.labels_, result.labels)
    np.testing.assert_array_equal(model.predict(rows), result.predict(rows))
    assert (model.inertia_, model.n_iter_) == (result.metrics["inertia"], result.rounds)
    assert model.n_features_in_ == 2


def test_a_mapping_is_the_sites(rows):
    sites = {"north": rows[:100], "south": rows[100:]}
    model = estimators.KFed(n_clusters=3, k_local=2).fit(sites)
    np.testing.assert_array_equal(model.cluster_centers_, flareclust.run("kfed", sites, k=3, k_local=2).centroids)
    assert {site: len(labels) for site, labels in model.labels_.items()} == {"north": 100, "south": 80}


def test_a_list_is_the_sites_in_this_order(rows):
    parts = np.array_split(rows, 12)
    model = estimators.Lloyd(n_clusters=3, rounds=20).fit(parts)
    assert [len(labels) for labels in model.labels_] == [len(part) for part in parts]
    for labels, part in zip(model.labels_, parts, strict=True):
        np.testing.assert_array_equal(labels, model.predict(part))


def test_frames_keep_their_names(rows):
    frame = pd.DataFrame(rows, columns=["age", "crp"])
    model = estimators.FederatedKMeans(n_clusters=3, n_sites=3).set_output(transform="pandas").fit(frame)
    assert list(model.feature_names_in_) == ["age", "crp"]
    assert list(model.transform(frame).columns) == ["federatedkmeans0", "federatedkmeans1", "federatedkmeans2"]
    by_site = estimators.FeCA(n_clusters=3).fit({"north": frame[:90], "south": frame[90:]})
    assert list(by_site.feature_names_in_) == ["age", "crp"]


def test_one_table_may_have_missing_cells_where_the_settings_say_what_they_mean(rows):
    rows[7, 1] = np.nan
    model = estimators.FederatedKMeans(n_clusters=3, n_sites=2, missing="mean").fit(rows)
    assert np.array_equal(model.predict(rows), model.labels_)
    assert np.array_equal(model.transform(rows).argmin(axis=1), model.labels_)
    with pytest.raises(ValueError, match="NaN"):
        estimators.FederatedKMeans(n_clusters=3, n_sites=2).fit(rows)


def test_transform_and_score_are_distances(rows):
    model = estimators.FederatedKMeans(n_clusters=3, n_sites=3).fit(rows)
    distances = np.linalg.norm(rows[:, None] - model.cluster_centers_[None], axis=2)
    np.testing.assert_allclose(model.transform(rows), distances)
    assert model.score(rows) == pytest.approx(-(distances.min(axis=1) ** 2).sum())
    assert model.score(rows) == pytest.approx(-model.inertia_)


def test_sites_with_different_columns(rows):
    frame = pd.DataFrame(np.column_stack([rows, rows[:, 0] + rows[:, 1]]), columns=["a", "b", "c"])
    model = estimators.Masked(n_clusters=3).fit([frame[["a", "b"]][::2], frame[["b", "c"]][1::2]])
    assert model.cluster_centers_.shape == (3, 3)
    assert set(model.predict(frame[["b"]])) <= {-1, 0, 1, 2}
    assert model.predict(np.where(np.isnan(frame), np.nan, frame)).shape == (len(frame),)


def test_a_fitted_estimator_can_be_cloned_and_pickled(rows):
    model = estimators.FeCA(n_clusters=3, n_sites=2, radius="theoretical").fit(rows)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(rows), model.labels_)
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        clone(model).predict(rows)


def test_a_new_seed_for_each_fit_without_one(rows):
    generator = np.random.RandomState(3)
    first, second = (estimators.FeCA(n_clusters=3, n_sites=3, random_state=generator).fit(rows) for _ in range(2))
    assert first.result_.seed != second.result_.seed
    assert estimators.FeCA(n_clusters=3, n_sites=3, random_state=None).fit(rows).result_.seed >= 0


def test_the_number_of_clusters_may_come_first_as_in_scikit_learn():
    estimator = estimators.FeCA(3, n_init=2)
    assert (estimator.n_clusters, estimator.n_init) == (3, 2)
    assert clone(estimator).get_params() == estimator.get_params()
    with pytest.raises(TypeError, match="positional"):
        estimators.FeCA(3, 10)


def test_wrong_settings_are_named(rows):
    with pytest.raises(TypeError, match=r"FeCA has no parameter 'n_int' \(did you mean 'n_init'\?\)"):
        estimators.FeCA(n_int=3)
    with pytest.raises(UserError, match="n_init must be an integer from 1 to 10000, got 0"):
        estimators.FeCA(n_init=0, n_clusters=3).fit(rows)
    with pytest.raises(AttributeError, match="no attribute 'KMeans'"):
        _ = estimators.KMeans
