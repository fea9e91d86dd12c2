"""A result can be run again on other rows, with what it has chosen."""

from sklearn.datasets import make_moons

import flareclust
from flareclust.studies.repeats import run_again


def test_repeats_of_a_range_have_the_number_that_was_chosen_and_of_a_cut_choose_again():
    rows = make_moons(1600, noise=0.06, random_state=0)[0]
    sites = {f"s{i}": rows[i::4].copy() for i in range(4)}
    fixed, again = (
        run_again(flareclust.run("tree", sites, **asked, shape="density"), sites, 1)
        for asked in ({"k": "2..8"}, {"k": 8, "cut": 2})
    )
    assert (fixed.k, fixed.params["cut"]) == (2, "k")
    assert (again.k, again.params["cut"], again.experiment["k"]) == (2, 2, 8)
