"""Personalised models as jobs: the same models as in one process, sums that policies and secure sums can hold, refusals."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier

import flareclust
from flareclust._foundation.errors import JobFailed, Refusal, UserError
from flareclust._foundation.seeding import stream
from flareclust.data.tables import Table
from flareclust.engines import simulator
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.personal.aggregator import TESTS, FedAvgAggregator
from flareclust.personal.executor import SIZES, TEST, TRAIN, FedAvgExecutor
from flareclust.personal.export import export_jobs
from flareclust.personal.ifca_aggregator import IFCAAggregator
from flareclust.personal.ifca_executor import IFCAExecutor
from flareclust.personal.jobs import FEDAVG, IFCA, train_in_jobs
from flareclust.personal.methods import train_models
from flareclust.personal.prepare import prepare_devices
from flareclust.personal.result import save
from flareclust.personal.rows import Split
from flareclust.personal.run import run_personal
from flareclust.personal.settings import PersonalSettings
from flareclust.privacy.policy import Policy
from flareclust.protocol.algorithm import Algorithm
from flareclust.sites.class_list import of_server, of_sites
from tests.command_line import call
from tests.unit.personal.planted import planted

ONE = JobOptions(k=1, seed=5, assess=False)


def sites(*rows: int, classes: int = 2) -> dict[str, Table]:
    """Tables of three columns and a class that follows from the first."""
    made = {}
    for i, n in enumerate(rows):
        X = np.random.default_rng(i).normal(size=(n, 3))
        y = np.digitize(X[:, 0], np.linspace(-1, 1, classes + 1)[1:-1])
        y[:classes] = np.arange(classes)
        made[f"site-{i + 1}"] = Table(np.column_stack([y, X]), ("class", "a", "b", "c"))
    return made


def both_ways(**settings: object) -> tuple[object, object]:
    """One process, and jobs whose engine is this process."""
    chosen = PersonalSettings(**{"data": "iris", "rounds": 3, "lr": 0.05, **settings})
    split, _ = prepare_devices(chosen)
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


def test_ifca_in_jobs_finds_planted_clusters_as_in_one_process():
    split, own = planted(devices=6)
    settings = PersonalSettings(data="own", method="ifca", k=2, model="linear", rounds=5, lr=0.05, engine="simulator")
    course = train_in_jobs(settings, split, run_inprocess, lambda *round_: None)
    assert len(set(zip(course.group.tolist(), own[:, 0].tolist(), strict=True))) == 2
    here = train_models("ifca", settings.learner(split), split, k=2, rounds=5)
    assert course.group.tolist() == here.group.tolist()
    np.testing.assert_array_equal(course.accuracy, here.accuracy)
    lossy = train_in_jobs(settings, split, losing("device-03", since=3), lambda *round_: None)
    assert list(lossy.lost) == ["device-03 was lost"]
    assert np.isnan(lossy.accuracy[-1]).tolist() == [i == 3 for i in range(6)]
    assert lossy.group[3] == course.group[3]


def test_ifcas_models_are_means_of_those_that_chose_them():
    server = IFCAAggregator(2, rounds=1)
    sized = server.advance(server.begin(), {name: {"columns": np.array(1), "classes": np.array(2)} for name in "abc"})
    assert (sized.step, sized.task["weights"].shape) == (TRAIN, (4,))
    replies = {
        name: IFCAExecutor(2).sent(n * np.array(own), n, 1)
        for name, n, own in [("a", 30, [1.0, 2.0]), ("b", 10, [5.0, -2.0])]
    }
    for reply in replies.values():
        reply |= {"correct": np.array(1), "tested": np.array(2)}
    trained = server.advance(sized, replies)
    np.testing.assert_allclose(trained.task["weights"], [*sized.task["weights"][:2], 2.0, 1.0])
    assert trained.record["tests_model"].tolist() == [1, 1]


def test_ifcas_masked_sums_give_the_same_models():
    own = sites(30, 40, 50)
    plain, masked = (
        run_inprocess(IFCA, {"rounds": 2}, own, ONE.model_copy(update={"k": 2, **more}))
        for more in ({}, {"secure_sums": True, "min_sites": 3, "secure_min_sites": 3, "secure_sites": tuple(own)})
    )
    np.testing.assert_allclose(masked.arrays["weights"], plain.arrays["weights"], atol=1e-9)


def test_a_site_that_sends_fewer_models_is_left_out():
    class Fewer(IFCAExecutor):
        def sent(self, weighted, rows, chosen):
            found = super().sent(weighted, rows, chosen)
            return {**found, "counts": found["counts"][:1]}

    with pytest.raises(JobFailed, match="counts"):
        run_inprocess(with_executor(IFCA, Fewer), {"rounds": 1}, sites(30, 40), ONE.model_copy(update={"k": 2}))


def test_networks_of_jobs_are_those_of_one_process_up_to_rounding():
    pytest.importorskip("torch", reason="needs the extra deep")
    here, jobs = both_ways(model="mlp", k=2, devices=3, hidden=8)
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
    sized = server.advance(server.begin(), {name: {"columns": np.array(1), "classes": np.array(2)} for name in "ab"})
    assert (sized.step, sized.task["model"].tolist(), sized.task["weights"].shape) == (TRAIN, [1, 2], (2,))
    replies = {
        name: {"weights": n * np.array(weights), "counts": np.array(n), "correct": np.array(1), "tested": np.array(2)}
        for name, n, weights in [("a", 30, [1.0, 2.0]), ("b", 10, [5.0, -2.0])]
    }
    trained = server.advance(sized, replies)
    assert trained.step == TEST
    np.testing.assert_allclose(trained.task["weights"], [2.0, 1.0])
    last = server.advance(trained, {name: {"correct": np.array(2), "tested": np.array(2)} for name in "ab"})
    assert last.done
    assert last.record["tests_round"].tolist() == [0, 0, 1, 1]
    assert last.record["tests_correct"].tolist() == [1, 1, 2, 2]
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
        (Table(np.eye(3)), {}, "has no column 'class'"),
        (Table(np.eye(3), ("a", "b", "class")), {"test_column": "held"}, "has no column 'held'"),
        (Table(np.eye(3) / 2, ("a", "b", "class")), {}, "something else than integers"),
        (Table(np.eye(3)[:, :1], ("class",)), {}, "no column beside 'class'"),
        (Table(np.eye(3)[:1], ("a", "b", "class")), {}, "has one row"),
        (Table(np.ones((8, 2)), ("a", "class")), {}, "has 1 columns where 2 other sites have 3"),
        (sites(40)["site-1"], {"lr": 1e300}, "the loss diverged; use a smaller lr"),
    ],
)
def test_a_site_that_cannot_take_part_is_named(table, params, message):
    own = {**sites(20, 20), "site-3": table}
    with pytest.raises(JobFailed, match=f"site-3 .*{message}"):
        run_inprocess(FEDAVG, params, own, ONE.model_copy(update={"min_sites": 3}))


def test_a_site_with_a_policy_refuses():
    own = sites(40, 40)
    with pytest.raises(JobFailed, match=r"site-1 .*(policy|column of the classes)"):
        run_inprocess(FEDAVG, {"rounds": 1}, own, ONE, policy=Policy(min_count=5))


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
    assert list(executor.own_steps()) == [SIZES, TRAIN, TEST]
    assert aggregator.steps is executor.steps


def with_executor(algorithm: Algorithm, executor: type) -> Algorithm:
    """Return an algorithm whose sites are of another class."""

    class Other(Algorithm):
        def executor_class(self):
            return executor

    return Other(*(getattr(algorithm, name) for name in ("name", "title", "executor", "aggregator")))


def losing(lost: str, since: int = 99, step: str = ""):
    """Return this process as an engine whose jobs of averaging lose a site, from an exchange on or in a step."""

    class Losing:
        def compute(self, task, *rest, **more):
            if task.site == lost and (task.round >= since or task.step == step):
                raise Refusal("was lost")
            return super().compute(task, *rest, **more)

    def run(algorithm, params, sites, options):
        if algorithm in (FEDAVG, IFCA):
            base = algorithm.executor_class()
            algorithm = with_executor(algorithm, type("LosingExecutor", (Losing, base), {}))
        return run_inprocess(algorithm, params, sites, options)

    return run


def three_and_three() -> tuple[PersonalSettings, Split]:
    """Six devices in two clusters of three."""
    settings = PersonalSettings(data="own", k=2, model="linear", rounds=3, engine="simulator")
    return settings, planted(devices=6)[0]


def test_a_cluster_goes_on_with_the_rest_where_a_site_is_lost_and_names_it(tmp_path):
    settings, split = three_and_three()
    whole = train_in_jobs(settings, split, run_inprocess, lambda *round_: None)
    course = train_in_jobs(settings, split, losing("device-03", since=3), lambda *round_: None)
    (reason,) = course.lost
    cluster = int(course.group[3])
    assert reason == f"device-03 was lost (model {cluster})"
    for name, value in whole.models.items():
        assert np.array_equal(course.models[name][1 - cluster], value[1 - cluster])
        assert not np.array_equal(course.models[name][cluster], value[cluster])
    # The third training brings the model after round 2, so that of round 1 is the last that the site has tested.
    assert np.flatnonzero(np.isnan(course.accuracy).any(axis=0)).tolist() == [3]
    assert np.isnan(course.accuracy[:, 3]).tolist() == [False, True, True]
    np.testing.assert_array_equal(course.accuracy[0], whole.accuracy[0])


def test_the_result_leaves_a_lost_device_out_of_the_means_and_says_so(monkeypatch, tmp_path):
    settings, split = three_and_three()
    monkeypatch.setattr(simulator, "run_simulator", lambda *args, folder: losing("device-03", step=TEST)(*args))
    given = {
        name: (
            np.concatenate([split.train[name].X, split.test[name].X]),
            np.concatenate([split.train[name].y, split.test[name].y]),
        )
        for name in split.names
    }
    result = save(run_personal(settings, given), tmp_path / "out")
    assert [warning for warning in result.warnings if "device-03 was lost" in warning]
    assert result.warnings[-1] == "1 of 6 devices were not tested after the last round; means are over the others"
    written = json.loads((tmp_path / "out" / "result.json").read_text())
    assert [name for name, share in written["accuracy_of"].items() if share is None] == ["device-03"]
    known = [share for share in written["accuracy_of"].values() if share is not None]
    assert written["accuracy"] == pytest.approx(np.mean(known))
    assert result.rounds()[-1]["least"] == min(known)


def test_a_cluster_with_fewer_sites_than_its_quorum_fails_and_names_the_lost_one():
    settings, split = three_and_three()
    for needed, message in [(3, "2 of 3 sites took part where at least 3"), (9, "at least 3 are needed")]:
        strict = settings.model_copy(update={"min_sites": needed})
        with pytest.raises(JobFailed, match=rf"{message}.*device-03 was lost"):
            train_in_jobs(strict, split, losing("device-03", since=2), lambda *round_: None)


def test_a_run_in_which_nobody_tests_the_last_models_fails():
    rows = Split(*({"a": side["device-00"]} for side in (planted()[0].train, planted()[0].test)), 2)
    settings = PersonalSettings(data="own", method="global", model="linear", rounds=1, engine="simulator")

    def untested(*args):
        outcome = run_inprocess(*args)
        return replace(outcome, arrays={**outcome.arrays, **dict.fromkeys(TESTS, np.zeros(0, dtype=np.int64))})

    with pytest.raises(JobFailed, match="no device was tested after the last round"):
        train_in_jobs(settings, rows, untested, lambda *round_: None)


def own_sites(k_local: int = 1) -> dict[str, np.ndarray]:
    """Four sites, of which two and two have rows of the same place, or each of both."""
    rng = np.random.default_rng(0)
    places = [[0, 9], [0, 9], [9, 0], [9, 0]] if k_local == 2 else [[0], [9], [0], [9]]
    return {
        f"ward-{i}": np.concatenate([rng.normal(place, 0.5, (30, 2)) for place in own]) for i, own in enumerate(places)
    }


def test_jobs_for_provisioned_sites_go_to_the_sites_of_their_cluster(tmp_path, capsys):
    flareclust.run("kfed", own_sites(), 2, k_local=1, out=tmp_path / "found")
    options = ["--export", str(tmp_path / "jobs"), "--clusters", str(tmp_path / "found"), "--model", "linear"]
    assert call("personalise", *options, "--label", "ill", "--rounds", 7, "--classes", 3) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "jobs" / f"cluster-{j}") for j in range(2)]
    deployed = []
    for j in range(2):
        job = tmp_path / "jobs" / f"cluster-{j}"
        meta = json.loads((job / "meta.json").read_text())
        at = [site for sites in meta["deploy_map"].values() for site in sites if site != "server"]
        deployed.append(sorted(at))
        assert meta["min_clients"] == len(at) == 2  # more than half
        assert not list(job.rglob("custom"))
        server = json.loads((job / "app_server" / "config" / "config_fed_server.json").read_text())
        (aggregator,) = [part for part in server["components"] if part["path"] in of_server()]
        assert aggregator["args"] == {"k": 1, "rounds": 7, "classes": 3}
        client = json.loads(next(job.glob("app_ward*/config/config_fed_client.json")).read_text())
        (line,) = client["executors"]
        assert line["tasks"] == [SIZES, TRAIN, TEST, "assess"]
        assert line["executor"]["path"] in of_sites()
        assert FedAvgExecutor(**line["executor"]["args"]).params.class_column == "ill"
    assert deployed == [["ward-0", "ward-2"], ["ward-1", "ward-3"]] or deployed == [
        ["ward-1", "ward-3"],
        ["ward-0", "ward-2"],
    ]


def test_an_exported_job_needs_the_sites_asked_for_but_no_more_than_its_cluster_has(tmp_path):
    flareclust.run("kfed", own_sites(), 2, k_local=1, out=tmp_path / "found")
    settings = PersonalSettings(method="global", model="linear")
    for asked, needed in [(1, 1), (2, 2), (3, 2)]:
        for job in export_jobs(settings, tmp_path / "found", tmp_path / f"jobs-{asked}", min_sites=asked):
            assert json.loads((job / "meta.json").read_text())["min_clients"] == needed
            server = json.loads((job / "app_server" / "config" / "config_fed_server.json").read_text())
            assert server["workflows"][0]["args"]["min_sites"] == needed
    with pytest.raises(UserError, match="min_sites must be"):
        export_jobs(settings, tmp_path / "found", tmp_path / "none", min_sites=0)


def test_jobs_cannot_be_exported_without_clusters_of_whole_sites(tmp_path):
    settings = PersonalSettings(method="global", model="linear")
    flareclust.run("kfed", own_sites(2), 2, k_local=2, out=tmp_path / "mixed")
    with pytest.raises(UserError, match=r"ward-0 has rows of 2 clusters.*k_local=1"):
        export_jobs(settings, tmp_path / "mixed", tmp_path / "jobs")
    flareclust.run("mavg", own_sites(), 2, out=tmp_path / "mavg")
    with pytest.raises(UserError, match=r"a result of mavg; .* need one of kfed"):
        export_jobs(settings, tmp_path / "mavg", tmp_path / "jobs")
    assert call("personalise", "--export", tmp_path / "jobs") == 2
