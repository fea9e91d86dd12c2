"""Differential privacy: accounting, noise, and the ledger of what is spent."""
