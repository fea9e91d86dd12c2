"""What the sites of a federation tell its lead of their policies: in their answers to NVFlare's question about versions."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from flareclust.platform.job_monitor import Server
from flareclust.platform.peers import RULES
from flareclust.platform.session import server_status
from flareclust.sites.policy_file import SHARED

#: More than any number of a policy.
_MOST = 1e9


def federation_rules(kit: Path) -> dict[str, dict[str, float | bool] | None]:
    """Ask the connected sites, by the kit of a lead or an admin; return by site what its policy says, None where it does not say.

    Of what a site answers only numbers and truth values under known names are kept.

    Raises:
        UserError: the folder is no such kit, or the server does not permit the questions.
        JobFailed: the server does not answer; another try may help.
    """
    with closing(Server(kit)) as server:
        said = server.call_with_retry(server_status)
        sites = sorted(str(client["client_name"]) for client in said.get("clients", []))
        answers: Mapping[str, Any] = server.call_with_retry(lambda session: session.report_version("all"))
    return {site: _rules_in(answers.get(site)) for site in sites}


def _rules_in(answer: object) -> dict[str, float | bool] | None:
    """Return the rules in a site's answer, which may be anything; None where there are none.

    Settings that a later version adds are left out.
    """
    said = answer.get(RULES) if isinstance(answer, Mapping) else None
    if not isinstance(said, Mapping):
        return None
    found = {name: said[name] for name in SHARED if isinstance(said.get(name), bool | int | float)}
    return {name: value for name, value in found.items() if isinstance(value, bool) or 0 <= value <= _MOST} or None
