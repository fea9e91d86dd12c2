"""Sites of the in-process engine in threads."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, current_thread, main_thread

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from flareclust._foundation.errors import Refusal, UserError
from flareclust.core.threads import THREADS, side_by_side, team
from flareclust.engines import site_threads
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.engines.site_threads import _LARGE, computed
from flareclust.executors.lloyd import LloydExecutor
from flareclust.protocol.registry import get


@pytest.fixture(scope="module")
def sites():
    """Sites with large tables, and one with a small one."""
    rng = np.random.default_rng(5)
    centers = rng.normal(scale=6, size=(4, 8))
    rows = {f"site-{i}": centers[rng.integers(4, size=n)] + rng.normal(size=(n, 8)) for i, n in enumerate([6000] * 4)}
    assert all(table.nbytes >= _LARGE for table in rows.values())
    return {**rows, "site-small": centers[rng.integers(4, size=200)] + rng.normal(size=(200, 8))}


@pytest.mark.parametrize("name", ["lloyd", "pooled", "feca", "kfed"])
def test_the_number_of_threads_changes_no_bit(sites, name):
    one, *others = [run_inprocess(get(name), {}, sites, JobOptions(k=4, seed=2), workers=n) for n in (1, 2, 3, 4)]
    for other in others:
        assert list(one.arrays) == list(other.arrays)
        for field, value in one.arrays.items():
            np.testing.assert_array_equal(other.arrays[field], value, err_msg=field)
        assert one.metrics == other.metrics
        assert list(one.labels) == list(other.labels)
        for site, labels in one.labels.items():
            np.testing.assert_array_equal(other.labels[site], labels)
        assert [record["sites"] for record in one.rounds] == [record["sites"] for record in other.rounds]
        assert (one.bytes_up, one.bytes_down) == (other.bytes_up, other.bytes_down)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_site_that_refuses_is_named_and_the_others_go_on(sites, monkeypatch, workers):
    whole = LloydExecutor.answer

    def refusing(self, task, *args):
        if task.site == "site-1":
            raise Refusal("does not want to")
        return whole(self, task, *args)

    monkeypatch.setattr(LloydExecutor, "answer", refusing)
    outcome = run_inprocess(get("lloyd"), {}, sites, JobOptions(k=4), workers=workers)
    assert outcome.refused == {"site-1": "does not want to"}
    assert list(outcome.labels) == ["site-0", "site-2", "site-3", "site-small"]


@pytest.mark.parametrize("workers", [1, 4])
def test_an_unexpected_exception_is_that_of_the_first_site(sites, monkeypatch, workers):
    def failing(self, task, *args):
        raise ZeroDivisionError(task.site)

    monkeypatch.setattr(LloydExecutor, "answer", failing)
    with pytest.raises(ZeroDivisionError, match="site-0"):
        run_inprocess(get("lloyd"), {}, sites, JobOptions(k=4), workers=workers)


def test_large_works_run_side_by_side_on_one_blas_thread_and_small_ones_here():
    met = Barrier(2, timeout=60)

    def large(aborted):
        met.wait()
        return current_thread(), {pool["num_threads"] for pool in threadpool_info()}

    (first, pools), (small, _), (second, _) = computed(
        [(_LARGE, large), (_LARGE - 1, lambda aborted: (current_thread(), None)), (_LARGE, large)], 2
    )
    assert main_thread() is small
    assert len({first, second, small}) == 3
    assert pools == {1}


def test_after_an_exception_works_are_asked_to_stop_and_others_never_begin():
    began, seen, never = Event(), [], []

    def failing(aborted):
        began.wait(60)
        raise ValueError("first")

    def running(aborted):
        began.set()
        while not aborted():
            pass
        seen.append(True)

    works = [(_LARGE, failing), (_LARGE, running), (0, never.append)]
    with pytest.raises(ValueError, match="first"):
        computed(works, 2)
    assert seen == [True]
    assert never == []


def test_sites_that_compute_at_once_share_the_threads(monkeypatch):
    monkeypatch.setenv(THREADS, "8")

    def threads_of(_):
        with team(1_000_000_000) as own:
            return own.threads

    large = 1_000_000
    assert computed([(large, threads_of)] * 4, workers=4) == [2, 2, 2, 2]
    assert computed([(large, threads_of), (1, threads_of)], workers=4) == [8, 8]  # the small one is in this thread
    with side_by_side(2):  # a trial of a sweep that runs beside another one
        assert computed([(large, threads_of)] * 2, workers=2) == [2, 2]
    assert threads_of(None) == 8


@pytest.mark.parametrize("threads", [1, 3])
def test_sites_take_no_more_threads_than_the_process_may_use(monkeypatch, sites, threads):
    taken = []
    monkeypatch.setenv(THREADS, str(threads))
    monkeypatch.setattr(site_threads, "_LARGE", 0)
    monkeypatch.setattr(site_threads, "ThreadPoolExecutor", lambda n: taken.append(n) or ThreadPoolExecutor(n))
    run_inprocess(get("pooled"), {}, sites, JobOptions(k=4))
    assert set(taken) == {threads}


def test_a_wrong_number_of_threads_is_refused_before_sites_are_read(monkeypatch, tmp_path):
    monkeypatch.setenv(THREADS, "many")
    with pytest.raises(UserError, match=f"{THREADS} must be an integer from 1 on, got 'many'"):
        run_inprocess(get("pooled"), {}, {"a": tmp_path / "none.csv"}, JobOptions(k=4))
