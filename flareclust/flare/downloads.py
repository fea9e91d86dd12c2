"""What a user's session fetches stays in the folder for it, whatever names the server gives.

In NVFlare's answers to a download the server names the files, the transfer and, if it likes, the folder with the result. NVFlare
makes paths of these names as they are. So a session checks them before it makes a folder, moves a file or a folder, or removes
what it has of a transfer that failed.
"""

import re
import shutil
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from nvflare.fuel.flare_api.flare_api import Session
from nvflare.fuel.hci.client.file_transfer import FileTransferModule

#: Transfers have names of this form.
_TRANSFER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

#: Where the arguments of NVFlare's command `pull_binary_file` have the file's name.
_FILE = 5


class PathOutside(ValueError):
    """A server named a file or a transfer that would lie outside of the folder for downloads."""


def install() -> None:
    """Check the names of all downloads of this process from now on; may be called again."""
    if getattr(FileTransferModule, "_tx_path", None) is _transfer_folder:
        return
    pull, download = FileTransferModule.pull_binary_file, Session.download_job_result

    def pull_binary_file(module: FileTransferModule, args: list[str], ctx: Any) -> Any:
        if len(args) > _FILE and not is_inside(args[_FILE]):
            raise PathOutside(f"the server named a file outside of the download: {ascii(args[_FILE])[:80]}")
        return pull(module, args, ctx)

    def download_job_result(session: Session, job_id: str, destination: str | None = None) -> str:
        location = Path(download(session, job_id))  # without a destination NVFlare moves nothing
        if not _is_result(location, session.download_dir, job_id):
            raise PathOutside(f"the server named a folder that is no result of the job: {ascii(str(location))[:80]}")
        if destination is None:
            return str(location)
        Path(destination).mkdir(parents=True, exist_ok=True)
        return str(shutil.move(location, Path(destination).absolute() / location.name))

    FileTransferModule.pull_binary_file = pull_binary_file
    Session.download_job_result = download_job_result
    FileTransferModule._tx_path = _transfer_folder


def is_inside(name: str) -> bool:
    """Return whether a file of this name lies in the folder that it is put into."""
    paths = PurePosixPath(name), PureWindowsPath(name)
    return bool(name) and not any(path.is_absolute() or path.drive or ".." in path.parts for path in paths)


def _is_result(location: Path, downloads: str, job_id: str) -> bool:
    """Return whether a folder is what NVFlare makes of the result of this job in the folder for downloads."""
    name = re.fullmatch(rf"{re.escape(job_id)}(__\d+)?", location.name)
    return name is not None and not location.is_symlink() and location.parent.resolve() == Path(downloads).resolve()


def _transfer_folder(module: FileTransferModule, tx_id: str, folder_name: str) -> str:
    """Return the folder of a transfer, as NVFlare names it."""
    if not isinstance(tx_id, str) or not _TRANSFER.fullmatch(tx_id) or not is_inside(folder_name):
        raise PathOutside(f"the server named a transfer in an unknown form: {ascii(tx_id)[:80]}")
    return f"{module.download_dir}/{folder_name}__{tx_id}"
