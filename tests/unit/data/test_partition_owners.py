"""Owners of rows as sites."""

import numpy as np

from flareclust.data.partition import partition


def test_every_owner_is_a_site_in_the_order_of_their_numbers() -> None:
    owners = np.array([7, 3, 7, 11, 3])
    X = np.zeros((5, 2))
    for m in (1, 3, 100):  # follows from the data, whatever is said
        sites = partition("owners", X, None, m, np.random.default_rng(0), owners)
        assert {site: rows.tolist() for site, rows in sites.items()} == {
            "site-1": [1, 4],
            "site-2": [0, 2],
            "site-3": [3],
        }
        assert list(sites) == ["site-1", "site-2", "site-3"]
        assert all(rows.dtype == np.int64 for rows in sites.values())


def test_the_first_owners_are_those_of_the_lowest_numbers_and_others_rows_are_left_out() -> None:
    owners = np.array([7, 3, 7, 11, 3])
    sites = partition("owners:2", np.zeros((5, 2)), None, 9, np.random.default_rng(0), owners)
    assert {site: rows.tolist() for site, rows in sites.items()} == {"site-1": [1, 4], "site-2": [0, 2]}


def test_owners_draws_nothing() -> None:
    rng, untouched = np.random.default_rng(4), np.random.default_rng(4)
    partition("owners", np.zeros((5, 2)), None, 2, rng, np.arange(5))
    assert rng.random() == untouched.random()
