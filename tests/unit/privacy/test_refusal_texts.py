"""No text that leaves a site holds a value of its rows, whatever is wrong: with the rows, the task, the code, the file."""

import json
from unittest.mock import MagicMock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.apis.workspace import Workspace

from flareclust.federation.site import steps_to_end
from flareclust.platform.filters import SiteResultPolicy, SiteTaskPolicy
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import algorithms
from flareclust.protocol.task import REFUSED, ROUND, StepName
from flareclust.sites.config import write_config
from flareclust.sites.policy_file import write_policy

FEDERATED = [algorithm for algorithm in algorithms().values() if algorithm.federated]

#: All values of the rows begin with these digits, in whatever form a text has them, and nothing else does.
DIGITS = ("777", "7.77")

ROWS = st.sampled_from(
    ["ordinary", "NaN", "infinite", "huge", "one row", "one row repeated", "few", "no rows", "text", "ragged"]
)
CENTROIDS = st.sampled_from(["none", "rows", "NaN", "too many", "other columns", "integers", "a list", "a number"])
FAULTS = st.sampled_from(["none", "local raises", "labels raise", "odd reply", "longer reply"])
STEPS = st.sampled_from(
    ["first", "second", "last", StepName.ASSESS, StepName.PLACE, StepName.SCORE, StepName.KEYS, "nonsense"]
)


def made_rows(kind):
    rng = np.random.default_rng(1)
    rows = 7770.0 + 9.9 * rng.random((60, 3))
    if kind in ("NaN", "infinite"):
        rows[3, 1] = np.nan if kind == "NaN" else np.inf
    return {
        "huge": rows * 1e150,
        "one row": rows[:1],
        "one row repeated": np.repeat(rows[:1], 30, axis=0),
        "few": rows[:3],
        "no rows": rows[:0],
        "ragged": rows.ravel(),
    }.get(kind, rows)


def made_task(kind, rows):
    some = np.atleast_2d(rows[:3]).astype(float)
    centroids = {
        "rows": some,
        "NaN": some * np.nan,
        "too many": np.repeat(some, 40, axis=0),
        "other columns": np.hstack([some, some]),
        "integers": np.nan_to_num(some, posinf=0).clip(0, 1e6).astype(np.int64),
        "a list": some.tolist(),
        "a number": np.array(7771.5),
    }.get(kind)
    if centroids is None:
        return {}
    return {"centroids": centroids, "candidates": centroids, "candidate": np.zeros(3, np.int64), "tau": np.zeros(1)}


def spoil(executor, fault, rows):
    text = f"the row is {rows[:1].tolist()}, its first value 7771.25"

    def raises(*_):
        raise ValueError(text)

    if fault == "local raises":
        executor.local = raises
    elif fault == "labels raise":
        executor.labels = raises
    elif fault == "odd reply":
        executor.local = lambda *_: {text: rows}
    elif fault == "longer reply":
        executor.local = lambda *_: {name: rows for name in executor.step(StepName.CLUSTER).schema.fields}


def context(folder, step):
    engine = MagicMock()
    engine.get_workspace.return_value = Workspace(str(folder), site_name="site-1")
    fl_ctx = FLContext()
    fl_ctx.set_prop(ReservedKey.IDENTITY_NAME, "site-1", private=False, sticky=False)
    fl_ctx.set_prop(ReservedKey.ENGINE, engine, private=True, sticky=False)
    fl_ctx.set_prop(FLContextKey.CURRENT_RUN, "job", private=False, sticky=False)
    fl_ctx.set_prop(FLContextKey.TASK_NAME, step, private=True, sticky=False)
    return fl_ctx


def write_rows(folder, kind, rows):
    if kind == "text":
        lines = ["a,b,c", *(",".join(map(repr, row)) for row in rows.tolist()), "7771.5,ill since 7777,3"]
        (folder / "rows.csv").write_text("\n".join(lines))
        write_config(folder / "local", str(folder / "rows.csv"))
    else:
        np.save(folder / "rows.npy", rows)
        write_config(folder / "local", str(folder / "rows.npy"))


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    """A kit without a policy, and one with."""
    found = {}
    for name in ("free", "held"):
        found[name] = tmp_path_factory.mktemp(name)
        for folder in ("startup", "local", "job"):
            (found[name] / folder).mkdir()
    write_policy(found["held"] / "local", Policy(round_counts=5))
    return found


@pytest.mark.parametrize("algorithm", FEDERATED, ids=lambda a: a.name)
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(rows_kind=ROWS, task_kind=CENTROIDS, fault=FAULTS, step=STEPS, held=st.booleans())
def test_no_text_of_an_executor_or_a_filter_holds_a_value(algorithm, kits, rows_kind, task_kind, fault, step, held):
    folder = kits["held" if held else "free"]
    for file in (folder / "job").iterdir():
        file.unlink()
    executor, _ = algorithm.build(3)
    steps = list(steps_to_end(type(executor)))
    step = {"first": steps[0], "second": steps[min(1, len(steps) - 1)], "last": steps[-1]}.get(step, step)
    rows = made_rows(rows_kind)
    write_rows(folder, rows_kind, rows)
    spoil(executor, fault, rows)
    fl_ctx = context(folder, step)
    task = DXO(DataKind.WEIGHTS, data=made_task(task_kind, rows), meta={ROUND: 0}).to_shareable()
    if held:
        task = SiteTaskPolicy(round_counts=5).process(task, fl_ctx)
    reply = executor.execute(step, task, fl_ctx, Signal())
    if held:
        reply = SiteResultPolicy(round_counts=5).process(reply, fl_ctx)
    check(reply)


def check(reply):
    """Ensure that nothing but arrays can hold a value."""
    code = reply.get_return_code()
    assert code in vars(ReturnCode).values()
    headers = {name: value for name, value in reply["__headers__"].items() if isinstance(value, str)}
    dxo = from_shareable(reply) if code == ReturnCode.OK else DXO(DataKind.WEIGHTS, data={})
    reported = json.dumps([headers, list(dxo.data), dxo.meta])
    assert not any(digits in reported for digits in DIGITS), reported
    assert REFUSED not in dxo.meta or not dxo.data


@given(st.text(min_size=1, max_size=900))
def test_the_text_of_a_refusal_that_a_filter_lets_out_is_short_and_plain(text):
    reply = DXO(DataKind.WEIGHTS, data={}, meta={REFUSED: text}).to_shareable()
    out = SiteResultPolicy().process(Shareable(reply), FLContext())
    reported = from_shareable(out).meta[REFUSED]
    assert len(reported) <= 400
    assert reported.isprintable()
