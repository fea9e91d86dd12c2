"""Prefect flows: partition, submit, evaluate, log."""

__all__ = ["configured", "experiment", "nightly", "personalise", "runners", "run", "server", "steps", "study", "sweep"]
