"""Policies and terms of differential privacy that several test files use."""

PRIVATE = ["dp-lloyd", "dp-oneshot", "dp-gmm"]


def policy(bounds: object = (-20.0, 20.0), epsilon: float = 1.0, delta: float = 1e-5, budget: float = 1.0) -> dict:
    return {"differential_privacy": {"bounds": bounds, "epsilon": epsilon, "delta": delta, "budget": budget}}
