"""What a site's NVFlare workspace needs before it runs our jobs: permission for our classes."""

import json
from pathlib import Path
from typing import Any

from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST

#: The dot at the end makes it a package prefix; without it NVFlare refuses the whole list.
PREFIX = "flareclust."


def allow_classes(local: Path) -> Path:
    """Add `flareclust.` to the list of classes that jobs may load at the site with the folder `local`; return the file.

    NVFlare reads `resources.json` and, only where that is absent, `resources.json.default`.
    """
    local.mkdir(parents=True, exist_ok=True)
    own = local / "resources.json"
    path = own if own.exists() else local / "resources.json.default"
    resources: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"format_version": 2}
    allowed = resources.setdefault("class_allow_list", list(DEFAULT_CLASS_ALLOW_LIST))
    if PREFIX not in allowed:
        allowed.append(PREFIX)
    path.write_text(json.dumps(resources, indent=2) + "\n")
    return path
