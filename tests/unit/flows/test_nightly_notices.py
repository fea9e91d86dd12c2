"""What the alert of a night says: sites that are not in its result, and clusters that changed or drifted."""

import numpy as np
import pytest

import flareclust
from flareclust.experiment.config import Experiment
from flareclust.flows import nightly

#: Patients of a night by the place of their group.
EARLIER = {0.0: 300, 20.0: 300}


def night(patients: dict[float, int], *others: np.ndarray) -> flareclust.Result:
    """Return the result of two sites, and of one more for each of the others' rows."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal((place, 0.0), 1.0, (number, 2)) for place, number in patients.items()])
    sites = {"north": rows[::2], "south": rows[1::2], **{f"west-{i}": one for i, one in enumerate(others)}}
    return flareclust.run("kfed", sites, k=len(patients), row_name="patients", min_sites=2)


@pytest.fixture(scope="module")
def earlier():
    return night(EARLIER)


@pytest.fixture
def alerts(monkeypatch):
    """Let a night end with a result; the returned function returns what its alerts say, a list each."""

    def of(result: flareclust.Result) -> list[list[str]]:
        said = []
        monkeypatch.setattr(nightly, "run_logged", lambda *asked: result)
        monkeypatch.setattr(nightly, "emit_event", lambda *words, payload: said.append((words, payload)))
        experiment = Experiment(algorithm="kfed", data="iris", k=2, register_as="groups")
        assert nightly.nightly_flow.fn(experiment) is result
        about = ("flareclust.night.noticed", {"prefect.resource.id": "flareclust.model.groups"})
        assert all(words == about for words, _ in said)
        return [payload["noticed"] for _, payload in said]

    return of


@pytest.mark.parametrize(
    ("patients", "sentences"),
    [
        (
            {0.0: 500, 20.0: 100},
            ["drift: the shares of the clusters differ from those of groups@champion by 33 % of the patients"],
        ),
        ({1.0: 300, 20.0: 300}, ["drift: the centroid of cluster 0 has moved far since groups@champion: "]),
        (
            {0.0: 300, 90.0: 300},
            [
                "cluster 1 of groups@champion is gone",
                "cluster 1 is new since groups@champion",
                "drift: the shares of the clusters",
            ],
        ),
    ],
    ids=["shares", "a centroid", "another cluster"],
)
def test_clusters_that_changed_or_drifted_are_said_as_in_the_result(earlier, alerts, patients, sentences):
    matched = night(patients).match_to(earlier, "groups@champion")
    ((*said,),) = alerts(matched)
    assert len(said) == len(sentences)
    for found, sentence in zip(said, sentences, strict=True):
        assert found.startswith(sentence)
        assert found in matched.warnings


def test_sites_without_a_part_are_said_first(earlier, alerts):
    matched = night({0.0: 500, 20.0: 100}, np.zeros((1, 2))).match_to(earlier, "groups@champion")
    ((left_out, drift),) = alerts(matched)
    assert left_out == f"west-0 {matched.left_out['west-0']}"
    assert drift.startswith("drift: ")


def test_a_night_like_the_one_before_has_no_alert(earlier, alerts):
    assert alerts(night(EARLIER).match_to(earlier, "groups@champion")) == []


def test_the_first_night_of_all_has_no_alert(earlier, alerts):
    assert alerts(earlier) == []
