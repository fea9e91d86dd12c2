"""The project file from which NVFlare makes the kits of a federation."""

from collections.abc import Mapping, Sequence

import network

PROJECT = "fct"
SERVER = "server"
LEAD, ADMIN, MEMBER = "lead@hub.org", "admin@hub.org", "member@hub.org"


def project(
    net: network.Network,
    hosts: Sequence[str],
    relays: Mapping[str, Sequence[str]],
    defaults: Mapping[str, object] | None,
) -> dict[str, object]:
    """Return the project's content.

    Args:
        net: where the hosts are.
        hosts: the names of server, relays and sites.
        relays: the sites, by the relay that they connect to.
        defaults: arguments of our provisioning Builder; None to leave it out.
    """
    users = ((LEAD, "lead"), (ADMIN, "project_admin"), (MEMBER, "member"))
    server = {"name": SERVER, "type": "server", "org": "hub", "fed_learn_port": net.port}
    server["default_host"] = net.server_address
    between = [
        {
            "name": relay,
            "type": "relay",
            "org": "hub",
            "listening_host": {"default_host": net.address(relay), "port": net.relay_port(relay)},
        }
        for relay in relays
    ]
    behind = {site: {"connect_to": {"name": relay}} for relay, sites in relays.items() for site in sites}
    names = [host for host in hosts if host != SERVER and host not in relays]
    sites = [{"name": site, "type": "client", "org": site, **behind.get(site, {})} for site in names]
    admins = [{"name": name, "type": "admin", "org": "hub", "role": role} for name, role in users]
    # Most tests are about other things than policies, and their faulty algorithm is not registered at the sites.
    ours = [{"path": "flareclust.provision.SiteDefaults", "args": {"policy": False, **(defaults or {})}}]
    if defaults is None:
        ours = []
    builders = [
        {"path": "nvflare.lighter.impl.workspace.WorkspaceBuilder", "args": {"template_file": ["master_template.yml"]}},
        {"path": "nvflare.lighter.impl.static_file.StaticFileBuilder", "args": {"config_folder": "config"}},
        *ours,
        {"path": "nvflare.lighter.impl.cert.CertBuilder"},
        {"path": "nvflare.lighter.impl.signature.SignatureBuilder"},
    ]
    about = {"api_version": 3, "name": PROJECT, "description": "a federation that meets faults"}
    return {**about, "participants": [server, *between, *sites, *admins], "builders": builders}
