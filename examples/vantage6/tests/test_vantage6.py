"""The algorithm with vantage6's mock client: the same centroids as the in-process engine, bit for bit."""

from functools import wraps

import flareclust_vantage6
import numpy as np
import pandas as pd
import pytest
from flareclust_vantage6 import ID, POLICY, WITHDRAWN, messages
from vantage6.algorithm.tools.mock_client import MockAlgorithmClient

import flareclust
from flareclust.engines.other_frameworks import ALGORITHMS

COLUMNS = ("age", "crp")
NUMBERS = (11, 12, 13)


def rows_of(number):
    rng = np.random.default_rng(number)
    return np.concatenate([rng.normal(center, 1.0, (30, 2)) for center in (5.0, 15.0, 25.0)])


def client_of(tables):
    return MockAlgorithmClient(
        datasets=[[{"database": table}] for table in tables],
        module="flareclust_vantage6",
        organization_ids=list(NUMBERS),
    )


@pytest.fixture
def tables():
    return [pd.DataFrame(rows_of(number), columns=COLUMNS).assign(name="a") for number in NUMBERS]


def central(client, algorithm="lloyd", **settings):
    """Run `central` as a user's task would."""
    asked = {"algorithm": algorithm, "k": 3, "columns": list(COLUMNS), **settings}
    task = client.task.create(input_={"method": "central", "kwargs": asked}, organizations=[NUMBERS[0]])
    (result,) = client.wait_for_results(task_id=task["id"])
    return result


def check_equal(result, expected):
    found = messages.unpack(result["arrays"])
    assert result["centroids"] == expected.centroids.tolist()
    for name, value in found.items():
        np.testing.assert_array_equal(value, expected.arrays[name])
    assert result["metrics"] == {name: expected.metrics[name] for name in result["metrics"]}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_result_is_that_of_the_in_process_engine(tables, algorithm):
    result = central(client_of(tables), algorithm, seed=7)
    check_equal(result, flareclust.run(algorithm, {str(number): rows_of(number) for number in NUMBERS}, 3, seed=7))
    assert result["left_out"] == {}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_policy_of_the_nodes_holds(tables, tmp_path, monkeypatch, algorithm):
    (tmp_path / "policy.yaml").write_text("min_count: 12\nround_counts: 4\n")
    monkeypatch.setenv(POLICY, str(tmp_path / "policy.yaml"))
    rows = {str(number): rows_of(number) for number in NUMBERS}
    expected = flareclust.run(algorithm, rows, 3, policy={"min_count": 12, "round_counts": 4})
    check_equal(central(client_of(tables), algorithm), expected)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_withdrawn_rows_are_left_out(tables, tmp_path, monkeypatch, algorithm):
    for number, table in zip(NUMBERS, tables, strict=True):
        table["patient"] = [f"{number}-{i}" for i in range(len(table))]
    (tmp_path / "gone.txt").write_text("12-3\n12-40\n")
    monkeypatch.setenv(WITHDRAWN, str(tmp_path / "gone.txt"))
    with pytest.raises(flareclust.JobFailed, match="no column has them; name it in FLARECLUST_ID"):
        central(client_of(tables), algorithm)
    monkeypatch.setenv(ID, "patient")
    left = {str(number): rows_of(number) for number in NUMBERS}
    left["12"] = np.delete(left["12"], [3, 40], axis=0)
    check_equal(central(client_of(tables), algorithm), flareclust.run(algorithm, left, 3))


def test_what_a_policy_counts_over_a_job_does_not_hold(tables, tmp_path, monkeypatch):
    """Each question meets a new session; docs/other-frameworks.md says so."""
    (tmp_path / "policy.yaml").write_text("max_rounds: 1\n")
    monkeypatch.setenv(POLICY, str(tmp_path / "policy.yaml"))
    assert central(client_of(tables))["left_out"] == {}


def test_policies_for_masks_and_budgets_refuse(tables, tmp_path, monkeypatch):
    monkeypatch.setenv(POLICY, str(tmp_path / "policy.yaml"))
    noise = "{bounds: [0, 30], epsilon: 1, delta: 1.0e-6, budget: 2}"
    for policy, reason in (
        ("secure_sums: true", "only masked"),
        (f"differential_privacy: {noise}", "differentially private numbers only"),
    ):
        (tmp_path / "policy.yaml").write_text(policy)
        with pytest.raises(flareclust.JobFailed, match=reason):
            central(client_of(tables))


def test_organisations_can_be_named(tables):
    result = central(client_of(tables), organizations=NUMBERS[:2])
    check_equal(result, flareclust.run("lloyd", {str(number): rows_of(number) for number in NUMBERS[:2]}, 3))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"crp": "12345.678"}, "has other values than numbers in 'crp'"),
        ({"crp": np.nan}, "missing"),
    ],
)
def test_an_organisation_that_cannot_take_part_is_named_without_its_values(tables, change, reason):
    tables[1] = tables[1].assign(**change)
    result = central(client_of(tables))
    assert set(result["left_out"]) == {"12"}
    assert reason in result["left_out"]["12"]
    assert "12345" not in result["left_out"]["12"]


def test_a_lacking_column_is_said(tables):
    tables[1] = tables[1].drop(columns="crp")
    assert central(client_of(tables))["left_out"]["12"] == "has no column 'crp'"


def test_the_text_of_an_exception_goes_nowhere(tables, monkeypatch, capsys):
    def fail(*args):
        raise ZeroDivisionError("12345.678")

    monkeypatch.setattr(flareclust_vantage6, "answer_task", fail)
    with pytest.raises(flareclust.JobFailed, match="raised ZeroDivisionError") as failure:
        central(client_of(tables))
    said = capsys.readouterr()
    assert "12345" not in str(failure.value) + said.out + said.err


def test_other_versions_and_algorithms_are_refused(tables):
    client = client_of(tables)
    job = {"algorithm": "lloyd", "k": 3, "seed": 0, "params": {}, "version": "0.0.1+1234"}
    for change, reason in (({}, "another version"), ({"algorithm": "deepfeca"}, "lloyd, pooled, kfed only")):
        asked = {"job": job | change, "columns": COLUMNS, "step": "cluster", "round": 0, "arrays": messages.pack({})}
        task = client.task.create(input_={"method": "partial", "kwargs": asked}, organizations=[12])
        (result,) = client.wait_for_results(task_id=task["id"])
        assert reason in result["problem"]


@pytest.mark.parametrize("result", [None, "failed", {}, {"arrays": "AAAA"}, {"arrays": None}])
def test_what_is_no_reply_is_a_problem_of_one_organisation(tables, monkeypatch, result):
    partial = flareclust_vantage6.partial

    @wraps(partial)
    def odd(*, mock_client, **question):
        return result if mock_client.organization_id == 12 else partial(mock_client=mock_client, **question)

    monkeypatch.setattr(flareclust_vantage6, "partial", odd)
    assert set(central(client_of(tables))["left_out"]) == {"12"}
