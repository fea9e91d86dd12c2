"""A site's policy in NVFlare: the file as NVFlare reads it, the filters around an executor, the command that writes it."""

import json
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FilterKey, FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.apis.utils.task_utils import apply_filters
from nvflare.apis.workspace import Workspace
from nvflare.private.fed.app.fl_conf import create_privacy_manager
from nvflare.private.privacy_manager import Scope

from flareclust._foundation.errors import UserError
from flareclust.cli.main import main
from flareclust.executors.nvflare_executor import TRACEBACK_FILE
from flareclust.executors.pooled import PooledExecutor
from flareclust.flare.filters import SiteResultPolicy, SiteTaskPolicy
from flareclust.privacy.policy import Policy
from flareclust.privacy.request_log import REQUEST_LOG_FILE
from flareclust.privacy.session import MADE_UNDER, QUESTION
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.task import ASSESS, CLUSTER, REFUSED, ROUND, STEP
from flareclust.sites.check import check
from flareclust.sites.config import write_config
from flareclust.sites.permissions import hints, policies, problems
from flareclust.sites.policy_file import PRIVACY, other_filters, policy_of, remove_policy, write_policy

SECRET = "v123456.789"
FOREIGN = {"path": "nvflare.app_common.filters.percentile_privacy.PercentilePrivacy", "args": {"gamma": 0.1}}


@pytest.fixture
def kit(tmp_path, sites):
    """A site's kit with rows: those of a site of the tests, and four rows far from them."""
    (tmp_path / "startup").mkdir()
    (tmp_path / "job").mkdir()
    rng = np.random.default_rng(3)
    np.save(tmp_path / "rows.npy", np.concatenate([sites["site-1"], 5e3 + rng.normal(size=(4, 3))]))
    write_config(tmp_path / "local", str(tmp_path / "rows.npy"))
    return tmp_path


@pytest.fixture
def ask(kit):
    """Send a task through a site's filters, as NVFlare's client does, to an executor; return the reply that leaves."""
    engine = MagicMock()
    engine.get_workspace.return_value = Workspace(str(kit), site_name="site-1")
    job: dict[str, object] = {}

    def send(executor, step=CLUSTER, round_=0, arrays=None, *, scope=None, data=None, **meta):
        if not job:
            job["manager"] = create_privacy_manager(engine.get_workspace(), names_only=False)
        manager = job["manager"]
        fl_ctx = FLContext()
        fl_ctx.set_prop(ReservedKey.IDENTITY_NAME, "site-1", private=False, sticky=False)
        fl_ctx.set_prop(ReservedKey.ENGINE, engine, private=True, sticky=False)
        fl_ctx.set_prop(FLContextKey.CURRENT_RUN, "job", private=False, sticky=False)
        fl_ctx.set_prop(FLContextKey.TASK_NAME, step, private=True, sticky=False)
        fl_ctx.put(FLContextKey.SCOPE_OBJECT, manager.get_scope(scope), private=True, sticky=True)
        for component in (manager.components or {}).values():
            component.handle_event(EventType.BEFORE_TASK_DATA_FILTER, fl_ctx)
        task = data or DXO(DataKind.WEIGHTS, data=arrays or {}, meta={ROUND: round_, **meta}).to_shareable()
        task = apply_filters(Scope.TASK_DATA_FILTERS_NAME, task, fl_ctx, {}, step, FilterKey.IN)
        reply = executor.execute(step, task, fl_ctx, Signal())
        return apply_filters(Scope.TASK_RESULT_FILTERS_NAME, reply, fl_ctx, {}, step, FilterKey.OUT)

    return send


def executor():
    return PooledExecutor(5, min_count=1)


def foreign(reply):
    """Return an executor that is none of flareclust's, and replies that."""
    return SimpleNamespace(execute=lambda *_: reply)


def refusal(reply):
    dxo = from_shareable(reply)
    assert dxo.data == {}
    assert set(dxo.meta) == {REFUSED}
    assert set(reply) - {"__headers__"} == {"DXO"}
    return dxo.meta[REFUSED]


# ---- around an executor ----


def test_a_reply_within_the_policy_leaves_and_nothing_beside_it(kit, ask):
    write_policy(kit / "local", Policy(round_counts=5))
    reply = ask(executor())
    dxo = from_shareable(reply)
    assert set(dxo.data) == {"centroids", "counts", SECONDS}
    assert dxo.meta == {STEP: CLUSTER, ROUND: 0}
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
    meta = {STEP: CLUSTER, ROUND: 1}
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
    for code, told in ((ReturnCode.TASK_ABORTED, ReturnCode.TASK_ABORTED), (SECRET, ReturnCode.EXECUTION_EXCEPTION)):
        reply = make_reply(code, headers={"rows": SECRET})
        reply["rows"] = SECRET
        out = ask(foreign(reply), round_=len(code))
        assert out.get_return_code() == told
        assert SECRET not in str(dict(out))


def test_what_raises_in_a_filter_becomes_a_refusal_and_its_text_stays(kit, ask, monkeypatch):
    write_policy(kit / "local", Policy())

    def raises(*_):
        raise ZeroDivisionError(SECRET)

    monkeypatch.setattr("flareclust.flare.filters.PolicyEnforcer", raises)
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


def test_an_executor_refuses_where_the_file_has_a_policy_that_no_filter_imposes(kit, ask):
    ask(executor())  # NVFlare has read what is there: nothing
    write_policy(kit / "local", Policy())
    assert "not in force" in refusal(ask(executor()))


def test_a_policy_that_was_changed_under_way_lets_nothing_out(kit, ask):
    write_policy(kit / "local", Policy())
    ask(executor())
    write_policy(kit / "local", Policy(min_count=3))
    assert "another policy" in refusal(ask(executor(), ASSESS, 1, {"centroids": np.zeros((1, 3))}))


# ---- the file ----


@pytest.mark.parametrize(
    "spoil", ["task_data_filters", "task_result_filters", "components", "args", "direction", "scope"]
)
def test_a_file_that_does_not_impose_one_policy_on_all_jobs_is_told_and_stops_them(kit, ask, spoil):
    ask(executor())
    file = write_policy(kit / "local", Policy())
    said = json.loads(file.read_text())
    scope = said["scopes"][0]
    if spoil == "components":
        said["components"] = []
    elif spoil == "args":
        scope["task_result_filters"][0]["args"]["min_count"] = 1
    elif spoil == "direction":
        scope["task_result_filters"][0]["direction"] = "in"
    elif spoil == "scope":
        said["scopes"].append({"name": "lenient"})
    else:
        scope[spoil] = []
    file.write_text(json.dumps(said))
    with pytest.raises(UserError, match="flareclust site policy KIT --remove"):
        policy_of(kit / "local")
    assert policies(kit / "local")["policy"] == "broken"
    (error,) = problems(kit / "local", "north")
    assert error.startswith(f"north has a policy that no job can be held to: {file}")
    assert "does not impose one policy" in refusal(ask(executor()))


def test_filters_and_scopes_of_the_operator_stay(kit):
    file = kit / "local" / PRIVACY
    scopes = [{"name": "a", "task_result_filters": [FOREIGN]}, {"name": "b", "properties": {"x": 1}}]
    own = {"scopes": scopes, "default_scope": "b", "components": [{"id": "mine", "path": "x.Y"}]}
    file.write_text(json.dumps(own))
    write_policy(kit / "local", Policy(min_count=7))
    write_policy(kit / "local", Policy(min_count=8))
    assert policy_of(kit / "local") == Policy(min_count=8)
    assert other_filters(kit / "local") == [FOREIGN["path"]]
    assert any("the scopes a, b" in hint for hint in hints(kit / "local"))
    assert remove_policy(kit / "local")
    after = json.loads(file.read_text())
    assert after["components"] == own["components"]
    assert [scope["name"] for scope in after["scopes"]] == ["a", "b"]
    assert after["scopes"][0]["task_result_filters"] == [FOREIGN]
    assert policy_of(kit / "local") is None


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"scopes": 3}', '{"scopes": [{"task_data_filters": 1}]}', '{"components": 1}']
)
def test_a_file_that_nvflare_could_not_read_is_left_alone(kit, text):
    (kit / "local" / PRIVACY).write_text(text)
    with pytest.raises(UserError, match=PRIVACY):
        write_policy(kit / "local", Policy())
    assert (kit / "local" / PRIVACY).read_text() == text


def test_the_file_goes_with_the_policy_where_nothing_else_is_in_it(kit):
    write_policy(kit / "local", Policy())
    assert remove_policy(kit / "local")
    assert not (kit / "local" / PRIVACY).exists()
    assert not remove_policy(kit / "local")


# ---- the command ----


def call(*arguments):
    with pytest.raises(SystemExit) as done:
        main(["site", "policy", *map(str, arguments)])
    return done.value.code or 0


def test_the_command_writes_changes_shows_and_removes(kit, capsys):
    assert call(kit) == 0
    assert policy_of(kit / "local") == Policy()
    assert call(kit, "--min-count", 20, "--arrays", "centroids, counts", "--secure-sums") == 0
    assert call(kit, "--round-counts", 5, "--no-secure-sums") == 0
    changed = Policy(min_count=20, round_counts=5, arrays=("centroids", "counts"))
    assert policy_of(kit / "local") == changed
    assert call(kit) == 0, "a policy that is there stays"
    capsys.readouterr()
    assert call(kit, "--show") == 0
    shown = capsys.readouterr().out
    assert "of fewer than 20 rows are left out" in shown
    assert "multiples of 5" in shown
    assert policy_of(kit / "local") == changed
    (kit / "policy.yaml").write_text("min_count: 12\nround_counts: 4\n")
    assert call(kit, kit / "policy.yaml", "--min-rows", 30) == 0
    assert policy_of(kit / "local") == Policy(min_rows=30, min_count=12, round_counts=4)
    assert call(kit, "--remove") == 0
    assert policy_of(kit / "local") is None


def test_the_command_says_what_was_spent(kit, capsys):
    assert call(kit, "--epsilon", 1, "--delta", 1e-6, "--budget", 5, "--bounds", "0,10") == 0
    assert "spent: epsilon 0 of 5 in 0 jobs" in capsys.readouterr().out
    assert policy_of(kit / "local").dp.bounds == (0.0, 10.0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--min-count", "0"], "min_count"),
        (["--epsilon", "1"], "needs bounds, delta, budget"),
        (["--bounds", "low"], "two numbers with a comma"),
        (["--show", "--remove"], "stand alone"),
        (["--remove", "--min-count", "3"], "stand alone"),
        (["missing.yaml"], "cannot be read"),
    ],
)
def test_what_the_command_cannot_do_it_says_and_leaves_the_site_as_it_is(kit, capsys, arguments, words):
    assert call(kit, *arguments) == 2
    assert words in capsys.readouterr().err
    assert policy_of(kit / "local") is None


def test_site_check_shows_the_policy_and_hints_where_there_is_none(kit):
    (kit / "local" / "resources.json").write_text("{}")
    assert check(kit).facts["policy"] == "none"
    assert any("flareclust site policy" in hint for hint in check(kit).hints)
    write_policy(kit / "local", Policy())
    checked = check(kit)
    assert checked.facts["policy"] == "clusters of fewer than 10 rows are left out; numbers of rows exact"
    assert not any("policy" in hint for hint in checked.hints)


def test_filters_take_what_the_file_has_as_their_arguments():
    said = Policy(min_count=4).to_json()
    assert SiteTaskPolicy(**said).policy == SiteResultPolicy(**said).policy == Policy(min_count=4)


def test_site_policy_takes_the_number_and_the_names_of_the_sites_of_a_sum(kit, capsys):
    assert call(kit, "--secure-sums", "--secure-min-sites", 4, "--secure-sites", "a,b, c,d,e") == 0
    names = ("a", "b", "c", "d", "e")
    assert policy_of(kit / "local") == Policy(secure_sums=True, secure_min_sites=4, secure_sites=names)
    assert "masked sums: of at least 4 sites, of a, b, c, d, e only" in capsys.readouterr().out
    assert call(kit, "--show") == 0
    assert "masked sums: of at least 4 sites, of a, b, c, d, e only" in capsys.readouterr().out
    assert policies(kit / "local")["policy"].endswith("sums masked only, of at least 4 sites, of a, b, c, d, e only")
    for wrong, told in (
        (("--secure-min-sites", 2), "secure_min_sites must be an integer of at least 3, got 2"),
        (("--secure-min-sites", 6), "secure_sites has 5 names where secure_min_sites asks for 6 sites"),
        (("--secure-sites", "a,b,b,c"), "secure_sites must be a list of different names of sites"),
    ):
        assert call(kit, *wrong) == 2
        assert told in capsys.readouterr().err
    assert policy_of(kit / "local").secure_min_sites == 4
