"""No process of a federation imports a large package before it needs it: each site, and the server of each job, would pay for it."""

import json
import subprocess
import sys

from flareclust.protocol.registry import BUILT_IN
from tests.patience import PATIENCE

#: By what is imported, a module that stands for it; numba imports the name scipy by itself, and no more of it.
LARGE = (
    "scipy.linalg",
    "scipy.sparse",
    "scipy.special",
    "sklearn",
    "pandas",
    "pyarrow",
    "matplotlib",
    "mlflow",
    "prefect",
    "dask",
)

#: Networks need PyTorch, which brings what it wants.
DEEP = frozenset({"deepfeca"})

LONG = """
import json, sys
import nvflare.private.fed.app.client.client_train, nvflare.private.fed.app.server.server_train
from pkgutil import resolve_name

asked, large = json.loads(sys.argv[1])
for path in asked:
    resolve_name(path)
    print(path, *[one for one in large if one in sys.modules])
"""

CODE = LONG.replace("client_train", "worker_process").replace(
    "server_train", "runner_process, flareclust.platform.controller"
)


def test_no_algorithm_makes_the_process_of_a_job_import_a_large_package() -> None:
    federated = [one for one in BUILT_IN if one.executor is not None and one.name not in DEEP]
    paths = [path.replace(":", ".") for one in federated for path in (one.executor or "", one.aggregator)]
    asked = json.dumps([paths, LARGE])
    done = subprocess.run(
        [sys.executable, "-c", CODE, asked], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(paths) > 30
    assert [line for line in lines if " " in line] == [], "import it in the function that needs it"


def test_the_long_processes_of_sites_and_servers_load_no_numba() -> None:
    """They compute nothing: what a kit names is loaded, and answers to jobs are made in processes of their own."""
    paths = [f"flareclust.platform.{name}" for name in ("launcher", "admission", "log_streaming", "server")]
    asked = json.dumps([paths, [*LARGE, "numba", "llvmlite"]])
    done = subprocess.run(
        [sys.executable, "-c", LONG, asked], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert done.stdout.splitlines() == paths
