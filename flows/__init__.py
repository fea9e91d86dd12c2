"""Prefect flows: partition, submit, evaluate, log."""
