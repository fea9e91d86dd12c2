"""Parameters of algorithms: one class, from which both sides, their constructors and the jobs' JSON follow."""

import inspect
import json

import pytest

from flareclust._foundation.errors import UserError
from flareclust.aggregators.fkm import FKMAggregator
from flareclust.aggregators.masked import MaskedAggregator
from flareclust.engines.options import JobOptions
from flareclust.executors.feca import FeCAExecutor
from flareclust.executors.fkm import FKMExecutor
from flareclust.executors.masked import MaskedExecutor
from flareclust.federation.executor import ClusteringExecutor
from flareclust.platform.job import build_job, export_job
from flareclust.preparation.settings import ClusteringParams
from flareclust.protocol.params import GENERAL, Params, both, server, side_of, site
from flareclust.protocol.registry import BUILT_IN, get


class ExampleParams(ClusteringParams):
    after: int = server(1, "Of the server.", ge=1)
    before: int = site(2, "Of the sites.", ge=1)
    common: bool = both(False, "Of both.")


class ExampleExecutor(FeCAExecutor):
    params: ExampleParams  # type: ignore[assignment]


def test_sites_parameters_come_first_and_each_side_has_its_own():
    assert list(ExampleParams.own()) == ["min_count", "before", "common", "after", "table_schema"]
    assert list(ExampleParams.own("site")) == ["min_count", "before", "common", "table_schema"]
    assert list(ExampleParams.own("server")) == ["common", "after", "table_schema"]
    assert {name: side_of(field) for name, field in ExampleParams.own().items()} == {
        "min_count": "site",
        "before": "site",
        "common": "both",
        "after": "server",
        "table_schema": "both",
    }


def test_a_constructor_takes_the_parameters_of_its_side_with_their_defaults():
    parameters = inspect.signature(ExampleExecutor.__init__).parameters
    assert {name: one.default for name, one in parameters.items()} == {
        "self": inspect.Parameter.empty,
        "k": inspect.Parameter.empty,
        "seed": 0,
        "min_count": 2,
        "before": 2,
        "common": False,
        "table_schema": None,
    }
    assert ExampleExecutor(3, before=4).params == ExampleParams(k=3, before=4)
    assert ExampleExecutor(3, 7).params.seed == 7


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"befor": 1}, r"unknown setting 'befor' \(did you mean 'before'\?\)"),
        ({"before": 0}, "before must be an integer of at least 1, got 0"),
        ({"k": 0}, "k must be an integer of at least 1, got 0"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
    ],
    ids=str,
)
def test_a_constructor_refuses_wrong_values(settings, words):
    with pytest.raises(UserError, match=words):
        ExampleExecutor(**({"k": 3} | settings))


def test_a_class_without_parameters_of_its_own_has_those_of_its_base():
    class Plain(FeCAExecutor):
        pass

    assert Plain.params_class() is FeCAExecutor.params_class()
    assert Plain(3, n_init=2).params == FeCAExecutor(3, n_init=2).params
    assert ClusteringExecutor.params_class() is Params


def test_parameters_named_by_a_text_are_found():
    """As in a module with `from __future__ import annotations`."""
    late = type("Late", (FeCAExecutor,), {"__annotations__": {"params": "ExampleParams"}, "__module__": __name__})
    assert late.params_class() is ExampleParams


@pytest.mark.parametrize("algorithm", BUILT_IN, ids=lambda a: a.name)
def test_both_sides_declare_the_same_parameters(algorithm):
    if algorithm.federated:
        assert algorithm.aggregator_class().params_class() is algorithm.executor_class().params_class()
    assert set(GENERAL) <= set(algorithm.params_class().model_fields)


@pytest.mark.parametrize("algorithm", [a for a in BUILT_IN if a.federated], ids=lambda a: a.name)
def test_every_parameter_reaches_the_side_that_reads_it(algorithm):
    executor, aggregator = algorithm.build(4)
    for name, field in algorithm.params_class().own().items():
        readers = {"site": [executor], "server": [aggregator], "both": [executor, aggregator]}[side_of(field)]
        assert all(
            f"_{name}" in vars(reader) and name in inspect.signature(reader.__init__).parameters for reader in readers
        )


def test_a_job_has_what_differs_from_the_defaults_at_the_side_that_reads_it(tmp_path):
    params = {"phi": "cosine", "n_init": 3, "alpha": 0.5}
    folder = export_job(build_job(get("masked"), params, JobOptions(k=5, seed=2)), tmp_path / "job") / "app" / "config"
    client = json.loads((folder / "config_fed_client.json").read_text())
    arguments = client["executors"][0]["executor"]["args"]
    assert arguments == {"k": 5, "seed": 2, "phi": "cosine", "n_init": 3}
    assert MaskedExecutor(**arguments).params.phi == "cosine"
    components = json.loads((folder / "config_fed_server.json").read_text())["components"]
    (arguments,) = [c["args"] for c in components if c["path"].endswith("MaskedAggregator")]
    assert arguments == {"k": 5, "seed": 2, "phi": "cosine", "alpha": 0.5}
    assert MaskedAggregator(**arguments).params.alpha == 0.5


def test_parameters_that_do_not_go_together_are_refused_before_a_side_is_made():
    with pytest.raises(UserError, match="k_min=5 is more than k=3"):
        get("pooled").build(3, params={"k_min": 5})
    with pytest.raises(UserError, match=r'scale=standard does not go with distribution="dirichlet"'):
        get("proxy").build(3, params={"distribution": "dirichlet", "scale": "standard"})


def test_a_form_of_an_algorithm_leaves_out_parameters_that_do_not_apply():
    assert "robust" in get("fkm").parameters()
    assert "robust" not in get("fkm-common").parameters()
    assert FKMExecutor.params_class() is FKMAggregator.params_class()


@pytest.mark.parametrize("algorithm", BUILT_IN, ids=lambda algorithm: algorithm.name)
def test_a_parameter_is_what_the_most_derived_class_says_of_it(algorithm):
    """pydantic copies the fields of all bases, the first base last: one that repeats an older field would undo a newer one."""
    params = algorithm.params_class()
    for name, field in params.model_fields.items():
        source = next(cls for cls in params.__mro__ if name in vars(cls).get("__annotations__", {}))
        assert field.description == source.model_fields[name].description, f"{name} is not that of {source.__name__}"
        assert side_of(field) == side_of(source.model_fields[name])


def test_a_method_where_nvflare_looks_for_a_parameter_is_refused():
    class Hiding(FeCAExecutor):
        params: ExampleParams  # type: ignore[assignment]

        def _before(self):
            """Hide the parameter."""

    with pytest.raises(TypeError, match=r"Hiding\._before is where NVFlare finds the parameter before"):
        Hiding(2)
