"""Training and embedding at a site."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from flareclust._foundation.errors import Aborted, Refusal
from flareclust._foundation.typing import never_abort
from flareclust.deep import networks as deep_networks
from flareclust.deep import training as deep_training
from tests.paths import ROOT

SHAPE, CPU = np.array([8, 8, 1]), torch.device("cpu")
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(60, 1, 8, 8))
PROTOTYPES = np.eye(3, 64)
LABELS = np.repeat([0, 1, 2], 20)


def how(**changes):
    return deep_training.Training(
        **{"epochs": 2, "batch": 16, "lr": 0.05, "momentum": 0.9, "temperature": 0.1, "augment": "auto"} | changes
    )


def trained(seed=0, aborted=never_abort, **changes):
    network = deep_networks.build("auto", SHAPE, 0)
    loss = deep_training.train(network, IMAGES, LABELS, PROTOTYPES, how(**changes), CPU, seed, aborted)
    return deep_networks.weights_of(network), loss


def test_the_loss_falls():
    assert trained(epochs=20, augment="none")[1] < 0.5 * trained(epochs=1, augment="none")[1]


def test_the_same_seed_gives_the_same_weights_on_any_number_of_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    one = trained()[0]
    torch.set_num_threads(2)
    np.testing.assert_array_equal(trained()[0], one)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)
    assert (trained(seed=1)[0] != one).any()


def test_trainings_side_by_side_do_not_change_one_another():
    alone = [trained(seed)[0] for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for one, beside in zip(alone, pool.map(lambda seed: trained(seed)[0], range(4)), strict=True):
            np.testing.assert_array_equal(beside, one)


def test_the_state_of_torch_stays_as_it_was():
    state = torch.random.get_rng_state()
    trained()
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_training_that_diverges_says_so():
    IMAGES[0, 0, 0, 0], value = np.inf, IMAGES[0, 0, 0, 0]
    try:
        with pytest.raises(Refusal, match=r"epoch 1: the loss is not finite; lower lr \(now 0.05\)"):
            trained(augment="none")
    finally:
        IMAGES[0, 0, 0, 0] = value


def test_training_stops():
    calls = []

    def aborted():
        calls.append(1)
        return len(calls) > 2

    with pytest.raises(Aborted):
        trained(aborted=aborted)
    assert len(calls) == 3


@pytest.mark.parametrize("name", deep_training._AUGMENTATIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_changed_images_have_the_size_of_images(name, channels):
    x = torch.randn(5, channels, 8, 8)
    changed = deep_training._augmentation(name, (channels, 8, 8), torch.Generator())(x)
    assert changed.shape == x.shape
    assert torch.equal(changed, x) == (name == "none")


def test_tables_are_not_changed():
    x = torch.randn(5, 3)
    assert deep_training._augmentation("auto", (3,), torch.Generator())(x) is x


def test_every_row_is_embedded_by_itself():
    network = deep_networks.build("auto", SHAPE, 0)
    whole = deep_training.embed(network, IMAGES, CPU)
    assert whole.dtype == np.float64
    np.testing.assert_allclose(
        np.concatenate([deep_training.embed(network, IMAGES[i : i + 7], CPU) for i in range(0, 60, 7)]),
        whole,
        atol=1e-6,
    )


def test_what_cannot_be_embedded_is_zero():
    images = IMAGES.copy()
    images[3] = np.inf
    embedded = deep_training.embed(deep_networks.build("auto", SHAPE, 0), images, CPU)
    assert (embedded[3] == 0).all()
    assert np.isfinite(embedded).all()


def test_a_gpu_that_is_not_there_is_named():
    if torch.cuda.is_available():
        assert deep_training.device_of("cuda").type == "cuda"
    else:
        with pytest.raises(Refusal, match="has no GPU that torch can use"):
            deep_training.device_of("cuda")
    assert deep_training.device_of("cpu") == CPU


class Sometimes(torch.nn.Module):
    """A frozen bias, a layer that is never used, and one that is used in every second call."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.unused, self.second = (torch.nn.Linear(3, 3) for _ in range(3))
        self.first.bias.requires_grad_(False)

    def forward(self, x, call):
        x = self.first(x)
        return self.second(x) if call % 2 else x


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_descent_is_that_of_torch(momentum):
    ours, theirs = Sometimes(), Sometimes()
    descent = deep_training._Descent(ours, how(momentum=momentum))
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.05, momentum=momentum)
    for call in range(6):
        x = torch.randn(8, 3)
        descent.step(ours(x, call).square().mean())
        optimizer.zero_grad()
        theirs(x, call).square().mean().backward()
        optimizer.step()
    assert all(torch.equal(*pair) for pair in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_training_does_not_import_the_compiler_of_torch():
    code = "import sys; from tests.unit.deep.test_training import trained; trained(epochs=1); print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
