"""What a site lets out masked only, and whom it leaves out, in a job with secure sums."""

from dataclasses import replace

import numpy as np
import pytest

from flareclust._foundation.errors import JobFailed, Refusal
from flareclust._foundation.typing import never_abort
from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.executors.lloyd import LloydExecutor
from flareclust.federation.refinement import SPREAD, UPDATE
from flareclust.preparation import alignment
from flareclust.privacy.policy import DifferentialPrivacy, Policy
from flareclust.privacy.secure_aggregation.masking import (
    KeyTable,
    SiteMasks,
    key_of,
    key_reply,
)
from flareclust.privacy.secure_aggregation.server import ServerSums
from flareclust.privacy.secure_aggregation.totals import MOST_SITES
from flareclust.privacy.session import SiteSession
from flareclust.protocol.registry import get
from flareclust.protocol.steps import counts_of
from flareclust.protocol.task import StepName, Task
from flareclust.testing import iid_sites
from tests.computed import replied
from tests.unit.privacy.secure_cases import FEWER, OPTIONS, PLAIN


def test_once_a_site_has_given_its_key_its_sums_leave_masked_only() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2))
    executor = LloydExecutor(k=2)
    centroids = {"centroids": rows[:2].copy()}
    assert "centroids" in executor.answer(Task(UPDATE, 1, dict(centroids), "a"), rows, never_abort).arrays
    executor.answer(Task(StepName.KEYS, 0, {}, "a"), rows, never_abort)
    for step in (UPDATE, StepName.ASSESS):
        with pytest.raises(
            Refusal, match=f"part in a job with secure sums, and was asked for those of the step {step}"
        ):
            executor.answer(Task(step, 1, dict(centroids), "a"), rows, never_abort)
    with pytest.raises(Refusal, match="has given its key before"):
        executor.answer(Task(StepName.KEYS, 0, {}, "a"), rows, never_abort)


def test_what_is_asked_for_masked_only_is_never_sent_otherwise() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(
        Refusal, match="lets out sums only masked, and was asked for those of the step spread_counts without"
    ):
        LloydExecutor(k=2).answer(Task(counts_of(SPREAD), 0, {}, "a"), rows, never_abort)


def test_a_policy_can_ask_for_secure_sums() -> None:
    sites, _ = iid_sites()
    policy = Policy(min_count=2, secure_sums=True)
    with pytest.raises(Refusal, match="lets out sums only masked"):
        LloydExecutor(k=2).answer(
            Task(UPDATE, 1, {"centroids": sites["site-1"][:2].copy()}, "a"),
            sites["site-1"],
            never_abort,
            SiteSession(policy, "a job"),
        )
    with pytest.raises(JobFailed, match="sums"):
        run_inprocess(get("lloyd"), {}, sites, PLAIN, policy=policy)
    held = run_inprocess(get("lloyd"), {}, sites, OPTIONS, policy=policy)
    asked = run_inprocess(get("lloyd"), {}, sites, OPTIONS, policy=replace(policy, secure_sums=False))
    np.testing.assert_array_equal(asked.centroids, held.centroids)


def test_scores_that_no_mask_fits_do_not_leave_a_site_that_lets_out_sums_masked_only() -> None:
    sites, _ = iid_sites()
    params = {"k_min": 2}
    assert run_inprocess(get("pooled"), params, sites, PLAIN, policy=Policy()).arrays["chosen_k"] == 4
    for options in (PLAIN, OPTIONS):
        with pytest.raises(JobFailed, match=r"in the step score_inertia cannot be masked \(its policy: secure_sums\)"):
            run_inprocess(get("pooled"), params, sites, options, policy=Policy(secure_sums=True))
    with pytest.raises(JobFailed, match="asked for those of the step score without; submit with secure_sums"):
        run_inprocess(get("portfolio"), {}, sites, PLAIN, policy=Policy(secure_sums=True))
    held = run_inprocess(get("portfolio"), {}, sites, OPTIONS, policy=Policy(secure_sums=True))
    assert (held.refused, len(held.centroids)) == ({}, 4)


def test_sums_with_noise_leave_a_site_that_lets_out_sums_masked_only_under_masks() -> None:
    sites, _ = iid_sites()
    dp = DifferentialPrivacy(bounds=(-100.0, 100.0), epsilon=10.0, delta=1e-6, budget=10.0)
    policy = Policy(secure_sums=True, dp=dp)
    secure = run_inprocess(get("dp-lloyd"), {"epsilon": 10.0, "delta": 1e-6}, sites, OPTIONS, policy=policy)
    assert (secure.refused, len(secure.centroids), "inertia" in secure.metrics) == ({}, 4, True)
    assert not any("secure_sums" in warning for warning in secure.warnings)
    with pytest.raises(
        JobFailed, match="lets out sums only masked, and was asked for those of the step second_moments without"
    ):
        run_inprocess(get("dp-lloyd"), {"epsilon": 10.0, "delta": 1e-6}, sites, PLAIN, policy=policy)


def test_numbers_of_rows_that_a_policy_rounds_leave_variances_as_they_are() -> None:
    rows = np.random.default_rng(0).normal(size=(57, 3)) + 9
    policy = Policy(min_count=5, round_counts=20)
    message = replied(LloydExecutor(k=2), Task(SPREAD, 0, {}, "a"), Table(rows), policy)
    assert message["counts"].tolist() == [57]  # what leaves in the end is 60, and 60 times the variance
    np.testing.assert_allclose(message["m2"][0] / 60, rows.var(axis=0), rtol=1e-12)
    executor = get("masked").build(2, 0, {"scale": "standard"})[0]
    message = replied(
        executor, Task(StepName.MOMENTS, 0, {"columns": alignment._codes_of(Table(rows))}, "a"), Table(rows), policy
    )
    np.testing.assert_allclose(message["m2"][:, 0] / 60, rows.var(axis=0), rtol=1e-12)


@pytest.mark.parametrize(
    ("scale", "message"), [(1e12, "values beyond 1e"), (1e-14, "too small for secure sums")], ids=str
)
def test_a_site_whose_values_do_not_fit_is_left_out_by_name_before_it_gives_a_key(scale: float, message: str) -> None:
    sites, _ = iid_sites()
    outcome = run_inprocess(
        get("lloyd"), {}, {**sites, "odd": np.arange(40.0).reshape(20, 2)[:, [0, 1, 1]] * scale}, FEWER
    )
    assert list(outcome.refused) == ["odd"]
    assert message in outcome.refused["odd"]
    np.testing.assert_array_equal(run_inprocess(get("lloyd"), {}, sites, OPTIONS).centroids, outcome.centroids)


def test_a_key_does_not_tell_whether_a_value_is_large_where_numbers_are_differentially_private() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2))
    rows[7, 1] = 1e30
    for name, keeps in (("dp-lloyd", False), ("dp-oneshot", False), ("lloyd", True)):
        executor = get(name).build(2)[0]
        if keeps:
            with pytest.raises(Refusal, match="values beyond 1e"):
                executor.answer(Task(StepName.KEYS, 0, {}, "a"), rows, never_abort)
        else:
            assert "key" in executor.answer(Task(StepName.KEYS, 0, {}, "a"), rows, never_abort).arrays


def test_totals_are_of_as_many_sites_as_they_have_room_for() -> None:
    key = SiteMasks("a").public
    replies = {f"site-{i:04d}": {"key": key_reply(key), "columns": np.array(2)} for i in range(MOST_SITES + 1)}
    sums = ServerSums(replies)
    sums.begin(sums.sites[:MOST_SITES])
    assert len(sums.sites) == MOST_SITES
    with pytest.raises(JobFailed, match="room for the totals of 1024 sites, and 1025 take part"):
        ServerSums(replies).begin(list(replies))


def test_a_server_that_sends_values_beyond_the_bound_gets_no_sum_more_in_the_job() -> None:
    """Sums about centroids at 1e16 are in range or not by how many rows there are: that was 12 questions to the number."""
    sites, _ = iid_sites()
    far = [[1e13 * (i + 1)] * 3 for i in range(4)]
    with pytest.raises(JobFailed, match=r"was sent values beyond 1e\+12 .* adds up nothing more"):
        run_inprocess(get("lloyd"), {"start": far}, sites, OPTIONS)
    rows = np.random.default_rng(0).normal(size=(40, 2))
    executor = LloydExecutor(k=2)
    own = executor.answer(Task(StepName.KEYS, 0, {}, "a"), rows, never_abort).arrays
    keys = KeyTable({"a": key_of(own["key"]), "b": SiteMasks("b").public, "c": SiteMasks("c").public}).sent()
    for scale, words in ((1e16, "beyond 1e"), (1.0, "nothing more")):
        task = Task(UPDATE, 0, {"centroids": np.eye(2) * scale, **keys}, "a")
        with pytest.raises(Refusal, match=words):
            executor.answer(task, rows, never_abort)
