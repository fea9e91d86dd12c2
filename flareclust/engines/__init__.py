"""Ways to run a federation: every engine drives the same executor and aggregator objects."""
