"""The server takes the error logs of sites' jobs, and opens or moves no other file, whatever the sender states."""

from types import SimpleNamespace

import pytest
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.streaming import StreamContext, StreamContextKey
from nvflare.app_common.logging.job_log_receiver import _KEY_RECV_FILE, _KEY_RECV_PATH
from nvflare.app_common.streamers.log_streamer import KEY_FILE_NAME

from flareclust.platform.log_streaming import LogReceiver, SiteLogs

JOB = "6f5b0d43-10f7-4c2c-9a0e-2d7a6f0a9b11"


@pytest.fixture
def receiver(tmp_path):
    return LogReceiver(dest_dir=str(tmp_path / "logs"))


def context(kept, site="north", job=JOB):
    peer = FLContext()
    peer.set_prop(ReservedKey.IDENTITY_NAME, site, private=False, sticky=False)
    peer.set_prop(FLContextKey.CURRENT_RUN, job, private=False, sticky=False)
    manager = SimpleNamespace(set_client_data=lambda *args: kept.append(args[:4]))
    fl_ctx = FLContext()
    fl_ctx.set_prop(ReservedKey.ENGINE, SimpleNamespace(get_component=lambda name: manager), private=True, sticky=False)
    fl_ctx.set_peer_context(peer)
    return fl_ctx


def stream(name="error_log.txt", **keys):
    made = StreamContext()
    made.update({KEY_FILE_NAME: name, **keys})
    return made


def ended(receiver, sent, fl_ctx):
    sent[StreamContextKey.RC] = "OK"
    receiver._on_stream_done(sent, fl_ctx)


def test_the_error_log_of_a_site_is_kept(receiver, tmp_path):
    kept, sent = [], stream()
    fl_ctx = context(kept)
    receiver._on_chunk_received(b"one ", sent, fl_ctx)
    receiver._on_chunk_received(b"two", sent, fl_ctx)
    ended(receiver, sent, fl_ctx)
    path = tmp_path / "logs" / JOB / "north" / "error_log.txt"
    assert path.read_bytes() == b"one two"
    assert kept == [(JOB, str(path), "north", "ERRORLOG")]


@pytest.mark.parametrize("lacking", [FLContextKey.JOB_META, FLContextKey.WORKSPACE_ROOT, ReservedKey.IDENTITY_NAME])
def test_a_site_that_does_not_know_which_job_starts_where_changes_no_job(tmp_path, lacking):
    known = {
        FLContextKey.JOB_META: {"job_id": JOB},
        FLContextKey.WORKSPACE_ROOT: str(tmp_path),
        ReservedKey.IDENTITY_NAME: "north",
    }
    fl_ctx = FLContext()
    for name, value in known.items():
        if name != lacking:
            fl_ctx.set_prop(name, value, private=name != ReservedKey.IDENTITY_NAME, sticky=False)
    SiteLogs()._on_before_job_launch("_before_job_launch", fl_ctx)
    assert list(tmp_path.iterdir()) == []


def test_logs_are_kept_in_the_servers_workspace_for_its_account_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    LogReceiver()._on_chunk_received(b"x", stream(), context([]))
    assert (tmp_path / "site-logs").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "site-logs" / JOB / "north" / "error_log.txt").exists()


@pytest.mark.parametrize(
    ("site", "job", "name"),
    [
        ("..", JOB, "error_log.txt"),
        ("north", "..", "error_log.txt"),
        ("north", "local", "error_log.txt"),
        ("north", JOB, "fed_server.json"),
        ("north", JOB, "log.txt"),
        ("north", JOB, None),
    ],
)
def test_a_log_under_another_name_writes_nothing(receiver, tmp_path, site, job, name):
    kept, sent = [], stream(name)
    with pytest.raises(ValueError, match="a log that was sent to the server is refused"):
        receiver._on_chunk_received(b"x", sent, context(kept, site, job))
    with pytest.raises(ValueError, match="refused"):
        ended(receiver, sent, context(kept, site, job))
    assert (kept, list(tmp_path.rglob("*"))) == ([], [])


def test_a_file_that_the_sender_names_is_not_moved(receiver, tmp_path):
    secret = tmp_path / "server.key"
    secret.write_text("secret")
    kept = []
    ended(receiver, stream(**{_KEY_RECV_PATH: str(secret), _KEY_RECV_FILE: None}), context(kept))
    assert (kept, secret.read_text()) == ([], "secret")
