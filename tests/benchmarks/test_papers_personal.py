"""The re-run of k-FED's table 2: the rotated digits, and what the report makes of accuracies."""

import numpy as np
import pytest

from benchmarks.papers import kfed_personal, rotated
from benchmarks.papers.base import Study
from benchmarks.papers.kfed_personal import GROUPS, METHODS, RATES, shown, table2
from benchmarks.papers.rotated import purity_of_rotations, rotated_mnist
from flareclust.experiment.sweeps import trials as study_trials


@pytest.fixture
def small_digits(monkeypatch, tmp_path, rng):
    """Bright halves at the top stand in for MNIST's images; each image has a number in one corner pixel."""

    def images(n):
        X = np.zeros((n, 4, 4))
        X[:, :2] = 200 + rng.normal(size=(n, 2, 4))
        X[:, 0, 0] = np.arange(n) / n
        return X

    folder = tmp_path / "mnist"
    folder.mkdir()
    y = np.arange(80) % 2
    np.savez(folder / "mnist.npz", X_train=images(80), y_train=y, X_test=images(16), y_test=y[:16])
    monkeypatch.setenv("FLARECLUST_DATA", str(tmp_path))


def turned_back(rows, quarters):
    return np.rot90(rows.reshape(-1, 4, 4), -quarters, axes=(1, 2))


def test_each_image_is_used_once_in_the_rotation_of_its_device(small_digits):
    split = rotated_mnist(8, 1, seed=0)
    numbers = []
    for number, device in enumerate(split.train.values()):
        upright = turned_back(device.X, number % 4) * rotated.PIXEL
        assert (upright[:, :2].mean(axis=(1, 2)) > 150).all()
        numbers += (upright[:, 0, 0] * 80).round().astype(int).tolist()
    assert sorted(numbers) == list(range(80))


def test_rotations_that_differ_in_the_mean_image_are_found(small_digits):
    purity = purity_of_rotations(8, 0)
    assert purity[1] == purity[2] == 1


def test_the_report_says_where_kfed_is_below_ifca(monkeypatch):
    monkeypatch.setattr(kfed_personal, "require", lambda *names: None)
    monkeypatch.setattr(kfed_personal, "purity_of_rotations", lambda devices, seed, rows: {1: 0.875, 2: 0.525})
    accuracy = {"global": 50.0, "ifca": 90.0, "kfed": 92.0, "local": 80.0}

    def runner(trials):
        done = []
        for trial in trials:
            method, k_local = trial.cell["method"], trial.cell["k'"]
            found = accuracy[method] - (3 if (method, k_local) == ("kfed", "2") else 0)
            metrics = {f"accuracy_{index}": found for index in shown(4)}
            metrics |= {"models": 4.0, "megabytes_up": 1.0, "megabytes_down": 8.0 if method == "ifca" else 2.0}
            done.append(study_trials.TrialRun(trial, study_trials.TrialResult(metrics), None))
        return done

    report = table2(Study(seeds=2, quick=True, runner=runner))
    differences = [line for line in report.lines if line.cells["method"] == "kfed - ifca"]
    assert len(differences) == len(GROUPS) * len(RATES)
    assert [line.ours for line in differences] == 4 * ["+2.0"] + 4 * ["-1.0"] + 2 * ["+2.0"]
    assert [line.reading.rpartition("; ")[2] for line in differences[:8]] == 4 * ["agrees"] + 4 * ["lower"]
    assert "100 devices, k' = 2, lr 0.01 (-1.0)" in report.notes[0]
    assert "100 devices, k' = 1" not in report.notes[0]
    assert "purity of 0.53 there, and of 0.88" in report.notes[2]
    assert {line.cells["method"] for line in report.lines} == {*METHODS, "kfed - ifca"}
