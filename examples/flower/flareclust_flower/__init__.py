"""A Flower app that clusters with flareclust: Flower carries the messages, flareclust computes them."""
