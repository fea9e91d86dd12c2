"""`python -m benchmarks.mutants`: where it changes the product, that it restores it, and what it counts as dead."""

import ast
import os
import subprocess
import textwrap
from itertools import pairwise

import pytest

from benchmarks.mutants.__main__ import MANY, Campaign
from benchmarks.mutants.near import near
from benchmarks.mutants.places import Mutant, changed, draw, places_of, sources
from benchmarks.mutants.tree import Run, Tree, tracked
from tests.paths import ROOT


def every_change(source):
    """Return a source's texts with each of the changes that are possible."""
    source = textwrap.dedent(source).lstrip("\n")
    found = [changed(source, [Mutant(place, new)]) for place in places_of("a.py", source) for new in place.choices]
    for text in found:
        ast.parse(text)
    return found


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b\n", {"x = a <= b\n", "x = a > b\n"}),
        ("x = a is not b\n", {"x = a is b\n"}),
        ("x = a not  in b\n", {"x = a in b\n"}),
        ("x = a == b != c\n", {"x = a != b != c\n", "x = a == b == c\n"}),
        ("x = a + b\nx -= b\n", {"x = a - b\nx -= b\n", "x = a + b\nx += b\n"}),
        ("x = (a # +\n  + b)\n", {"x = (a # +\n  - b)\n"}),
        ("x = -a\n", {"x = a\n"}),
        ("x = a and b and not c\n", {"x = a or b and not c\n", "x = a and b or not c\n", "x = a and b and  c\n"}),
        ("x = [True, 2, 0.5, 0x10]\n", {f"x = [{v}]\n" for v in ("False, 2, 0.5, 0x10", "True, 3, 0.5, 0x10")}
            | {"x = [True, 2, 1.0, 0x10]\n", "x = [True, 2, 0.5, 17]\n"}),
        ("x = 0.0\n", {"x = 1.0\n"}),
        ("x = 'äöü', 1\n", {"x = 'äöü', 2\n"}),
        ("def f(a: Literal[1] = 2) -> Literal[3]:\n    b: Literal[4] = 5\n",
            {"def f(a: Literal[1] = 3) -> Literal[3]:\n    b: Literal[4] = 5\n",
             "def f(a: Literal[1] = 2) -> Literal[3]:\n    b: Literal[4] = 6\n"}),
    ],
)  # fmt: skip
def test_comparisons_signs_booleans_and_constants_change_one_token(source, expected):
    assert set(every_change(source)) == expected


def test_what_no_behaviour_follows_from_stays():
    assert not every_change('''
        """A text of 3 + 4."""
        from typing import TYPE_CHECKING

        if TYPE_CHECKING:
            import a1 as b1
            x = 1

        __all__ = ["a", *("b",) * 2]

        @kernel(cache=True)
        def f(a: int) -> "Literal[1]":
            text = "a" + f"{1 + 2}"
            return zip(a, a, strict=True)

        if __name__ == "__main__":
            sys.exit(1)
    ''')


def test_several_changes_of_a_file_are_made_at_once():
    source = "x = (1 + 2,\n     3)\n"
    mutants = [Mutant(place, place.choices[0]) for place in places_of("a.py", source)]
    assert changed(source, mutants) == "x = (2 - 3,\n     4)\n"


def test_the_seed_decides_what_is_drawn(tmp_path):
    (tmp_path / "flareclust").mkdir()
    (tmp_path / "executors").mkdir()
    (tmp_path / "flareclust" / "a.py").write_text("x = [1, 2, 3, 4, 5, 6, 7, 8]\n")
    (tmp_path / "executors" / "b.py").write_text("x = 1\n")
    (tmp_path / "flareclust" / "executors").symlink_to("../executors")
    first, again, other = (list(map(str, draw(tmp_path, seed, 5))) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    all_ = list(map(str, draw(tmp_path, 0, 100)))
    assert len(all_) == len(set(all_)) == 9
    assert "executors/b.py:1:5 `1` -> `2`" in all_


def test_all_changes_of_the_product_can_be_parsed():
    files = sources(ROOT)
    assert "flareclust/api.py" in files
    assert "executors/feca.py" in files
    assert not any(file.startswith("flareclust/executors") for file in files)
    for file in files[::40]:
        source = (ROOT / file).read_text(encoding="utf-8")
        for place in places_of(file, source)[::10]:
            for new in place.choices:
                ast.parse(changed(source, [Mutant(place, new)]))


def test_the_tests_of_a_module_are_nearest_to_it():
    (place, *_) = places_of("flareclust/evaluation/agreement.py", "x = 1\n")
    assert near(ROOT, place)[0] == "tests/unit/evaluation/test_agreement.py"


@pytest.fixture
def checkout(tmp_path):
    """A product of three modules, two with kernels, of which one uses the other's; and a compiled kernel of each."""
    root = tmp_path / "checkout"
    files = {
        "flareclust/__init__.py": "",
        "flareclust/a.py": "@kernel()\ndef f(x):\n    return x + 1\n",
        "flareclust/b.py": "from flareclust.a import f\n\n@kernel()\ndef g(x):\n    return f(x)\n",
        "flareclust/c.py": "from flareclust.a import f\n\ndef h(x):\n    return 0 < f(x) < 10\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    cache = root / "flareclust" / "__pycache__"
    cache.mkdir()
    for module in "abc":
        (cache / f"{module}.f-2.py311.nbi").write_text("compiled")
    return root, list(files)


def contents(folder):
    return {
        str(path.relative_to(folder)): (path.read_text(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_copy_is_changed_and_restored_and_kernels_are_compiled_anew_where_the_change_is_inside(checkout, tmp_path):
    root, files = checkout
    tree = Tree(root, files, tmp_path / "copy")
    before = contents(root)
    assert contents(tree.root) == before
    cache = tree.root / "flareclust" / "__pycache__"
    times = set()
    for mutant in draw(tree.root, 0, 100):
        with tree.with_([mutant]):
            path = tree.root / mutant.place.file
            assert path.read_text() == changed(before[mutant.place.file][0], [mutant])
            times.add((path, path.stat().st_mtime_ns // 10**9))
            inside_others = mutant.place.file == "flareclust/a.py"
            assert {file.name[0] for file in cache.iterdir()} == ({"c"} if inside_others else {"a", "b"})
            if inside_others:
                for name in ("b.g-4.py311.nbc", "b.f-2.py311.nbi"):
                    (cache / name).write_text("with the change inside")
        assert contents(tree.root) == before
    assert len(times) == len(draw(tree.root, 0, 100))
    assert contents(root) == before


class Trees:
    """One tree in which tests fail as they are said to."""

    def __init__(self, fails):
        self.fails, self.active, self.runs = fails, (), []

    def with_(self, mutants):
        self.active = tuple(mutants)
        return self

    def __enter__(self):
        pass

    def __exit__(self, *_):
        self.active = ()

    def run(self, *arguments, limit):
        self.runs.append((self.active, arguments))
        left_out = {test for word, test in pairwise(arguments) if word == "--deselect"}
        named = {word for word in arguments if "::" in word} - left_out
        failed = [test for test, kills in self.fails.items() if kills(self.active) and test not in left_out]
        failed = [test for test in failed if not named or test in named]
        return Run(1 if failed else 0, tuple(failed[:1] if "-x" in arguments else failed), 1.0)


def campaign(fails, n=4):
    mutants = [Mutant(place, "2") for place in places_of("flareclust/api.py", f"x = [{', '.join(['1'] * n)}]\n")]
    return Campaign([Trees(fails)], mutants), mutants


def test_what_no_test_near_kills_meets_all_tests_once_and_those_that_fail_again():
    found, mutants = campaign({})
    tree = found.trees[0]
    tree.fails = {"tests/unit/x.py::near": lambda active: active == (mutants[0],)}
    found.try_near()
    assert found.killers == {mutants[0]: "tests/unit/x.py::near"}
    tree.fails = {"tests/docs/x.py::far": lambda active: mutants[2] in active}
    tree.runs.clear()
    found.try_rest()
    assert found.survivors == [mutants[1], mutants[3]]
    assert found.killers[mutants[2]] == "tests/docs/x.py::far"
    assert len([active for active, arguments in tree.runs if "-n" in arguments]) == 1


def test_a_test_that_fails_without_a_mutant_kills_none():
    found, mutants = campaign({"tests/x.py::flaky": lambda active: True})
    found.try_near()
    assert found.survivors == mutants
    found.try_rest()
    assert found.survivors == mutants
    assert found.broken == {"tests/x.py::flaky"}


def test_where_many_fail_the_survivors_are_halved():
    found, mutants = campaign({})
    found.trees[0].fails = {f"tests/x.py::t{i}": lambda active: mutants[1] in active for i in range(MANY + 1)}
    found.try_rest()
    assert found.survivors == [mutants[0], mutants[2], mutants[3]]


@pytest.mark.slow
def test_tests_of_the_copy_run_with_the_change(checkout, tmp_path, request):
    root, _ = checkout
    (root / "flareclust" / "a.py").write_text("def f(x):\n    while x > 5:\n        x -= 1\n    return x\n")
    (root / "flareclust" / "b.py").write_text("x = 7\n")
    (root / "tests").mkdir()
    (root / "benchmarks" / "mutants").mkdir(parents=True)
    for name in ("__init__", "places", "plugin", "server"):
        name = f"benchmarks/mutants/{name}.py"
        (root / name).write_text((ROOT / name).read_text(encoding="utf-8"))
    for module in ("cli/main.py", "testing/__init__.py"):
        (root / "flareclust" / module).parent.mkdir()
        (root / "flareclust" / module).write_text("")
    test = "from flareclust.a import f\n\ndef test_f():\n    assert (f(9), f(5)) == (5, 5)\n"
    (root / "tests" / "test_f.py").write_text(test)
    (root / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\npythonpath = .\nmarkers = slow\n")
    subprocess.run(
        ["git", "init", "--quiet"], cwd=root, check=True, env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    )
    before = contents(root)
    tree = Tree(root, tracked(root), tmp_path / "copy")
    request.addfinalizer(tree.close)
    found = {}
    places = [place for file in sources(tree.root) for place in places_of(file, (tree.root / file).read_text())]
    for mutant in [Mutant(place, place.choices[0]) for place in places]:
        with tree.with_([mutant]):
            run = tree.run("tests/test_f.py", limit=30)
        found[str(mutant).partition(":")[2]] = (run.passed, run.code, run.failed)
    assert tree.run("tests/test_f.py", limit=30).passed
    dead = (False, 1, ("tests/test_f.py::test_f",))
    with tree.with_([Mutant(places[0], places[0].choices[0])]):  # as a run of all tests
        run = tree.run("-n", "2", limit=120)
    assert (run.passed, run.code, run.failed) == dead
    assert found["2:13 `>` -> `>=`"] == found["2:15 `5` -> `6`"] == dead
    assert found["3:11 `-=` -> `+=`"][:2] == (False, None)  # it has no end
    assert found["1:5 `7` -> `8`"][0]
    assert {name: value for name, value in contents(root).items() if ".git" not in name} == {
        name: value for name, value in before.items() if ".git" not in name
    }
