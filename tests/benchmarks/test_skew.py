"""Mixtures of two versions, without processes."""

import json
from itertools import pairwise

import pytest

from benchmarks import skew
from benchmarks.skew import HOSTS, JOBS, OTHER, THIS, mixtures, show, written


def test_all_mixtures_come_up_once_and_differ_in_one_host_from_the_one_before():
    found = list(mixtures())
    assert len({written(one) for one in found}) == len(found) == 2 ** len(HOSTS)
    assert set(found[0].values()) == {THIS}
    for before, after in pairwise(found):
        assert sum(before[host] != after[host] for host in HOSTS) == 1
    assert dict.fromkeys(HOSTS, OTHER) in found


def test_what_is_shown_is_compared_with_the_mixture_in_which_nobody_has_the_other_version(capsys):
    alone = {"other": "none", "jobs": {job: {"centroids": "a", "said": []} for job in JOBS}}
    mixed = {"other": "server", "jobs": dict(alone["jobs"])}
    mixed["jobs"]["lloyd"] = {"centroids": "b", "said": []}
    mixed["jobs"]["portfolio"] = {"centroids": "", "said": ["left out: east has another version"]}
    show([alone, mixed])
    lines = capsys.readouterr().out.partition("other version at server")[2].splitlines()
    assert "  lloyd: other bits" in lines
    assert "  lloyd, secure sums: the same bits" in lines
    assert "  portfolio: no result; left out: east has another version" in lines


OLD = "has flareclust 0.1.0 where the job needs another version"


def records() -> list[dict]:
    """Of all mixtures: the server refuses, or the sites do, of which the jobs can lack one."""
    found = []
    for versions in mixtures():
        others = [host for host, version in versions.items() if version == OTHER]
        said, bits = [], "a"
        if "server" in others:
            said, bits = [f"error: the server {OLD}"], ""
        elif len(others) > 1:
            said, bits = [f"error: round 0: too few sites took part. {', '.join(others)}: each {OLD}"], ""
        elif others:
            said, bits = [f"left out: {others[0]} {OLD}"], "b"
        found.append({"other": written(versions), "jobs": {job: {"centroids": bits, "said": said} for job in JOBS}})
    return found


@pytest.mark.parametrize(
    ("other", "outcome", "reported"),
    [
        ("none", None, ""),
        ("east", {"centroids": "a", "said": []}, ""),
        ("east", {"centroids": "b", "said": []}, "other bits"),
        ("east", {"centroids": "b", "said": ["left out: west was lost"]}, "other bits"),
        ("server", {"centroids": "b", "said": [f"left out: east {OLD}"]}, "other bits"),
        ("server", {"centroids": "", "said": []}, "no result"),
        ("server", {"centroids": "", "said": ["Traceback: the server is gone"]}, "no result"),
        ("server", {"centroids": "", "said": ["error: no connection"]}, "no result"),
        ("east, west", {"centroids": "", "said": [f"left out: east {OLD}"]}, "no result"),
        ("none", {"centroids": "", "said": ["error: none of the sites answered"]}, "no result"),
    ],
)
def test_other_bits_and_no_result_need_a_sentence_that_names_who_has_the_other_version(
    monkeypatch, tmp_path, capsys, other, outcome, reported
):
    found, file = records(), tmp_path / "skew.jsonl"
    (changed,) = [record for record in found if record["other"] == other]
    changed["jobs"]["portfolio"] = outcome or changed["jobs"]["portfolio"]
    file.write_text("".join(json.dumps(record) + "\n" for record in found))
    monkeypatch.setattr("sys.argv", ["skew", "0.1.0", "--out", str(file)])
    assert skew.main() == bool(reported)
    named = f"without a reason: other version at {other}, portfolio: {reported}\n"
    assert (named in capsys.readouterr().err) == bool(reported)
