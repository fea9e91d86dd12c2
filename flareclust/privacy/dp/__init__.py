"""Differential privacy: accounting, noise, and the ledger of what is spent."""

__all__ = ["accounting", "budget", "ledger", "mechanism"]
