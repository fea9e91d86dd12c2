"""Messages hold no files, and a process says where that cannot be kept up."""

import subprocess
import sys

import numpy as np
import pytest
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.shareable import Shareable
from nvflare.fuel.utils import fobs
from nvflare.fuel.utils.fobs import fobs as nvflare_fobs
from nvflare.fuel.utils.fobs import lobs
from nvflare.fuel.utils.fobs.datum import Datum
from nvflare.private.fed.utils.fed_utils import nvflare_fobs_initialize

from flareclust.platform import file_guard
from flareclust.platform.file_guard import _FileInMessage

SECRET = b"between the lines of a private key"


@pytest.fixture(autouse=True)
def guarded():
    nvflare_fobs_initialize()
    file_guard.install()


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "client.key"
    file.write_bytes(SECRET)
    return str(file)


def test_a_guarded_process_has_no_problem():
    assert file_guard.problem() is None


def test_installing_twice_is_installing_once():
    header, add = lobs._Header, lobs.DatumManager.add_datum
    file_guard.install()
    assert (lobs._Header, lobs.DatumManager.add_datum) == (header, add)


@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: {"a": [one]}, lambda one: (one,)])
def test_no_file_is_read_into_a_message(secret, wrap):
    with pytest.raises((_FileInMessage, RuntimeError), match="refuses files in messages"):
        fobs.dumps(wrap(Datum.file_datum(secret)))


def test_a_message_cannot_name_a_file(secret):
    about = {"datum_id": "x", "datum_type": 3, "dot": 0, "value": secret}
    named = {
        nvflare_fobs.FOBS_TYPE: "nvflare.fuel.utils.fobs.datum.Datum",
        nvflare_fobs.FOBS_DATA: {"data": about},
        nvflare_fobs.FOBS_DECOMPOSER: "nvflare.fuel.utils.fobs.decomposer.DataClassDecomposer",
    }
    request = Shareable()
    request.add_cookie("file", named)
    with pytest.raises(_FileInMessage):
        fobs.loads(fobs.dumps(request))


def test_no_file_of_a_message_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(lobs, "get_datum_dir", lambda: str(tmp_path))
    empty = nvflare_fobs.serialize(None, lobs.DatumManager())
    parts = [lobs.HEADER_STRUCT.pack(lobs.MARKER_MAIN, 0, len(empty)), empty]
    parts += [lobs.HEADER_STRUCT.pack(lobs.MARKER_DATUM_FILE, 0, lobs.DATUM_ID_LEN + len(SECRET)), bytes(16), SECRET]
    with pytest.raises(_FileInMessage):
        fobs.loads(b"".join(parts))
    assert list(tmp_path.iterdir()) == []


def test_honest_messages_stay_as_they_are():
    arrays = {"centroids": np.arange(6.0).reshape(3, 2), "large": np.zeros(3_000_000), "text": "x" * 11_000_000}
    message = DXO(DataKind.WEIGHTS, data=arrays, meta={"round": 1}).to_shareable()
    message.add_cookie("task", "a1")
    found = fobs.loads(fobs.dumps(message))
    assert found.get_cookie_jar() == {"task": "a1"}
    assert found["DXO"]["data"]["text"] == arrays["text"]
    np.testing.assert_array_equal(found["DXO"]["data"]["large"], arrays["large"])


def test_a_process_that_is_not_guarded_says_so():
    code = "from flareclust.platform import file_guard; print(file_guard.problem())"
    text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "(read, written, asked for)" in text


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (lambda patch: patch.setattr(lobs, "_Header", lobs._Header.__base__), "(written)"),
        (lambda patch: patch.delitem(nvflare_fobs._decomposers, "nvflare.fuel.utils.fobs.datum.Datum"), "(asked for)"),
    ],
)  # fmt: skip
def test_a_missing_part_of_the_guard_is_named(monkeypatch, missing, words):
    missing(monkeypatch)
    assert words in file_guard.problem()
