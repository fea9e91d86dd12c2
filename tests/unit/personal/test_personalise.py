"""`flareclust.personalise` and the command: data in several forms, the files of a result, refusals, MLflow, the flow."""

import json

import numpy as np
import pytest

import flareclust
from flareclust.cli.main import main
from flareclust.personal.run import _prepare_devices
from flareclust.personal.settings import PersonalSettings
from flareclust.tracking import run_logging

FAST = {"model": "linear", "rounds": 3, "devices": 4}
FILES = {"curve.png", "disclosure.json", "model-0.npz", "model-1.npz", "result.json", "rounds.jsonl"}


def two_rules(devices=4, n=40):
    """Pairs (X, y) by device; in every other device the rows lie elsewhere and the classes are swapped."""
    rng = np.random.default_rng(0)
    pairs = {}
    for i in range(devices):
        X = rng.normal(size=(n, 2))
        y = (X[:, 0] > 0) == (i % 2 == 0)
        pairs[f"clinic-{i}"] = (np.column_stack([X, np.full(n, 4.0 * (i % 2))]), np.where(y, "ill", "well"))
    return pairs


def test_devices_in_memory_get_the_models_of_their_clusters(tmp_path):
    result = flareclust.personalise(two_rules(), k=2, model="linear", rounds=10, lr=0.05, out=tmp_path / "out")
    assert result.names == ["clinic-0", "clinic-1", "clinic-2", "clinic-3"]
    assert list(result.classes) == ["ill", "well"]
    assert result.models_of["clinic-0"] == result.models_of["clinic-2"] != result.models_of["clinic-1"]
    assert result.final_accuracy > 0.85
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    written = json.loads((tmp_path / "out" / "result.json").read_text())
    assert written == json.loads(json.dumps(result.to_json()))
    with np.load(tmp_path / "out" / "model-1.npz") as file:
        np.testing.assert_array_equal(file["coef"], result.models["coef"][1])
    rounds = [json.loads(line) for line in (tmp_path / "out" / "rounds.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rounds] == list(range(1, 11))
    assert rounds[-1]["accuracy"] == result.final_accuracy


def test_the_record_says_what_of_the_models_may_be_released(tmp_path):
    out = tmp_path / "out"
    result = flareclust.personalise(two_rules(), k=2, **FAST, out=out)
    record = json.loads((out / "disclosure.json").read_text())
    assert record == json.loads(json.dumps(result.disclosure()))
    assert set(record["files"]) == FILES - {"disclosure.json"}
    models, rows = record["results"]["models"], record["results"]["device_rows"]
    used = [n for own in result.models_of.values() for n in own.values()]
    assert rows["properties"]["smallest_cell"] == min(used)
    assert models["properties"]["smallest_cell"] == 2 * min(used), "two devices for each model, of the same size"
    assert models["properties"]["numbers"] == 3 + 1, "of the columns, and the intercept"
    assert "of one device" not in models["summary"]
    assert "numbers of single devices" in record["results"]["accuracy"]["summary"]
    assert "pass" not in {one["status"] for one in record["results"].values()}


def test_models_of_one_device_and_few_rows_are_named_in_the_record():
    own = flareclust.personalise(two_rules(n=12), method="local", **FAST).disclosure()["results"]["models"]
    assert "all rows of models 0, 1, 2, 3 are of one device" in own["summary"]
    assert "saturated: 4 weights of a model for 10 rows" in own["summary"]


def test_the_result_is_only_the_owners(tmp_path):
    flareclust.personalise(two_rules(), k=2, **FAST, out=tmp_path / "out")
    assert (tmp_path / "out").stat().st_mode & 0o77 == 0
    assert all(path.stat().st_mode & 0o77 == 0 for path in (tmp_path / "out").iterdir())


def test_a_table_with_a_column_of_classes_is_the_same_as_arrays(tmp_path):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 2)), rng.integers(0, 2, 60)
    lines = [f"{a!r},{c},{b!r}" for (a, b), c in zip(X.tolist(), y.tolist(), strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,kind,b", *lines]) + "\n")
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    table = flareclust.personalise(tmp_path / "rows.csv", k=2, label="kind", **FAST)
    (tmp_path / "named.csv").write_text((tmp_path / "rows.csv").read_text().replace("kind", "class", 1))
    by_default = flareclust.personalise(tmp_path / "named.csv", k=2, **FAST)
    np.testing.assert_array_equal(by_default.accuracy, table.accuracy)
    for same in (
        flareclust.personalise(tmp_path / "rows.npz", k=2, **FAST),
        flareclust.personalise((X, y), k=2, **FAST),
    ):
        np.testing.assert_array_equal(table.accuracy, same.accuracy)
        np.testing.assert_array_equal(table.models["coef"], same.models["coef"])


def test_rounds_are_reported_and_the_seed_repeats_them():
    seen = []
    first = flareclust.personalise("iris", k=2, **FAST, on_round=lambda index, *rest: seen.append(index))
    assert seen == [1, 2, 3]
    np.testing.assert_array_equal(first.accuracy, flareclust.personalise("iris", k=2, **FAST).accuracy)
    assert not np.array_equal(first.accuracy, flareclust.personalise("iris", k=2, seed=1, **FAST).accuracy)


def test_models_that_no_device_uses_are_named():
    alike = two_rules()["clinic-0"]
    pairs = {"a": alike, "b": alike, "c": alike}
    result = flareclust.personalise(pairs, k=2, method="ifca", model="linear", rounds=3)
    assert result.warnings == ["1 of 2 models are in use; no device's rows are in the clusters of the others"]


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        ("iris", {}, "kfed needs k"),
        ("iris", {"k": 5, **FAST}, "k is 5, more clusters than 4 devices can have"),
        ("iris", {"k": 2, "method": "ifac"}, "did you mean 'ifca'"),
        ("iris", {"k": 2, "modle": "mlp"}, "unknown setting 'modle'.*did you mean 'model'"),
        ("iris", {"k": 2, "test_share": 1.0}, "test_share must be"),
        ("iris", {"k": 2, "lr": -1.0}, "lr must be"),
        ("iris", {"k": 2, "updates": 0}, "updates must be an integer of at least 1"),
        ("iris", {"method": "ifca"}, "ifca needs k"),
        ("iris", {"k": 2, "method": "global"}, "k is 2 without effect: global has no clusters; leave it out"),
        ("iris", {"k": 2, "method": "local"}, "k is 2 without effect: local"),
        ("iris", {"k": 2, "k_local": 2, "method": "ifca"}, "k_local is 2 without effect.*use method=kfed"),
        ("iris", {"k": 2, "averaging": "gradients"}, "averaging is gradients without effect.*use method=ifca"),
        ("iris", {"k": 2, "hidden": 8}, "hidden is 8 without effect.*use model=mlp"),
        ("iris", {"k": 2, "batch": 8}, "batch is 8 without effect.*use model=mlp"),
        (
            "iris",
            {"k": 2, "method": "ifca", "model": "mlp", "averaging": "gradients", "updates": 3},
            "updates is 3 without effect.*use averaging=models",
        ),
        ("femnist", {"k": 2, "partition": "owners:4", "devices": 5}, "devices is 5 without effect.*a device per owner"),
        ("iris", {"k": 2, "label": "kind"}, "label is for files, and iris is a data set"),
        ((np.eye(4), np.arange(4) % 2), {"k": 1, "label": "kind"}, r"label names .* rows in memory come as \(X, y\)"),
        (two_rules(), {"k": 2, "partition": "power:1"}, "partition is without effect: the rows come by device"),
        (two_rules(), {"k": 2, "devices": 3}, "devices is 3 without effect: the rows are of 4 devices"),
        ("iris", {"k": 2, "partition": "none"}, "partition must be one of iid, .*; got 'none'"),
        ("iris", {"k": 2, "partition": "har-a1"}, r"partition must be one of [^;]*owners\[:N\]; got 'har-a1'"),
        ("iris", {"k": 2, "devices": 76}, "devices is 76, too many for 150 rows.*use at most 75 devices"),
        (
            "iris",
            {"k": 2, "devices": 55},
            r"^site-\d+ has 1 of the 2 rows to train with.* of 55 devices have fewer; use fewer",
        ),
        ("iris", {"k": 2, "devices": 70}, "kfed needs 2 rows to train with.*, and 60 of 70 have fewer.*fewer devices"),
        ({}, {"k": 1}, "no devices"),
        ({"a": np.zeros((3, 2))}, {"k": 1}, r"a: expected \(X, y\)"),
        ({"a": (np.zeros((3, 2)), np.zeros(2, dtype=int))}, {"k": 1}, r"a: y must hold one class per row, \(3,\)"),
        ({"a": (np.zeros((4, 2)), np.zeros(4, dtype=int))}, {"k": 1}, "all rows are of one class"),
        (
            {"a": (np.full((4, 2), np.nan), np.arange(4) % 2)},
            {"k": 1},
            "a: .*without any value: leave these columns out$",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(data, settings, message):
    with pytest.raises(flareclust.UserError, match=message):
        flareclust.personalise(data, **{"model": "linear", **settings})


def test_files_without_classes_are_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("a,kind\n1,0.5\n2,1\n")
    for settings, message in [
        ({}, "has no classes to learn; name the column"),
        ({"label": "knid"}, "has no column 'knid'.*did you mean 'kind'"),
        ({"label": "kind"}, "are no integers"),
    ]:
        with pytest.raises(flareclust.UserError, match=message):
            flareclust.personalise(tmp_path / "rows.csv", k=1, model="linear", **settings)
    for rows, message in [
        ("a,kind\n1,0\n,1\n", "1 cell is missing, .*; drop these rows or fill them in$"),
        (
            "a,kind\nx,0\n2,1\n",
            r"'a' is not numeric.*write it as numbers \(classes from 0\), or leave the column out of the file$",
        ),
        (
            "a,kind\nx,y\n",
            r"write it as numbers \(classes from 0\), or, where .* a header, write only numbers below it$",
        ),
        ("1,0\n2,1\n", "has no names of columns to find 'kind' by; add a header row"),
    ]:
        (tmp_path / "odd.csv").write_text(rows)
        with pytest.raises(flareclust.UserError, match=message):
            flareclust.personalise(tmp_path / "odd.csv", k=1, label="kind", model="linear")
    (tmp_path / "one.csv").write_text("kind\n0\n1\n")
    with pytest.raises(flareclust.UserError, match="no column beside 'kind'"):
        flareclust.personalise(tmp_path / "one.csv", k=1, label="kind", model="linear")


def test_a_step_size_at_which_the_loss_diverges_fails_with_advice():
    with pytest.raises(flareclust.JobFailed, match=r"round 1: .*beyond 1e\+30.*use a smaller lr, or scale the columns"):
        flareclust.personalise("wine", k=1, model="linear", lr=1e300, devices=2)


def test_a_folder_with_files_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(flareclust.UserError, match="holds other files, such as"):
        flareclust.personalise("iris", k=2, out=tmp_path, **FAST)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_network_without_torch_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr("flareclust._foundation.extras.find_spec", lambda name: None)
    with pytest.raises(flareclust.UserError, match=r"the model mlp \(model=linear needs no extra\) needs torch"):
        flareclust.personalise("iris", k=2)


def test_known_owners_are_devices():
    settings = PersonalSettings(data="digits", k=2, partition="clusters:2", devices=5)
    split, classes = _prepare_devices(settings)
    assert len(split.names) == 5
    assert classes == list(range(10))
    assert all(len(np.unique(rows.y)) <= 2 for rows in split.train.values())


def test_the_command_prints_one_object_of_json(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    args = ["personalise", "--data", "iris", "--k", "2", "--model", "linear", "--devices", "4", "--rounds", "2"]
    with pytest.raises(SystemExit) as ended:
        main([*args, "--no-track", "--json", "--out", "out"])
    assert not ended.value.code
    printed = json.loads(capsys.readouterr().out)
    assert printed["settings"]["rounds"] == 2
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    with pytest.raises(SystemExit) as ended:
        main([*args, "--method", "ifcaa", "--no-track"])
    assert ended.value.code == 2
    assert "did you mean 'ifca'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.smoke
def test_a_tracked_run_has_rounds_costs_and_files(tmp_path, monkeypatch):
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/runs.db")
    result = flareclust.personalise("iris", k=2, track=True, out=tmp_path / "out", **FAST)
    assert not result.warnings
    client = MlflowClient(f"sqlite:///{tmp_path}/runs.db")
    run = client.get_run(result.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["method"] == "kfed"
    assert run.data.metrics["final/accuracy"] == pytest.approx(result.final_accuracy)
    assert run.data.metrics["cost/bytes_down"] == result.bytes["down"]
    assert len(client.get_metric_history(result.run_id, "round/accuracy")) == 3
    assert {file.path for file in client.list_artifacts(result.run_id)} == FILES


def test_a_store_that_fails_costs_no_result(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/file/runs.db")
    result = flareclust.personalise("iris", k=2, track=True, out=tmp_path / "out", **FAST)
    assert result.run_id is None
    assert "but not in MLflow" in result.warnings[0]
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES


def test_the_flow_trains_saves_and_logs_in_this_order(tmp_path, monkeypatch):
    from flareclust.flows import personalise as module
    from flareclust.flows import steps

    names = []

    def task(name, **options):
        names.append(name)
        return lambda function: function

    monkeypatch.setattr(steps, "task", task)
    monkeypatch.setattr(run_logging, "log_personal", lambda result, name: result)
    settings = PersonalSettings(data="iris", k=2, model="linear", rounds=2, devices=4)
    result = module.personalise_flow.fn(settings, str(tmp_path / "out"))
    assert names == ["train", "save", "log to MLflow"]
    same = flareclust.personalise("iris", k=2, model="linear", rounds=2, devices=4)
    np.testing.assert_array_equal(result.accuracy, same.accuracy)
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES


def test_columns_in_unlike_units_are_named_and_can_be_scaled(tmp_path):
    settings = {"method": "global", "model": "linear", "devices": 4, "rounds": 5}
    plain = flareclust.personalise("breast_cancer", **settings)
    assert any("column 24 of 30" in text and "set scale=standard" in text for text in plain.warnings)
    result = flareclust.personalise("breast_cancer", scale="standard", out=tmp_path / "out", **settings)
    assert not any("scale" in text for text in result.warnings)
    assert result.final_accuracy > max(0.95, plain.final_accuracy)
    with np.load(tmp_path / "out" / "model-0.npz") as file:
        np.testing.assert_array_equal(file["deviation"], result.scaling["deviation"])
        model = {name: file[name] for name in file.files}
    split, _ = _prepare_devices(PersonalSettings(data="breast_cancer", **settings))
    X, y = (np.concatenate([getattr(rows, part) for rows in split.test.values()]) for part in ("X", "y"))
    found = ((X - model["mean"]) / model["deviation"]) @ model["coef"][0] + model["intercept"] > 0
    assert np.mean(found == y) > 0.95
    every = np.concatenate([rows.X for rows in split.train.values()])
    assert (np.abs(model["mean"] - every.mean(axis=0)) < 0.1 * every.std(axis=0)).all()
    np.testing.assert_allclose(model["deviation"], every.std(axis=0), rtol=0.05)


def test_jobs_for_sites_do_not_scale(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["personalise", "--method", "global", "--scale", "standard", "--export", str(tmp_path / "jobs")])
    assert "scale does not go with export" in capsys.readouterr().err
