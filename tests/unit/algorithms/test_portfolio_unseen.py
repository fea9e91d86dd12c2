"""What portfolio says where no site can compare solutions."""

import numpy as np

from flareclust.aggregators.portfolio import PortfolioAggregator, _PortfolioState
from flareclust.evaluation.scores import stack
from flareclust.federation.refinement import SPREAD
from flareclust.protocol.rounds import Round
from tests.unit.algorithms.portfolio_cases import federation, run

SOLUTIONS = [np.array([[0.0], [1.0]]), np.array([[0.0], [2.0]])]
#: The question about the clusters of these solutions, and the reply of a site that may report none of them.
ASKED = Round(stack(SOLUTIONS), index=2, step=SPREAD, state=_PortfolioState(received_counts=np.array([2, 2])))
NOTHING = {"cluster": np.arange(0), "counts": np.arange(0), "centroids": np.empty((0, 1)), "m2": np.empty((0, 1))}


def test_a_choice_that_nobody_could_make_is_said():
    """Every row is alone in its cluster at its site, in each of the solutions."""
    aggregator = PortfolioAggregator(2, members=["kfed", "pooled"], polish=0)
    done = aggregator.spread(ASKED, {"a": NOTHING}, None)
    np.testing.assert_array_equal(done.task["centroids"], SOLUTIONS[1])
    (said,) = aggregator.warnings(done, {})
    assert "no site has enough rows to compare the members' solutions, so that of pooled was taken unseen" in said


def test_a_refined_solution_that_nobody_could_compare_is_said():
    rng = np.random.default_rng(0)
    sites = {f"site-{i}": rng.normal(10.0 * (i % 2), 1.0, size=(4, 2)) for i in range(8)}
    reason = "no site has enough rows to compare the refined solution with the one before, so the refined one was taken"
    found = run(sites, k=2, polish=2)
    assert found.rounds[-2]["diagnostics"] == {"scored_rows": 0.0}
    (said,) = found.warnings
    assert reason in said
    assert said.endswith("; use secure_sums, or fewer and larger sites")
    *_, said = run(sites, k=2, polish=2, robust="median").warnings
    assert reason in said
    assert said.endswith("; use fewer and larger sites")  # secure sums are not for settings that judge sites
    assert not run(federation()).warnings


def test_a_refinement_that_ends_early_is_no_comparison_that_nobody_could_make():
    aggregator = PortfolioAggregator(2, members=["kfed", "pooled"], polish=1)
    chosen = aggregator.spread(ASKED, {"a": NOTHING}, None)
    assert not chosen.done
    (said,) = aggregator.warnings(aggregator.so_far(chosen), {})
    assert "the members' solutions" in said
