"""A site's policy in NVFlare: the filters around an executor."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply

from flareclust.executors.dp_oneshot import DPOneShotExecutor
from flareclust.platform.filters import SiteResultPolicy, SiteTaskPolicy
from flareclust.privacy.dp.ledger import RESTORED, Ledger
from flareclust.privacy.job_folder import REQUEST_LOG_FILE, TRACEBACK_FILE
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import MADE_UNDER, QUESTION
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.task import REFUSED, ROUND, STEP, StepName
from flareclust.sites.account import budget_of, session_of
from flareclust.sites.policy_file import write_policy
from tests.unit.privacy.policy_cases import executor, refusal

SECRET = "v123456.789"


def foreign(reply):
    """Return an executor that is none of flareclust's, and replies that."""
    return SimpleNamespace(execute=lambda *_: reply)


# ---- around an executor ----


def test_a_reply_within_the_policy_leaves_and_nothing_beside_it(kit, ask):
    write_policy(kit / "local", Policy(round_counts=5))
    reply = ask(executor())
    dxo = from_shareable(reply)
    assert set(dxo.data) == {"centroids", "counts", SECONDS}
    assert dxo.meta == {STEP: StepName.CLUSTER, ROUND: 0}
    assert reply.get_header(MADE_UNDER) is None
    assert np.abs(dxo.data["centroids"]).max() < 100
    assert (dxo.data["counts"] % 5 == 0).all()
    assert (kit / "job" / REQUEST_LOG_FILE).read_text() == "cluster 0\n"


def test_without_a_policy_the_same_job_sends_the_lonely_rows_mean(ask):
    assert np.abs(from_shareable(ask(executor())).data["centroids"]).max() > 1000


@pytest.mark.parametrize("scope", [None, "default", "lenient"])
def test_the_policy_holds_whatever_scope_a_job_names(kit, ask, scope):
    write_policy(kit / "local", Policy(max_centroids=2))
    assert "at most 2 centroids" in refusal(ask(executor(), scope=scope))
    arrays = {"centroids": np.zeros((1, 3)), "counts": np.array([50])}
    meta = {STEP: StepName.CLUSTER, ROUND: 1}
    reply = DXO(DataKind.WEIGHTS, data=arrays, meta=meta).to_shareable()
    assert "own executors only" in refusal(ask(foreign(reply), round_=1, scope=scope))


def test_what_may_not_be_asked_reaches_no_executor(kit, ask):
    write_policy(kit / "local", Policy())
    never_asked = SimpleNamespace(execute=MagicMock(return_value=make_reply(ReturnCode.TASK_ABORTED)))
    assert "no algorithm has" in refusal(ask(foreign(DXO(DataKind.WEIGHTS, data={}).to_shareable()), step="rows"))
    own = executor()
    own.answer = never_asked.execute  # type: ignore[method-assign]
    assert "no algorithm has" in refusal(ask(own, step="rows"))
    never_asked.execute.assert_not_called()
    assert not (kit / "job" / REQUEST_LOG_FILE).exists()


def test_a_replayed_task_is_refused_in_a_new_process_too(kit, ask):
    write_policy(kit / "local", Policy())
    ask(executor())
    assert "of round 0 before" in refusal(ask(executor()))


def test_a_site_says_why_its_account_grants_nothing(kit, ask):
    """Before there is a session, too: its own words leave under the policy."""
    bounds = {"bounds": [-9, 9], "epsilon": 1, "delta": 1e-5, "budget": 5}
    write_policy(kit / "local", Policy.of({"min_count": 2, "differential_privacy": bounds}))
    session_of(kit / "local", "site-1", "earlier", private=True)
    ledger = Ledger(budget_of(kit / "local", "site-1").file)
    ledger.mark_restored()
    assert refusal(ask(DPOneShotExecutor(4, epsilon=1.0))) == RESTORED


def test_a_site_says_that_its_list_of_classes_lets_no_job_in(kit, ask):
    write_policy(kit / "local", Policy())
    (kit / "local" / "resources.json").write_text('{"class_allow_list": ["flareclust."]}')
    assert "words stay" not in (text := refusal(ask(executor())))
    assert "flareclust site allow" in text


@pytest.mark.parametrize(
    "task",
    [
        Shareable({"weights": [1, 2]}),
        DXO(DataKind.METRICS, data={"x": 1.0}).to_shareable(),
        DXO(DataKind.WEIGHTS, data={}, meta={ROUND: 0, "more": 1}).to_shareable(),
        DXO(DataKind.WEIGHTS, data={}, meta={ROUND: 0, REFUSED: "x"}).to_shareable(),
    ],
    ids=["no DXO", "another kind", "more meta", "a refusal"],
)
def test_a_task_that_is_none_of_ours_is_refused(kit, ask, task):
    write_policy(kit / "local", Policy())
    assert "none of flareclust's" in refusal(ask(executor(), data=task))


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Shareable({"rows": SECRET}), "none of flareclust's"),
        (DXO(DataKind.STATISTICS, data={"rows": SECRET}).to_shareable(), "none of flareclust's"),
        (DXO(DataKind.WEIGHTS, data={"rows": np.zeros(3)}).to_shareable(), "own executors only"),
        (DXO(DataKind.WEIGHTS, data={}, meta={"inertia": SECRET}).to_shareable(), "more than its arrays"),
        (DXO(DataKind.WEIGHTS, data={}, meta={REFUSED: SECRET}).to_shareable(), "words stay at the site"),
        (DXO(DataKind.WEIGHTS, data={1: np.zeros(3)}).to_shareable(), "none of flareclust's"),
    ],
)
def test_the_replies_of_foreign_executors_stay(kit, ask, reply, words):
    write_policy(kit / "local", Policy())
    text = refusal(ask(foreign(reply)))
    assert words in text
    assert SECRET not in text


def test_an_error_code_passes_without_what_came_with_it(kit, ask):
    write_policy(kit / "local", Policy())
    for code, message in ((ReturnCode.TASK_ABORTED, ReturnCode.TASK_ABORTED), (SECRET, ReturnCode.EXECUTION_EXCEPTION)):
        reply = make_reply(code, headers={"rows": SECRET})
        reply["rows"] = SECRET
        out = ask(foreign(reply), round_=len(code))
        assert out.get_return_code() == message
        assert SECRET not in str(dict(out))


def test_what_raises_in_a_filter_becomes_a_refusal_and_its_text_stays(kit, ask, monkeypatch):
    write_policy(kit / "local", Policy())

    def raises(*_):
        raise ZeroDivisionError(SECRET)

    monkeypatch.setattr("flareclust.platform.filters.PolicyEnforcer", raises)
    text = refusal(ask(executor()))
    assert "raised ZeroDivisionError" in text
    assert SECRET not in text
    kept = kit / "job" / TRACEBACK_FILE
    assert SECRET in kept.read_text()
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_reply_without_an_admitted_task_stays():
    fl_ctx = FLContext()
    reply = DXO(DataKind.WEIGHTS, data={}).to_shareable()
    assert "none for tasks" in refusal(SiteResultPolicy().process(reply, fl_ctx))
    fl_ctx.set_prop(QUESTION, "was asked too late", private=True, sticky=False)
    assert refusal(SiteResultPolicy().process(reply, fl_ctx)) == "was asked too late"


def test_what_was_asked_stays_in_the_process():
    """Public properties go with every message."""
    fl_ctx = FLContext()
    SiteTaskPolicy().process(DXO(DataKind.WEIGHTS, data={}).to_shareable(), fl_ctx)
    assert fl_ctx.get_prop(QUESTION)
    assert QUESTION not in fl_ctx.get_all_public_props()


def test_an_executor_refuses_where_the_file_has_a_policy_that_no_filter_imposes(kit, ask):
    ask(executor())  # NVFlare has read what is there: nothing
    write_policy(kit / "local", Policy())
    assert "not in force" in refusal(ask(executor()))


def test_a_policy_that_was_changed_under_way_lets_nothing_out(kit, ask):
    write_policy(kit / "local", Policy())
    ask(executor())
    write_policy(kit / "local", Policy(min_count=3))
    assert "another policy" in refusal(ask(executor(), StepName.ASSESS, 1, {"centroids": np.zeros((1, 3))}))
