"""Cells and contexts of processes that start, for the tests of what they pass on and answer."""

from types import SimpleNamespace

from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.identity import CellIdentityResolver
from nvflare.private.fed.client.client_engine import ClientEngine


class Cell:
    """A cell as far as the guards change it; it keeps its filters."""

    def __init__(self, fqcn="north"):
        self.filters, self._fqcn = [], fqcn
        self.resolver = CellIdentityResolver(fqcn)
        manager = SimpleNamespace(identity_resolver=self.resolver)
        self.core_cell = SimpleNamespace(
            add_incoming_filter=lambda channel, topic, cb: self.filters.append(cb),
            communicator=SimpleNamespace(conn_manager=manager),
        )

    def get_fqcn(self):
        return self._fqcn


def starting(kit, cell, engine=None) -> FLContext:
    """Return what NVFlare gives to components when the process of a site or server starts."""
    fl_ctx = FLContext()
    fl_ctx.set_prop(FLContextKey.ARGS, SimpleNamespace(workspace=str(kit)), private=True, sticky=True)
    if engine is None:
        engine = ClientEngine.__new__(ClientEngine)
        engine.cell = cell
    fl_ctx.set_prop(ReservedKey.ENGINE, engine, private=True, sticky=False)
    fl_ctx.set_prop(FLContextKey.SITE_OBJ, SimpleNamespace(cell=cell), private=True, sticky=False)
    return fl_ctx
