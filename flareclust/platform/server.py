"""What a federation's server loads of ours from its own `local/resources.json`, beside the jobs.

Both stand there by their names, so that they work wherever the kit lies and however the server is started: by the kit's
scripts, in a container, by another supervisor.
"""

import os

from nvflare.apis.fl_component import FLComponent
from nvflare.app_common.storages.filesystem_storage import FilesystemStorage

#: How long a finished job waits for sites that no longer answer, as an environment variable: NVFlare has no file for it.
_OUTCOME_WAIT = "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT"


class WorkspaceStorage(FilesystemStorage):
    """NVFlare's storage, whose relative names are those of the server's own workspace.

    NVFlare starts them at the root of the file system, and a kit cannot name an absolute path before it has its place.
    The server makes the workspace its current folder before it reads its configuration, and so do its jobs' processes.
    Absolute names, such as those that `nvflare deploy prepare` writes, mean what they do for NVFlare.

    Args:
        root_dir: where the names of what is stored begin; None for the workspace, or the root for absolute names.
        uri_root: the part of those names that stands for `root_dir`.
    """

    def __init__(self, root_dir: str | None = None, uri_root: str = os.sep) -> None:
        workspace = os.getcwd()
        super().__init__(root_dir=os.path.join(workspace, root_dir) if root_dir else os.sep, uri_root=uri_root)
        self._base = os.sep if root_dir else workspace

    def _object_path(self, uri: str) -> str:
        return str(super()._object_path(os.path.join(self._base, uri)))


class OutcomeWait(FLComponent):
    """Sets how long the server waits for sites that vanished from a job whose work is done, unless the environment does.

    NVFlare waits 900 seconds, in which the job counts as running.
    """

    def __init__(self, seconds: float = 20.0) -> None:
        super().__init__()
        self.seconds = seconds
        os.environ.setdefault(_OUTCOME_WAIT, str(seconds))
