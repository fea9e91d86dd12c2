"""What a user's session fetches stays in the folder for it, whatever names the server gives.

In NVFlare's answers to a download the server names the files and the transfer. NVFlare makes paths of these names as they are.
So a session checks them before it makes a folder, moves a file or removes what it has of a transfer that failed.
"""

import re
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

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
    pull = FileTransferModule.pull_binary_file

    def pull_binary_file(module: FileTransferModule, args: list[str], ctx: Any) -> Any:
        if len(args) > _FILE and not is_inside(args[_FILE]):
            raise PathOutside(f"the server named a file outside of the download: {ascii(args[_FILE])[:80]}")
        return pull(module, args, ctx)

    FileTransferModule.pull_binary_file = pull_binary_file
    FileTransferModule._tx_path = _transfer_folder


def is_inside(name: str) -> bool:
    """Return whether a file of this name lies in the folder that it is put into."""
    paths = PurePosixPath(name), PureWindowsPath(name)
    return bool(name) and not any(path.is_absolute() or path.drive or ".." in path.parts for path in paths)


def _transfer_folder(module: FileTransferModule, tx_id: str, folder_name: str) -> str:
    """Return the folder of a transfer, as NVFlare names it."""
    if not isinstance(tx_id, str) or not _TRANSFER.fullmatch(tx_id) or not is_inside(folder_name):
        raise PathOutside(f"the server named a transfer that is none: {ascii(tx_id)[:80]}")
    return f"{module.download_dir}/{folder_name}__{tx_id}"
