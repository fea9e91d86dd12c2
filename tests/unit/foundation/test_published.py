"""What jobs, kits and project files name is found by that path, in a process that has imported nothing else of it."""

import inspect
import pickle
from importlib import import_module
from importlib.util import find_spec

import pytest

from flareclust._foundation.published import _PLACES
from flareclust.platform.controller import ClusteringController
from tests.forked import run_each

_FRESH = """
import importlib, sys
def case(path):
    module = importlib.import_module(path)
    assert module.__name__ == path and not any(name.partition(".")[0] == "nvflare" for name in sys.modules)
"""


def test_each_path_is_found_in_a_fresh_process_and_imports_nothing_until_it_is_asked():
    assert run_each(_FRESH, [[path] for path in _PLACES]) == [0] * len(_PLACES)


@pytest.mark.parametrize("path", _PLACES)
def test_a_path_has_what_its_place_has(path):
    module, place = import_module(path), import_module(_PLACES[path])
    assert find_spec(path) is module.__spec__
    assert module.__loader__.get_source(path) == inspect.getsource(place)
    classes = [name for name, value in vars(place).items() if inspect.isclass(value) and not name.startswith("_")]
    assert all(getattr(module, name) is getattr(place, name) for name in classes)
    assert not hasattr(module, "nothing")
    assert not hasattr(module, "__wrapped__")


def test_a_published_class_is_named_by_its_path_and_has_its_source():
    assert ClusteringController.__module__ == "flareclust.aggregators.controller"
    assert pickle.loads(pickle.dumps(ClusteringController)) is ClusteringController
    assert "class ClusteringController" in inspect.getsource(ClusteringController)
