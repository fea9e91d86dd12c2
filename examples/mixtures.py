"""`python mixtures.py`: how many groups of samples three laboratories have by BIC, and how sure the group of each sample is.

The groups are stretched and overlap: glucose and insulin rise together. k-means cuts across them; a Gaussian mixture does not. No
laboratory has all three groups in equal parts, and none shows its samples to the others. The docs page is docs/choosing-k.md.
"""

import numpy as np
import pandas as pd
from sklearn.metrics import adjusted_rand_score

import flareclust

#: By group: means of glucose (mmol/l) and insulin (pmol/l), their deviations, and how far they rise together.
GROUPS = {
    "usual": ((5.0, 60.0), (0.5, 20.0), 0.8),
    "resistant": ((5.8, 160.0), (0.7, 45.0), 0.9),
    "deficient": ((9.0, 40.0), (2.0, 15.0), 0.7),
}
#: Samples of each laboratory, and the shares of the groups there.
LABORATORIES = {"north": (500, (0.7, 0.2, 0.1)), "south": (400, (0.4, 0.5, 0.1)), "west": (300, (0.3, 0.2, 0.5))}


def samples(seed: int = 0) -> dict[str, pd.DataFrame]:
    """Return the samples of each laboratory, with the column `group` that no laboratory would have."""
    rng, tables = np.random.default_rng(seed), {}
    for laboratory, (n, shares) in LABORATORIES.items():
        groups, rows = rng.choice(list(GROUPS), size=n, p=shares), []
        for group in groups:
            mean, deviation, together = GROUPS[group]
            covariance = np.outer(deviation, deviation) * [[1, together], [together, 1]]
            rows.append(rng.multivariate_normal(mean, covariance))
        tables[laboratory] = pd.DataFrame(rows, columns=["glucose", "insulin"]).assign(group=groups)
    return tables


def main() -> None:
    """Choose the number of components, and say what the mixture says of the samples."""
    tables = samples()
    sites = {laboratory: table.drop(columns="group") for laboratory, table in tables.items()}
    result = flareclust.run("gmm", sites, k=6, k_min=1, scale="standard")
    for k, bic in enumerate(result.tried, 1):
        print(f"{k} components: BIC {bic:.0f}{' <- the least' if bic == result.tried.min() else ''}")
    for mean, weight, covariance in zip(result.centroids, result.weights, result.covariances, strict=True):
        deviations = np.sqrt(np.diag(covariance))
        together = covariance[0, 1] / deviations.prod()
        print(
            f"{weight:.0%} of the samples: glucose {mean[0]:.1f} ± {deviations[0]:.1f}, insulin {mean[1]:.0f} ± {deviations[1]:.0f}, correlation {together:.2f}"
        )

    rows, groups = pd.concat(sites.values()), pd.concat(tables.values())["group"]
    placed = result.placements(rows)
    print(
        f"{(placed['probability'] < 0.9).sum()} of {len(rows)} samples are in their component with a probability below 0.9"
    )
    print(
        f"log density of the most unusual sample: {placed['log_density'].min():.1f}, of the median one: {placed['log_density'].median():.1f}"
    )
    k_means = flareclust.run("portfolio", sites, k=3, scale="standard")
    for name, found in (("gmm", result), ("k-means", k_means)):
        print(
            f"agreement of {name} with the groups (adjusted Rand index): {adjusted_rand_score(groups, found.predict(rows)):.2f}"
        )


if __name__ == "__main__":
    main()
