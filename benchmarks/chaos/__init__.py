"""Faults at random moments of random jobs in a provisioned federation; each result is compared with one that a process finds alone."""
