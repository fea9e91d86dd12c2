"""The page of `flareclust status --html`: what it says, and that names from outside stay text."""

from html.parser import HTMLParser

import pytest

from flareclust.experiment.reports.federation import status_page
from flareclust.platform.status import FederationStatus, JobStatus, SiteStatus

#: What jobs, users and sites might call themselves.
ATTACKS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</td></table></main><h1>all is well</h1>",
    "{{ 7 * 7 }}{% raise %}",
    "javascript:alert(1)",
    "\x1b[31m\x00\u202e'\" style='x",
    "&lt;b&gt;&amp;",
)


def federation(name="clinic-a", **changed):
    site = SiteStatus(name, True, 1e9, name, name, 4102444800.0, expected=name)
    away = SiteStatus(f"{name}2", False, None, "", "", None, expected=name)
    good = JobStatus(name, name, name, 1e9, name, "FINISHED:COMPLETED", [name])
    about = {"server": name, "started": 1e9, "nvflare": name, "certificate_ends": {name: 4102444800.0}}
    about |= {"sites": [site, away], "jobs": [good], "hints": [name]}
    return FederationStatus(**about | changed)


class Tags(HTMLParser):
    """Keeps the elements of a page with their attributes, and its text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, sorted(name for name, _ in attrs)))

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_says_what_there_is_and_loads_nothing():
    page = status_page(federation())
    text = " ".join(" ".join(Tags(page).text).split())
    for words in (
        "Federation clinic-a",
        "since 2001-09-09 01:46:40 UTC",
        "clinic-a connected 2001-09-09 01:46:40",
        "clinic-a2 missing - - - -",
        "clinic-a2 is not connected, and clinic-a; start it",
        "clinic-a: until 2100-01-01.",
        "not taken: clinic-a",
        "flareclust site budget KIT",
    ):
        assert words in text
    assert "default-src 'none'" in page
    assert not {tag for tag, _ in Tags(page).tags} & {"script", "link", "img", "iframe", "a"}
    assert "http:" not in page
    assert "https:" not in page


@pytest.mark.parametrize("name", ATTACKS)
def test_names_stay_text(name):
    assert Tags(status_page(federation(name))).tags == Tags(status_page(federation())).tags
    assert "\x1b" not in status_page(federation(name))
    assert Tags(status_page(None, name)).tags == Tags(status_page(None, "clinic-a")).tags


def test_an_attack_is_read_as_its_text():
    assert "<script>alert(1)</script>" in Tags(status_page(federation(ATTACKS[0]))).text


def test_where_all_is_well_the_page_says_so():
    found = federation(sites=[SiteStatus("a", True, 1e9, "2.9.0", "0.3.0", None)], hints=[], jobs=[])
    page = status_page(found)
    assert "All expected sites are connected." in page
    assert "Read this first" not in page
    assert "None." in page
    assert "No site is connected" in status_page(federation(sites=[], hints=[], certificate_ends={}))


@pytest.mark.parametrize(
    ("status", "failed"),
    [
        ("FINISHED:COMPLETED", False),
        ("RUNNING", False),
        ("FINISHED:ABORTED", True),
        ("FINISHED:EXECUTION_EXCEPTION", True),
    ],
)
def test_a_job_that_ended_without_a_result_is_red(status, failed):
    page = status_page(federation(jobs=[JobStatus("j", "n", "u", 1e9, "0:01", status)]))
    assert (f'style="color:#bd1f01" title="state">{status}' in page) is failed


def test_a_server_that_does_not_answer_has_a_page_as_well():
    page = status_page(None, "the server hub:8002 does not answer")
    assert "Federation: no answer" in page
    assert "the server hub:8002 does not answer" in page
    assert "<table" not in page
