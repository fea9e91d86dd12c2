"""The registry: suggestions, settings that reach the side that knows them, algorithms of other packages."""

import json
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from types import ModuleType

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.engines.options import JobOptions
from flareclust.platform.job import build_job, export_job, installed_plugin
from flareclust.platform.kit import Settings, prepare_site
from flareclust.protocol import registry
from flareclust.protocol.registry import BUILT_IN, Algorithm, algorithms, get
from flareclust.sites.class_list import of_plugins

FEDERATED = [algorithm for algorithm in BUILT_IN if algorithm.federated]
KNOWN = ", ".join(algorithm.name for algorithm in BUILT_IN)


# --- names ---


@pytest.mark.parametrize(
    ("typed", "meant"), [("fecca", "feca"), ("k-fed", "kfed"), ("zzzz", None), ("centrall", "central")]
)
def test_an_unknown_name_gets_the_nearest_known_one(typed, meant):
    with pytest.raises(UserError) as caught:
        get(typed)
    text = str(caught.value)
    assert f"known: {KNOWN}" in text
    assert ("did you mean" in text) == (meant is not None)
    assert meant is None or f"did you mean {meant!r}" in text


def test_every_algorithm_says_when_to_use_it():
    assert all(algorithm.when for algorithm in BUILT_IN)


def test_names_are_unique_and_get_returns_the_line():
    names = [algorithm.name for algorithm in BUILT_IN]
    assert len(set(names)) == len(names)
    assert [get(name) for name in names] == list(BUILT_IN)


def test_the_public_table_holds_the_built_in_algorithms():
    table = flareclust.algorithms()
    assert {algorithm.name: table[algorithm.name] for algorithm in BUILT_IN} == {a.name: a for a in BUILT_IN}


@pytest.mark.parametrize("algorithm", BUILT_IN, ids=lambda a: a.name)
def test_parameters_have_defaults_and_leave_out_what_every_job_has(algorithm):
    parameters = algorithm.parameters()
    assert parameters
    assert not {"self", "X", "k", "seed"} & set(parameters)
    if algorithm.federated:
        executor, aggregator = algorithm.build(3)
        for name, default in parameters.items():
            if name == "members":  # null stands for all of them
                continue
            side = executor if f"_{name}" in vars(executor) else aggregator
            assert vars(side)[f"_{name}"] == getattr(side.params, name) == default, name


def test_parameters_of_both_sides_are_listed():
    assert get("kfed").parameters() == {
        "table_schema": None,
        "table_ranges": None,
        "categories": None,
        "compare": "none",
        "missing": "refuse",
        "min_count": 2,
        "scale": "none",
        "small_clusters": "withhold",
        "k_local": "auto",
        "labels_by": "induced",
        "start": None,
        "lloyd_rounds": 1,
        "weighted": False,
    }


# --- build ---


def test_settings_reach_the_side_that_knows_them():
    settings = {"k_local": {"site-1": 2}, "min_count": 3, "lloyd_rounds": 4, "weighted": True, "start": "site-1"}
    executor, aggregator = get("kfed").build(5, 7, settings)
    assert (executor.params.k, executor.params.seed, executor.params.k_local, executor.min_count) == (
        5,
        7,
        {"site-1": 2},
        3,
    )
    assert (aggregator.params.k, aggregator.params.seed) == (5, 7)
    assert (aggregator.params.lloyd_rounds, aggregator.params.weighted, aggregator.params.start) == (4, True, "site-1")
    assert "_lloyd_rounds" not in vars(executor)
    assert "_k_local" not in vars(aggregator)
    assert settings["k_local"] == {"site-1": 2}, "the caller's settings are left alone"


@pytest.mark.parametrize("name", ["k", "seed", "self", "X", "n_inits", "lloyd_round", "fl_ctx"])
def test_settings_that_an_algorithm_does_not_have_are_refused(name):
    with pytest.raises(
        UserError, match=f"feca has no parameter '{name}'.*it has min_count, small_clusters, local_kmeans, n_init"
    ):
        get("feca").build(3, 0, {name: 1})


def test_a_misspelt_setting_gets_the_nearest_one():
    with pytest.raises(UserError, match="did you mean 'lloyd_rounds'"):
        get("kfed").build(3, 0, {"loyd_rounds": 1})


@pytest.mark.parametrize(
    ("algorithm", "setting", "value", "message"),
    [
        ("feca", "n_init", 0, "n_init must be an integer from 1 to 10000"),
        ("feca", "n_init", 1.5, "n_init must be an integer"),
        ("feca", "n_init", "3", "n_init must be an integer"),
        ("feca", "n_init", True, "n_init must be an integer"),
        ("feca", "n_init", None, "n_init must be an integer"),
        ("feca", "n_init", float("nan"), "n_init must be an integer"),
        ("feca", "init", "x", "init must be one of k-means"),
        ("feca", "init", ["random"], "init must be one of k-means"),
        ("feca", "radius", "x", "radius must be one of empirical, theoretical"),
        ("feca", "radius", "emprical", "did you mean 'empirical'"),
        ("feca", "after_removal", 1, "after_removal must be one of drop, merge"),
        ("feca", "min_count", 0, "min_count must be an integer of at least 1"),
        ("kfed", "min_count", -1, "min_count must be"),
        ("kfed", "k_local", 4, "k_local is 4, more than k=3"),
        ("kfed", "k_local", 0, "k_local"),
        ("kfed", "k_local", "all", "k_local"),
        ("kfed", "k_local", True, "k_local"),
        ("kfed", "k_local", 1.5, "k_local"),
        ("kfed", "k_local", [1, 2], "k_local"),
        ("kfed", "k_local", {"a": 0}, "k_local of a"),
        ("kfed", "k_local", {"a": 1, "b": 4}, "k_local of b is 4, more than k=3"),
        ("kfed", "k_local", {"a": "2"}, "k_local of a"),
        ("kfed", "labels_by", "induce", "did you mean 'induced'"),
        ("kfed", "lloyd_rounds", 0, "lloyd_rounds must be an integer from 1 to 10000"),
        ("kfed", "weighted", "yes", "weighted must be true or false"),
        ("kfed", "weighted", 1, "weighted must be true or false"),
        ("kfed", "start", 3, "start must be"),
    ],
)
def test_values_that_a_side_cannot_use_are_refused(algorithm, setting, value, message):
    with pytest.raises(UserError, match=message):
        get(algorithm).build(3, 0, {setting: value})


@pytest.mark.parametrize("algorithm", FEDERATED, ids=lambda a: a.name)
@pytest.mark.parametrize(("k", "seed"), [(0, 0), (-1, 0), (2.5, 0), (True, 0), ("3", 0), (3, -1), (3, 0.5), (3, True)])
def test_k_and_seed_must_be_whole_numbers(algorithm, k, seed):
    with pytest.raises(UserError, match="must be an integer of at least"):
        algorithm.build(k, seed)
    with pytest.raises(UserError, match="must be an integer of at least"):
        algorithm.aggregator_class()(k=k, seed=seed)


@pytest.mark.parametrize("algorithm", FEDERATED, ids=lambda a: a.name)
def test_numpys_whole_numbers_become_pythons(algorithm):
    """They must be JSON in a job's configuration."""
    floor = {"min_count": np.int64(4)} if "min_count" in algorithm.parameters() else {}
    executor, aggregator = algorithm.build(np.int64(3), np.int32(1), floor)
    assert [type(value) for value in (executor.params.k, executor.params.seed, executor.min_count)] == [int] * 3
    assert [type(value) for value in (aggregator.params.k, aggregator.params.seed)] == [int] * 2


def test_central_has_no_sides_to_build():
    with pytest.raises(UserError, match="central is not federated"):
        get("central").build(3)


# --- algorithms of other packages ---

PLUGIN = """
import numpy as np
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.protocol.rounds import Round
from flareclust.federation.executor import ClusteringExecutor
from flareclust.preparation.settings import ClusteringParams
from flareclust.protocol.params import site
from flareclust.protocol.schema import Schema
from flareclust.protocol.registry import Algorithm

from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName

class MeanParams(ClusteringParams):
    shift: float = site(0.0, "Added to the mean.")

class MeanExecutor(ClusteringExecutor):
    params: MeanParams
    steps = {StepName.CLUSTER: Step(Schema(centroids="k d"))}

    def local(self, task, rows):
        return {"centroids": rows.X.mean(axis=0, keepdims=True) + self.params.shift}

class MeanAggregator(ClusteringAggregator):
    params: MeanParams
    executor = MeanExecutor

    def merge(self, round_, replies, rng):
        return Round({"centroids": np.mean([reply["centroids"] for reply in replies.values()], axis=0)}, done=True)

MEAN = Algorithm("mean", "the mean", __name__ + ".MeanExecutor", __name__ + ".MeanAggregator")
CLASH = Algorithm("feca", "another one", __name__ + ".MeanExecutor", __name__ + ".MeanAggregator")
"""


@pytest.fixture
def plugin(monkeypatch):
    """Install a package for as long as the test runs: a module, and what its entry points name."""
    module = ModuleType("flareclust_plugin")
    exec(PLUGIN, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def install(**values):
        def entry_points(*, group):
            assert group == "flareclust.algorithms"
            return [EntryPoint(name, value, group) for name, value in values.items()]

        monkeypatch.setattr(registry, "entry_points", entry_points)

    return install


def test_an_entry_point_adds_an_algorithm_that_runs(plugin):
    plugin(mean="flareclust_plugin:MEAN")
    assert list(algorithms()) == [*(algorithm.name for algorithm in BUILT_IN), "mean"]
    assert get("mean").parameters() == {"min_count": 2, "shift": 0.0, "table_schema": None}
    sites = {"a": np.array([[0.0], [2.0]]), "b": np.array([[4.0], [6.0]])}
    result = flareclust.run("mean", sites, k=1, shift=0.5)
    np.testing.assert_allclose(result.centroids, [[3.5]])
    assert result.params == {"min_count": 2, "shift": 0.5, "table_schema": None}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("same", "flareclust_plugin:CLASH"),
        ("class", "flareclust_plugin:MeanExecutor"),
        ("module", "flareclust_plugin"),
    ],
)
def test_an_entry_point_must_name_an_algorithm_with_a_name_of_its_own(plugin, name, value):
    plugin(**{name: value})
    with pytest.raises(UserError, match=f"entry point '{name}' must name an Algorithm with a name of its own"):
        algorithms()


@pytest.mark.parametrize("value", ["flareclust_no_such_package:MEAN", "flareclust_plugin:NO_SUCH_NAME"])
def test_an_entry_point_that_does_not_load_is_named(plugin, value):
    plugin(broken=value)
    with pytest.raises(UserError, match="broken"):
        algorithms()


def test_an_algorithm_whose_package_is_missing_says_which():
    deep = Algorithm("deep", "needs an extra", "flareclust_no_such_package.Executor", "flareclust_deep.Aggregator")
    for use in (deep.executor_class, deep.parameters, lambda: deep.build(3)):
        with pytest.raises(UserError, match="needs the package 'flareclust_no_such_package', which is not installed"):
            use()


def test_the_missing_package_is_the_one_that_the_module_imports(tmp_path, monkeypatch):
    (tmp_path / "flareclust_deep.py").write_text("import flareclust_no_such_package\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    deep = Algorithm("deep", "needs an extra", "flareclust_deep.Executor", "flareclust_deep.Aggregator")
    with pytest.raises(UserError, match="needs the package 'flareclust_no_such_package'"):
        deep.aggregator_class()


def test_a_plugins_classes_are_listed_where_its_name_is_said(plugin, tmp_path):
    plugin(mean="flareclust_plugin:MEAN")
    classes = ["flareclust_plugin.MeanExecutor", "flareclust_plugin.MeanAggregator"]
    assert list(of_plugins(["mean"])) == classes
    file = tmp_path / "resources.json"
    file.write_text('{"class_allow_list": [], "components": []}')
    prepare_site(tmp_path)
    assert not {*classes} & {*json.loads(file.read_text())["class_allow_list"]}
    _, changes = prepare_site(tmp_path, Settings(plugins=("mean",)))
    assert changes == [f"class_allow_list: added {name!r}" for name in classes]
    prepare_site(tmp_path)
    assert {*classes} < {*json.loads(file.read_text())["class_allow_list"]}, "what was allowed by name stays"
    with pytest.raises(UserError, match=r"no installed package has the algorithm 'meen'.*did you mean 'mean'"):
        of_plugins(["meen"])


def test_a_plugin_that_names_a_function_is_not_listed(plugin, monkeypatch):
    plugin(mean="flareclust_plugin:MEAN")
    monkeypatch.setattr(sys.modules["flareclust_plugin"], "MeanExecutor", len)
    with pytest.raises(UserError, match="expected a subclass of ClusteringExecutor"):
        of_plugins(["mean"])


def test_a_registered_plugins_job_carries_no_code_and_an_unregistered_ones_does(plugin, tmp_path, monkeypatch):
    plugin(mean="flareclust_plugin:MEAN")
    (tmp_path / "flareclust_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "flareclust_plugin")
    line = get("mean")
    unregistered = replace(line, title="another one of that name")
    assert [installed_plugin(one) for one in (line, unregistered, get("lloyd"))] == [("mean",), (), ()]
    for algorithm, code in ((line, []), (unregistered, ["flareclust_plugin.py"])):
        job = export_job(build_job(algorithm, {}, JobOptions(k=1)), tmp_path / "job")
        assert [path.name for path in job.rglob("*.py")] == code
    monkeypatch.delitem(sys.modules, "flareclust_plugin")
