"""The table of twenty splits in docs/partial-features.md: accuracies of algorithms for different columns, mean and deviation."""

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer

import flareclust
from flareclust.evaluation import metrics

cells, benign = load_breast_cancer(as_frame=True, return_X_y=True)
mean, error, worst = (list(cells.columns[first : first + 10]) for first in (0, 10, 20))
columns = {"north": mean + error, "south": mean[:8] + worst[:9], "screening": mean[:5]}
scaled = (cells - cells.mean()) / cells.std(ddof=0)
found = {}


def add(name, labels, truth):
    """Keep the accuracy over all sites, and of each."""
    whole = metrics.accuracy(np.concatenate([labels[s] for s in columns]), np.concatenate([truth[s] for s in columns]))
    found.setdefault(name, []).append([whole, *(metrics.accuracy(labels[s], truth[s]) for s in columns)])


for split in range(20):
    order = cells.sample(frac=1, random_state=split).index
    rows = dict(zip(columns, (order[:200], order[200:400], order[400:529]), strict=True))
    truth = {site: benign[own].to_numpy() for site, own in rows.items()}
    sites = {site: cells.loc[own, columns[site]] for site, own in rows.items()}
    alike = {site: scaled.loc[own] for site, own in rows.items()}
    for name in ("masked", "proxy", "fkm-common", "fkm-imputed", "kpod"):
        add(name, flareclust.run(name, data=sites, k=2, scale="standard").site_labels, truth)
    add("central", flareclust.run("central", data=alike, k=2).site_labels, truth)
    own = {s: (t - t.mean()) / t.std(ddof=0) for s, t in sites.items()}
    add("alone", {s: KMeans(2, n_init=10, random_state=0).fit_predict(t) for s, t in own.items()}, truth)

for name, shares in found.items():
    pairs = zip(np.mean(shares, axis=0), np.std(shares, axis=0), strict=True)
    print(name, *(f"{middle:.3f} ± {spread:.3f}" for middle, spread in pairs))
