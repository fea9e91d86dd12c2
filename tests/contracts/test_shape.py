"""The product does not grow back: no figure of its shape is worse than the one recorded (`python -m tests.shape`)."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import shape
from tests.shape import Source


@pytest.fixture(scope="module")
def figures() -> dict[str, int]:
    return shape.figures()


@pytest.mark.parametrize("name", shape.allowed())
def test_no_figure_gets_worse(figures: dict[str, int], name: str) -> None:
    print(f"{name}: {figures[name]:,}, at most {shape.allowed()[name]:,}")
    assert figures[name] <= shape.allowed()[name], "find a simpler way; tests/contracts/shape.json is only ever lowered"


def test_every_figure_has_a_limit(figures: dict[str, int]) -> None:
    assert set(figures) == set(shape.allowed())


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], dict[str, int]]:
    def of(texts: dict[str, str]) -> dict[str, int]:
        made = []
        for path, text in texts.items():
            parts = [part for part in Path(path).with_suffix("").parts if part != "__init__"]
            made.append(Source(Path(path), ".".join(parts), text, ast.parse(text)))
        monkeypatch.setattr(shape, "sources", lambda: tuple(made))
        return shape.counted()

    return of


def test_a_small_product_is_counted(counted: Callable[[dict[str, str]], dict[str, int]]) -> None:
    found = counted(
        {
            "flareclust/__init__.py": '"""Package."""\n',
            "flareclust/low/__init__.py": "",
            "flareclust/low/sums.py": '"""Sums of\nrows."""\n\nONE = 1  # why\n_TWO = 2\n\n\ndef total(min_sites):\n    """Add."""\n    return min_sites\n',
            "flareclust/high/__init__.py": "",
            "flareclust/high/job.py": "from flareclust.low import sums\nfrom flareclust.low.sums import ONE, total\nfrom nvflare.private.defs import X\n",
            "flareclust/high/task.py": "from nvflare.fuel.utils import log\nfrom flareclust.high.job import X as policy\n",
        }
    )
    assert found == {
        "product lines": 16,
        "code lines": 9,
        "public top-level names": 2,
        "packages of flareclust": 2,
        "package pairs": 1,
        "names imported across packages": 3,
        "files that import nvflare": 2,
        "folders that import nvflare": 1,
        "private or fuel modules of nvflare imported outside one file": 1,
        "files that name min_sites": 1,
        "files that name policy": 1,
        "modules below 40 lines": 3,
    }
