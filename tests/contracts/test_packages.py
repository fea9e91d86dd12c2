"""What a package offers is what its `__init__` lists: nothing else is imported from outside, and all that is listed is.

import-linter's `protected` contracts in pyproject.toml hold the product to it (`make lint`). They follow from the lists:
`python -m tests.contracts.test_packages` writes them anew. Tests and benchmarks import what is offered, too; the unit tests
of a package may also import its own modules.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.paths import ROOT, of_the_whole
from tests.shape import Source, sources

PYPROJECT = ROOT / "pyproject.toml"
FIRST, LAST = (
    "# The modules that no `__init__` lists (tests/contracts/test_packages.py).\n",
    "# End of these modules.\n",
)
#: Packages for users, whose code, jobs and tests name what no package of ours imports.
FOR_USERS = ("flareclust.testing", "flareclust.flows", "flareclust.executors", "flareclust.aggregators")


def packages() -> dict[str, set[str]]:
    """Return by package, also by one in another, what its `__init__` lists."""
    inner = [source for source in sources() if source.path.name == "__init__.py" and source.module != "flareclust"]
    return {source.module: set(_listed(source.tree)) for source in inner}


def _listed(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield from ast.literal_eval(node.value)


def is_offered(module: str, lists: dict[str, set[str]]) -> bool:
    """Whether each package above a module lists the next name on the way to it."""
    parts = module.split(".")
    return all(parts[i] in lists[".".join(parts[:i])] for i in range(2, len(parts)))


def own_modules() -> dict[str, list[str]]:
    """Return by package of flareclust the modules that it does not offer."""
    lists, found = packages(), defaultdict(list)
    for source in sources():
        if source.module.count(".") > 1 and not is_offered(source.module, lists):
            found[".".join(source.module.split(".")[:2])].append(source.module)
    return {package: sorted(modules) for package, modules in sorted(found.items())}


def contracts() -> str:
    """Return the contracts of pyproject.toml."""
    text = FIRST
    for package, modules in own_modules().items():
        names = "".join(f'  "{module}",\n' for module in modules)
        text += (
            f'\n[[tool.importlinter.contracts]]\nname = "what {package.rpartition(".")[2]} keeps to itself"\n'
            f'type = "protected"\nprotected_modules = [\n{names}]\nallowed_importers = ["{package}"]\n'
        )
    return text + LAST


def written() -> tuple[str, str, str]:
    """Return pyproject.toml before the contracts, the contracts, and what follows them."""
    before, _, rest = PYPROJECT.read_text(encoding="utf-8").partition(FIRST)
    middle, _, after = rest.partition(LAST)
    return before, FIRST + middle + LAST, after


def imported(source: Source) -> Iterator[str]:
    """Give the modules that a file imports, or imports names from."""
    modules = {known.module for known in sources()}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            full = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in modules else node.module for name in full)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@of_the_whole
def test_the_contracts_follow_from_the_lists() -> None:
    assert written()[1] == contracts(), "run python -m tests.contracts.test_packages"


def test_what_is_listed_exists() -> None:
    modules = {source.module for source in sources()}
    for package, names in packages().items():
        tree = next(source.tree for source in sources() if source.module == package)
        defined = {
            alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
        }
        defined |= {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
        defined |= {
            ast.unparse(target) for node in tree.body if isinstance(node, ast.Assign) for target in node.targets
        }
        missing = {name for name in names if f"{package}.{name}" not in modules and name not in defined}
        assert not missing - {"__version__", *dir(__import__(package, fromlist=["_"]))}, package


@of_the_whole
def test_each_listed_module_is_imported_from_elsewhere() -> None:
    used = {
        name
        for source in sources()
        for name in imported(source)
        if not name.startswith(f"flareclust.{source.package}.")
    }
    used |= {name for name, path in users() if name.split(".")[1] not in _own_package(path)}
    lists = packages()
    offered = {s.module for s in sources() if s.module.count(".") > 1 and is_offered(s.module, lists)}
    packed = {module for module in offered if module in lists}  # a package is offered for what is in it
    unused = {module for module in offered - packed - used if not module.startswith(FOR_USERS)}
    assert not unused, "nothing outside imports it: take it off the list of its package"


def test_tests_and_benchmarks_import_what_is_offered() -> None:
    lists = packages()
    deep = {
        f"{path}: {name}"
        for name, path in users()
        if not is_offered(name, lists) and name.split(".")[1] not in _own_package(path)
    }
    assert not deep, "\n".join(sorted(deep))


def users() -> Iterator[tuple[str, Path]]:
    """Give the modules in packages that tests, benchmarks and examples import, with the file that does."""
    modules = {source.module for source in sources() if source.module.count(".") > 1}
    for folder in ("tests", "benchmarks", "examples"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            path = file.relative_to(ROOT)
            found = imported(Source(path, path.stem, "", ast.parse(file.read_text(encoding="utf-8"))))
            yield from ((name, path) for name in found if name in modules)


def _own_package(path: Path) -> tuple[str, ...]:
    """Return the packages that the unit tests of a folder are for."""
    folders = {"algorithms": ("executors", "aggregators"), "foundation": ("_foundation",)}
    return folders.get(path.parts[2], (path.parts[2],)) if path.parts[:2] == ("tests", "unit") else ()


def main() -> None:
    """Write the contracts."""
    before, _, after = written()
    PYPROJECT.write_text(before + contracts() + after, encoding="utf-8")


if __name__ == "__main__":
    main()
