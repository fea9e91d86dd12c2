"""Linear evaluation of a network's features by a column of classes."""

import numpy as np
import pytest
from torch.nn import Sequential

import flareclust
from flareclust._foundation.errors import BadMessage, Refusal
from flareclust.aggregators import linear_evaluation as regression
from flareclust.data.tables import Table
from flareclust.deep import training
from flareclust.executors import linear_evaluation as linear
from flareclust.protocol.registry import get
from flareclust.testing.tools import exchanges

NAMES = (*(f"p{j}" for j in range(64)), "class")


def site(rng, n):
    which = rng.integers(0, 3, n)
    pixels = np.random.default_rng(9).normal(size=(3, 64))[which] + 0.3 * rng.normal(size=(n, 64))
    return Table(np.column_stack([pixels, which]), NAMES)


@pytest.fixture(scope="module")
def sites():
    rng = np.random.default_rng(0)
    return {f"site-{i}": site(rng, 60) for i in range(3)}


SETTINGS = {"rounds": 1, "epochs": 1, "class_column": "class", "linear_steps": 6}


def test_clear_classes_are_told_apart_and_the_column_is_no_pixel(sites):
    rows = {name: table.X for name, table in sites.items()}
    sent = exchanges(get("deepfeca"), sites, k=3, **SETTINGS)
    assert {tuple(arrays["image"]) for task, arrays in sent if task.step == "shape"} == {(8, 8, 1)}
    result = flareclust.run("deepfeca", data={name: frame(X) for name, X in rows.items()}, k=3, **SETTINGS)
    assert result.metrics["linear_accuracy"] > 0.9
    assert result.arrays["linear_coefficients"].shape[0] == 3
    assert len(result.arrays["radii"]) == len(result.arrays["centroids"])
    assert not {"linear_step", "linear_moments", "last_centroids"} & {*result.arrays}


def test_all_steps_share_the_features_that_each_site_computes_once(sites, monkeypatch):
    networks, embed = [], training.embed
    monkeypatch.setattr(training, "embed", lambda *arguments: networks.append(type(arguments[0])) or embed(*arguments))
    exchanges(get("deepfeca"), sites, k=3, **SETTINGS)
    assert networks.count(Sequential) == len(sites)  # backbones


def frame(X):
    import pandas as pd

    return pd.DataFrame(X, columns=list(NAMES))


def test_rows_held_out_are_a_fifth_and_count_for_accuracy_only(sites):
    sent = exchanges(get("deepfeca"), sites, k=3, **SETTINGS)
    last = [arrays for task, arrays in sent if task.step == linear.GRADIENT][-3:]
    assert {int(arrays["tested"]) for arrays in last} == {12}
    moments = [arrays["moments"] for task, arrays in sent if task.step == linear.MOMENTS]
    assert all(m[-1, -1] == 48 for m in moments)


def test_the_same_rows_are_held_out_in_every_step():
    np.testing.assert_array_equal(linear.held_out(50, 3, "a"), linear.held_out(50, 3, "a"))
    assert (linear.held_out(50, 3, "a") != linear.held_out(50, 3, "b")).any()


def test_nothing_is_held_out_below_the_floor():
    assert len(linear.held_out(49, 0, "a", 10)) == 0
    assert len(linear.held_out(50, 0, "a", 10)) == 10


@pytest.mark.parametrize(
    ("step", "reply"),
    [
        (linear.MOMENTS, {"moments": -np.eye(3)}),
        (linear.MOMENTS, {"moments": np.triu(np.ones((3, 3)))}),
        (linear.MOMENTS, {"moments": np.ones((3, 2))}),
        (linear.GRADIENT, {"gradient": np.ones((3, 3)), "correct": np.array(3), "tested": np.array(2)}),
    ],
)
def test_sums_that_are_not_of_rows_are_refused(step, reply):
    with pytest.raises(BadMessage):
        linear.STEPS[step].schema.check(reply)


def test_moments_of_no_rows_end_the_job_in_words():
    with pytest.raises(flareclust.JobFailed, match="second moments are not those of any rows"):
        regression.begun(3, [{"moments": np.zeros((4, 4))}])


@pytest.mark.parametrize(
    "coefficients", [None, np.zeros((2, 3)), np.zeros((20_000, 257)), np.full((3, 257), np.nan)], ids=str
)
def test_coefficients_of_a_faulty_server_are_refused(coefficients):
    arrays = {} if coefficients is None else {"coefficients": coefficients}
    with pytest.raises(BadMessage, match="coefficients"):
        linear.gradient(np.ones((9, 256)), np.arange(9) % 3, np.array([0]), arrays)


def test_masked_sums_give_the_same_accuracy(sites):
    frames = {name: frame(table.X) for name, table in sites.items()}
    plain, masked = (
        flareclust.run("deepfeca", frames, k=3, secure_sums=secure, **SETTINGS) for secure in (False, True)
    )
    np.testing.assert_allclose(
        masked.arrays["linear_coefficients"], plain.arrays["linear_coefficients"], rtol=1e-6, atol=1e-9
    )
    assert masked.metrics["linear_accuracy"] == plain.metrics["linear_accuracy"]


@pytest.mark.parametrize("value", [-1.0, 0.5, 1e5, np.nan])
def test_a_column_that_holds_no_classes_is_refused_without_its_values(sites, value):
    table = sites["site-0"]
    X = table.X.copy()
    X[3, -1] = value
    with pytest.raises(Refusal, match="something else than integers from 0 to 9999") as caught:
        linear.classes_of(Table(X, NAMES), "class")
    assert str(value) not in str(caught.value).replace("9999", "")


def test_a_column_that_is_not_there_is_named(sites):
    with pytest.raises(Refusal, match="no column with the name that class_column gives"):
        linear.classes_of(sites["site-0"], "grade")


def test_a_policy_excludes_it_before_anything_is_trained(sites):
    frames = {name: frame(table.X) for name, table in sites.items()}
    with pytest.raises(flareclust.JobFailed, match="its policy shows means of rows, which have no class"):
        flareclust.run("deepfeca", frames, k=3, policy={}, **SETTINGS)


def test_a_server_cannot_ask_for_classes_that_the_job_does_not_name(sites):
    sent = exchanges(get("deepfeca"), sites, k=3, **SETTINGS)
    task = next(task for task, _ in sent if task.step == linear.GRADIENT)
    executor, _ = get("deepfeca").build(3)
    with pytest.raises(Refusal, match="which the job's settings or its policy exclude"):
        executor.answer(task, sites["site-0"], lambda: False)
