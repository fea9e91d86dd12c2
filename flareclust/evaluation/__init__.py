"""How good a clustering is, and which number of clusters fits."""
