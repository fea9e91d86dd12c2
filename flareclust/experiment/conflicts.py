"""Which settings of an experiment do not go together, found before anything starts."""

from flareclust.data.partition_specs import parse
from flareclust.evaluation.criteria import USUAL
from flareclust.experiment.fields import ExperimentFields
from flareclust.experiment.simulated import simulation_problem
from flareclust.privacy.policy import DP
from flareclust.protocol import registry


def conflict(asked: ExperimentFields) -> str | None:
    """Return the first conflict between the settings, and what to do about it; None where there is none."""
    for find in (
        _of_yardsticks,
        _of_privacy,
        _of_simulation,
        _of_profiles,
        _of_columns,
        _of_ranges,
        _of_rules,
        _of_tables,
    ):
        if problem := find(asked):
            return problem
    return None


def _of_yardsticks(asked: ExperimentFields) -> str | None:
    if registry.get(asked.algorithm).federated:
        return None
    if asked.engine != "inprocess":
        return f"{asked.algorithm} is not federated: use the engine inprocess, not {asked.engine}"
    if asked.policy or asked.secure_sums:
        return f"{asked.algorithm} is not federated: there are no sites with a policy or with sums"
    if asked.k_range is not None:
        return f"{asked.algorithm} is not federated and takes one k, not a range"
    return None


def _of_privacy(asked: ExperimentFields) -> str | None:
    if "differentially-private" not in registry.get(asked.algorithm).promises:
        return None
    if asked.k_range is not None:
        return f"{asked.algorithm} takes one k, not a range: what chooses is not differentially private"
    if asked.engine in ("inprocess", "simulator") and not (asked.policy and asked.policy.get(DP)):
        return (
            f"{asked.algorithm} needs what sites state: bounds of the columns and a budget under {DP} in a policy "
            "(--policy FILE, or policy=); docs/differential-privacy.md has an example"
        )
    return None


def _of_simulation(asked: ExperimentFields) -> str | None:
    return simulation_problem(
        registry.get(asked.algorithm),
        asked.engine,
        secure_sums=asked.secure_sums,
        policy=bool(asked.policy),
        some=asked.samples,
    )


def _of_profiles(asked: ExperimentFields) -> str | None:
    if not asked.profile:
        return None
    problem = registry.get(asked.algorithm).why_no_profile(asked.params, secure_sums=asked.secure_sums)
    return f"{problem}; leave out profile (--profile)" if problem else None


def _of_columns(asked: ExperimentFields) -> str | None:
    algorithm = registry.get(asked.algorithm)
    if asked.k_range is not None and algorithm.partial:
        advice = "; proxy chooses one up to k with choose_k=true" if algorithm.name == "proxy" else ""
        return f"{asked.algorithm} takes one k, not a range: what chooses needs the same columns at every site{advice}"
    if parse(asked.partition).splits_columns and algorithm.federated and not algorithm.partial:
        able = ", ".join(name for name, one in registry.algorithms().items() if one.partial)
        return (
            f"{asked.algorithm} needs the same columns at every site, and partition {asked.partition} assigns out columns as "
            f"well; algorithms for different columns are {able}"
        )
    return None


def _of_ranges(asked: ExperimentFields) -> str | None:
    if asked.k_range is None:
        return None
    if "k_min" in asked.params:
        return "a range of k says k_min already; leave out one of them"
    if {"criterion", "choose_by"} & asked.params.keys():
        return "with a range of k the criterion is an option of its own: --criterion, or criterion="
    return None


def _of_rules(asked: ExperimentFields) -> str | None:
    ignored = asked.k_range is None and asked.criterion != USUAL and "criterion" not in asked.params
    if not ignored or "k_min" not in asked.params:
        return None
    return (
        f"--criterion is for a range of k, such as --k {asked.params['k_min']}..{asked.k}; with k_min give --set "
        f"criterion={asked.criterion}"
    )


def _of_tables(asked: ExperimentFields) -> str | None:
    if not asked.typed:
        return None
    if asked.table_schema is not None and (asked.id_column or asked.columns):
        return "the schema says which columns are features and which are ids; leave out columns and id_column"
    if asked.columns is not None:
        return "columns cannot be chosen beside id_column and truth; a schema says what each column is"
    if asked.engine == "devices":
        return "the engine devices takes rows of numbers; leave out table_schema, id_column and truth"
    if asked.engine == "poc" and (asked.id_column or asked.truth):
        return "the sites of a POC read their rows themselves; leave out id_column and truth"
    return None
