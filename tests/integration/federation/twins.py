"""The same federation in one process, with sites that fall silent in the same rounds."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from flareclust._foundation.typing import Message, never_abort
from flareclust.engines.options import JobOptions
from flareclust.federation import FederationOptions, run_federation
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import Algorithm
from flareclust.protocol.replies import SiteReply
from flareclust.protocol.task import Task
from flareclust.sites.rows import SiteData


def twin(
    algorithm: Algorithm,
    params: Mapping[str, object],
    files: Mapping[str, Path],
    options: JobOptions,
    silent_from: Mapping[str, int],
) -> Outcome:
    """Return what the federation finds if sites do not answer from these rounds on."""
    executor, aggregator = algorithm.build(options.k, options.seed, params)
    tables = {site: SiteData(file).table() for site, file in files.items()}

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        able = [site for site in asked if round_ < silent_from.get(site, round_ + 1)]
        copies = {site: {name: value.copy() for name, value in arrays.items()} for site in able}
        tasks = {site: Task(step, round_, copies[site], site) for site in able}
        return {
            site: SiteReply(executor.answer(task, tables[site], never_abort).arrays) for site, task in tasks.items()
        }

    return run_federation(
        aggregator, ask, list(files), FederationOptions(min_sites=options.min_sites, assess=options.assess)
    )


def lost_in(outcome: Outcome, site: str) -> int:
    """Return the first round in which a site did not take part."""
    rounds = [record for record in outcome.rounds if record["step"] != "assess"]
    missing = [int(str(record["round"])) for record in rounds if site not in record["sites"]]  # type: ignore[operator]
    assert missing, f"{site} took part in all {len(rounds)} rounds"
    return missing[0]
