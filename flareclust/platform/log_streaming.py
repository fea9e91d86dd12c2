"""A site's error log at the server, where its operator lets it go there; and no other file.

NVFlare's streamer sends whatever file of the job's folder a job names, the labels with their ids among them. So sites' kits name
`SiteLogs` in its place, which puts `LogStreamer` into each job, the one that jobs may name. NVFlare's receiver makes a path of
the names that come with a log. So a server's kit names `LogReceiver`.
"""

import json
import re
from pathlib import Path

from nvflare.apis.fl_constant import FLContextKey, JobConstants, WorkspaceConstants
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.streaming import StreamContext
from nvflare.apis.workspace import Workspace
from nvflare.app_common.logging.job_log_receiver import JobLogReceiver
from nvflare.app_common.logging.job_log_streamer import JobLogStreamer
from nvflare.app_common.logging.site_log_streamer import SiteLogStreamer
from nvflare.app_common.streamers.log_streamer import KEY_FILE_NAME

from flareclust._foundation.published import published
from flareclust.platform._private import KEY_RECV_FILE, KEY_RECV_PATH
from flareclust.platform.peers import job_problem

#: What NVFlare's component puts into a job.
_ID, _NVFLARE = "auto_log_streamer", f"{JobLogStreamer.__module__}.{JobLogStreamer.__name__}"

#: The logs that leave a site: `log.txt` names columns that masks and noise hide.
_LOGS = frozenset({WorkspaceConstants.ERROR_LOG_FILE_NAME})

#: Under it a stream's context says whose it is; its sender cannot name this object.
_KEPT_BY = "flareclust.kept_by"

#: Sites have names of this form.
_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@published
class LogStreamer(JobLogStreamer):
    """NVFlare's streamer of a job's log, held to the error log."""

    def __init__(
        self,
        log_file_name: str = WorkspaceConstants.ERROR_LOG_FILE_NAME,
        liveness_interval: float = 10.0,
        poll_interval: float = 0.5,
        target_parent_server: bool = False,
    ) -> None:
        if log_file_name not in _LOGS:
            raise ValueError(f"expected {' or '.join(sorted(_LOGS))} as log_file_name")
        super().__init__(log_file_name, liveness_interval, poll_interval, target_parent_server)


class SiteLogs(SiteLogStreamer):
    """NVFlare's component of a site that gives each job a streamer; it gives ours."""

    def _on_before_job_launch(self, event_type: str, fl_ctx: FLContext) -> None:
        super()._on_before_job_launch(event_type, fl_ctx)
        job = (fl_ctx.get_prop(FLContextKey.JOB_META) or {}).get(JobMetaKey.JOB_ID.value)
        root, site = fl_ctx.get_prop(FLContextKey.WORKSPACE_ROOT), fl_ctx.get_identity_name()
        if not job or not root or not site:
            return
        file = Path(Workspace(root, site).get_app_config_dir(job)) / JobConstants.CLIENT_JOB_CONFIG
        config = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        given = [one for one in config.get("components") or () if one.get("id") == _ID and one.get("path") == _NVFLARE]
        for one in given:
            one["path"] = f"{LogStreamer.__module__}.{LogStreamer.__name__}"
        if given:
            self._atomic_write_json(str(file), config)


class LogReceiver(JobLogReceiver):
    """NVFlare's receiver of logs at the server, for the error log of a site's job; it opens and moves no other file."""

    def _effective_dest_dir(self) -> str:
        """Return where a log is until its stream ends: in the server's workspace, not in a folder that accounts share."""
        return self._dest_dir or str(Path.cwd() / "site-logs")

    def _on_chunk_received(self, data: bytes, stream_ctx: StreamContext, fl_ctx: FLContext) -> None:
        self._check(stream_ctx, fl_ctx)
        Path(self._effective_dest_dir()).mkdir(mode=0o700, parents=True, exist_ok=True)
        super()._on_chunk_received(data, stream_ctx, fl_ctx)

    def _on_stream_done(self, stream_ctx: StreamContext, fl_ctx: FLContext) -> None:
        self._check(stream_ctx, fl_ctx)
        super()._on_stream_done(stream_ctx, fl_ctx)

    def _check(self, stream_ctx: StreamContext, fl_ctx: FLContext) -> None:
        """Refuse a log whose names are none; take out what its sender put where this receiver keeps what it has opened."""
        if stream_ctx.get(_KEPT_BY) is not self:
            for key in (KEY_RECV_FILE, KEY_RECV_PATH):
                stream_ctx.pop(key, None)
            stream_ctx[_KEPT_BY] = self
        site, job = self._get_trusted_stream_identity(fl_ctx)
        name = stream_ctx.get(KEY_FILE_NAME)
        problem = None if _SITE.fullmatch(site) else f"is of {ascii(site)[:80]}, which is not the name of a site"
        problem = problem or job_problem(job) or (None if name in _LOGS else f"has the name {ascii(name)[:80]}")
        if problem is not None:
            raise ValueError(f"a log that was sent to the server is refused: it {problem}")
