"""The re-run of k-FED's figure 4: the devices, the training with chosen clients, and what the report makes of it."""

import gzip
import json

import numpy as np
import pytest

from benchmarks.papers import kfed_selection, selection_data
from benchmarks.papers.base import Study, run_entry
from benchmarks.papers.kfed import ENTRIES
from benchmarks.papers.kfed_selection import MEAN_OF, Setting, figure4
from benchmarks.papers.report import to_json
from benchmarks.papers.selection_data import CONTEXT, HELD_OUT, STRIDE, Population, name_of, speakers, two_classes
from benchmarks.papers.selection_settings import Settings
from flareclust._foundation.errors import UserError
from flareclust.core.client_selection import METHODS, POW_D, POW_D_KFED, RANDOM
from flareclust.experiment.sweeps import trials as study_trials

SMALL = Settings(rounds=8, m=2, d=4, updates=4, batch=8, lr=0.5, k=3, k_local=1)


@pytest.fixture
def small_digits(monkeypatch):
    """Ten well separated classes of 200 rows in four columns stand in for MNIST; the first column numbers the rows."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 200)
    X = (rng.normal(size=(2000, 4)) * 0.1 + rng.normal(size=(10, 4))[y]).astype(np.float32)
    X[:, 0] = np.arange(2000) / 2000
    monkeypatch.setattr(selection_data, "_digits", lambda: (X, y))
    return X


@pytest.fixture
def small_text(monkeypatch, tmp_path):
    """A text of four speakers, of whom one says little, in the place of Shakespeare's."""
    long = {name: f"{line}\n" * 60 for name, line in {"ANN": "abcdefghij klm", "BOB": "zyxwvuts rqponm"}.items()}
    long["CID"] = "to be or not to be\n" * 70
    blocks = [f"{name}:\n{text[:700]}" for name, text in long.items()]
    blocks += [f"{name}:\n{text[700:]}" for name, text in long.items()] + ["DON:\nyes"]
    file = tmp_path / selection_data.TEXT
    file.parent.mkdir()
    with gzip.open(file, "wt") as opened:
        opened.write("\n\n".join(block.strip("\n") for block in blocks))
    monkeypatch.setenv("FLARECLUST_DATA", str(tmp_path))
    monkeypatch.setattr(selection_data, "CHARACTERS", 600)
    selection_data.speeches.cache_clear()
    yield
    selection_data.speeches.cache_clear()


# ---- devices ----


def test_devices_have_two_classes_and_sizes_of_a_power_law(small_digits, rng):
    found = two_classes(30, 1500, rng, minimum=4)
    assert len(found.rows) == 30
    for device, y in enumerate(found.classes):
        held_out = found.held_out_classes[found.owners == device]
        assert len(set(y.tolist())) == 2
        assert set(held_out.tolist()) == set(y.tolist())
        assert len(held_out) == pytest.approx(HELD_OUT * (len(y) + len(held_out)), abs=1.5)
    sizes = np.sort(found.counts)
    assert sizes[0] >= 2 * 3
    assert sizes[-1] > 3 * np.median(sizes)


def test_no_row_is_used_twice(small_digits, rng):
    found = two_classes(30, 1500, rng, minimum=4)
    numbers = np.concatenate([*(rows[:, 0] for rows in found.rows), found.held_out[:, 0]])
    assert len(np.unique(numbers)) == len(numbers) <= 1500
    assert list(found.described) == sorted(found.described) == [name_of(device) for device in range(30)]


def test_too_many_devices_for_the_rows_are_refused(small_digits, rng):
    with pytest.raises(UserError, match="too many for its 50 rows"):
        two_classes(100, 500, rng)


def test_a_speakers_rows_are_the_characters_before_each(small_text, rng):
    found = speakers(3, rng)
    texts, letters = selection_data.speeches()
    assert sorted(texts) == ["ANN", "BOB", "CID", "DON"]
    for device, name in enumerate(("ANN", "BOB", "CID")):
        kept = texts[name][: round((1 - HELD_OUT) * len(texts[name]))]
        for row in (0, 3):
            told = "".join(letters[code] for code in found.rows[device][row])
            assert told == kept[row * STRIDE : row * STRIDE + CONTEXT]
            assert letters[found.classes[device][row]] == kept[row * STRIDE + CONTEXT]
    assert found.n_classes == len(letters)
    for pieces in found.described.values():
        np.testing.assert_allclose(pieces.sum(axis=1), 1)


def test_more_speakers_than_say_enough_are_refused(small_text, rng):
    with pytest.raises(UserError, match="3 speakers have 600 characters and more; ask for at most as many, not 4"):
        speakers(4, rng)


def test_a_missing_text_is_named_with_its_address(monkeypatch, tmp_path, rng):
    monkeypatch.setenv("FLARECLUST_DATA", str(tmp_path))
    selection_data.speeches.cache_clear()
    with pytest.raises(UserError, match=r"there is no text .*input\.txt\.gz \(FileNotFoundError\); get https://"):
        speakers(3, rng)


# ---- training ----


def toy(n=40, m=6):
    """Return m devices with two classes each of a problem that a small network learns at once."""
    rng = np.random.default_rng(1)
    y = np.array([np.repeat([device % 3, (device + 1) % 3], n // 2) for device in range(m)])
    X = (np.eye(3)[y] + 0.1 * rng.normal(size=(m, n, 3))).astype(np.float32)
    described = {name_of(device): X[device].astype(float) for device in range(m)}
    return Population(list(X), list(y), X.reshape(-1, 3), y.ravel(), np.repeat(np.arange(m), n), 3, described)


def trained(method, settings=SMALL, seed=0, clusters=None):
    training = pytest.importorskip("benchmarks.papers.selection_training", reason="needs the extra deep")
    return training.run(toy(), method, settings, seed, clusters or [[device % 3] for device in range(6)])


@pytest.mark.parametrize("method", METHODS)
def test_training_with_chosen_clients_learns_and_repeats(method):
    found, again = trained(method), trained(method)
    np.testing.assert_array_equal(found.devices, again.devices)
    assert found.accuracy[-1] > 0.9
    np.testing.assert_allclose(found.devices.mean(axis=1), found.accuracy)  # these devices are of one size
    assert found.devices.shape == (8, 6)


def test_where_all_candidates_train_the_method_makes_no_difference():
    everyone = Settings(**{**vars(SMALL), "m": 6, "d": 6, "batch": 64})
    courses = [trained(method, everyone).accuracy for method in METHODS]
    # The draw's order decides which rows an update has, and in which order models are added up: not the same bits.
    for course in courses[1:]:
        np.testing.assert_allclose(course[-1], courses[0][-1], atol=0.05)


def test_with_clusters_a_round_has_as_many_as_it_can():
    found = {method: trained(method, Settings(**{**vars(SMALL), "m": 3, "d": 6})).clusters for method in METHODS}
    assert (found[POW_D_KFED] == 3).all()
    assert found[POW_D].mean() < 3


def test_clusters_by_device_are_those_of_k_fed():
    training = pytest.importorskip("benchmarks.papers.selection_training", reason="needs the extra deep")
    found = training.clusters_of(toy(), Settings(**{**vars(SMALL), "k_local": 2}), 0)
    assert [len(own) for own in found] == 6 * [2]
    assert found[:3] == found[3:]
    assert len({tuple(own) for own in found}) == 3


# ---- the report ----


def ran(method, seed, accuracies):
    rounds = [{"round": number, "accuracy": one} for number, one in enumerate(accuracies, start=1)]
    final = {"accuracy": float(np.mean(accuracies[-2:])), "variance": 0.01, "clusters": 3.0}
    trial = study_trials.Trial({"data": "toy", "d": "4", "method": method}, seed, {}, lambda: None)
    return study_trials.TrialRun(trial, study_trials.TrialResult(final, {}, rounds))


def test_rounds_to_the_target_are_of_the_mean_over_several_rounds():
    setting = Setting("toy", 6, None, SMALL)
    steps = {RANDOM: [0, 0, 0, 0, 0, 0, 1, 1], POW_D: [0, 0, 1, 1, 1, 1, 1, 1], POW_D_KFED: [1] * 8}
    done = [ran(method, seed, [float(one) for one in own]) for method, own in steps.items() for seed in range(2)]
    end = kfed_selection._end_of_random(done, setting)
    assert end == pytest.approx(1)
    judged = [kfed_selection._with_rounds(run, end) for run in done]
    needed = [(run.measured.final["rounds_50"], run.measured.final["rounds_95"]) for run in judged[::2]]
    # The mean of five rounds reaches a half with three of them at 1, and 0.95 with all five: for random never, which is
    # one round more than there are.
    assert needed == [(9.0, 9.0), (5.0, 7.0), (5.0, 5.0)]
    assert judged[0].measured.final["course"] == pytest.approx((0 + 0 + 0.2 + 0.4) / 4)
    gaps = kfed_selection._differences(judged, setting, (POW_D_KFED, POW_D), "rounds_95")
    assert gaps.tolist() == [-2, -2]
    assert kfed_selection._told(judged, setting, (POW_D_KFED, POW_D), "rounds_95", "below") == "-2.0 to pow-d; agrees"
    assert (
        kfed_selection._told(judged, setting, (POW_D_KFED, POW_D), "rounds_50", "below") == "+0.0 to pow-d; undecided"
    )
    assert kfed_selection._curves(done, setting, POW_D).shape == (2, 8 - MEAN_OF + 1)


@pytest.mark.slow
def test_the_entry_has_a_line_per_method_and_measure(small_digits, monkeypatch):
    pytest.importorskip("torch", reason="needs the extra deep")
    monkeypatch.setattr(kfed_selection, "require", lambda *names: None)
    quick = Setting("mnist", 30, 1_500, Settings(**{**vars(SMALL), "k": 5}))
    monkeypatch.setattr(kfed_selection, "settings", lambda quick_form: [quick])
    kfed_selection._make.cache_clear()

    def runner(trials):
        assert len({trial.key("figure 4") for trial in trials}) == len(trials) == 8
        assert all(json.dumps(dict(trial.params)) for trial in trials)
        return [study_trials.attempt(trial) for trial in trials]

    entry = next(one for one in ENTRIES if one.run is figure4)
    found = run_entry(entry, Study(seeds=2, quick=True, runner=runner))
    kfed_selection._make.cache_clear()
    assert found.failed == 0
    assert [one.cells["method"] for one in found.lines] == 4 * [*METHODS, kfed_selection.CLASSES] + 2 * list(METHODS)
    assert [one.paper for one in found.lines[:4]] == ["-", "below random", "below pow-d", "-"]
    assert len(found.notes) == 1
    assert "rounds of pow-d with k-FED's clusters beside those of pow-d" in found.notes[0]
    json.dumps(to_json(found), allow_nan=False)
