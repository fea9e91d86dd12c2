"""Numbers in MLflow have names of their own where they are of another kind."""

import numpy as np

from flareclust.tracking.note import in_units


def test_the_cost_of_k_prototypes_is_no_inertia():
    values = {"inertia": 2.0, "davies_bouldin": 1.0}
    assert in_units(values, {"gamma": np.array(0.5)}) == {"kprototypes_cost": 2.0, "davies_bouldin": 1.0}
    scaled = {"gamma": np.array(0.5), "mean": np.zeros(2), "deviation": np.ones(2)}
    assert in_units(values, scaled) == {"kprototypes_cost_scaled": 2.0, "davies_bouldin": 1.0}
    assert in_units(values, {}) == values
