"""Settings that multiply the time of a job are bounded, and what takes long can be interrupted."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from flareclust._foundation.errors import Aborted, UserError
from flareclust.core.lloyd import kmeans
from flareclust.protocol.params import MOST_ITERATIONS, MOST_ROUNDS, MOST_STARTS
from flareclust.protocol.registry import BUILT_IN
from tests.patience import PATIENCE

MOST = {
    **dict.fromkeys(("n_init", "restarts"), MOST_STARTS),
    **dict.fromkeys(("rounds", "lloyd_rounds", "polish"), MOST_ROUNDS),
    **dict.fromkeys(("local_iter", "max_iter"), MOST_ITERATIONS),
}
CASES = [(a, name) for a in BUILT_IN for name in a.parameters() if name in MOST]


@pytest.mark.parametrize(("algorithm", "name"), CASES, ids=lambda value: getattr(value, "name", value))
def test_settings_that_multiply_the_time_have_an_upper_bound(algorithm, name):
    params, most = algorithm.params_class(), MOST[name]
    if (algorithm.name, name) == ("dp-gmm", "rounds"):
        most //= 2  # as many updates may come before
    params(k=3, **{name: most})
    with pytest.raises(UserError, match=rf"^{name} must be an integer from [01] to {most}(, or None)?, got {10**8}$"):
        params(k=3, **{name: 10**8})


@pytest.mark.parametrize("algorithm", BUILT_IN, ids=lambda value: value.name)
def test_no_number_of_repetitions_is_without_a_bound(algorithm):
    """A new setting whose name says that something is repeated must be in the table above."""
    repeated = [
        name for name in algorithm.parameters() if any(word in name for word in ("iter", "round", "init", "start"))
    ]
    fields = algorithm.params_class().model_fields
    assert {name for name in repeated if fields[name].annotation is int} <= set(MOST)


def test_a_site_can_be_stopped_between_two_starts():
    asked = 0

    def aborted():
        nonlocal asked
        asked += 1
        return asked > 20

    with pytest.raises(Aborted):
        kmeans(np.arange(10.0).reshape(5, 2), 2, np.random.default_rng(0), n_init=MOST_STARTS, aborted=aborted)
    assert asked == 21


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [["pooled", "--set", "n_init=10000", "--set", "restarts=10000"], ["central", "--set", "n_init=10000"]]
)
def test_ctrl_c_ends_a_long_job_in_this_process(tmp_path, settings):
    command = [
        sys.executable,
        "-m",
        "flareclust",
        "run",
        *settings,
        "--data",
        "digits",
        "--engine",
        "inprocess",
        "--no-track",
    ]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(12)  # by then it computes; on a slower machine it still loads, which must end as well
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        errors = process.communicate(timeout=PATIENCE)[1]
    finally:
        process.kill()
        process.wait()
    assert time.monotonic() - started < 10
    assert errors.splitlines()[-1] == "error: interrupted; nothing was kept"
    assert process.returncode in (
        130,
        -signal.SIGINT,
    )  # a shell makes 130 of both; Python 3.11 ends itself by the signal
    assert list(tmp_path.iterdir()) == []
