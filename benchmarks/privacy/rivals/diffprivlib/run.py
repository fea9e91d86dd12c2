"""k-means of diffprivlib on a table of `python -m benchmarks.privacy.data`; README.md beside it says how to install it.

python run.py TABLE.npz [--epsilon 1] [--runs 5]
"""

import argparse
import sys
from pathlib import Path

MISSING = "diffprivlib is not installed, or does not go with this scikit-learn; see README.md beside run.py: {error}"


def main() -> None:
    """Print the inertia over that of k-means."""
    parser = argparse.ArgumentParser(description="k-means of diffprivlib on a table")
    parser.add_argument("table", type=Path, help="npz with X, low, high and k")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    try:
        import numpy as np
        from diffprivlib.models import KMeans
        from sklearn.cluster import KMeans as Exact
    except ImportError as error:
        sys.exit(MISSING.format(error=error))
    with np.load(arguments.table) as stored:
        X, k, low, high = stored["X"], int(stored["k"]), float(stored["low"]), float(stored["high"])
    least = Exact(k, n_init=3, random_state=0).fit(X).inertia_
    bounds, found = (np.full(X.shape[1], low), np.full(X.shape[1], high)), []
    for seed in range(arguments.runs):
        model = KMeans(k, epsilon=arguments.epsilon, bounds=bounds, random_state=seed).fit(np.clip(X, low, high))
        centers = model.cluster_centers_
        squares = (centers**2).sum(axis=1) - 2 * X @ centers.T
        found.append(float(squares.min(axis=1).sum() + (X**2).sum()) / least)
    print(f"inertia / that of k-means: {np.mean(found):.3f} +- {np.std(found):.3f}")


if __name__ == "__main__":
    main()
