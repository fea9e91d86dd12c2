"""What the tests of policies in NVFlare share."""

from nvflare.apis.dxo import from_shareable

from flareclust.executors.pooled import PooledExecutor
from flareclust.protocol.task import REFUSED


def executor():
    return PooledExecutor(5, min_count=1)


def refusal(reply):
    dxo = from_shareable(reply)
    assert dxo.data == {}
    assert set(dxo.meta) == {REFUSED}
    assert set(reply) - {"__headers__"} == {"DXO"}
    return dxo.meta[REFUSED]
