"""NVFlare's provisioning with our defaults: kits that run flareclust's jobs as they come.

In the project file, after StaticFileBuilder, which makes what is changed here, and before CertBuilder and SignatureBuilder:

    builders:
      ...
      - path: nvflare.lighter.impl.static_file.StaticFileBuilder
      - path: flareclust.provision.SiteDefaults
      - path: nvflare.lighter.impl.cert.CertBuilder
      - path: nvflare.lighter.impl.signature.SignatureBuilder
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nvflare.lighter.constants import ConnSecurity, PropKey, ProvFileName
from nvflare.lighter.ctx import ProvisionContext
from nvflare.lighter.entity import Project
from nvflare.lighter.spec import Builder

from flareclust.platform.kit import Settings, prepare_site
from flareclust.privacy.policy import Policy
from flareclust.sites.policy_file import write_policy
from flareclust.sites.running import guard_scripts


class SiteDefaults(Builder):
    """Allows flareclust's classes at the server and all sites, and sets what makes its jobs end well. Messages hold no files.

    Relays get connections with certificates on both sides, unless the project file says another `connection_security`.

    Args:
        heart_beat_timeout: seconds without a sign of life after which the server counts a site as gone.
        outcome_wait: seconds that a job whose work is done waits for sites that vanished.
        allow_log_streaming: whether sites send their error texts to the server. A participant's own property of this
            name in the project file goes first.
        byoc: whether jobs may bring code of their own, as NVFlare's kits allow leads to; with it the list of allowed
            classes keeps nobody out who may submit jobs.
        policy: what sites let out, whatever a job asks: true for the recommended policy, false for none, or a mapping of
            settings as `flareclust site policy` takes them. It is the site's own, who may change it in `local/privacy.json`.
        nvflare_classes: whether jobs may also name the classes of NVFlare's own list, for federations with other jobs.
        plugins: algorithms of other packages, installed here and at the sites, whose classes jobs may name.
    """

    def __init__(
        self,
        heart_beat_timeout: float = 60,
        outcome_wait: float = 20.0,
        allow_log_streaming: bool = False,
        byoc: bool = False,
        policy: bool | Mapping[str, Any] = True,
        nvflare_classes: bool = False,
        plugins: Sequence[str] = (),
    ) -> None:
        for name, value in (("heart_beat_timeout", heart_beat_timeout), ("outcome_wait", outcome_wait)):
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise ValueError(f"SiteDefaults: expected a number of seconds above 0 as {name}, got {value!r}")
        flags = {"allow_log_streaming": allow_log_streaming, "byoc": byoc, "nvflare_classes": nvflare_classes}
        for name, value in flags.items():
            if value not in (True, False):
                raise ValueError(f"SiteDefaults: expected true or false as {name}, got {value!r}")
        if policy not in (True, False) and not isinstance(policy, Mapping):
            raise ValueError(f"SiteDefaults: expected true, false or settings as policy, got {policy!r}")
        self.policy = Policy.of(policy if isinstance(policy, Mapping) else {}) if policy is not False else None
        if isinstance(plugins, str) or not all(isinstance(name, str) for name in plugins):
            raise ValueError(f"SiteDefaults: expected a list of names as plugins, got {plugins!r}")
        code = None if byoc else False
        self.settings = Settings(
            heart_beat_timeout, outcome_wait, allow_log_streaming, code, nvflare_classes, tuple(plugins)
        )

    def initialize(self, project: Project, ctx: ProvisionContext) -> None:
        """Have relays encrypt their connections; NVFlare's default for what sites send to a relay is plain text."""
        mutual, server = {PropKey.CONN_SECURITY: ConnSecurity.MTLS}, project.get_server()
        for relay in project.get_relays():
            listening, parent = relay.get_prop(PropKey.LISTENING_HOST), relay.get_prop(PropKey.CONNECT_TO) or {}
            if isinstance(listening, dict):
                relay.set_prop(PropKey.LISTENING_HOST, mutual | listening)
            to_server = isinstance(parent, dict) and parent.get(PropKey.NAME) in (None, server.name)
            if to_server and not server.get_prop_fb(PropKey.CONN_SECURITY):
                relay.set_prop(PropKey.CONNECT_TO, mutual | parent)

    def build(self, project: Project, ctx: ProvisionContext) -> None:
        """Change the kits while they are made."""
        for participant in [*project.get_relays(), *project.get_admins()]:
            guard_scripts(Path(ctx.get_ws_dir(participant)))
        for participant in [project.get_server(), *project.get_clients()]:
            local = Path(ctx.get_local_dir(participant))
            if not (local / ProvFileName.RESOURCES_JSON_DEFAULT).exists():
                raise ValueError("builders: SiteDefaults must come after StaticFileBuilder")
            if (local / ProvFileName.SIGNATURE_JSON).exists():
                raise ValueError("builders: SiteDefaults must come before SignatureBuilder")
            asked = participant.get_prop_fb(PropKey.ALLOW_LOG_STREAMING)
            if self.policy is not None and participant is not project.get_server():
                write_policy(local, self.policy)
            prepare_site(local, self.settings if asked is None else replace(self.settings, allow_log_streaming=None))
