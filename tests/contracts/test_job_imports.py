"""The process of a job imports no large package before the job needs it: each site and the server of each job would pay for it."""

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

CODE = """
import json, sys
import nvflare.private.fed.app.client.worker_process, nvflare.private.fed.app.server.runner_process
import flareclust.platform.controller
from pkgutil import resolve_name

asked, large = json.loads(sys.argv[1])
for path in asked:
    resolve_name(path)
    print(path, *[one for one in large if one in sys.modules])
"""


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
