"""The kits of a POC: provisioned with NVFlare, each site with its own rows in its own kit."""

import logging
import shutil
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from sys import stderr
from typing import Any

import numpy as np
import yaml

from flareclust._foundation.errors import UserError
from flareclust._foundation.own_files import create
from flareclust._foundation.settings_file import read_mapping_file
from flareclust.data.tables import Rows, Table
from flareclust.platform.poc.state import ADMIN, KITS, LEAD, PROJECT, SERVER
from flareclust.sites.class_list import installed_plugins
from flareclust.sites.config import ACCOUNT_IN_KIT, CONFIG_FILE

_log = logging.getLogger(__name__)

_DATA, _SCHEMA = "data", "schema.yaml"


def provision(folder: Path, sites: Sequence[str], port: int) -> Path:
    """Make kits for a server, the sites, a lead and an admin; return the folder that holds them.

    Raises:
        UserError: NVFlare refuses, in its words.
    """
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.prov_utils import prepare_builders
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner

    described = _project(sites, port)
    with redirect_stdout(stderr):
        try:
            provisioner = Provisioner(str(folder), prepare_builders(described))
            context = provisioner.provision(prepare_project(described), logger=_log)
        except ValueError as error:
            raise UserError(f"NVFlare does not provision this federation: {error}") from None
    if context.get(CtxKey.BUILD_ERROR):
        raise UserError(f"NVFlare does not provision this federation: {'; '.join(context.get_errors())}")
    return folder / KITS


def _project(sites: Sequence[str], port: int) -> dict[str, Any]:
    builders = {
        "nvflare.lighter.impl.workspace.WorkspaceBuilder": {},
        "nvflare.lighter.impl.static_file.StaticFileBuilder": {"config_folder": "config"},
        # One machine, one owner, and small data to try things: no policy, and every algorithm that is installed.
        "flareclust.provision.SiteDefaults": {"policy": False, "plugins": installed_plugins()},
        "nvflare.lighter.impl.cert.CertBuilder": {},
        "nvflare.lighter.impl.signature.SignatureBuilder": {},
    }
    return {
        "api_version": 3,
        "name": PROJECT,
        "description": "a federation on one machine",
        "participants": [
            {"name": SERVER, "type": "server", "org": "poc", "fed_learn_port": port},
            *({"name": site, "type": "client", "org": "poc"} for site in sites),
            {"name": LEAD, "type": "admin", "org": "poc", "role": "lead"},
            {"name": ADMIN, "type": "admin", "org": "poc", "role": "project_admin"},
        ],
        "builders": [{"path": path, "args": args} for path, args in builders.items()],
    }


def place(kit: Path, rows: Rows, numbers: Sequence[int] | None) -> int | None:
    """Put a site's rows into its kit, with the file that names them; return how many, None for a file of the site's own.

    Args:
        kit: the site's.
        rows: with named columns, or the site's own file or folder of images, which is copied.
        numbers: which row of the data set each one is; becomes the id column.
    """
    folder = kit / _DATA
    folder.mkdir(mode=0o700)
    if isinstance(rows, Path):
        file = folder / ("rows.images" if rows.is_dir() else f"rows{rows.suffix}")
        (shutil.copytree if rows.is_dir() else shutil.copyfile)(rows, file)
        _say(kit, {"path": f"../{_DATA}/{file.name}"})
        return None
    assert isinstance(rows, Table)
    assert rows.columns is not None
    X, columns = rows.X, rows.columns
    config: dict[str, object] = {"path": f"../{_DATA}/rows.npz", "columns": list(columns)}
    if numbers is not None:
        identity = "data_row"
        while identity in columns:
            identity += "_"
        X, columns = np.column_stack([numbers, X]), (identity, *columns)
        config["id"] = identity
    np.savez(folder / "rows.npz", allow_pickle=False, X=X, columns=np.array(columns), **rows.outcome_arrays)
    _say(kit, config)
    return len(rows)


def place_typed(kit: Path, table: Path, mapping: Path | None, schema: Path) -> None:
    """Put a copy of a site's own table into its kit, with the schema and the mapping by which the site reads it."""
    folder = kit / _DATA
    folder.mkdir(mode=0o700)
    shutil.copyfile(table, folder / f"rows{table.suffix}")
    shutil.copyfile(schema, folder / _SCHEMA)
    config = {"path": f"../{_DATA}/rows{table.suffix}", "schema": f"../{_DATA}/{_SCHEMA}"}
    _say(kit, config if mapping is None else {**config, "mapping": read_mapping_file(mapping)})


def file_of(kit: Path) -> Path:
    """Return the file with a site's rows."""
    return next((kit / _DATA).glob("rows.*"))


def _say(kit: Path, config: Mapping[str, object]) -> None:
    text = yaml.safe_dump({**config, "account": ACCOUNT_IN_KIT}, sort_keys=False, allow_unicode=True)
    with create(kit / "local" / CONFIG_FILE) as file:  # for its owner only, as site init writes it
        file.write(text)
