"""No module imports itself by way of others, also not inside functions; imports for type checkers alone do not count."""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.paths import ROOT

PACKAGES = {"flareclust": "flareclust"} | {
    f"flareclust.{name}": name for name in ("executors", "aggregators", "flows", "nvflare_jobs")
}


def modules() -> dict[str, str]:
    """Return the text of each module by its import path; the links from flareclust/ to the other folders are not followed."""
    found = {}
    for package, folder in PACKAGES.items():
        for file in (ROOT / folder).rglob("*.py"):
            parts = file.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join([package, *parts])] = file.read_text(encoding="utf-8")
    return found


def imported(text: str) -> Iterator[str]:
    """Give the full names that a module imports anywhere: of modules, and of what is in them."""
    left = [ast.parse(text)]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "a relative import, which the layers exclude"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        for_checkers = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        left.extend(node.orelse if for_checkers else ast.iter_child_nodes(node))


def ring(texts: Mapping[str, str]) -> list[str]:
    """Return the modules of a ring in the order of their imports, the first one again at the end; empty if there is none."""
    graph: dict[str, set[str]] = {}
    for module, text in texts.items():
        for name in imported(text):
            paths = (name, f"{name}.__init__", name.rpartition(".")[0], f"{name.rpartition('.')[0]}.__init__")
            graph.setdefault(module, set()).update([path for path in paths if path in texts][:1])
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_there_is_no_ring():
    texts = modules()
    assert {"flareclust.__init__", "flareclust.api", "flareclust.federation.executor", "flareclust.flows.demo"} <= set(
        texts
    )
    assert ring(texts) == []


@pytest.mark.parametrize(
    "back",
    [
        "from p.a import name",
        "from p import a",
        "import p.a",
        "def later():\n    from p.a import name",
        "class C:\n    def later(self):\n        if self:\n            import p.a",
    ],
)
def test_a_ring_is_found(back):
    texts = {"p.__init__": "", "p.a": "from p.b import name", "p.b": "import p.c", "p.c": back, "p.d": "import p.a"}
    found = ring(texts)
    assert found[0] == found[-1]
    assert set(found) == {"p.a", "p.b", "p.c"}
    assert ring(texts | {"p.c": "import ast"}) == []


def test_imports_for_type_checkers_make_no_ring():
    text = "if TYPE_CHECKING:\n    import p.a\nelse:\n    import p.c\n"
    assert ring({"p.a": "import p.b", "p.b": text, "p.c": ""}) == []
    assert ring({"p.a": "import p.b", "p.b": text, "p.c": "import p.b"}) != []
