"""Networks at devices: the loop is plain training for one device, gradients are averaged as IFCA has it."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra deep")

from flareclust.personal.learners import Learner
from flareclust.personal.methods import train_models
from flareclust.personal.networks import Perceptron
from tests.unit.personal.planted import planted, without_place


def test_federated_averaging_of_one_device_is_plain_training():
    split, _ = planted(devices=1)
    learner = Perceptron(3, 2, hidden=5, lr=0.1, updates=4, batch=None)
    course = train_models("global", learner, split, k=1, rounds=3)
    start = train_models("global", Perceptron(3, 2, hidden=5, lr=1e-30), split, k=1, rounds=1).models
    net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    net.load_state_dict({name: torch.from_numpy(value[0]) for name, value in start.items()})
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    rows = split.train["device-00"]
    for _ in range(12):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(torch.from_numpy(rows.X).float()), torch.from_numpy(rows.y)).backward()
        optimizer.step()
    for name, value in net.named_parameters():
        np.testing.assert_allclose(course.models[name][0], value.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("averaging", ["models", "gradients"])
def test_ifca_of_networks_recovers_planted_clusters(averaging):
    split, own = planted()
    learner = Perceptron(2, 2, hidden=8, lr=0.2, updates=10, batch=10)
    course = train_models("ifca", learner, without_place(split), k=2, rounds=20, averaging=averaging, seed=1)
    groups = [set(course.group[own[:, 0] == c]) for c in range(2)]
    assert [len(group) for group in groups] == [1, 1]
    assert groups[0] != groups[1]


def test_averaged_gradients_are_one_step_by_the_sum_over_all_rows():
    split, _ = planted(devices=3)
    learner = Perceptron(3, 2, hidden=4, lr=0.3)
    ours = train_models("ifca", learner, split, k=1, rounds=1, averaging="gradients", seed=2)
    start = train_models("ifca", Perceptron(3, 2, hidden=4, lr=1e-30), split, k=1, rounds=1, seed=2).models
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    net.load_state_dict({name: torch.from_numpy(value[0]) for name, value in start.items()})
    X = torch.from_numpy(np.concatenate([one.X for one in split.train.values()])).float()
    y = torch.from_numpy(np.concatenate([one.y for one in split.train.values()]))
    torch.nn.functional.cross_entropy(net(X), y).backward()
    for name, value in net.named_parameters():
        np.testing.assert_allclose(ours.models[name][0], (value - 0.3 * value.grad).detach().numpy(), atol=1e-6)


def test_losses_of_some_rows_are_those_of_the_first():
    split, _ = planted(devices=2)
    few, every = Perceptron(3, 2, hidden=4, loss_rows=5), Perceptron(3, 2, hidden=4)
    models = every.start(2, np.random.default_rng(0))
    rows = list(split.train.values())
    cut = [one.take(np.arange(5)) for one in rows]
    np.testing.assert_allclose(few.losses(models, few.hold(rows)), every.losses(models, every.hold(cut)))


def test_training_leaves_torchs_own_state_as_it_was():
    split, _ = planted(devices=2)
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    learner = Perceptron(3, 2, hidden=4)
    once, again = (train_models("global", learner, split, k=1, rounds=2, seed=5) for _ in range(2))
    assert all(np.array_equal(value, again.models[name]) for name, value in once.models.items())
    assert torch.equal(state, torch.random.get_rng_state())
    assert threads == torch.get_num_threads()


@pytest.mark.parametrize("groups", [[0, 1, 1, 0], [0, 0, 0, 0], [3, 2, 1, 0]])
def test_the_short_way_of_a_round_gives_the_same_means(groups):
    split, _ = planted(devices=4)
    learner = Perceptron(3, 2, hidden=6, lr=0.3, updates=4, batch=7)
    rows = list(split.train.values())
    rows[1] = rows[1].take(np.arange(9))
    rows[2] = rows[2].take(np.arange(0))  # counts for nothing
    data, counts, group = learner.hold(rows), np.array([len(one) for one in rows]), np.array(groups)
    models = learner.start(4, np.random.default_rng(0))
    short = learner.round(models, group, data, counts, np.random.default_rng(1))
    long = Learner.round(learner, models, group, data, counts, np.random.default_rng(1))
    for name, value in long.items():
        np.testing.assert_allclose(short[name], value, atol=2e-6)
        assert not np.allclose(value[groups[0]], models[name][groups[0]], atol=1e-4)


def test_first_weights_are_those_of_layers_that_torch_draws_by_seeds_of_31_bits():
    """The models of a seed stay the same from version to version."""
    found, rng = Perceptron(3, 2, hidden=4).start(2, np.random.default_rng(5)), np.random.default_rng(5)
    for j in range(2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**31)))
            layers = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
        for number, layer in zip((0, 2), layers, strict=True):
            for name, value in layer.named_parameters():
                np.testing.assert_array_equal(found[f"{number}.{name}"][j], value.detach().numpy())


def test_networks_made_in_several_threads_have_the_weights_of_their_seeds():
    """Torch's random state is one for all threads."""
    alone = [Perceptron(20, 4).start(1, np.random.default_rng(seed)) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            together = pool.map(lambda seed: Perceptron(20, 4).start(1, np.random.default_rng(seed)), range(4))
            for one, other in zip(alone, together, strict=True):
                assert all(np.array_equal(one[name], other[name]) for name in one)
