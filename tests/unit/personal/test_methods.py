"""Personalised models: planted clusters are recovered, bytes are those of the models, the loop is federated averaging."""

import numpy as np
import pytest

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.personal import methods
from flareclust.personal.methods import METHODS, Course, train_models
from flareclust.personal.models import Linear
from flareclust.personal.rows import Labelled, Split, hold_out
from tests.unit.personal.planted import planted, without_place


def run(method: str, split: Split, **settings: object) -> Course:
    chosen = {"k": 2, "rounds": 15, "seed": 3, **settings}
    return train_models(method, Linear(split.columns, split.classes, lr=0.05), split, **chosen)


def test_ifca_recovers_planted_clusters():
    split, own = planted()
    course = run("ifca", without_place(split))
    first = course.group[own[:, 0] == 0]
    second = course.group[own[:, 0] == 1]
    assert len(set(first)) == len(set(second)) == 1
    assert first[0] != second[0]
    assert course.accuracy[-1].min() > 0.8


def test_kfed_gives_each_cluster_its_model_and_beats_one_for_all():
    split, own = planted()
    course, one = run("kfed", split), run("global", split)
    assert [int(g) for g in course.group] == [
        int(course.group[0]) if c == 0 else int(course.group[1]) for c in own[:, 0]
    ]
    assert course.accuracy[-1].mean() > 0.85
    assert course.accuracy[-1].mean() > one.accuracy[-1].mean() + 0.1


def test_a_device_with_rows_of_two_clusters_trains_two_models():
    split, _ = planted(clusters=4, per_device=2, rows=120)
    course = run("kfed", split, k=4, k_local=2)
    assert np.bincount(course.parts.device).tolist() == [2] * 8
    for i, name in enumerate(split.names):
        parts = np.flatnonzero(course.parts.device == i)
        assert sum(len(course.parts.train[p]) for p in parts) == len(split.train[name])
        assert sum(len(course.parts.test[p]) for p in parts) == len(split.test[name])
        for p in parts:  # the place shows the cluster: of train and test rows the same one
            places = np.concatenate([course.parts.train[p].X[:, 2], course.parts.test[p].X[:, 2]])
            assert len(set(places)) == 1
    assert course.accuracy[-1].mean() > 0.8


def test_bytes_are_those_of_the_models():
    split, _ = planted()
    size, m = 8 * (3 + 1), 8  # three weights and an intercept
    up = {method: run(method, split, k=4, rounds=2).bytes_up.tolist() for method in METHODS}
    down = {method: run(method, split, k=4, rounds=2).bytes_down.tolist() for method in METHODS}
    assert up == {"kfed": [m * size] * 2, "ifca": [m * size] * 2, "global": [m * size] * 2, "local": [0, 0]}
    assert down["ifca"] == [4 * m * size] * 2
    assert down["kfed"] == down["global"] == [m * size] * 2
    assert run("kfed", split).clustering_up > 0
    assert run("ifca", split).clustering_up == 0


def test_kfed_of_the_devices_rows_is_the_registered_algorithm(monkeypatch):
    from flareclust.aggregators.kfed import KFedAggregator
    from flareclust.executors.kfed import KFedExecutor

    seen = []
    run_inprocess = methods.run_inprocess

    def watched(algorithm, *args):
        seen.append(algorithm)
        return run_inprocess(algorithm, *args)

    monkeypatch.setattr(methods, "run_inprocess", watched)
    run("kfed", planted()[0], rounds=1)
    assert [type(side) for side in seen[0].build(2, 0, {})] == [KFedExecutor, KFedAggregator]


def test_one_device_of_one_cluster_is_trained_as_alone():
    split, _ = planted(devices=1)
    courses = [run(method, split, k=1, rounds=3) for method in ("local", "global", "kfed")]
    for course in courses[1:]:
        for name, value in course.models.items():
            np.testing.assert_allclose(value, courses[0].models[name], rtol=1e-12)


def test_local_models_differ_and_cost_no_bytes():
    split, _ = planted()
    course = run("local", split, rounds=2)
    assert len(course.models["coef"]) == 8
    assert len(np.unique(course.models["coef"][:, 0, 0])) == 8
    assert course.bytes_up.sum() == course.bytes_down.sum() == 0


def test_rounds_are_told_with_the_bytes_so_far():
    told = []
    split, _ = planted()
    course = run("kfed", split, rounds=2, on_round=lambda *round_: told.append(round_))
    assert [index for index, *_ in told] == [1, 2]
    assert [up for *_, up, _ in told] == (course.clustering_up + np.cumsum(course.bytes_up)).tolist()
    assert [down for *_, down in told] == (course.clustering_down + np.cumsum(course.bytes_down)).tolist()
    np.testing.assert_array_equal([accuracy for _, accuracy, *_ in told], course.accuracy)


def test_a_loss_that_diverges_names_device_and_round():
    split, _ = planted()
    large = {name: Labelled(one.X * 1e200, one.y) for name, one in split.train.items()}
    with pytest.raises(JobFailed, match=r"round 1: the weights that device-00 and 7 others trained .*smaller lr"):
        train_models("global", Linear(3, 2, lr=1e150), Split(large, split.test, 2), k=1, rounds=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "ifcaa"}, "did you mean 'ifca'"),
        ({"k": 9}, "k is 9, more clusters than 8 devices can have"),
        ({"k": 9, "method": "ifca"}, "k is 9, more clusters than 8 devices can have"),
        ({"k": 17, "k_local": 2}, "k is 17, more clusters"),
        ({"rounds": 0}, "rounds must be an integer of at least 1"),
        ({"averaging": "gradients", "method": "ifca"}, "gradients are averaged with the model mlp only"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    split, _ = planted()
    with pytest.raises(UserError, match=message):
        run(settings.pop("method", "kfed"), split, **settings)


def test_rows_are_held_out_of_every_device():
    split, _ = planted()
    assert {len(one) for one in split.test.values()} == {15}
    assert {len(one) for one in split.train.values()} == {45}
    again, _ = planted()
    np.testing.assert_array_equal(split.test["device-00"].X, again.test["device-00"].X)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({}, "no devices"),
        ({"a": Labelled(np.zeros((1, 2)), np.zeros(1, dtype=int))}, "a has 1 rows"),
        ({"a": Labelled(np.zeros((4, 2)), np.zeros(4, dtype=int))}, "all rows are of one class"),
        (
            {"a": Labelled(np.zeros((4, 2)), np.arange(4)), "b": Labelled(np.zeros((4, 3)), np.arange(4))},
            "2 to 3 columns",
        ),
    ],
)
def test_devices_that_cannot_be_trained_are_refused(rows, message):
    with pytest.raises(UserError, match=message):
        hold_out(rows, 0.5, 0)
