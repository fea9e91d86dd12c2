"""What a site writes down of its jobs, and how its operator reads it."""

import json

import pytest

from flareclust.cli.main import main
from flareclust.sites.job_log import JOBS_FILE, note_came, note_end, note_reply, read_log


@pytest.fixture
def kit(tmp_path):
    for name in ("startup", "local"):
        (tmp_path / name).mkdir()
    return tmp_path


def run(kit, job, name="night", user="lead@hub.org", replies=()):
    """A job that came, answered, and ended."""
    note_came(kit, job, name, user, "kfed", "")
    (kit / job).mkdir()
    for reply in replies:
        note_reply(kit / job, *reply)
    note_end(kit, job, kit / job)


def printed(kit, capsys, *options):
    with pytest.raises(SystemExit) as ended:
        main(["site", "log", str(kit), *options])
    assert ended.value.code in (None, 0)
    return capsys.readouterr().out


def test_a_site_to_which_no_job_came_says_so(kit, capsys):
    assert read_log(kit) == []
    assert "no job has come" in printed(kit, capsys)


def test_answers_are_added_up_and_the_last_reason_is_kept(kit, capsys):
    run(kit, "job-1", replies=[(100, ""), (0, "has too few rows"), (23, ""), (0, "has no rows any more")])
    (job,) = read_log(kit)
    assert (job.exchanges, job.bytes_out, job.accepted) == (2, 123, True)
    assert job.refused == "has no rows any more"
    assert job.came <= job.ended
    (line,) = printed(kit, capsys).splitlines()
    assert "job-1  night  kfed  lead@hub.org  2 answers, 123 bytes out in 0 s" in line
    assert line.endswith("answered without numbers: has no rows any more")


def test_a_job_that_is_refused_and_one_that_has_no_end_are_there(kit, capsys):
    note_came(kit, "job-1", "night", "lead@hub.org", "", "not authorized")
    note_came(kit, "job-2", "night", "lead@hub.org", "kfed", "")
    first, second = printed(kit, capsys).splitlines()
    assert first.endswith("job-1  night  lead@hub.org  refused: not authorized")
    assert second.endswith("job-2  night  kfed  lead@hub.org  no end")
    found = [json.loads(line) for line in printed(kit, capsys, "--json").splitlines()]
    assert [(job["job"], job["accepted"], job["ended"]) for job in found] == [
        ("job-1", False, None),
        ("job-2", True, None),
    ]


def test_a_job_that_is_sent_again_under_the_same_number_hides_nothing(kit):
    """As a server could do to have another record of what it has asked."""
    run(kit, "job-1", replies=[(100, "")])
    note_came(kit, "job-1", "night", "lead@hub.org", "", "keeps the folder job-1 of an earlier job")
    first, second = read_log(kit)
    assert (first.bytes_out, first.accepted, second.accepted) == (100, True, False)


def test_lines_that_were_cut_cost_no_other(kit):
    """A machine that lost its power while it wrote."""
    run(kit, "job-1")
    with (kit / JOBS_FILE).open("a") as file:
        file.write('{"job": "job-2", "ca')
    run(kit, "job-3")
    assert [job.job for job in read_log(kit)] == ["job-1", "job-3"]


def test_a_line_of_a_later_version_is_read(kit):
    run(kit, "job-1")
    text = (kit / JOBS_FILE).read_text()
    (kit / JOBS_FILE).write_text(text.replace('{"job"', '{"energy": 3, "job"'))
    assert [job.job for job in read_log(kit)] == ["job-1"]


def test_what_others_wrote_is_shown_as_it_is_and_obeyed_by_nobody(kit, capsys):
    run(kit, "job-1", name="[bold]a\x1b[2J\nb", user="<script>")
    (line,) = printed(kit, capsys).splitlines()
    assert "[bold]a?[2J?b" in line
    assert "<script>" in line


def test_the_file_is_the_sites_own(kit):
    run(kit, "job-1")
    assert (kit / JOBS_FILE).stat().st_mode & 0o077 == 0
