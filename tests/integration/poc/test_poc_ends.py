"""A POC that does not come up leaves nothing running, and ends no process that is not its own."""

import signal
import subprocess

import pytest

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.experiment import poc as set_up
from flareclust.platform.poc import federation as poc
from flareclust.platform.poc import kits as poc_kits
from flareclust.platform.poc import processes
from flareclust.platform.poc import state as poc_state
from tests.integration.poc.poc_cases import COMMAND, environment, nvflare, until
from tests.living import naming
from tests.patience import PATIENCE


@pytest.mark.slow
@pytest.mark.nightly  # test_poc_scripts.py has it with scripts in the place of NVFlare's
def test_a_site_that_does_not_connect_is_named_with_its_last_words_and_all_is_stopped(tmp_path, monkeypatch):
    def broken(kit, rows, numbers, place=poc_kits.place):
        if kit.name == "site-2":
            (kit / "local" / "resources.json").write_text("{")
        return place(kit, rows, numbers)

    monkeypatch.setattr(poc_kits, "place", broken)
    folder = tmp_path.resolve() / "poc"
    with pytest.raises(JobFailed, match=r"^site-2 did not start; [\s\S]*site-2: .*JSONDecodeError") as failed:
        set_up.up(folder, "iris", n_sites=2)
    assert "site-1:" not in str(failed.value)
    assert naming(folder) == []
    assert (folder / poc_state.KITS / "site-2" / "console.txt").is_file()
    poc.down(folder, remove=True)
    assert not folder.exists()


def test_what_was_started_is_ended_and_the_folder_removed_also_where_ctrl_c_comes_twice(tmp_path, monkeypatch):
    ended = []

    def interrupted(*_):
        raise KeyboardInterrupt

    def end(folder, processes):
        ended.append((folder, dict(processes)))
        if len(ended) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(poc_kits, "provision", interrupted)
    monkeypatch.setattr(processes, "end", end)
    folder = tmp_path.resolve() / "poc"
    with pytest.raises(KeyboardInterrupt):
        set_up.up(folder, "iris", n_sites=2)
    assert ended == [(folder, {})] * 2
    assert not folder.exists()


@pytest.mark.slow
def test_ctrl_c_while_it_comes_up_leaves_nothing(place, tmp_path):
    folder = tmp_path.resolve() / "poc"
    coming = subprocess.Popen(
        [*COMMAND, "up", "--data", "iris", "--dir", str(folder)],
        cwd=tmp_path,
        env=environment(place),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        until(lambda: nvflare(folder / poc_state.KITS / "localhost") is not None)
        with pytest.raises(UserError, match="a POC is up"):
            set_up.up(folder, "iris")
        coming.send_signal(signal.SIGINT)
        _, err = coming.communicate(timeout=PATIENCE)
    finally:
        coming.kill()
        coming.wait()
        left = naming(folder)
        for process in left:
            process.kill()
    assert left == []
    assert coming.returncode == 130
    assert "interrupted" in err
    assert not folder.exists()
