"""Whether a Prefect server is reported to: only where something names one, and Prefect is not imported to find that out."""

import subprocess
import sys

import pytest

from flareclust._foundation.errors import JobFailed
from flareclust.flows.run import Calls

ASK = """
import sys
from flareclust.flows.configured import server_configured
print(server_configured(), "prefect" in sys.modules)
"""


def ask(folder, **environment):
    import os

    clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        cwd=folder,
        env={**clean, "PREFECT_HOME": str(folder / "home"), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_without_a_server_prefect_is_not_even_imported(tmp_path):
    assert ask(tmp_path) == "False False"


@pytest.mark.slow
def test_a_server_is_found_in_the_environment_and_in_a_profile(tmp_path):
    assert ask(tmp_path, PREFECT_API_URL="http://127.0.0.1:1/api") == "True True"
    (tmp_path / "home").mkdir(exist_ok=True)
    profiles = tmp_path / "home" / "profiles.toml"
    profiles.write_text('active = "a"\n[profiles.a]\nPREFECT_API_URL = "http://127.0.0.1:1/api"\n')
    assert ask(tmp_path) == "True True"
    profiles.write_text('active = "a"\n[profiles.a]\nPREFECT_LOGGING_LEVEL = "INFO"\n')
    assert ask(tmp_path) == "False True"


@pytest.mark.parametrize(("failures", "retries"), [(1, 1), (2, 1), (2, 2)])
def test_a_lost_job_is_started_again_as_often_as_the_experiment_says(failures, retries):
    seen = []

    def submit(token):
        seen.append(token)
        if len(seen) <= failures:
            raise JobFailed("the simulator lost site-2", transient=True)
        return "outcome"

    if failures <= retries:
        assert Calls().run("submit", submit, "token", retries=retries) == "outcome"
    else:
        with pytest.raises(JobFailed, match="lost site-2"):
            Calls().run("submit", submit, "token", retries=retries)
    assert seen == ["token"] * (retries + 1)


def test_a_job_that_fails_for_its_own_reasons_is_not_started_again():
    seen = []

    def submit(token):
        seen.append(token)
        raise JobFailed("fewer rows than k")

    with pytest.raises(JobFailed):
        Calls().run("submit", submit, "token", retries=1)
    assert len(seen) == 1
