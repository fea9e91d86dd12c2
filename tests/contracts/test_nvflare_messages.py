"""Each message that NVFlare's processes answer has a line in nvflare_messages.csv, which says what ours do with it.

A message that a later NVFlare adds fails here, so that somebody decides before that version is supported. A decision is a
line in the table, and where the message is to be dropped or refused, flareclust/platform/peers.py.
"""

import importlib
import subprocess
import sys

import pytest
from nvflare.fuel.f3.cellnet.defs import CellChannel
from nvflare.fuel.utils.admin_name_utils import new_admin_client_name
from nvflare.fuel.utils.fobs.datum import Datum
from nvflare.private.admin_defs import Message
from nvflare.private.fed.client.admin import RequestProcessor

from flareclust.platform import file_guard
from flareclust.platform.peers import ANSWERED, _asking_problem, _SafeProcessor
from tests.nvflare_messages import Answer, Row, found, written

#: What ours do with a message, in the table's column `ours`.
DECISIONS = {
    "answered": "by the processes in the column `at`, to the ones that may reach them",
    "answered to sites only": "the server drops it when a user sends it",
    "answered to the server only": "sites drop what comes from elsewhere",
    "answered to users": "to each with a session",
    "answered to users with the right": "NVFlare asks authorization.json",
    "refused by the site": "with an error",
    "dropped at the server": "from sites and users",
    "dropped by server and site": "from all",
    "decoded": "by NVFlare",
    "not processed": "an error of NVFlare's",
    "not enabled": "NVFlare registers it for diagnoses only",
    "not in our jobs": "no class of ours has it, and kits allow no other",
    "in the user's own process": "nobody else asks",
    "passes a registration on": "its callers have lines of their own",
    "looks at every message": "a filter",
    "answered for streams only": "the process of a server or a site drops other topics",
    "answered in foreign jobs only": "those of NVFlare's own classes, where a kit allows them",
    "refused when decoded": "the message is",
}

#: The channels behind a kind of message, where the line gives the topic only.
CHANNELS = {
    "auxiliary": CellChannel.AUX_COMMUNICATION,
    "server job command": CellChannel.SERVER_COMMAND,
    "server parent command": CellChannel.SERVER_PARENT_LISTENER,
}


def asked_at_server() -> list[tuple[Row, str, str]]:
    """Return the lines of what the server's processes answer, with channel and topic, where both are known."""
    rows = []
    for row in written():
        at_server = {"server", "server job"} & set(row.at.split(", "))
        channel, topic = (CHANNELS[row.kind], row.name) if row.kind in CHANNELS else (*row.name.split(":"), "")[:2]
        if at_server and (row.kind == "request" or row.kind in CHANNELS) and "{" not in row.name:
            rows.append((row, channel, topic))
    return rows


def test_what_nvflare_answers_is_what_was_decided_on():
    known = {row.answer for row in written()}
    new = [f"{one.kind} {one.name} ({one.file})" for one in sorted(found() - known)]
    gone = [f"{one.kind} {one.name} ({one.file})" for one in sorted(known - found())]
    advice = (
        "look at what it does for whom, add or remove its line in tests/contracts/nvflare_messages.csv, and drop or "
    )
    assert not new, (
        f"this NVFlare answers what nobody has decided on: {new}: {advice}refuse it in flareclust/platform/peers.py"
    )
    assert not gone, f"this NVFlare no longer answers: {gone}: {advice}stop refusing it in flareclust/platform/peers.py"


def test_every_line_says_where_what_and_why_once():
    rows = written()
    assert len({row.answer for row in rows}) == len(rows)
    assert [row for row in rows if row.ours not in DECISIONS or not row.why] == []
    assert [row for row in rows if not row.at and row.ours != "passes a registration on"] == []


@pytest.mark.parametrize("row", [row for row in written() if row.kind == "site request"], ids=lambda row: row.name)
def test_a_site_answers_the_requests_that_the_table_says(row):
    assert row.ours == ("answered to the server only" if row.name in ANSWERED else "refused by the site")


@pytest.mark.parametrize("row", [row for row in written() if row.kind == "site request"], ids=lambda row: row.name)
def test_a_site_asks_nvflare_for_what_it_answers_only(row):
    class Processor(RequestProcessor):
        def get_topics(self):
            return [row.name]

        def process(self, req, app_ctx):
            return "asked"

    answer = _SafeProcessor(Processor()).process(Message(row.name, ""), None)
    assert (answer == "asked") == (row.ours == "answered to the server only")


def test_a_type_that_the_table_refuses_is_refused():
    assert [row.name for row in written() if row.ours == "refused when decoded"] == [f"{Datum.__module__}.Datum"]
    file_guard.install()
    assert file_guard.problem() is None


@pytest.mark.parametrize(("row", "channel", "topic"), asked_at_server(), ids=lambda value: str(value)[:60])
def test_a_server_drops_the_requests_that_the_table_says(row, channel, topic):
    to = "server" if "server" in row.at.split(", ") else "server.job"
    dropped = [_asking_problem(name, channel, topic, to) is not None for name in ("site-1", new_admin_client_name())]
    dropping = ("dropped at the server", "dropped by server and site", "answered for streams only")
    if row.ours in (*dropping, "answered in foreign jobs only"):
        assert dropped == [True, True]
    elif row.ours == "answered to sites only" or (row.kind == "auxiliary" and to != "server"):
        assert dropped == [False, True]
    elif row.ours.startswith("answered"):
        assert dropped == [False, False]
    else:
        pytest.fail(f"the table says {row.ours!r}, of which nothing is checked here")


def test_jobs_of_ours_load_nothing_that_the_table_says_they_have_not():
    """In a process of its own, since other tests import what they like."""
    listed = (
        "import importlib, sys\n"
        "from flareclust.sites.class_list import of_server, of_sites\n"
        "for path in (*of_sites(), *of_server()): importlib.import_module(path.rpartition('.')[0])\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", listed], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.split()
    files = {row.file for row in written() if row.ours == "not in our jobs"}
    modules = {"nvflare." + file.removesuffix(".py").replace("/", ".") for file in files}
    assert len(modules) > 20
    assert modules & set(loaded) == set()


def test_filters_for_all_messages_are_asked_for_every_channel():
    """NVFlare asks those for all only where a channel has none of its own, which would take the place of ours."""
    assert {one.name for one in found() if one.kind == "filter"} == {"*:*"}


def test_messages_of_each_kind_are_found():
    """Otherwise a function that NVFlare renames would empty a kind, and new messages of it would go unseen."""
    expected = {
        ("request", "admin:*"),
        ("request", "server_parent_listener:*"),
        ("auxiliary", "ObjectStreamer.Request"),
        ("object stream", "hci.upload:*"),
        ("site request", "sys.shell"),
        ("site job command", "abort"),
        ("server job command", "submit_update"),
        ("server parent command", "get_clients"),
        ("command", "submit_job"),
        ("type decoded", "nvflare.fuel.utils.fobs.datum.Datum"),
        ("section processed", "NUMPY_DOWNLOAD"),
    }
    assert expected <= {(one.kind, one.name) for one in found()}


def test_a_new_message_is_named_with_the_place_to_decide(monkeypatch):
    module = importlib.import_module(test_what_nvflare_answers_is_what_was_decided_on.__module__)
    new = Answer("request", "admin:new", "private/new.py")
    monkeypatch.setattr(module, "found", lambda: {*(row.answer for row in written()), new})
    with pytest.raises(AssertionError, match=r"request admin:new \(private/new.py\).*nvflare_messages.csv.*peers.py"):
        module.test_what_nvflare_answers_is_what_was_decided_on()
