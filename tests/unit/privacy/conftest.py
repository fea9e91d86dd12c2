"""Fixtures that several test files of this folder share."""

from unittest.mock import MagicMock

import numpy as np
import pytest
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FilterKey, FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal
from nvflare.apis.utils.task_utils import apply_filters
from nvflare.apis.workspace import Workspace
from nvflare.private.fed.app.fl_conf import create_privacy_manager
from nvflare.private.privacy_manager import Scope

from flareclust.protocol.task import ROUND, StepName
from flareclust.sites.config import write_config


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

    def send(executor, step=StepName.CLUSTER, round_=0, arrays=None, *, scope=None, data=None, **meta):
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
