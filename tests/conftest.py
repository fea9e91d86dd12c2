"""What all tests share."""

import gc
import os
import re
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flareclust._foundation.typing import FloatArray
from flareclust.protocol import registry
from flareclust.testing import iid_sites
from tests import examples  # noqa: F401 - it loads the profile of hypothesis
from tests.paths import LEFT_OUT
from tests.patience import PATIENCE

# Nothing that a test starts may look for a server elsewhere or phone home.
os.environ.setdefault("DO_NOT_TRACK", "true")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")  # tests that import mlflow before we set it
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")

# Garbage collection took a tenth of the tests' time.
gc.set_threshold(20_000, 20, 100)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job in the background, whose children would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for what outlives kits, such as accounts of privacy, in place of that of the user who runs the tests."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """What a test does on signals ends with it; the command's handlers would stay for the tests after it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that take minutes unless they are asked for; neither -m slow nor -m "not slow" does that."""
    items.sort(key=lambda item: not item.get_closest_marker("slow"))  # a stable sort: what takes longest begins first
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3 * PATIENCE))  # it may wait several times
    if "nightly" in config.getoption("markexpr"):
        return
    left_out = [item for item in items if item.get_closest_marker("nightly")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not item.get_closest_marker("nightly")]


if "deep" in LEFT_OUT:  # before tests are written for each of the built-in algorithms
    registry.BUILT_IN = tuple(algorithm for algorithm in registry.BUILT_IN if algorithm.name != "deepfeca")


def _skip_without_folder(report: Any) -> Any:
    """Make a report of a failure one of a test left out, where it failed for want of a folder that is not there."""
    needs = rf"(No module named|needs the (folder|package)) '?flareclust[./]({'|'.join(LEFT_OUT)})\b"
    if LEFT_OUT and report.failed and (found := re.search(needs, str(report.longrepr))):
        report.outcome, report.longrepr = "skipped", (report.nodeid, 0, f"flareclust/{found[3]} is left out")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Skip what needs a folder that is left out."""
    return _skip_without_folder((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """Skip what needs a folder that is left out."""
    return _skip_without_folder((yield))


#: The files of tests/integration/federation that have the second federation; both halves take about as long.
ATTACKED = {"test_clocks.py", "test_lost_sites.py", "test_only_classes.py", "test_peers.py", "test_server.py"}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give the tests of a file to one worker, as --dist loadfile does; two federations do for all tests that need one."""
    from xdist.scheduler import LoadScopeScheduling

    class ByResource(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            if not file.startswith("tests/integration/federation/"):
                return file
            return (
                "attacked federation"
                if file.removeprefix("tests/integration/federation/") in ATTACKED
                else "federation"
            )

    return ByResource(config, log)


@pytest.fixture
def sites() -> dict[str, FloatArray]:
    """Four sites that all see four separated clusters in three dimensions."""
    return iid_sites()[0]


@pytest.fixture
def shared_data() -> Path:
    """The folder with the real data sets."""
    folder = os.environ.get("FLARECLUST_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("FLARECLUST_DATA does not name the folder with the real data sets")
    return Path(folder)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
