"""Garst and Reinders, "Federated K-Means Clustering" (2024), again."""

from benchmarks.papers import fkm_grid, fkm_noise, fkm_writers
from benchmarks.papers.base import Entry

ENTRIES = (
    Entry("fkm-figure1b", ("fkm-figure1",), "methods on the grid, split by location", fkm_grid.figure1b),
    Entry("fkm-figure3", ("fkm-figure6",), "more noise, and round by round", fkm_noise.figure3),
    Entry("fkm-figure4", (), "sites with very different numbers of clusters", fkm_grid.figure4),
    Entry("fkm-figure5", (), "the digits of ten writers", fkm_writers.figure5),
)
