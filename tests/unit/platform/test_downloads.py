"""What a server sends to a user's session lies in the folder for it, or is refused."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from nvflare.fuel.flare_api.flare_api import Session
from nvflare.fuel.hci.client.file_transfer import FileTransferModule
from nvflare.fuel.hci.reg import CommandEntry

from flareclust.platform.session import _guard_downloads, _is_inside, _PathOutside

TRANSFER = "6f5b0d43-10f7-4c2c-9a0e-2d7a6f0a9b11"


@pytest.fixture
def module(tmp_path):
    _guard_downloads()
    _guard_downloads()
    return FileTransferModule(upload_dir=str(tmp_path), download_dir=str(tmp_path))


def pulled(module, file):
    """Pull one file as NVFlare's session does; return where it would be put."""
    put = []
    api = SimpleNamespace(
        fire_session_event=lambda *args: None, server_execute=lambda *args, **kwargs: {"status": "SUCCESS"}
    )
    ctx = SimpleNamespace(
        get_command_entry=lambda: SimpleNamespace(usage=""),
        get_api=lambda: api,
        get_command=lambda: "",
        set_requester=lambda receiver: put.append(receiver.file_name),
    )
    module.pull_binary_file(["pull_binary_file", "server", TRANSFER, "ref", "job", file], ctx)
    return put


def test_a_result_is_put_into_its_folder(module, tmp_path):
    assert pulled(module, "workspace/result.npz") == [f"{tmp_path}/job__{TRANSFER}/workspace/result.npz"]


@pytest.mark.parametrize("sends", [True, False])
def test_a_job_that_is_sent_leaves_no_temporary_file(module, tmp_path, monkeypatch, sends):
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "meta.json").write_text("{}")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    requesters = [None]

    def upload(file, conn):
        assert [*map(str, temporary.iterdir())] == [file]
        if not sends:
            raise ConnectionResetError
        return {}

    def execute(command, cmd_ctx):
        return cmd_ctx.get_requester().send_request(SimpleNamespace(upload_file=upload), None, cmd_ctx)

    ctx = SimpleNamespace(
        get_command_entry=lambda: CommandEntry(SimpleNamespace(name="job"), *[""] * 8),
        get_api=lambda: SimpleNamespace(client_key="", server_execute=execute),
        set_requester=requesters.append,
        get_requester=lambda: requesters[-1],
    )
    with nullcontext() if sends else pytest.raises(ConnectionResetError):
        module.push_folder(["submit_job", "job"], ctx)
    assert len(requesters) == 2
    assert not [*temporary.iterdir()]


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "C:\\x", "\\\\host\\x", "..\\x", ""])
def test_a_file_outside_is_refused(module, name):
    assert not _is_inside(name)
    with pytest.raises(_PathOutside, match="outside of the download"):
        pulled(module, name)


class Answered(Session):
    """A session whose server answers with this folder."""

    def __init__(self, downloads, location):
        self.download_dir, self._location = str(downloads), location

    def _do_command(self, command, *args, **kwargs):
        return {"meta": {"location": str(self._location)}}


@pytest.mark.parametrize("name", [TRANSFER, f"{TRANSFER}__2"])
def test_a_result_is_moved_to_where_the_user_wants_it(tmp_path, module, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "result.json").write_text("{}")
    found = Answered(tmp_path, tmp_path / name).download_job_result(TRANSFER, str(tmp_path / "here"))
    assert found == str(tmp_path / "here" / name)
    assert (tmp_path / "here" / name / "result.json").exists()


@pytest.mark.parametrize("name", [".ssh", f"other/{TRANSFER}", "", f"{TRANSFER}__x", f"../{TRANSFER}"])
def test_another_folder_of_the_user_is_no_result(tmp_path, module, name):
    downloads = tmp_path / "transfer"
    (downloads / name).mkdir(parents=True, exist_ok=True)
    with pytest.raises(_PathOutside, match="no result of the job"):
        Answered(downloads, downloads / name).download_job_result(TRANSFER, str(tmp_path / "here"))
    assert (downloads / name).is_dir()


def test_a_link_is_no_result(tmp_path, module):
    (tmp_path / TRANSFER).symlink_to("/etc")
    with pytest.raises(_PathOutside):
        Answered(tmp_path, tmp_path / TRANSFER).download_job_result(TRANSFER)


@pytest.mark.parametrize("transfer", ["/../../../home", "..", "", None, TRANSFER + "/..", TRANSFER.upper()])
def test_a_transfer_that_is_none_is_refused(module, transfer):
    with pytest.raises(_PathOutside, match="a transfer in an unknown form"):
        module._tx_path(transfer, "job")
