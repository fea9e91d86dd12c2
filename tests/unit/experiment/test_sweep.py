"""The file of a sweep and the trials that it makes."""

import json
import re

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.data import datasets
from flareclust.experiment.sweeps import sweep as sweep_settings
from flareclust.experiment.sweeps import trials as study_trials
from tests.paths import ROOT
from tests.unit.data.image_cases import grey, write
from tests.unit.experiment.sweep_cases import EXAMPLE, PAGE, sweep


def test_the_example_of_the_documentation_makes_the_trials_that_it_says(tmp_path):
    (tmp_path / "grid16.toml").write_text(EXAMPLE)
    made = sweep_settings.trials(sweep_settings.read_sweep(tmp_path / "grid16.toml"))
    assert len(made) == 40
    labels = ["feca", "kfed k_local=4", "kfed k_local=8", "pooled rows"]
    cells = [{"algorithm": label, "partition": p} for p in ("iid", "dirichlet:0.3") for label in labels]
    assert [dict(one.cell) for one in made[:8]] == cells
    assert [one.seed for one in made] == [seed for seed in range(5) for _ in range(8)]
    assert made[1].params["params"] == {"k_local": 4}


def test_the_documentation_lists_all_keys_with_their_defaults():
    rows = re.findall(r"^\| `(\w+)` \|(.*?)\| .* \|$", PAGE.split("## Output")[0], flags=re.MULTILINE)
    assert [name for name, _ in sorted(rows)] == sorted(sweep_settings.Sweep.model_fields)
    for name, default in rows:
        field = sweep_settings.Sweep.model_fields[name]
        if "`" in default:
            assert json.loads(default.strip(" `")) == field.get_default(call_default_factory=True)
        else:
            assert field.is_required() or field.default is None


def test_the_sweep_of_the_benchmark_has_240_trials_of_eight_algorithms(shared_data):
    made = sweep_settings.trials(sweep_settings.read_sweep(ROOT / "benchmarks" / "s1_sweep.toml"))
    assert len(made) == 240
    assert len({one.params["algorithm"] for one in made}) == 8
    assert len({one.key("s") for one in made}) == 240


def test_cells_name_data_and_k_only_where_they_vary():
    assert sweep_settings.trials(sweep(data=["iris", "wine"], k=[3, 4]))[-1].name == "kfed/iid/wine/4/s1"
    assert sweep_settings.trials(sweep(k=3))[0].name == "kfed/iid/s0"


def test_all_values_of_settings_are_combined():
    made = sweep_settings.trials(
        sweep(seeds=1, algorithms=[{"name": "kfed", "label": "K", "k_local": [2, 3], "min_count": [1, 2]}])
    )
    assert [(one.cell["algorithm"], one.params["params"]) for one in made] == [
        (f"K k_local={k} min_count={c}", {"k_local": k, "min_count": c}) for k in (2, 3) for c in (1, 2)
    ]


def test_a_setting_that_is_a_list_takes_a_list_of_lists():
    made = sweep_settings.trials(
        sweep(seeds=1, algorithms=[{"name": "portfolio", "members": [["feca", "kfed"], ["feca", "pooled"]]}])
    )
    assert [one.params["params"]["members"] for one in made] == [["feca", "kfed"], ["feca", "pooled"]]
    assert [one.cell["algorithm"] for one in made] == ["portfolio members=feca+kfed", "portfolio members=feca+pooled"]


def test_a_trial_measures_what_a_run_measures():
    (one,) = sweep_settings.trials(sweep(seeds=[4], algorithms=[{"name": "kfed", "k_local": 2}]))
    measured = one.measure()
    result = flareclust.run("kfed", data="iris", n_sites=3, seed=4, k_local=2, profile=False)
    assert {name: measured.final[name] for name in result.metrics} == result.metrics
    assert measured.final["centroids_found"] == result.centroids_found
    assert measured.cost["bytes_up"] == result.bytes["up"]
    assert [row["round"] for row in measured.rounds] == [0.0]


def test_yardsticks_run_in_process_beside_the_simulator():
    made = sweep_settings.trials(sweep(engine="simulator", algorithms=["kfed", "central"], seeds=1))
    assert [one.params["engine"] for one in made] == ["simulator", "inprocess"]


def test_data_are_loaded_once(monkeypatch):
    loaded = []
    load = datasets.load
    monkeypatch.setattr(datasets, "load", lambda name, **asked: loaded.append(name) or load(name))
    made = sweep_settings.trials(sweep(data=["iris", "wine"], partitions=["iid", "dirichlet:1"], seeds=5))
    for one in made[:4]:
        one.measure()
    assert loaded == ["iris", "wine"]


def test_a_trial_is_the_same_wherever_its_file_is_and_another_when_the_data_change(tmp_path):
    def keys(folder, X):
        folder.mkdir(exist_ok=True)
        np.save(folder / "rows.npy", X)
        (folder / "s.toml").write_text('name="s"\ndata="rows.npy"\nk=2\nn_sites=2\nseeds=2\nalgorithms=["kfed"]')
        return [one.key("s") for one in sweep_settings.trials(sweep_settings.read_sweep(folder / "s.toml"))]

    X = np.random.default_rng(0).normal(size=(40, 2))
    first = keys(tmp_path / "a", X)
    assert keys(tmp_path / "b", X) == first
    assert not set(keys(tmp_path / "a", X + 1e-12)) & set(first)


def test_sites_with_files_of_their_own_are_swept_too(tmp_path):
    for site in ("north", "south"):
        (tmp_path / "sites").mkdir(exist_ok=True)
        np.save(tmp_path / "sites" / f"{site}.npy", np.random.default_rng(len(site)).normal(size=(30, 2)))
    made = sweep_settings.trials(sweep(data=str(tmp_path / "sites"), partitions="none", k=2, min_sites=2))
    assert made[0].name == "kfed/none/s0"
    assert (made[0].params["data"], made[0].params["n_sites"]) == ("sites", 2)
    assert study_trials.attempt_any(made[0]).measured.final["inertia"] > 0


def test_a_changed_image_makes_other_trials(tmp_path):
    def keys():
        made = sweep_settings.trials(
            sweep(data=str(tmp_path), partitions="none", k=2, min_sites=2, algorithms=["deepfeca"])
        )
        return {one.key("s") for one in made}

    for site in ("north", "south"):
        for number in range(4):
            write(tmp_path / site / "scans" / f"{number}.png", grey(number))
    before = keys()
    assert keys() == before
    write(tmp_path / "south" / "scans" / "3.png", grey(9))
    assert not keys() & before


def test_algorithms_that_fill_gaps_and_those_that_refuse_them_load_the_data_by_themselves(tmp_path):
    table = tmp_path / "rows.csv"
    values = np.random.default_rng(0).normal(size=(30, 2)).astype(str)
    values[4, 1] = ""
    table.write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in values))
    filling = {"name": "lloyd", "missing": "mean", "label": "filled"}
    (made,) = sweep_settings.trials(sweep(data=str(table), k=2, algorithms=[filling], seeds=1))
    assert study_trials.attempt_any(made).measured.final["inertia"] > 0
    with pytest.raises(UserError, match=r"^kfed/iid: .* missing"):
        sweep_settings.trials(sweep(data=str(table), k=2, algorithms=[filling, "kfed"]))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"seed": 3}, r"unknown setting 'seed' \(did you mean 'seeds'\?\)"),
        ({"name": ""}, "name must be a text"),
        ({"name": 3}, "name must be a text"),
        *(({"data": data}, "data must be a text or a list of at least one") for data in ([], "", ["iris", ""], [3])),
        ({"data": "iriss"}, "unknown data set 'iriss' .did you mean 'iris'"),
        ({"data": ["iris", "iris"]}, "data: 'iris' is there more than once"),
        ({"seeds": 0}, "seeds must be an integer of at least 1, got 0"),
        ({"seeds": True}, "seeds must be an integer"),
        ({"seeds": "3"}, "seeds must be an integer"),
        ({"seeds": []}, "seeds: expected at least one value, got an empty list"),
        ({"seeds": [1, 1]}, "seeds: 1 is there more than once"),
        ({"seeds": [2**32]}, "seeds must be less than 4294967296"),
        ({"seeds": 10**9}, "1000000000 trials, and at most 100000"),
        ({"k": []}, "k: expected at least one value"),
        ({"k": [3, 0]}, "k must be an integer of at least 1, got 0"),
        ({"k": [3, 3]}, "k: 3 is there more than once"),
        ({"n_sites": 2.5}, "n_sites must be an integer"),
        ({"n_sites": 400}, r"kfed/iid: more sites \(400\) than rows \(150\)"),
        ({"partitions": "iidd"}, "partitions: unknown partition 'iidd' .did you mean 'iid'"),
        ({"partitions": []}, "partitions must be a text or a list of at least one"),
        ({"partitions": ["dirichlet:.3", "dirichlet:0.30"]}, "partitions: 'dirichlet:0.3' is there more than once"),
        ({"partitions": "none"}, "there is no folder iris"),
        ({"engine": "simulater"}, "engine must be one of inprocess, simulator; got 'simulater' .did you mean"),
        ({"min_sites": 4}, "min_sites=4 is more than n_sites=3"),
        ({"workers": 0}, "workers must be an integer of at least 1"),
        ({"workers": 65}, "workers must be at most 64, got 65"),
        ({"mlflow_experiment": "a'b"}, "mlflow_experiment must be a text without quotes"),
        ({"algorithms": []}, "algorithms must be a list of at least one"),
        ({"algorithms": "kfed"}, "algorithms must be a list"),
        ({"algorithms": [3]}, "each of algorithms must be a name"),
        ({"algorithms": [{"label": "x"}]}, "each of algorithms must be a name"),
        ({"algorithms": ["kfedd"]}, "algorithms: unknown algorithm 'kfedd' .did you mean 'kfed'"),
        ({"algorithms": [{"name": "kfed", "klocal": 3}]}, "kfed has no parameter 'klocal' .did you mean 'k_local'"),
        ({"algorithms": [{"name": "kfed", "k_local": []}]}, "k_local of kfed: expected at least one value"),
        ({"algorithms": [{"name": "kfed", "k_local": [2, 2]}]}, "k_local of kfed: 2 is there more than once"),
        ({"algorithms": [{"name": "kfed", "min_count": 0}]}, "kfed/iid: min_count must be"),
        ({"algorithms": [{"name": "kfed", "label": "a/b"}]}, "label must be a text without slashes"),
        ({"algorithms": ["kfed", "kfed"]}, "the labels in algorithms: 'kfed' is there more than once"),
        ({"algorithms": ["kfed", {"name": "feca", "label": "kfed"}]}, "the labels in algorithms: 'kfed'"),
    ],
    ids=str,
)
def test_a_bad_sweep_is_refused_in_one_line_before_anything_runs(settings, words):
    with pytest.raises(UserError, match=words) as caught:
        sweep_settings.trials(sweep(**settings))
    assert "\n" not in str(caught.value)


def test_an_algorithm_that_cannot_do_what_the_schema_says_is_refused_before_the_first_trial(tmp_path):
    """In the place of failures of its own trials, beside those of the others."""
    (tmp_path / "t.csv").write_text("age,crp\n" + "".join(f"{40 + i},{i % 7}\n" for i in range(30)))
    columns = "columns: {age: {type: number, unit: years}, crp: {type: number, unit: mg/l, missing: mean}}"
    (tmp_path / "schema.yaml").write_text(columns)
    study = {"data": str(tmp_path / "t.csv"), "k": 2, "seeds": 1, "table_schema": str(tmp_path / "schema.yaml")}
    assert len(sweep_settings.trials(sweep(**study, algorithms=["pooled", "lloyd"]))) == 2
    with pytest.raises(UserError) as caught:
        sweep_settings.trials(sweep(**study, algorithms=["pooled", "lloyd", "central"]))
    assert str(caught.value) == (
        "central/iid: central cannot do with missing cells what the schema says of crp (missing: mean); take another "
        "algorithm, such as portfolio, or missing: drop-rows"
    )


def test_data_without_known_k_ask_for_it(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((9, 2)))
    with pytest.raises(UserError, match="kfed/iid: k is not known"):
        sweep_settings.trials(sweep(data=str(tmp_path / "rows.npy")))
    with pytest.raises(UserError, match='is a folder; for one file per site say partitions = "none"'):
        sweep_settings.trials(sweep(data=str(tmp_path)))


def test_files_that_are_no_sweeps_are_refused_by_name(tmp_path):
    with pytest.raises(UserError, match=r"absent\.toml cannot be read: No such file"):
        sweep_settings.read_sweep(tmp_path / "absent.toml")
    (tmp_path / "s.toml").write_text("name = ")
    with pytest.raises(UserError, match=r"s\.toml is not a TOML file"):
        sweep_settings.read_sweep(tmp_path / "s.toml")
    (tmp_path / "s.toml").write_text('name = "x"')
    with pytest.raises(UserError, match=r"s\.toml: the setting 'data' is missing; the setting 'algorithms' is missing"):
        sweep_settings.read_sweep(tmp_path / "s.toml")
