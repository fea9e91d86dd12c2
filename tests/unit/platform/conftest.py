"""A context of NVFlare, made by hand."""

from unittest.mock import MagicMock

import numpy as np
import pytest
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.workspace import Workspace

from flareclust.sites.config import write_config


@pytest.fixture
def context(tmp_path, sites) -> FLContext:
    """What NVFlare gives an executor at site-1, whose rows are in a file."""
    (tmp_path / "startup").mkdir()
    np.save(tmp_path / "rows.npy", sites["site-1"])
    write_config(tmp_path / "local", str(tmp_path / "rows.npy"))
    engine = MagicMock()
    engine.get_workspace.return_value = Workspace(str(tmp_path), site_name="site-1")
    fl_ctx = FLContext()
    fl_ctx.set_prop(ReservedKey.IDENTITY_NAME, "site-1", private=False, sticky=False)
    fl_ctx.set_prop(ReservedKey.ENGINE, engine, private=True, sticky=False)
    fl_ctx.set_prop(FLContextKey.CURRENT_RUN, "job", private=False, sticky=False)
    (tmp_path / "job").mkdir()
    return fl_ctx
