"""Names of the arrays of a result under differential privacy. All of them hold noise, or are public.

`counts` (k,): noisy rows of each cluster; `signal_to_noise` (k,): radius of a cluster over the distance by which noise moves its
centroid; `reach`: distance at which a row's part of the inertia is cut off, from the clusters' radii; `low` and `high` (d,): bounds of
the columns, as the sites' policies declare them.
"""

COUNTS, SIGNAL, REACH, LOW, HIGH = "counts", "signal_to_noise", "reach", "low", "high"
