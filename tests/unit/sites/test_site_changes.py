"""Rows whose file changes under a job."""

import os

import numpy as np
import pytest

from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import never_abort
from flareclust.core.chunks import is_mapped
from flareclust.executors.lloyd import LloydExecutor
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol.task import StepName, Task
from tests.unit.sites.site_cases import X, site

# --- rows that are used from where they lie ---
MANY = np.random.default_rng(0).normal(size=(100, 2))


def change(file, how):
    match how:
        case "longer":
            np.save(file, np.vstack([MANY, MANY]))
        case "other numbers":
            with file.open("r+b") as stream:
                stream.seek(-8, os.SEEK_END)
                stream.write(np.float64(77).tobytes())
            os.utime(file, ns=(0, file.stat().st_mtime_ns + 10_000_000))
        case "gone":
            file.unlink()


@pytest.mark.parametrize("how", ["longer", "other numbers", "gone"])
@pytest.mark.parametrize("path", ["rows.npy", "*.npy"])
def test_a_site_refuses_where_its_file_changes_under_a_job(local, path, how):
    np.save(local / "rows.npy", MANY)
    table = site(local, path=path, memory=1000).table()
    assert is_mapped(table.X)
    lloyd = LloydExecutor(k=2, min_count=2)
    task = Task(StepName.CLUSTER, 0, {}, "site-1")
    assert "centroids" in lloyd.answer(task, table, never_abort).arrays
    change(local / "rows.npy", how)
    with pytest.raises(Refusal, match="its file changed while the job ran") as refused:
        lloyd.answer(task, table, never_abort)
    assert "npy" not in str(refused.value)


@pytest.mark.parametrize("session", [None, SiteSession(Policy(min_count=2), "a job")], ids=["no policy", "policy"])
def test_nothing_leaves_a_site_whose_file_changes_while_it_computes(local, session):
    np.save(local / "rows.npy", MANY)
    table = site(local, path="rows.npy", memory=1000).table()

    class Slow(LloydExecutor):
        def local(self, *args):
            change(local / "rows.npy", "other numbers")
            return super().local(*args)

    with pytest.raises(Refusal, match="its file changed while the job ran"):
        Slow(k=2, min_count=2).answer(Task(StepName.CLUSTER, 0, {}, "site-1"), table, never_abort, session)


def test_a_file_that_was_read_into_memory_may_change(local):
    np.save(local / "rows.npy", X)
    table = site(local, path="rows.npy").table()
    change(local / "rows.npy", "longer")
    table.check_unchanged()
    np.testing.assert_array_equal(table.X, X)
