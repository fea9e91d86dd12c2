"""A site's error log at the server, where its operator lets it go there; and no other file.

NVFlare's streamer sends whatever file of the job's folder a job names, the labels with their ids among them. So kits name
these two in its place: the first puts the second into each job, and the second is the one that jobs may name.
"""

import json
from pathlib import Path
from typing import ClassVar

from nvflare.apis.fl_constant import FLContextKey, JobConstants, WorkspaceConstants
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.workspace import Workspace
from nvflare.app_common.logging.job_log_streamer import JobLogStreamer
from nvflare.app_common.logging.site_log_streamer import SiteLogStreamer

#: What NVFlare's component puts into a job.
_ID, _NVFLARE = "auto_log_streamer", f"{JobLogStreamer.__module__}.{JobLogStreamer.__name__}"


class LogStreamer(JobLogStreamer):
    """NVFlare's streamer of a job's log, held to the error log: `log.txt` names columns that masks and noise hide."""

    _LOGS: ClassVar[frozenset[str]] = frozenset({WorkspaceConstants.ERROR_LOG_FILE_NAME})

    def __init__(
        self,
        log_file_name: str = WorkspaceConstants.ERROR_LOG_FILE_NAME,
        liveness_interval: float = 10.0,
        poll_interval: float = 0.5,
        target_parent_server: bool = False,
    ) -> None:
        if log_file_name not in self._LOGS:
            raise ValueError(f"expected {' or '.join(sorted(self._LOGS))} as log_file_name")
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
        if not file.is_file():
            return
        config = json.loads(file.read_text(encoding="utf-8"))
        given = [one for one in config.get("components") or () if one.get("id") == _ID and one.get("path") == _NVFLARE]
        for one in given:
            one["path"] = f"{LogStreamer.__module__}.{LogStreamer.__name__}"
        if given:
            self._atomic_write_json(str(file), config)
