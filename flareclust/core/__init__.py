"""Numerical pieces without NVFlare: they take arrays and generators and return arrays."""
