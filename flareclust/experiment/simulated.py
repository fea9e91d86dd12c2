"""Settings of simulated federations only: the engine devices, cohorts and dropouts."""

from flareclust.protocol.algorithm import Algorithm

#: The engines with sites that are drawn for a round, or drop out of it.
SAMPLING_ENGINES = ("inprocess", "devices")


def simulation_problem(algorithm: Algorithm, engine: str, *, secure_sums: bool, policy: bool, some: bool) -> str | None:
    """Return why such settings do not go together, in words; None where they do.

    Args:
        algorithm: whose sites they are.
        engine: where they are simulated.
        secure_sums: whether they mask their sums.
        policy: whether they have a policy.
        some: whether rounds have some of the sites only.
    """
    private = "differentially-private" in algorithm.promises
    if engine == "devices" and (private or policy or secure_sums):
        return (
            "the engine devices has sites without policies, whose sums are not masked; use the engine inprocess, or leave out "
            "policy and secure_sums"
        )
    if engine == "devices" and algorithm.partial:
        return f"{algorithm.name} is for sites with different columns: use the engine inprocess, not devices"
    if some and engine not in SAMPLING_ENGINES:
        return f"cohort and dropout are for the engines {' and '.join(SAMPLING_ENGINES)}, not {engine}"
    if some and (private or algorithm.partial or secure_sums or not algorithm.federated):
        masked = " with secure_sums" if secure_sums else ""
        return f"{algorithm.name}{masked} needs the same sites in all rounds; leave out cohort and dropout"
    return None
