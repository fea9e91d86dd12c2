"""Which tests are near a place: guessed from their names and texts, so that most mutants die within seconds."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.mutants.places import Place, sources
from benchmarks.mutants.tree import module_of

#: The tests of one module or a few; those of the contracts, the examples and the papers take longer and come last.
UNIT = "tests/unit"
NUMBER = 4  # files
#: What speaks for a test file: its name has the module's, it imports the module, it names what the place is in, its name has
#: that of a module that imports the module, it imports such a module, it lies in the folder of the package.
NAMED, IMPORTED, NAMES, USER_NAMED, USER, FOLDER = 6, 4, 2, 3, 1, 3


@dataclass(frozen=True)
class _Text:
    words: frozenset[str]
    modules: frozenset[str]  # named anywhere, also what is imported from a package

    @staticmethod
    def of(text: str) -> "_Text":
        modules = set(re.findall(r"\bflareclust(?:\.\w+)+", text))
        for package, names in re.findall(r"from (flareclust[\w.]*) import (\([^)]*\)|[^\n]*)", text):
            modules |= {f"{package}.{name}" for name in re.findall(r"\w+", names)}
        return _Text(frozenset(re.findall(r"\w+", text)), frozenset(modules))


def near(root: Path, place: Place) -> list[str]:
    """Return the test files nearest to a place, nearest first."""
    tests, product = _texts(root)
    module, stem, package = module_of(place.file), Path(place.file).stem, Path(place.file).parent.name
    users = {module_of(file) for file, text in product.items() if file != place.file and module in text.modules}
    names = {name for name in place.names if len(name) > 3}
    scores = {}
    for file, text in tests.items():
        score = NAMED * _named(file, stem) + IMPORTED * (module in text.modules) + NAMES * len(names & text.words)
        score += USER_NAMED * any(_named(file, user.rpartition(".")[2]) for user in users)
        score += USER * bool(users & text.modules)
        if score:
            scores[file] = score + FOLDER * (Path(file).parent.name == package)
    return sorted(scores, key=lambda file: (-scores[file], file))[:NUMBER]


def _named(file: str, stem: str) -> bool:
    return bool(re.match(rf"test_{re.escape(stem.strip('_'))}s?(_|\.)", Path(file).name))


@cache
def _texts(root: Path) -> tuple[dict[str, _Text], dict[str, _Text]]:
    """Return test files, each with the `_cases` files that it imports, and the product."""
    texts = {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in (root / UNIT).rglob("*.py")
    }
    cases = {file: text for file, text in texts.items() if file.endswith("_cases.py")}
    tests = {
        file: _Text.of("\n".join([text, *(more for case, more in cases.items() if Path(case).stem in text)]))
        for file, text in texts.items()
        if Path(file).name.startswith("test_")
    }
    return tests, {file: _Text.of((root / file).read_text(encoding="utf-8")) for file in sources(root)}
