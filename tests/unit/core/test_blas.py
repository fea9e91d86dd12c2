"""One limit of BLAS for all threads of the process."""

from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import pytest
from threadpoolctl import OpenBLASController, threadpool_info, threadpool_limits

from flareclust.core.runtime import one_thread


def threads_of(api):
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == api}


@pytest.fixture(autouse=True)
def two_threads():
    OpenBLASController.clear_controlling_thread(force=True)
    with threadpool_limits(2):
        yield


@pytest.fixture
def in_thread():
    """Give functions that run their argument in one of two threads, each always in the same one."""
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        yield (lambda run: first.submit(run).result()), (lambda run: second.submit(run).result())


@pytest.mark.parametrize("first_out", [0, 1])
def test_the_last_thread_out_lifts_the_limit_in_any_order(in_thread, first_out):
    blocks = one_thread(), one_thread()
    for block, run in zip(blocks, in_thread, strict=True):
        run(block.__enter__)
    assert threads_of("blas") == {1}
    in_thread[first_out](lambda: blocks[first_out].__exit__(None, None, None))
    assert threads_of("blas") == {1}
    in_thread[1 - first_out](lambda: blocks[1 - first_out].__exit__(None, None, None))
    assert threads_of("blas") == {2}


def test_the_limit_outlives_the_thread_that_set_it():
    first, second = one_thread(), one_thread()
    for block in (first, second):
        thread = Thread(target=block.__enter__)
        thread.start()
        thread.join()
    first.__exit__(None, None, None)
    assert threads_of("blas") == {1}
    second.__exit__(None, None, None)
    assert threads_of("blas") == {2}


def test_each_thread_inside_has_openmp_for_itself_alone(in_thread):
    def inside():
        with one_thread():
            return threads_of("openmp")

    with one_thread():
        for run in in_thread:
            assert run(inside) <= {1}


def test_an_exception_lifts_the_limit():
    with pytest.raises(ValueError, match="inside"), one_thread():
        raise ValueError("inside")
    assert threads_of("blas") == {2}


def test_blocks_within_blocks_keep_the_limit():
    with one_thread():
        with one_thread():
            pass
        assert threads_of("blas") == {1}
    assert threads_of("blas") == {2}
