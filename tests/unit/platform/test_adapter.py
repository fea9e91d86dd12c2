"""NVFlare's executor and controller, carried in one process: every algorithm gives the bits of the in-process engine.

What the simulator does, without its processes: sites read their files and their own configuration, tasks and replies go
through NVFlare's encoding, the controller writes the result's files. tests/integration/simulator/test_simulator.py runs the real simulator.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from nvflare.apis.controller_spec import TaskCompletionStatus
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.wf_comm_server import WFCommServer
from nvflare.apis.signal import Signal
from nvflare.apis.workspace import Workspace
from nvflare.fuel.utils import fobs
from nvflare.private.fed.utils.fed_utils import nvflare_fobs_initialize

from flareclust.data.labels import LABELS_FILE, read_labels
from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.platform.controller import ClusteringController
from flareclust.protocol import outcome as outcome_files
from flareclust.protocol.registry import Algorithm, get
from flareclust.sites.config import write_config
from tests.same_outcome import OPTIONS, RUNS, case_of, cases_of, check_same

JOB = "job"

#: Where NVFlare's server keeps the sites that it does not let in.
DISABLED = "disabled_clients.json"


@pytest.fixture(scope="module", autouse=True)
def _encoding() -> None:
    nvflare_fobs_initialize()


class Site:
    """An executor with what NVFlare gives it: a workspace with the site's own files, and a context."""

    def __init__(self, name: str, executor: Any, rows: Any, folder: Path) -> None:
        self.name, self.executor, self.folder = name, executor, folder
        for part in ("startup", "local", JOB):
            (folder / part).mkdir(parents=True)
        if isinstance(rows, Table):
            np.savez(folder / "rows.npz", X=rows.X, columns=np.array(rows.columns))
            write_config(folder / "local", str(folder / "rows.npz"))
        else:
            np.save(folder / "rows.npy", rows)
            write_config(folder / "local", str(folder / "rows.npy"))
        engine = MagicMock()
        engine.get_workspace.return_value = Workspace(str(folder), site_name=name)
        engine.get_component.return_value = None
        self.context = FLContext()
        self.context.set_prop(ReservedKey.IDENTITY_NAME, name, private=False, sticky=False)
        self.context.set_prop(ReservedKey.ENGINE, engine, private=True, sticky=False)
        self.context.set_prop(FLContextKey.CURRENT_RUN, JOB, private=False, sticky=False)

    def answer(self, task: Any) -> Any:
        """Return the reply to a task; both are encoded and decoded as between processes."""
        received = fobs.loads(fobs.dumps(task.data))
        return fobs.loads(fobs.dumps(self.executor.execute(task.name, received, self.context, Signal())))


def run_adapter(
    algorithm: Algorithm,
    params: dict[str, Any],
    rows: dict[str, Any],
    server: Path,
    monkeypatch: Any,
    job: str = JOB,
    stop: int | None = None,
    disable: str = "",
    **settings: Any,
) -> tuple[dict[str, Site], list[str]]:
    """Run a job through NVFlare's objects, until so many tasks; return its sites, and why its controller panicked.

    A site that is to be disabled is so when it has been asked, and does not answer.
    """
    sites = {
        name: Site(name, algorithm.build(OPTIONS.k, OPTIONS.seed, params)[0], table, server / job / "sites" / name)
        for name, table in rows.items()
    }
    controller = ClusteringController(algorithm.name, params or None, **settings)
    for part in ("startup", "local", job):
        (server / part).mkdir(parents=True, exist_ok=True)
    engine = MagicMock()
    engine.get_workspace.return_value = Workspace(str(server), site_name="server")
    engine.get_component.return_value = algorithm.build(OPTIONS.k, OPTIONS.seed, params)[1]
    engine.get_clients.return_value = [SimpleNamespace(name=name) for name in sites]
    context, asked, reasons = FLContext(), [], []
    context.set_prop(ReservedKey.ENGINE, engine, private=True, sticky=False)
    context.set_prop(FLContextKey.CURRENT_RUN, job, private=False, sticky=False)

    def broadcast(task: Any, fl_ctx: FLContext, targets: list[str], **how: Any) -> None:
        if len(asked) == stop:
            raise RuntimeError("killed")
        asked.append(task.name)
        for name in sorted({*targets} - {disable}):
            one = SimpleNamespace(result=sites[name].answer(task), client=SimpleNamespace(name=name))
            task.result_received_cb(one, fl_ctx)
        if disable in targets:
            (server / DISABLED).write_text(json.dumps({"disabled_clients": [disable]}))
        else:
            task.completion_status = TaskCompletionStatus.OK

    monkeypatch.setattr(controller, "broadcast", broadcast)
    controller.communicator = WFCommServer()
    monkeypatch.setattr(controller, "system_panic", lambda reason, fl_ctx: reasons.append(reason))
    monkeypatch.setattr("flareclust.platform.receiver.install", lambda fl_ctx, open_task: None)
    controller.start_controller(context)
    controller.control_flow(Signal(), context)
    return sites, reasons


@pytest.mark.parametrize(("algorithm", "number"), RUNS.values(), ids=RUNS)
def test_nvflares_objects_give_the_bits_of_the_in_process_engine(algorithm, number, tmp_path, monkeypatch):
    rows, params = cases_of(algorithm)[number]
    sites, reasons = run_adapter(algorithm, params, dict(rows), tmp_path, monkeypatch)
    assert reasons == []
    outcome, _ = outcome_files.read(Path(Workspace(str(tmp_path), site_name="server").get_result_root(JOB)))
    outcome.labels.update({name: read_labels(site.folder / JOB) for name, site in sites.items()})
    check_same(algorithm, outcome, number)


OUT = "is disabled at the server (nvflare system disable-client)"


@pytest.mark.parametrize("when", ["before the job", "while it is silent"])
def test_a_site_that_is_disabled_at_the_server_is_not_waited_for_and_is_named(when, tmp_path, monkeypatch):
    rows = case_of(get("feca"))[0]
    out, *others = sorted(rows)
    silent = {"disable": out} if when == "while it is silent" else {}
    if not silent:
        (tmp_path / DISABLED).write_text(json.dumps({"disabled_clients": [out, "another"]}))
    sites, reasons = run_adapter(get("feca"), {}, dict(rows), tmp_path, monkeypatch, **silent)
    assert reasons == []
    folder = Path(Workspace(str(tmp_path), site_name="server").get_result_root(JOB))
    outcome, said = outcome_files.read(folder)
    assert outcome.refused == {out: OUT}
    assert said["disabled_sites"] == sorted([out] if silent else [out, "another"])
    here = run_inprocess(get("feca"), {}, {site: rows[site] for site in others}, OPTIONS)
    np.testing.assert_array_equal(outcome.centroids, here.centroids)
    assert not (sites[out].folder / JOB / LABELS_FILE).exists()


def test_a_result_names_no_disabled_sites_where_there_are_none(tmp_path, monkeypatch):
    run_adapter(get("feca"), {}, dict(case_of(get("feca"))[0]), tmp_path, monkeypatch)
    folder = Path(Workspace(str(tmp_path), site_name="server").get_result_root(JOB))
    assert "disabled_sites" not in outcome_files.read(folder)[1]


@pytest.mark.parametrize("text", ["[", '{"disabled_clients": "east"}', "{}"])
def test_a_list_of_disabled_sites_that_cannot_be_read_ends_the_job(text, tmp_path, monkeypatch):
    (tmp_path / DISABLED).write_text(text)
    _, reasons = run_adapter(get("feca"), {}, dict(case_of(get("feca"))[0]), tmp_path, monkeypatch)
    assert len(reasons) == 1
    assert reasons[0].startswith(DISABLED)
