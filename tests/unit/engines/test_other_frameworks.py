"""A run whose messages another framework carries: the same bits as the in-process engine, without withdrawn rows, and what a site says."""

import json

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import Refusal, UserError
from flareclust.data.ids import Ids
from flareclust.data.tables import Table
from flareclust.engines.other_frameworks import ALGORITHMS, answer_task, make_job
from flareclust.federation import run_federation
from flareclust.protocol.task import Task

K, GONE = 3, ["north-4", "north-31", "north-55"]


@pytest.fixture
def rows():
    rng = np.random.default_rng(5)
    return {
        site: np.concatenate([rng.normal(center, 1.0, (30, 2)) for center in (5.0, 15.0, 25.0)])
        for site in ("east", "north", "west")
    }


def left(rows):
    return {**rows, "north": np.delete(rows["north"], [int(one.removeprefix("north-")) for one in GONE], axis=0)}


def reader(site, X):
    def read(gaps, gone):
        ids = Ids()
        ids.extend(f"{site}-{i}" for i in range(len(X)))
        if not gone:
            return X
        out = gone.look(ids)
        return Table(X, withdrawn=out) if gone.marked else X[~out]

    return read


def carried(algorithm, rows, policy=None, withdrawn=None, **settings):
    """Run a federation whose job is carried as JSON; only north has withdrawn rows."""
    aggregator, job = make_job(algorithm, K, **settings)
    job = json.loads(json.dumps(job))

    def ask(step, round_, arrays, sites):
        own = {"north": withdrawn}
        return {
            site: answer_task(job, Task(step, round_, arrays, site), reader(site, rows[site]), policy, own.get(site))
            for site in sites
        }

    return run_federation(aggregator, ask, list(rows))


def check_equal(found, expected):
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array, err_msg=name)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_result_is_that_of_the_in_process_engine_on_the_rows_that_are_left(rows, tmp_path, algorithm):
    check_equal(carried(algorithm, rows, seed=7), flareclust.run(algorithm, rows, K, seed=7))
    (tmp_path / "gone.txt").write_text("\n".join(GONE))
    found = carried(algorithm, rows, withdrawn=tmp_path / "gone.txt", seed=7, params={})
    check_equal(found, flareclust.run(algorithm, left(rows), K, seed=7))


def test_at_a_site_with_a_policy_the_groups_stay_and_those_with_a_withdrawn_row_are_left_out(rows, tmp_path):
    (tmp_path / "policy.yaml").write_text("min_count: 10\n")
    (tmp_path / "gone.txt").write_text(GONE[0])
    before = carried("pooled", rows, tmp_path / "policy.yaml")
    found = carried("pooled", rows, tmp_path / "policy.yaml", tmp_path / "gone.txt")
    out = before.arrays["counts"].sum() - found.arrays["counts"].sum() if "counts" in before.arrays else None
    assert not np.array_equal(found.centroids, before.centroids)
    assert out is None or 10 <= out < 20


def test_a_list_that_cannot_be_read_and_another_algorithm_are_refused(rows, tmp_path):
    found = carried("lloyd", rows, withdrawn=tmp_path / "gone.txt")
    assert found.refused == {"north": f"{tmp_path / 'gone.txt'} cannot be read: No such file or directory"}
    with pytest.raises(UserError, match="'fkm' runs over NVFlare only; over other frameworks take lloyd, pooled, kfed"):
        make_job("fkm", K)
    job = make_job("lloyd", K)[1]
    task = Task("cluster", 0, {}, "north")
    for change, reason in (
        ({"algorithm": "deepfeca"}, "runs lloyd, pooled, kfed only"),
        ({"version": "0.0.1+123456789012"}, "where the job needs 0.0.1"),
        ({"params": {"roundss": 3}}, "roundss"),
    ):
        assert reason in answer_task(job | change, task, reader("north", rows["north"])).problem


def test_what_the_rows_say_leaves_the_site_only_where_they_refuse(rows):
    job = make_job("pooled", K)[1]
    task = Task("cluster", 0, {}, "north")

    def refusing(gaps, gone):
        raise Refusal("has no rows today")

    def failing(gaps, gone):
        raise ZeroDivisionError("12345.678")

    assert answer_task(job, task, refusing).problem == "has no rows today"
    with pytest.raises(ZeroDivisionError):
        answer_task(job, task, failing)
