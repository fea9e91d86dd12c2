"""The ablation of DeepFeCA: labels in the place of pseudo-labels, and the networks of all rounds."""

import numpy as np
import pytest

from benchmarks.papers import feca_ablation, feca_rounds
from benchmarks.papers.feca_ablation import CHANGES, PANELS, Change
from benchmarks.papers.feca_rounds import Images, train_by_rounds
from flareclust.data.datasets import Dataset
from flareclust.deep import training
from flareclust.engines.options import JobOptions

ROWS = np.random.default_rng(0).uniform(0, 16, (40, 64))
CLASSES = np.arange(40) % 10
SITES = {"a": ROWS[:24], "b": ROWS[24:]}


@pytest.fixture
def trained(monkeypatch):
    """Record the labels and prototypes of every training."""
    seen, train = [], training.train

    def recorded(network, images, labels, prototypes, *rest):
        seen.append((labels, prototypes))
        return train(network, images, labels, prototypes, *rest)

    monkeypatch.setattr(training, "train", recorded)
    return seen


def test_a_network_is_kept_before_the_first_round_and_after_each(trained):
    states, outcome = train_by_rounds(SITES, {"rounds": 2, "epochs": 1}, JobOptions(k=4, seed=0, assess=False))
    assert len(states) == 3
    assert not np.array_equal(states[0]["weights"], states[1]["weights"])
    np.testing.assert_array_equal(states[-1]["weights"], outcome.arrays["weights"])
    np.testing.assert_array_equal(trained[0][1], states[0]["centroids"])


def test_labels_take_the_place_of_pseudo_labels(trained):
    labels = {"a": CLASSES[:24], "b": CLASSES[24:]}
    states, _ = train_by_rounds(SITES, {"rounds": 1, "epochs": 1}, JobOptions(k=10, seed=0, assess=False), labels)
    assert sorted(own.tolist() for own, _ in trained) == sorted(own.tolist() for own in labels.values())
    np.testing.assert_array_equal(trained[0][1], np.eye(10, 64))
    assert not np.array_equal(states[0]["centroids"], np.eye(10, 64))  # clusters are FeCA's all the same


@pytest.mark.parametrize(("noise", "kept"), [(0.0, 1.0), (0.5, 0.55), (1.0, 0.1)])
def test_a_share_of_the_labels_is_drawn_at_random(noise, kept):
    y = np.arange(20_000) % 10
    noisy = feca_ablation._noisy(y, noise, np.random.default_rng(0))
    assert np.mean(noisy == y) == pytest.approx(kept, abs=0.02)


@pytest.mark.parametrize("change", [Change(noise=0.0), Change({"centroids": "pooled"}, one_site=True)])
def test_a_training_is_evaluated_after_every_round(change, trained, monkeypatch):
    own = Images(Dataset("mnist", ROWS, CLASSES), ROWS[:10], CLASSES[:10])
    monkeypatch.setattr(feca_ablation, "images", lambda name, most: own)
    monkeypatch.setattr(feca_ablation, "SITES", 2)
    monkeypatch.setattr(feca_ablation, "CHANGES", {"x": change})
    found = feca_ablation.measure("x", "iid", 0, 1).final
    assert set(found) == {"accuracy_0", "nmi_0", "accuracy_1", "nmi_1"}
    assert len(trained) == (1 if change.one_site else 2)
    if change.noise is not None:
        assert sum(np.bincount(labels, minlength=10) for labels, _ in trained).tolist() == [4] * 10


def test_every_change_has_a_curve_and_every_curve_a_change():
    assert {name for names in PANELS.values() for name in names} == set(CHANGES)


def test_mnist_is_cut_down_to_the_images_asked_for(monkeypatch, tmp_path):
    (tmp_path / "mnist").mkdir()
    X, y = np.zeros((30, 28, 28), dtype=np.uint8), np.arange(30) % 10
    np.savez(tmp_path / "mnist" / "mnist.npz", X_train=X, y_train=y, X_test=X, y_test=y)
    monkeypatch.setattr(feca_rounds.published, "data_folder", lambda: tmp_path)
    assert len(feca_rounds.images("mnist", 12).train.X) == 12
    feca_rounds.images.cache_clear()
