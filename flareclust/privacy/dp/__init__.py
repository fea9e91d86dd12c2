"""Differential privacy: accounting, noise, and the ledger of what is spent."""

__all__ = ["accounting", "assessment", "budget", "ledger", "mechanism", "server", "settings", "site"]
