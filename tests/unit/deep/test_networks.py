"""Networks, and their weights as one array."""

import numpy as np
import pytest
import torch

from flareclust._foundation.errors import BadMessage, UserError
from flareclust.deep import images as deep_images
from flareclust.deep import networks as deep_networks

DIGITS, TABLE = np.array([8, 8, 1]), np.array([0, 0, 5])


@pytest.mark.parametrize(
    ("network", "shape"),
    [
        ("auto", DIGITS),
        ("small", np.array([28, 28, 1])),
        ("small", np.array([40, 9, 3])),
        ("auto", TABLE),
        ("mlp", TABLE),
    ],
)
def test_rows_are_embedded_with_length_one(network, shape):
    model = deep_networks.build(network, shape, 0).eval()
    height, width, channels = shape.tolist()
    rows = torch.randn((6, channels, height, width) if height else (6, channels))
    embedded = model(rows)
    assert embedded.shape == (6, deep_images.EMBEDDED)
    torch.testing.assert_close(embedded.norm(dim=1), torch.ones(6))


def test_weights_follow_from_the_seed_and_nothing_else():
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    first, second, other = (deep_networks.weights_of(deep_networks.build("auto", DIGITS, seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("shape", [DIGITS, TABLE])
def test_weights_come_back_as_they_were(shape):
    source, target = deep_networks.build("auto", shape, 1), deep_networks.build("auto", shape, 2)
    deep_networks.load_weights(target, deep_networks.weights_of(source))
    assert all(
        torch.equal(a, b) for a, b in zip(source.state_dict().values(), target.state_dict().values(), strict=True)
    )
    np.testing.assert_array_equal(
        deep_networks.named(target)["weights.head.0.weight"], source.head[0].weight.detach().numpy()
    )
    assert sum(value.size for value in deep_networks.named(target).values()) == len(deep_networks.weights_of(source))


@pytest.mark.parametrize("fault", [lambda w: w[:-1], lambda w: w[None], lambda w: w * np.nan, lambda w: w + 1e39])
def test_other_weights_are_refused_and_change_nothing(fault):
    model = deep_networks.build("auto", DIGITS, 0)
    before = deep_networks.weights_of(model)
    with pytest.raises(BadMessage, match=r"^weights: "):
        deep_networks.load_weights(model, fault(before))
    np.testing.assert_array_equal(deep_networks.weights_of(model), before)


def test_resnet18_is_the_one_for_small_images():
    model = deep_networks.build("resnet18", np.array([32, 32, 3]), 0)
    assert model.backbone.conv1.kernel_size == (3, 3)
    assert sum(p.numel() for p in model.backbone.parameters()) == 11_169_728
    assert model.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, deep_images.EMBEDDED)


def test_a_network_of_ones_own_by_its_import_path():
    model = deep_networks.build("tests.unit.deep.networks_of_ours.Flat", DIGITS, 0)
    assert "weights.backbone.scale" in deep_networks.named(model)
    assert model.eval()(torch.randn(3, 1, 8, 8)).shape == (3, deep_images.EMBEDDED)


@pytest.mark.parametrize(
    ("network", "shape", "words"),
    [
        ("nothing", DIGITS, "expected auto, small, resnet18, mlp, or the import path"),
        ("os.nothing", DIGITS, "expected auto, small, resnet18, mlp, or the import path"),
        ("os.system", DIGITS, "no class of a torch.nn.Module"),
        ("tests.unit.deep.networks_of_ours.NO_CLASS", DIGITS, "no class of a torch.nn.Module"),
        ("tests.unit.deep.networks_of_ours.Square", DIGITS, "does not work with images of 8 x 8 x 1"),
        ("mlp", DIGITS, "is for tables, and the sites have images"),
        ("small", TABLE, "is for images, and the sites have tables"),
    ],
)
def test_what_is_no_network_is_refused(network, shape, words):
    with pytest.raises(UserError, match=words):
        deep_networks.build(network, shape, 0)
