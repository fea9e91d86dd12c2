"""Personalised models as jobs: the same models as in one process, sums that policies and secure sums can hold, refusals."""

import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.seeding import stream
from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.federation.server import ServerJob
from flareclust.federation.site import steps_to_end
from flareclust.personal.aggregator import FedAvgAggregator
from flareclust.personal.jobs import FEDAVG, IFCA, train_in_jobs
from flareclust.personal.run import _prepare_devices, run_personal
from flareclust.personal.settings import PersonalSettings
from flareclust.privacy.policy import Policy
from flareclust.protocol.task import StepName
from tests.unit.personal.job_cases import ONE, sites


def both_ways(**settings: object) -> tuple[object, object]:
    """One process, and jobs whose engine is this process."""
    chosen = PersonalSettings(**{"data": "iris", "rounds": 3, "lr": 0.05, **settings})
    split, _ = _prepare_devices(chosen)
    return run_personal(chosen), train_in_jobs(chosen, split, run_inprocess, lambda *round_: None)


@pytest.mark.parametrize(
    "settings",
    [
        {"k": 2, "devices": 11},  # by name site-10 comes before site-2
        {"k": 4, "devices": 6, "k_local": 2},
        {"method": "global", "devices": 4},
        {"method": "ifca", "k": 3, "devices": 11},
    ],
)
def test_linear_models_of_jobs_are_those_of_one_process_bit_for_bit(settings):
    here, jobs = both_ways(model="linear", **settings)
    for name, value in here.models.items():
        np.testing.assert_array_equal(jobs.models[name], value)
    np.testing.assert_array_equal(jobs.accuracy, here.accuracy)
    assert (jobs.clustering_up, jobs.clustering_down) == (here.bytes["clustering_up"], here.bytes["clustering_down"])
    assert jobs.clustering_up == here.bytes["clustering_up"]
    times = settings.get("k", 1) if settings.get("method") == "ifca" else 1  # IFCA sends all models up, too
    more = (jobs.bytes_up.sum() + jobs.clustering_up) / here.bytes["up"] - times
    assert 0 < more < 0.6 * times  # counts and tests beside few weights


@pytest.mark.parametrize("method", ["kfed", "ifca"])
def test_networks_of_jobs_are_those_of_one_process_up_to_rounding(method):
    pytest.importorskip("torch", reason="needs the extra deep")
    here, jobs = both_ways(model="mlp", method=method, k=2, devices=3, hidden=8)
    for name, value in here.models.items():
        assert jobs.models[name].dtype == value.dtype
        np.testing.assert_allclose(jobs.models[name], value, atol=1e-6)


def test_federated_averaging_of_one_site_is_plain_training():
    table = sites(40)["site-1"]
    params = {"rounds": 4, "updates": 3, "lr": 0.1, "test_share": 0.25}
    found = run_inprocess(FEDAVG, params, {"site-1": table}, ONE).arrays
    held = np.zeros(40, dtype=bool)
    held[stream(5, 0, "site-1").permutation(40)[:10]] = True
    X, y = table.X[~held, 1:], table.X[~held, 0].astype(int)
    plain = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.1)
    plain.classes_ = np.arange(2)
    plain.coef_ = stream(5, 0, "weights").normal(scale=0.01 / np.sqrt(3), size=(1, 3))
    plain.intercept_ = np.zeros(1)
    for round_ in range(1, 5):
        plain.random_state = int(stream(5, round_, "site-1").integers(2**31))
        for _ in range(3):
            plain.partial_fit(X, y)
    np.testing.assert_allclose(found["weights.coef"], plain.coef_, rtol=1e-12)
    np.testing.assert_allclose(found["weights.intercept"], plain.intercept_, rtol=1e-12)
    assert found["tests_rows"].tolist() == [10] * 5
    assert found["tests_correct"][-1] == (plain.predict(table.X[held, 1:]) == table.X[held, 0]).sum()


def test_models_are_averaged_by_rows_and_tests_are_kept():
    server = FedAvgAggregator(1, rounds=1)
    sized = ServerJob(server).advance(
        server.begin(), {name: {"columns": np.array(1), "classes": np.array(2)} for name in "ab"}
    )
    assert (sized.step, sized.task["model"].tolist(), sized.task["weights"].shape) == (StepName.TRAIN, [1, 2], (2,))
    replies = {
        name: {"weights": n * np.array(weights), "counts": np.array(n), "correct": np.array(1), "tested": np.array(2)}
        for name, n, weights in [("a", 30, [1.0, 2.0]), ("b", 10, [5.0, -2.0])]
    }
    trained = ServerJob(server).advance(sized, replies)
    assert trained.step == StepName.TEST
    np.testing.assert_allclose(trained.task["weights"], [2.0, 1.0])
    last = ServerJob(server).advance(trained, {name: {"correct": np.array(2), "tested": np.array(2)} for name in "ab"})
    assert last.done
    assert last.state.tests_round.tolist() == [0, 0, 1, 1]
    assert last.state.tests_correct.tolist() == [1, 1, 2, 2]
    assert last.diagnostics == {"accuracy": 1.0}


def test_sites_without_enough_rows_neither_train_nor_test():
    few = sites(40, 6)
    found = run_inprocess(FEDAVG, {"rounds": 1, "min_count": 6}, few, ONE.model_copy(update={"min_sites": 2})).arrays
    alone = run_inprocess(FEDAVG, {"rounds": 1, "min_count": 6}, {"site-1": few["site-1"]}, ONE).arrays
    np.testing.assert_array_equal(found["weights"], alone["weights"])
    assert sorted(found["tests_rows"].tolist()) == [0, 0, 8, 8]


def test_masked_sums_give_the_same_model():
    own, params = sites(30, 40, 50, classes=3), {"rounds": 2, "classes": 3}
    plain = run_inprocess(FEDAVG, params, own, ONE)
    names = tuple(own)
    secure = ONE.model_copy(update={"secure_sums": True, "min_sites": 3, "secure_min_sites": 3, "secure_sites": names})
    masked = run_inprocess(FEDAVG, params, own, secure)
    np.testing.assert_allclose(masked.arrays["weights"], plain.arrays["weights"], atol=1e-9)
    assert len(masked.arrays["tests_site"]) == 3  # of the total, round by round


@pytest.mark.parametrize(
    ("table", "params", "message"),
    [
        (Table(np.eye(3)), {}, "has no column with the name that class_column gives"),
        (
            Table(np.eye(3), ("a", "b", "class")),
            {"test_column": "held"},
            "has no column of the name that test_column says",
        ),
        (Table(np.eye(3) / 2, ("a", "b", "class")), {}, "something else than integers"),
        (Table(np.eye(3)[:, :1], ("class",)), {}, "no column beside that of the classes"),
        (Table(np.eye(3)[:1], ("a", "b", "class")), {}, "has one row"),
        (Table(np.ones((8, 2)), ("a", "class")), {}, "has 1 columns where 2 other sites have 3"),
        (sites(40)["site-1"], {"lr": 1e300}, "the loss diverged; use a smaller lr"),
    ],
)
def test_a_site_that_cannot_take_part_is_named(table, params, message):
    own = {**sites(20, 20), "site-3": table}
    with pytest.raises(JobFailed, match=rf"site-3\b.*{message}"):
        run_inprocess(FEDAVG, params, own, ONE.model_copy(update={"min_sites": 3}))


@pytest.mark.parametrize("algorithm", [FEDAVG, IFCA])
def test_a_site_with_a_policy_refuses(algorithm):
    own = sites(40, 40)
    with pytest.raises(JobFailed, match=r"site-1\b.*(policy|column of the classes)"):
        run_inprocess(algorithm, {"rounds": 1}, own, ONE, policy=Policy(min_count=5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "ifca", "k": 2, "averaging": "gradients"}, "gradients are averaged in this process only"),
        ({"method": "local"}, "local runs in this process only"),
        ({"k": 2, "engine": "poc"}, "engine"),
        ({"k": 2, "engine": "inprocess", "min_sites": 2}, "min_sites is for jobs"),
    ],
)
def test_engines_and_methods_that_do_not_go_together_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        PersonalSettings(**{"engine": "simulator", **settings})


def test_a_device_that_cannot_be_a_site_is_named():
    rows = (np.random.default_rng(0).normal(size=(8, 2)), np.arange(8) % 2)
    settings = PersonalSettings(data="own", method="global", model="linear", engine="simulator")
    with pytest.raises(UserError, match="'ward 7' cannot be a site's name"):
        run_personal(settings, {"ward 7": rows})


def test_steps_are_those_that_sites_answer():
    executor, aggregator = FEDAVG.build(1)
    assert aggregator.executor is type(executor)
    assert list(steps_to_end(type(executor))) == [
        StepName.SIZES,
        StepName.ROWS,
        StepName.LOSSES,
        StepName.TRAIN,
        StepName.TEST,
    ]
