"""Values of databases and data frames as cells: what one becomes does not depend on those around it."""

from datetime import datetime
from decimal import Decimal

from flareclust.data.arrow_cells import arrow_of


def test_cells_of_every_type_are_what_they_are_alone():
    cells = [1, 2.0, 2.5, True, Decimal("3.0"), Decimal("0.1"), datetime(2024, 1, 31, 23, 59), "x", None, 2**70]
    texts = arrow_of(cells).to_pylist()
    assert texts == ["1", "2", "2.5", "true", "3", "0.1", "2024-01-31", "x", None, str(2**70)]
    for cell in (1, 2.5, "x"):
        assert arrow_of([cell]).to_pylist() == [cell]
    assert arrow_of([1, 2**70]).to_pylist() == [1.0, float(2**70)]
    assert arrow_of([b"\xff", memoryview(b"a")]).to_pylist() == [b"\xff", b"a"]
    assert arrow_of([{"a": 1}, "x"]).to_pylist() == ["\0", "x"]
