"""Checkpoints: a run that was interrupted after any exchange goes on to the same bits, and only from its own file."""

import json

import numpy as np
import pytest

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.federation import exchanges
from flareclust.federation.checkpoint import CHECKPOINT, CheckpointFile, Progress, read
from flareclust.protocol.registry import get
from tests.unit.engines.checkpoint_cases import ABOUT, SERVER, sites, stored

CASES = {
    "lloyd": {"rounds": 4},
    "fkm": {"rounds": 4},
    "ffcm": {},
    "minibatch": {"rounds": 3},
    "portfolio": {},
    "masked": {},
    "dkmpp": {},
    "feca": {},
}


class Stop(Exception):
    """What ends a run in the middle."""


class StoppedAfter(CheckpointFile):
    """A checkpoint file whose run ends once it has kept so many states."""

    def keep(self, checkpoint):
        super().keep(checkpoint)
        if len(checkpoint.progress.records) >= LIMIT[0]:
            raise Stop


LIMIT = [0]


def in_process(name, rows, path=None, *, stop=None, resume=False, k=4, secure=False, params=None):
    """Run an algorithm; with `stop` until there are so many records."""
    kept = None
    if path is not None:
        LIMIT[0] = 10**6 if stop is None else stop
        kept = StoppedAfter(path, resume)
    settings = CASES.get(name, {}) if params is None else params
    return run_inprocess(get(name), settings, rows, JobOptions(k=k, seed=3, secure_sums=secure), checkpoint=kept)


def check_every_interruption(name, rows, folder, **how):
    """Stop after each exchange in turn, go on, and compare all with a run that nobody stopped."""
    expected = in_process(name, rows, **how)
    for stop in range(1, len(expected.rounds)):
        path = folder / f"{stop}.npz"
        try:
            in_process(name, rows, path, stop=stop, **how)
        except Stop:
            pass
        else:
            pytest.fail(f"{name} had no checkpoint after {stop} of {len(expected.rounds)} exchanges")
        found = in_process(name, rows, path, resume=True, **how)
        check_bits(found, expected)
        steps = [(record["step"], record["round"]) for record in found.rounds if record["step"] != "keys"]
        assert steps == [(record["step"], record["round"]) for record in expected.rounds if record["step"] != "keys"]
    return expected


def check_bits(found, expected):
    assert set(found.arrays) == set(expected.arrays)
    for name, value in expected.arrays.items():
        assert found.arrays[name].dtype == value.dtype, name
        assert found.arrays[name].tobytes() == value.tobytes(), name
    assert found.metrics == expected.metrics
    assert (found.sites, found.refused, found.warnings) == (expected.sites, expected.refused, expected.warnings)
    assert found.n_rounds == expected.n_rounds
    for site, labels in expected.labels.items():
        np.testing.assert_array_equal(found.labels[site], labels)


@pytest.mark.parametrize("name", CASES)
def test_a_run_goes_on_after_every_exchange_to_the_same_bits(name, tmp_path):
    check_every_interruption(name, sites(), tmp_path)


def test_deepfeca_goes_on_to_the_same_weights(tmp_path):
    pytest.importorskip("torch", reason="the extra `deep` is not installed")
    small = {"rounds": 2, "epochs": 1, "network": "tests.unit.deep.networks_of_ours.Flat"}
    found = check_every_interruption("deepfeca", sites(64), tmp_path, params=small)
    assert found.n_rounds == 6
    assert found.arrays["weights"].ndim == 1


def test_a_site_that_was_left_out_stays_left_out(tmp_path):
    rows = {**sites(), "site-9": sites(d=4)["site-0"]}
    found = check_every_interruption("lloyd", rows, tmp_path)
    assert list(found.refused) == ["site-9"]


def test_bytes_are_counted_before_and_after(tmp_path):
    expected = in_process("lloyd", sites())
    with pytest.raises(Stop):
        in_process("lloyd", sites(), tmp_path / CHECKPOINT, stop=2)
    found = in_process("lloyd", sites(), tmp_path / CHECKPOINT, resume=True)
    assert (found.bytes_up, found.bytes_down) == (expected.bytes_up, expected.bytes_down)


# Other sites


def test_sites_that_are_gone_or_new_are_named_and_not_asked(tmp_path):
    rows = sites(m=4)
    with pytest.raises(Stop):
        in_process("lloyd", rows, tmp_path / CHECKPOINT, stop=2)
    others = {name: rows[name] for name in ("site-0", "site-1", "site-2")} | {"site-7": rows["site-3"]}
    found = in_process("lloyd", others, tmp_path / CHECKPOINT, resume=True)
    assert found.refused == {"site-3": exchanges.GONE, "site-7": exchanges.NEW}
    assert found.sites == ["site-0", "site-1", "site-2", "site-3", "site-7"]
    assert all(set(record["sites"]) == {"site-0", "site-1", "site-2"} for record in found.rounds[2:])


def test_the_quorum_is_of_the_sites_that_the_job_began_with(tmp_path):
    rows = sites(m=4)
    with pytest.raises(Stop):
        in_process("lloyd", rows, tmp_path / CHECKPOINT, stop=2)
    with pytest.raises(JobFailed, match="2 of 4 sites took part where at least 3 are needed"):
        in_process("lloyd", dict(list(rows.items())[:2]), tmp_path / CHECKPOINT, resume=True)


# Secure sums


def test_with_secure_sums_keys_are_agreed_on_anew_and_the_totals_are_the_same(tmp_path):
    expected = in_process("lloyd", sites(), secure=True)
    for stop in (3, 5):
        path = tmp_path / f"{stop}.npz"
        with pytest.raises(Stop):
            in_process("lloyd", sites(), path, stop=stop, secure=True)
        found = in_process("lloyd", sites(), path, resume=True, secure=True)
        check_bits(found, expected)
        assert sum(record["step"] == "keys" for record in found.rounds) == 2


def test_with_secure_sums_all_sites_must_be_there_again(tmp_path):
    rows = sites(m=4)
    with pytest.raises(Stop):
        in_process("lloyd", rows, tmp_path / CHECKPOINT, stop=5, secure=True)
    with pytest.raises(JobFailed, match=r"site-3 was not there when the job was resumed.*all sites that it had"):
        in_process("lloyd", dict(list(rows.items())[:3]), tmp_path / CHECKPOINT, resume=True, secure=True)


# Files


def test_a_file_holds_the_whole_state_for_its_owner(tmp_path):
    path = stored(tmp_path / "new" / "folder")
    found = read(path, ABOUT, SERVER)
    assert (found.round_.step, found.round_.index, found.round_.done) == ("update", 2, False)
    assert dict(found.round_.diagnostics) == {"shift": 0.1}
    assert found.progress == Progress(["a", "b"], ["a"], {"b": "is away"})
    np.testing.assert_array_equal(found.round_.task["centroids"], np.eye(3))
    state, columns = found.round_.state, found.round_.columns
    assert (state.left_out.tolist(), state.split, state.counts) == (["a", "bc"], 3, None)
    assert (state.refinement.updates, state.refinement.best, state.refinement.totals) == (4, 0.5, None)
    np.testing.assert_array_equal(columns.deviation, np.arange(3.0))
    assert (columns.names, columns.masks.shape, columns.gamma, columns.fill) == (("x", "y"), (2, 3), 0.5, None)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in path.parent.iterdir()] == [CHECKPOINT]


@pytest.mark.parametrize("length", [0, 10, 0.5, -1], ids=str)
def test_a_damaged_file_is_named(tmp_path, length):
    path = stored(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(length * len(whole)) if isinstance(length, float) else length])
    with pytest.raises(UserError, match=r"checkpoint\.npz is damaged or no checkpoint"):
        read(path, ABOUT, SERVER)


def with_about(path, change):
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    text = json.loads(str(arrays["about"]))
    change(text)
    np.savez(path, **{**arrays, "about": np.array(json.dumps(text))})


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.pop("round"),
        lambda text: text["round"].update(step=3),
        lambda text: text["progress"].update(more=1),
        lambda text: text.update(job=7),
    ],
)
def test_an_incomplete_file_is_a_damaged_one(tmp_path, change):
    path = stored(tmp_path)
    with_about(path, change)
    with pytest.raises(UserError, match="damaged"):
        read(path, ABOUT, SERVER)


def test_a_state_of_an_unknown_class_is_a_damaged_one(tmp_path):
    path = stored(tmp_path)
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    (name,) = [name for name in arrays if name.endswith("refinement.")]
    np.savez(path, **{**arrays, name: np.array("Unknown")})
    with pytest.raises(UserError, match="damaged"):
        read(path, ABOUT, SERVER)


def test_arrays_with_objects_are_not_read(tmp_path):
    np.savez(tmp_path / CHECKPOINT, about=np.array([{}], dtype=object))
    with pytest.raises(UserError, match="damaged"):
        read(tmp_path / CHECKPOINT, ABOUT, SERVER)


def test_a_file_of_another_form_is_refused(tmp_path):
    path = stored(tmp_path)
    with_about(path, lambda text: text.update(form=99))
    with pytest.raises(UserError, match="another version"):
        read(path, ABOUT, SERVER)


def test_a_missing_file_says_where_it_should_be(tmp_path):
    with pytest.raises(UserError, match=r"holds no checkpoint\.npz, so there is nothing to resume"):
        read(tmp_path / CHECKPOINT, ABOUT, SERVER)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"k": 4}, "k is 3 there and 4 here"),
        ({"algorithm": "fkm", "k": 2}, "algorithm is lloyd there and fkm here, k is 3 there and 2 here"),
        ({"params": {"rounds": 9}}, "rounds is 4 there and 9 here"),
        ({"params": {}}, "rounds is 4 there and not given here"),
    ],
)
def test_a_foreign_file_says_what_differs(tmp_path, changed, words):
    with pytest.raises(UserError, match=f"is of another job: {words};"):
        read(stored(tmp_path), {**ABOUT, **changed}, SERVER)


def test_a_write_that_fails_leaves_the_state_before_and_the_run_goes_on(tmp_path, monkeypatch, caplog):
    path = stored(tmp_path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    CheckpointFile(path, about=ABOUT).keep(read(path, ABOUT, SERVER))
    assert path.read_bytes() == before
    assert "No space left on device" in caplog.text
