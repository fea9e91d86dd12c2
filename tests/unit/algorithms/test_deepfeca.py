"""DeepFeCA: Algorithm 6 against a second account of it, its centroid steps, and faults."""

import json

import numpy as np
import pytest
import torch

import flareclust
from flareclust._foundation.errors import BadMessage, JobFailed, Refusal
from flareclust._foundation.typing import never_abort
from flareclust.aggregators import deepfeca as server
from flareclust.aggregators.deepfeca import DeepFeCAAggregator, _DeepFeCAState
from flareclust.aggregators.feca import FeCAAggregator
from flareclust.core.scaling import of_length_one
from flareclust.executors import deepfeca as client
from flareclust.executors.deepfeca import TRAIN, DeepFeCAExecutor
from flareclust.executors.feca import FeCAExecutor
from flareclust.federation.server import ServerJob
from flareclust.preparation.settings import MetricParams
from flareclust.protocol.outcome import devices
from flareclust.protocol.registry import get
from flareclust.protocol.replies import SiteReply, accept
from flareclust.protocol.rounds import Round
from flareclust.protocol.sizes import reply_sizes
from flareclust.protocol.task import StepName, Task
from flareclust.testing.tools import exchanges
from tests.computed import computed, merged

OWN = "tests.unit.deep.networks_of_ours.Flat"
SIDE = 8


def patterns(rng, n):
    """Images (n, 64) of four patterns with noise, and the pattern of each."""
    which = rng.integers(0, 4, n)
    shapes = np.random.default_rng(0).normal(size=(4, SIDE * SIDE))
    return shapes[which] + 0.3 * rng.normal(size=(n, SIDE * SIDE)), which


@pytest.fixture(scope="module")
def sites():
    rng = np.random.default_rng(1)
    return {f"site-{i}": patterns(rng, n)[0] for i, n in enumerate((50, 70, 90))}


def step_by_step(sites, k, rounds, lr):
    """Algorithm 6 in plain torch, with FeCA's two sides as they are: one batch, no momentum, no changed images."""
    from flareclust._foundation.seeding import stream
    from flareclust.deep import images as deep_images
    from flareclust.deep import networks as deep_networks

    shape = np.array([SIDE, SIDE, 1])
    model, feca, merge = deep_networks.build(OWN, shape, 0), FeCAExecutor(k), FeCAAggregator(k)
    images = {site: torch.from_numpy(deep_images.as_images(rows, shape)).float() for site, rows in sites.items()}
    index = 1
    for t in range(rounds + 1):
        model.eval()
        with torch.no_grad():
            embedded = {site: model(x).numpy().astype(np.float64) for site, x in images.items()}
        replies = {
            site: computed(feca, Task("cluster", index, {}, site), e, stream(0, index, site))
            for site, e in embedded.items()
        }
        merged = merge.merge(merge.begin(), replies, np.random.default_rng(0)).task["centroids"]
        centroids = merged / np.linalg.norm(merged, axis=1, keepdims=True)
        if t == rounds:
            return model, centroids
        states = []
        for site, x in images.items():
            own = deep_networks.build(OWN, shape, 0)
            own.load_state_dict(model.state_dict())
            y = torch.from_numpy(((embedded[site][:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1))
            own.train()
            loss = torch.nn.functional.cross_entropy(own(x) @ torch.from_numpy(centroids).float().T / 0.1, y)
            loss.backward()
            with torch.no_grad():
                for weight in own.parameters():
                    weight -= lr * weight.grad
            states.append((len(x), own.state_dict()))
        total = sum(n for n, _ in states)
        average = {
            name: sum(n * state[name].double() for n, state in states) / total if value.is_floating_point() else value
            for name, value in model.state_dict().items()
        }
        model.load_state_dict(average)
        index += 2


def test_algorithm_6_step_by_step(sites):
    settings = {"network": OWN, "batch": 1000, "epochs": 1, "momentum": 0.0, "augment": "none", "lr": 0.1}
    result = flareclust.run("deepfeca", sites, k=4, rounds=2, **settings)
    model, centroids = step_by_step(sites, 4, 2, 0.1)
    np.testing.assert_allclose(result.centroids, centroids, atol=1e-5)
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            np.testing.assert_allclose(result.arrays[f"weights.{name}"], value.numpy(), atol=1e-5)


def test_feca_is_the_same_objects():
    assert client.CENTROIDS["feca"] is FeCAExecutor
    assert server._CENTROIDS["feca"] is FeCAAggregator


@pytest.mark.parametrize("how", [{}, {"secure_sums": True, "centroids": "mavg"}, {"policy": {"min_count": 5}}])
def test_the_result_names_what_each_site_computed_on(sites, tmp_path, how):
    result = flareclust.run("deepfeca", sites, k=4, rounds=1, device="cpu", out=tmp_path / "out", **how)
    named = dict.fromkeys(sorted(sites), "cpu")
    assert result.to_json()["devices"] == named
    assert json.loads((tmp_path / "out" / "result.json").read_text())["devices"] == named
    replies = {
        name: {"image": np.array([8, 8, 1]), "cuda": np.array(on_gpu), "classes": np.array(0)}
        for name, on_gpu in (("a", 1), ("b", 0))
    }
    aggregator = DeepFeCAAggregator(4)
    assert devices(merged(aggregator, aggregator.begin(), replies).state.arrays()) == {"a": "cuda", "b": "cpu"}


@pytest.mark.parametrize(
    "centroids", [name for name, of in client.CENTROIDS.items() if issubclass(of.params_class(), MetricParams)]
)
def test_metric_cosine_of_a_centroid_step_would_change_nothing(centroids):
    """Embeddings have length 1, and so have DeepFeCA's merged centroids."""
    embedded = {
        site: of_length_one(np.random.default_rng(i).normal(np.eye(6)[i % 3], 0.3, (50, 6)))
        for i, site in enumerate("abcd")
    }
    found = []
    for metric in ("euclidean", "cosine"):
        executor = client.CENTROIDS[centroids](3, 0, metric=metric)
        aggregator = server._CENTROIDS[centroids](3, 0, metric=metric)
        first = aggregator.begin()
        replies = {
            site: executor.answer(Task(first.step, 0, first.task, site), rows, never_abort).arrays
            for site, rows in embedded.items()
        }
        replies = {
            site: {name: sent[name] for name in aggregator.executor.steps[first.step].schema.fields}
            for site, sent in replies.items()
        }
        found.append(of_length_one(ServerJob(aggregator).advance(first, replies).task["centroids"]))
    np.testing.assert_allclose(found[0], found[1], atol=1e-12)


@pytest.mark.parametrize("centroids", client.CENTROIDS)
def test_every_centroid_step_finds_clear_clusters(sites, centroids):
    rng = np.random.default_rng(2)
    rows, truth = zip(*(patterns(rng, 60) for _ in range(3)), strict=True)
    result = flareclust.run("deepfeca", dict(zip("abc", rows, strict=True)), k=4, rounds=1, centroids=centroids)
    pure = [
        np.bincount(truth[i][result.site_labels[site] == c], minlength=4).max(initial=0)
        for i, site in enumerate("abc")
        for c in range(len(result.centroids))
    ]
    assert sum(pure) >= 0.9 * 180
    np.testing.assert_allclose(np.linalg.norm(result.centroids, axis=1), 1.0)


def test_rounds_are_two_exchanges_each_and_a_last_one(sites):
    asked = [task.step for task, _ in exchanges(get("deepfeca"), {"a": sites["site-0"]}, k=4, rounds=2)]
    assert asked == ["shape", "cluster", "train", "cluster", "train", "cluster"]
    ffcm = [
        task.step
        for task, _ in exchanges(get("deepfeca"), sites, k=4, rounds=1, centroids="ffcm")
        if task.site == "site-0"
    ]
    assert ffcm == ["shape", "cluster", "fuzzy", "train", "cluster", "fuzzy"]


def test_the_average_is_weighted_by_rows():
    replies = {
        "a": {"weights": 10 * np.array([1.0, 2.0]), "counts": np.array(10), "loss": np.array(10.0)},
        "b": {"weights": 30 * np.array([5.0, 2.0]), "counts": np.array(30), "loss": np.array(90.0)},
    }
    before = Round({"image": np.zeros(3)}, state=_DeepFeCAState(), step=TRAIN)
    after = DeepFeCAAggregator(3).merge(before, replies, np.random.default_rng(0))
    np.testing.assert_allclose(after.task["weights"], [4.0, 2.0])
    assert after.diagnostics["loss"] == 2.5


def test_masked_sums_give_the_same_network(sites):
    plain, masked = (flareclust.run("deepfeca", sites, k=4, rounds=1, secure_sums=secure) for secure in (False, True))
    np.testing.assert_allclose(masked.arrays["weights"], plain.arrays["weights"], rtol=0, atol=1e-12)


def test_a_policy_rounds_the_numbers_of_rows_with_the_weights(sites):
    sent = [
        (task, arrays)
        for task, arrays in exchanges(
            get("deepfeca"),
            sites,
            k=4,
            rounds=1,
            policy=flareclust.privacy.policy.Policy(min_count=10, round_counts=20),
        )
        if task.step == TRAIN
    ]
    assert {int(arrays["counts"]) for _, arrays in sent} == {40, 80}
    for task, arrays in sent:
        moved = arrays["weights"] / arrays["counts"] - task.arrays["weights"]
        assert np.abs(moved).max() < 1  # and not a multiple of the weights


def test_sites_with_other_images_are_left_out_by_name(sites):
    odd = np.random.default_rng(0).normal(size=(40, 100))
    with pytest.raises(
        JobFailed, match="site-odd has images of 10 x 10 x 1 where 3 other sites have images of 8 x 8 x 1"
    ):
        flareclust.run("deepfeca", {**sites, "site-odd": odd}, k=4, rounds=1, min_sites=4)
    result = flareclust.run("deepfeca", {**sites, "site-odd": odd}, k=4, rounds=1)
    assert result.warnings[0].startswith("site-odd has images of 10 x 10 x 1")


def test_fewer_images_than_k_are_refused_by_the_site(sites):
    result = flareclust.run("deepfeca", {**sites, "tiny": sites["site-0"][:3]}, k=4, rounds=1)
    assert any("tiny has fewer rows than k=4" in warning for warning in result.warnings)


def asked_of_a_site(sites, **changes):
    task, _ = next(one for one in exchanges(get("deepfeca"), sites, k=4, rounds=1) if one.task.step == TRAIN)
    executor = DeepFeCAExecutor(4)
    return executor.answer(Task(TRAIN, 2, {**task.arrays, **changes}, "site-0"), sites["site-0"], lambda: False)


@pytest.mark.parametrize(
    "changes",
    [
        {"image": np.array([8, 8, 2**40])},
        {"image": np.array([-8, 8, 1])},
        {"weights": np.zeros(3)},
        {"weights": np.array(["a"])},
        {"prototypes": np.zeros((4, 3))},
        {"prototypes": np.zeros((5, 64))},
        {"prototypes": np.full((4, 64), np.nan)},
    ],
    ids=str,
)
def test_a_faulty_server_gets_a_refusal(sites, changes):
    with pytest.raises((BadMessage, Refusal)):
        asked_of_a_site(sites, **changes)


def test_a_step_of_an_algorithm_that_the_job_does_not_use_is_refused(sites):
    task, _ = next(one for one in exchanges(get("deepfeca"), sites, k=4, rounds=1) if one.task.step == "cluster")
    with pytest.raises(BadMessage, match="asked for the step 'fuzzy'"):
        DeepFeCAExecutor(4).answer(Task("fuzzy", 1, task.arrays, "site-0"), sites["site-0"], lambda: False)


def test_rows_are_never_answered_about_without_a_network(sites):
    with pytest.raises(BadMessage, match="image: expected images of 8 x 8 x 1"):
        DeepFeCAExecutor(4).answer(Task("cluster", 1, {}, "site-0"), sites["site-0"], lambda: False)


def test_weights_of_another_length_leave_their_site_out_by_name(sites):
    asked = [task for task, _ in exchanges(get("deepfeca"), sites, k=4, rounds=1) if task.step == TRAIN]
    round_ = Round(asked[0].arrays, step=TRAIN)
    good = {"weights": asked[0].arrays["weights"], "counts": np.array(50), "loss": np.array(1.0)}
    answers = {"a": SiteReply(good), "b": SiteReply(good | {"weights": np.zeros(7)})}
    job = ServerJob(DeepFeCAAggregator(4))
    _, problems, _ = accept(
        job.schema(TRAIN),
        answers,
        ["a", "b"],
        reply_sizes(round_.step, round_.task),
        None,
        job.limits(round_),
    )
    assert list(problems) == ["b"]
    assert "axis p has 7 entries" in problems["b"]


@pytest.mark.parametrize(
    "changes",
    [
        {"image": np.array([8])},
        {"image": np.array([8, 8, 7])},
        {"image": np.array([0, 0, 0])},
        {"image": np.array([10**7, 10**7, 1])},
        {"classes": np.array(2**60)},
        {"cuda": np.array(2)},
    ],
    ids=str,
)
def test_shapes_that_are_none_are_refused(changes):
    good = {"image": np.array([8, 8, 1]), "cuda": np.array(0), "classes": np.array(0)}
    schema = DeepFeCAExecutor.steps["shape"].schema
    schema.check(good)
    with pytest.raises(BadMessage):
        schema.check(good | changes)


def test_as_many_sites_with_other_images_end_the_job(sites):
    odd = np.random.default_rng(0).normal(size=(40, 100))
    with pytest.raises(JobFailed, match="images of 10 x 10 x 1, and as many sites have others"):
        flareclust.run("deepfeca", {"a": sites["site-0"], "b": odd}, k=4, rounds=1)


def test_a_training_that_diverges_is_named_with_site_and_round(sites, monkeypatch):
    from flareclust.deep import training

    def diverged(network, images, *others):
        if len(images) == len(sites["site-1"]):
            raise Refusal("lost the training in epoch 1")
        return train(network, images, *others)

    train = training.train
    monkeypatch.setattr(training, "train", diverged)
    result = flareclust.run("deepfeca", sites, k=4, rounds=1, epochs=1)
    assert "site-1 in round 2 lost the training in epoch 1" in result.warnings


@pytest.mark.parametrize("settings", [{"k_local": 2}, {"k_local": 9, "centroids": "kfed"}])
def test_k_local_is_of_kfed_and_at_most_k(sites, settings):
    with pytest.raises(flareclust.UserError, match="k_local"):
        flareclust.run("deepfeca", sites, k=4, rounds=1, **settings)


def test_a_network_with_dropout_is_repeatable(sites):
    own = {"network": "tests.unit.deep.networks_of_ours.Dropping", "rounds": 1, "epochs": 1}
    first, second = (flareclust.run("deepfeca", sites, k=4, **own).arrays["weights"] for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_centroids_at_the_origin_stay():
    np.testing.assert_allclose(of_length_one(np.array([[3.0, 4.0], [0.0, 0.0]])), [[0.6, 0.8], [0.0, 0.0]])


@pytest.mark.parametrize("step", [*StepName.SCORING, "score_counts"])
def test_sums_of_all_rows_of_the_algorithm_for_the_centroids_are_not_asked_for(step):
    """A choice of k is not among its settings, and the server chooses the network that makes its rows."""
    executor = DeepFeCAExecutor(3, 0, centroids="pooled", image="none", network="mlp")
    task = Task(step, 0, {"candidates": np.zeros((3, 64)), "candidate": np.array([3])}, "a")
    with pytest.raises(BadMessage, match=f"was asked for the step '{step}', which DeepFeCAExecutor does not have"):
        executor.answer(task, np.random.default_rng(0).normal(size=(30, 4)), never_abort)
    assert step not in ServerJob(get("deepfeca").build(3, 0, {"centroids": "pooled"})[1]).steps
