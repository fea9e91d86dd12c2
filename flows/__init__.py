"""Prefect flows: partition, submit, evaluate, log."""

__all__ = ["configured", "experiment", "nightly", "personalise", "runners", "server", "steps", "sweep"]
