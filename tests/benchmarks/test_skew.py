"""Mixtures of two versions, without processes."""

from itertools import pairwise

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
