"""The engine devices beside other simulators of federated learning, on the same work with the same local function."""
