"""Sites and runs of the portfolio that several test files use."""

import numpy as np

from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol.registry import get


def mixture(seed, n, d=2, k=5):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 6 * np.random.default_rng(99).normal(size=(k, d))[rng.integers(k, size=n)]


def federation(seed=0, m=4, n=120, d=2):
    return {f"site-{i}": mixture(10 * seed + i, n, d) for i in range(m)}


def run(sites, k=5, seed=0, **params):
    return run_inprocess(get("portfolio"), params, sites, JobOptions(k=k, seed=seed))
