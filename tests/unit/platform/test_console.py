"""The lines of a console file are passed on while they are written."""

import logging

from flareclust.platform.simulator_watch import Console


def test_each_complete_line_is_logged_once(tmp_path, caplog):
    caplog.set_level(logging.INFO, "nvflare.simulator")
    console = Console(tmp_path / "console.txt")
    console.pass_on()  # not there yet
    for text in ("one\ntw", "o\n", "", "thr\xe9e\n"):
        with (tmp_path / "console.txt").open("ab") as stream:
            stream.write(text.encode("utf-8"))
        console.pass_on()
    assert [record.getMessage() for record in caplog.records] == ["one", "two", "thrée"]


def test_without_verbose_nothing_is_read(tmp_path, caplog):
    caplog.set_level(logging.WARNING, "nvflare.simulator")
    (tmp_path / "console.txt").write_text("one\n")
    Console(tmp_path / "console.txt").pass_on()
    assert caplog.records == []
