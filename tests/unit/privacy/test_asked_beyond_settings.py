"""What a server asks beyond the settings of a job, to find out about single rows, is refused at the site."""

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import never_abort
from flareclust.data.tables import Table
from flareclust.executors.lloyd import LloydExecutor
from flareclust.executors.masked import MaskedExecutor
from flareclust.platform.log_streaming import LogStreamer
from flareclust.preparation import alignment
from flareclust.privacy.job_sums import SecureSums
from flareclust.protocol.task import StepName, Task
from tests.computed import computed

NAMES = ("a", "b")
TABLE = Table(np.random.default_rng(0).normal(size=(60, 2)), NAMES)
COLUMNS = {"columns": alignment._codes_of(TABLE)}
GRID = {"low": np.zeros(2), "width": np.ones(2)}


def asked(executor, step, arrays, round_=0, table=TABLE):
    return executor.answer(Task(step, round_, arrays, "site-1"), table, never_abort).arrays


@pytest.mark.parametrize("step", [StepName.LOSSES, StepName.ROWS])
def test_losses_and_numbers_of_rows_leave_no_job_with_secure_sums(step):
    executor_class = pytest.importorskip("flareclust.personal.executor").FedAvgExecutor
    executor = executor_class(1, class_column="class", model="linear")
    executor.hold_to(SecureSums(3))
    with pytest.raises(Refusal, match=f"secure sums, which does without the step {step}"):
        asked(executor, step, {})


@pytest.mark.parametrize("step", [StepName.MOMENTS, StepName.KNOWN_MOMENTS])
@pytest.mark.parametrize("missing", ["refuse", "drop-rows"])
def test_sums_of_columns_are_for_jobs_that_need_them(step, missing):
    """Beside clusters from which none are held back, exact sums would give the rows that were."""
    executor, rng = MaskedExecutor(2, missing=missing), np.random.default_rng(0)
    with pytest.raises(Refusal, match="sums of its columns"):
        computed(executor, Task(step, 0, COLUMNS, "site-1"), TABLE, rng)


def test_sums_of_columns_are_rounded_where_no_clusters_are_held_back_for_them():
    exact = asked(MaskedExecutor(2, missing="mean"), StepName.KNOWN_MOMENTS, COLUMNS)["centroids"][:, 0]
    rounded = asked(MaskedExecutor(2, missing="mean", scale="robust"), StepName.KNOWN_MOMENTS, COLUMNS)["centroids"][
        :, 0
    ]
    np.testing.assert_allclose(exact, TABLE.X.mean(axis=0), rtol=1e-12)
    assert (rounded != exact).all()
    np.testing.assert_allclose(rounded, exact, atol=0.1)


@pytest.mark.parametrize("executor", [LloydExecutor, MaskedExecutor])
@pytest.mark.parametrize("step", [StepName.BINNED, StepName.FINER_BINNED])
def test_cells_in_bins_are_counted_once_before_the_rounds(executor, step):
    sent = GRID | (COLUMNS if executor is MaskedExecutor else {})
    assert asked(executor(2, scale="robust"), step, sent)["counts"].sum()
    with pytest.raises(BadMessage, match="again; a job asks for them before the rounds"):
        asked(executor(2, scale="robust"), step, sent, 1)
    with pytest.raises(BadMessage, match="cells in bins, which scale=standard does without"):
        asked(executor(2, scale="standard"), step, sent)


def test_too_few_complete_rows_are_not_counted():
    gaps = Table(np.where(np.arange(60)[:, None] == 0, TABLE.X, np.nan), NAMES)
    with pytest.raises(Refusal, match="fewer"):
        asked(MaskedExecutor(2, missing="drop-rows", min_count=10), StepName.DESCRIBE, {}, table=gaps)


def test_a_policy_lets_out_moments_of_more_columns_than_centroids():
    rows = np.random.default_rng(1).normal(size=(3, 90, 7)) + 6 * np.arange(3).repeat(30)[:, None]
    sites = {site: pd.DataFrame(X, columns=list("abcdefg")) for site, X in zip("xyz", rows, strict=True)}
    result = flareclust.run("masked", sites, k=3, scale="robust", policy={"max_centroids": 5, "min_count": 5})
    assert not result.left_out


def test_no_job_streams_the_log_that_names_columns():
    with pytest.raises(ValueError, match=r"expected error_log\.txt"):
        LogStreamer("log.txt")
