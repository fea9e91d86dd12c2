"""Devices trained side by side: the same as one by one, padded rows never counted, averages as FedAvg has them."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra deep")

from torch import nn

from flareclust._foundation.errors import UserError
from flareclust.personal.local_training import Devices, _draw_rows, average, correct, losses, make_devices, train

SIZES = (7, 3, 12)


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def some_rows(sizes: tuple[int, ...] = SIZES) -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(1)
    return [rng.normal(size=(n, 4)) for n in sizes], [rng.integers(0, 3, n) for n in sizes]


def some_devices() -> Devices:
    return make_devices(*some_rows())


def generator(seed: int = 0) -> "torch.Generator":
    return torch.Generator().manual_seed(seed)


def assert_close(ours: dict, theirs: dict) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], msg=name)


def shared(network, m):
    return {name: value.detach().expand(m, *value.shape) for name, value in network.named_parameters()}


def plain_sgd(X, y, steps: int, lr: float) -> dict:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(X), y).backward()
        optimizer.step()
    return {name: value.detach() for name, value in net.named_parameters()}


def test_federated_averaging_of_one_device_is_plain_training():
    devices = make_devices(*some_rows((12,)))
    ours = shared(network(), 1)
    for _ in range(3):
        trained = train(network(), ours, devices, updates=5, lr=0.1, batch=None, generator=generator())
        ours = {name: value[None] for name, value in average(trained, devices.counts).items()}
    theirs = plain_sgd(devices.X[0], devices.y[0], steps=15, lr=0.1)
    assert_close({name: value[0] for name, value in ours.items()}, theirs)


@pytest.mark.parametrize(("batch", "at_once"), [(None, 10**6), (2, 10**6), (None, 1), (2, 110)])
def test_devices_side_by_side_are_trained_as_each_alone(monkeypatch, batch, at_once):
    monkeypatch.setattr("flareclust.personal.local_training._WEIGHTS_AT_ONCE", at_once)
    devices, net = some_devices(), network()
    together = train(net, shared(net, 3), devices, updates=4, lr=0.2, batch=batch, generator=generator())
    rows = _draw_rows(devices.counts, 4, batch or 1, generator())
    for i, n in enumerate(SIZES):
        alone = {name: value.detach().clone() for name, value in net.named_parameters()}
        for step in range(4):
            at = torch.arange(n) if batch is None else rows[step, i]
            one = make_devices([devices.X[i, at].numpy()], [devices.y[i, at].numpy()])
            stacked = {name: value[None] for name, value in alone.items()}
            after = train(net, stacked, one, updates=1, lr=0.2, batch=None, generator=generator())
            alone = {name: value[0] for name, value in after.items()}
        assert_close({name: value[i] for name, value in together.items()}, alone)


def test_padded_rows_count_nowhere():
    devices, net = some_devices(), network()
    X, y = devices.X.clone(), devices.y.clone()
    X[~devices.mask], y[~devices.mask] = 1e3, 2
    spoilt = Devices(X, y, devices.counts)
    for batch in (None, 4):
        args = {"updates": 3, "lr": 0.1, "batch": batch}
        clean = train(net, shared(net, 3), devices, **args, generator=generator())
        assert_close(train(net, shared(net, 3), spoilt, **args, generator=generator()), clean)
    torch.testing.assert_close(losses(net, shared(net, 3), spoilt), losses(net, shared(net, 3), devices))
    assert torch.equal(correct(net, shared(net, 3), spoilt), correct(net, shared(net, 3), devices))


@pytest.mark.parametrize("at_once", [2, 20, 10_000])
def test_losses_and_correct_are_those_of_each_device_whatever_is_computed_at_once(monkeypatch, at_once):
    monkeypatch.setattr("flareclust.personal.local_training._ROWS_AT_ONCE", at_once)
    devices, net = some_devices(), network()
    weights = {name: value.clone() for name, value in shared(net, 3).items()}
    weights["0.bias"] += torch.arange(3)[:, None]
    for i, n in enumerate(SIZES):
        own = network()
        own.load_state_dict({name: value[i] for name, value in weights.items()})
        scores, y = own(devices.X[i, :n]).detach(), devices.y[i, :n]
        torch.testing.assert_close(losses(net, weights, devices)[i], nn.functional.cross_entropy(scores, y))
        assert correct(net, weights, devices)[i] == (scores.argmax(1) == y).sum()


def test_a_device_without_rows_keeps_its_weights_and_loses_nothing():
    rows, classes = some_rows((5, 0))
    devices, net = make_devices(rows, classes, empty=True), network()
    for batch in (None, 3):
        trained = train(net, shared(net, 2), devices, updates=2, lr=0.1, batch=batch, generator=generator())
        assert all(torch.equal(value[1], shared(net, 2)[name][1]) for name, value in trained.items())
        assert not any(torch.equal(value[0], value[1]) for value in trained.values())
    assert losses(net, shared(net, 2), devices)[1] == 0


def test_rows_drawn_are_the_devices_own():
    counts = torch.tensor([1, 5, 40])
    drawn = _draw_rows(counts, 200, 3, generator())
    assert drawn.shape == (200, 3, 3)
    assert (drawn < counts[:, None]).all()
    assert set(drawn[:, 1].flatten().tolist()) == set(range(5))


def test_the_average_is_weighted_by_rows():
    weights = {"w": torch.tensor([[1.0, 2.0], [5.0, 6.0]])}
    assert_close(average(weights, torch.tensor([3, 1])), {"w": torch.tensor([2.0, 3.0])})
    with pytest.raises(UserError, match="one positive number per device"):
        average(weights, torch.tensor([0, 0]))


def test_letters_go_through_an_embedding():
    devices = make_devices([np.array([[0, 1], [2, 0]]), np.array([[1, 1]])], [np.array([0, 1]), np.array([1])])
    assert devices.X.dtype == torch.int64
    net = nn.Sequential(nn.Embedding(3, 4), nn.Flatten(-2), nn.Linear(8, 2))
    before = losses(net, shared(net, 2), devices)
    trained = train(net, shared(net, 2), devices, updates=20, lr=0.5, batch=None, generator=generator())
    assert (losses(net, trained, devices) < before).all()


def test_taking_devices_keeps_their_rows():
    devices = some_devices()
    taken = devices.take([1, 0])
    assert taken.counts.tolist() == [3, 7]
    assert taken.X.shape == (2, 7, 4)
    assert torch.equal(taken.X[0, :3], devices.X[1, :3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: ([], []), "no devices"),
        (lambda X, y: (X, y[:-1]), "3 devices have rows and 2 have classes"),
        (lambda X, y: ([*X[:2], X[2][:, :3]], y), r"device 2 has rows of shape \(3,\)"),
        (lambda X, y: (X, [y[0], y[1][:2], y[2]]), "device 1: expected one integer class for each of its 3 rows"),
        (lambda X, y: (X, [y[0], y[1] - 5, y[2]]), "classes are numbered from 0"),
        (lambda X, y: ([X[0], X[1] * np.nan, X[2]], y), "device 1 has values that are missing"),
        (lambda X, y: ([X[0][:0], *X[1:]], [y[0][:0], *y[1:]]), "device 0 has no rows"),
    ],
)
def test_devices_that_cannot_be_used_are_named(change, message):
    with pytest.raises(UserError, match=message):
        make_devices(*change(*some_rows()))


def test_weights_that_do_not_fit_the_network_are_named():
    devices, net = some_devices(), network()
    with pytest.raises(UserError, match=r"first 0\.bias: expected \(3, 6\), got \(2, 6\)"):
        losses(net, shared(net, 2), devices)
    with pytest.raises(UserError, match="lr must be a positive number"):
        train(net, shared(net, 3), devices, updates=1, lr=0.0, batch=None, generator=generator())
