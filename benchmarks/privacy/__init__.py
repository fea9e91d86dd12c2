"""Differentially private k-means on the data that others publish figures on: `compare` runs dp-lloyd, `rivals` has the others."""
