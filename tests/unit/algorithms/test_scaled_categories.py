"""Categories beside numbers that are scaled: a category counts as one number, under every scale."""

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust import JobFailed


@pytest.mark.parametrize("scale", ["standard", "robust", "range"])
@pytest.mark.parametrize("secure", [False, True])
def test_the_columns_of_a_category_count_as_one_column(rng, scale, secure):
    """Of each category the variances add up to that of a number, of one with two values to 2 / pi of it."""
    numbers = rng.normal(size=(900, 2)) * [1, 50]
    two, five = np.eye(2)[rng.integers(0, 2, 900)], np.eye(5)[rng.integers(0, 5, 900)]
    X = np.concatenate([numbers, two, five], axis=1)
    sites = {name: X[start::3] for start, name in enumerate("abc")}
    categories = [[2, 3], [4, 5, 6, 7, 8]]
    result = flareclust.run("lloyd", sites, k=3, scale=scale, categories=categories, secure_sums=secure)
    scaled = X / result.arrays["deviation"]
    of_number = np.median(scaled[:, :2].var(axis=0))
    for group, variance in zip(categories, (2 / np.pi, 1), strict=True):
        assert scaled[:, group].var(axis=0).sum() / of_number == pytest.approx(variance, abs=0.03)
        assert len(set(result.arrays["deviation"][group])) == 1


@pytest.mark.parametrize("scale", ["standard", "robust", "range"])
@pytest.mark.parametrize("secure", [False, True])
def test_values_that_never_occur_do_not_change_how_much_a_category_counts(rng, scale, secure):
    numbers, two = rng.normal(size=(900, 2)), np.eye(2)[rng.integers(0, 2, 900)]
    found = []
    for unused in (0, 3):
        X = np.concatenate([numbers, two, np.zeros((900, unused))], axis=1)
        settings = {"scale": scale, "categories": [list(range(2, 4 + unused))], "secure_sums": secure}
        sites = {name: X[start::3] for start, name in enumerate("abc")}
        found.append(flareclust.run("lloyd", sites, k=3, **settings).arrays["deviation"][2])
    assert found[0] == pytest.approx(found[1], rel=1e-9)


@pytest.mark.parametrize("name", ["portfolio", "masked"])
@pytest.mark.parametrize("scale", ["standard", "robust", "range"])
def test_a_category_that_tells_nothing_does_not_decide_the_clusters(name, scale, rng):
    """Two values are a gap, which splits rows better than any number of one normal distribution."""
    y = np.arange(900) % 2
    X = np.column_stack([rng.normal(size=(900, 2)) + 2.5 * y[:, None], np.eye(2)[rng.integers(0, 2, 900)]])
    rows = pd.DataFrame(X, columns=["age", "crp", "sex=f", "sex=m"])
    sites = {name: rows[start::3] for start, name in enumerate("abc")}
    sex = [["sex=f", "sex=m"]] if name == "masked" else [[2, 3]]
    result = flareclust.run(name, sites, k=2, scale=scale, categories=sex)
    labels = result.predict(rows)
    assert max((labels == y).mean(), (labels != y).mean()) > 0.9


@pytest.mark.parametrize("scale", ["robust", "range"])
def test_a_constant_column_does_not_change_how_much_a_category_counts(scale, rng):
    numbers, two = rng.normal(size=(900, 1)), np.eye(2)[rng.integers(0, 2, 900)]
    ranges = [[-100.0, 100.0], None, None, [0.0, 1e6], [0.0, 1e6]]
    constant = np.full((900, 2), 3.0)
    found = []
    for X, stated in (([numbers, two], ranges[:3]), ([numbers, two, constant], ranges)):
        sites = {name: np.concatenate(X, axis=1)[start::3] for start, name in enumerate("abc")}
        settings = {"scale": scale, "categories": [[1, 2]], "table_ranges": stated}
        found.append(flareclust.run("pooled", sites, k=2, **settings).arrays["deviation"][1])
    assert found[0] == found[1]


def test_categories_that_rows_do_not_have_are_refused(sites):
    with pytest.raises(JobFailed, match="categories name columns that rows of 3 columns do not have"):
        flareclust.run("lloyd", sites, k=2, scale="standard", categories=[[3, 4]])
