"""NVFlare's metric collectors: a job cannot name them, and the lines of docs/monitoring.md switch them on at a site."""

import json
import re
import sys
from importlib import import_module
from types import SimpleNamespace

import pytest
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReservedTopic
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import UnsafeComponentError
from nvflare.apis.workspace import Workspace
from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST
from nvflare.app_common.widgets.component_path_authorizer import ComponentPathAuthorizer
from nvflare.fuel.data_event.data_bus import DataBus

from tests.paths import ROOT

COLLECTORS = (
    "nvflare.metrics.job_metrics_collector.JobMetricsCollector",
    "nvflare.metrics.system_metrics_collector.SysMetricsCollector",
    "nvflare.metrics.remote_metrics_receiver.RemoteMetricsReceiver",
    "nvflare.fuel_opt.statsd.statsd_reporter.StatsDReporter",
)


@pytest.mark.parametrize("kit", ["localhost", "clinic-a"])
@pytest.mark.parametrize("path", COLLECTORS)
def test_a_job_cannot_name_them(kits, kit, path):
    workspace = Workspace(str(kits / kit), site_name=kit)
    with pytest.raises(UnsafeComponentError, match="not in allow_list"):
        ComponentPathAuthorizer().authorize_component_config({"path": path, "args": {}}, workspace=workspace)
    assert not [entry for entry in DEFAULT_CLASS_ALLOW_LIST if path.startswith(entry)], "of --nvflare-classes"


class StatsD:
    """Stands for the package `datadog`, which flareclust does not need."""

    def __init__(self):
        self.address, self.sent = {}, []
        self.statsd = self

    def initialize(self, **address):
        self.address = address

    def increment(self, name, value, tags):
        self.sent.append((name, value, tags))

    def gauge(self, name, value, tags):
        self.sent.append((name, "seconds", tags))


@pytest.fixture
def statsd(monkeypatch):
    found, bus = StatsD(), DataBus()
    monkeypatch.setitem(sys.modules, "datadog", SimpleNamespace(initialize=found.initialize, statsd=found))
    monkeypatch.setattr(bus, "subscribers", {})
    yield found
    sys.modules.pop("nvflare.fuel_opt.statsd.statsd_reporter", None)


def test_the_documented_components_send_counts_and_times_to_the_host_of_the_site(statsd):
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    (lines,) = [text for text in re.findall(r"```json\n(.*?)```", page, re.DOTALL) if "statsd" in text]
    made = {}
    for component in json.loads(f"[{lines}]"):
        assert component["path"] in COLLECTORS
        module, _, name = component["path"].rpartition(".")
        made[component["id"]] = getattr(import_module(module), name)(**component["args"])
    assert statsd.address == {"statsd_host": "localhost", "statsd_port": 9125}
    assert ReservedTopic.APP_METRICS in DataBus().subscribers
    for event in (EventType.BEFORE_CLIENT_HEARTBEAT, EventType.AFTER_CLIENT_HEARTBEAT, EventType.BEFORE_TASK_EXECUTION):
        made["system_metrics"].handle_event(event, FLContext())
    site = ["site:clinic-a"]
    assert sorted(statsd.sent) == [
        ("_after_client_heartbeat_count", 1, site),
        ("_before_client_heartbeat_count", 1, site),
        ("_client_heartbeat_time_taken", "seconds", site),
    ]
