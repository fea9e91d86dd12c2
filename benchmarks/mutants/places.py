"""Where the product can be changed by one token, and how."""

import ast
import io
import random
import tokenize
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

#: The folders of the product; flareclust/executors and its like are links to the others.
PRODUCT = ("flareclust", "executors", "aggregators", "flows", "nvflare_jobs")

COMPARISONS = {
    ast.Lt: ("<", ("<=", ">")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
}
Position = tuple[int, int]


@dataclass(frozen=True, order=True)
class Place:
    """A token of a file and what it may become; columns count characters, lines from 1."""

    file: str
    line: int
    column: int
    end: Position
    old: str
    choices: tuple[str, ...]
    names: tuple[str, ...]  # of the classes and functions around it, outermost first


@dataclass(frozen=True)
class Mutant:
    """A place and what stands there instead."""

    place: Place
    new: str

    def __str__(self) -> str:
        return f"{self.place.file}:{self.place.line}:{self.place.column + 1} `{self.place.old}` -> `{self.new or 'nothing'}`"


def draw(root: Path, seed: int, number: int) -> list[Mutant]:
    """Draw places from the product below root, each with the same chance; the same seed and product give the same mutants."""
    places = sorted(
        place for file in sources(root) for place in places_of(file, (root / file).read_text(encoding="utf-8"))
    )
    drawn, rng = random.Random(seed).sample(places, min(number, len(places))), random.Random(seed + 1)
    return [Mutant(place, rng.choice(place.choices)) for place in drawn]


def sources(root: Path) -> list[str]:
    """Return the product's files, relative to root."""
    found = (path for top in PRODUCT for path in (root / top).rglob("*.py"))
    return sorted({path.resolve().relative_to(root.resolve()).as_posix() for path in found})


def changed(source: str, mutants: Sequence[Mutant]) -> str:
    """Return a file's text with all these changes."""
    lines = source.splitlines(keepends=True)
    for mutant in sorted(mutants, key=lambda mutant: mutant.place, reverse=True):
        place = mutant.place
        last, end = place.end
        tail = lines[last - 1][end:]
        head = lines[place.line - 1][: place.column]
        lines[place.line - 1 : last] = [f"{head}{mutant.new}{tail}"]
    return "".join(lines)


def places_of(file: str, source: str) -> list[Place]:
    """Return the places of one file.

    Left out is what no test of behaviour could notice: texts, type hints, `__all__`, decorators (`cache=True`, `frozen=True`),
    `zip(..., strict=True)`, and what runs only for type checkers or as a script.
    """
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    return finder.places


class _Finder(ast.NodeVisitor):
    def __init__(self, file: str, source: str) -> None:
        self.file, self.lines = file, source.splitlines(keepends=True)
        self.tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
        self.starts = [token.start for token in self.tokens]
        self.places: list[Place] = []
        self.names: list[str] = []

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
            old, choices = COMPARISONS[type(operator)]
            self._between(left, right, old, choices)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in (node.left, node.right)):
            if isinstance(node.op, ast.Add):
                self._between(node.left, node.right, "+", ("-",))
            elif isinstance(node.op, ast.Sub):
                self._between(node.left, node.right, "-", ("+",))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.op, ast.Add | ast.Sub):
            old, new = ("+=", "-=") if isinstance(node.op, ast.Add) else ("-=", "+=")
            self._between(node.target, node.value, old, (new,))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.USub | ast.Not):
            token = self.tokens[bisect_left(self.starts, self._start(node))]
            self._add(token.start, token.end, token.string, ("",))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, old, (new,))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool | int | float):
            value = node.value
            if isinstance(value, bool):
                new = str(not value)
            elif isinstance(value, int):
                new = str(value + 1)
            else:
                new = repr(2 * value if 2 * value != value else 1.0)
            start, end = self._start(node), self._end(node)
            self._add(start, end, self.lines[start[0] - 1][start[1] : end[1]], (new,))

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id == "zip":
            for argument in node.args:
                self.visit(argument)
        else:
            self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        test = ast.unparse(node.test)
        if test.endswith("TYPE_CHECKING") or test.startswith("__name__ =="):
            for child in node.orelse:
                self.visit(child)
        else:
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if not any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets):
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._in(node.target, node.value)

    def visit_arg(self, node: ast.arg) -> None:
        pass  # only a type hint

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.names.append(node.name)
        self._in(node.args, *node.body)
        self.names.pop()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.names.append(node.name)
        self._in(*node.bases, *node.keywords, *node.body)
        self.names.pop()

    def _in(self, *nodes: ast.AST | None) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def _between(self, left: ast.expr, right: ast.expr, old: str, choices: tuple[str, ...]) -> None:
        words = old.split()
        start, end = self._end(left), self._start(right)
        inside = self.tokens[bisect_left(self.starts, start) : bisect_left(self.starts, end)]
        for first, token in enumerate(inside):
            found = inside[first : first + len(words)]
            if [part.string for part in found] == words:
                self._add(token.start, found[-1].end, old, choices)
                return

    def _add(self, start: Position, end: Position, old: str, choices: tuple[str, ...]) -> None:
        names = tuple(self.names) or tuple(self._assigned(start[0]))
        self.places.append(Place(self.file, *start, end, old, choices, names))

    def _assigned(self, line: int) -> Iterator[str]:
        """The constant of the module that a line sets, where it is the line's first word."""
        name = self.lines[line - 1].replace(":", " ").split()[0]
        if name.isidentifier():
            yield name

    def _start(self, node: ast.expr) -> Position:
        return node.lineno, self._column(node.lineno, node.col_offset)

    def _end(self, node: ast.expr) -> Position:
        line, column = node.end_lineno, node.end_col_offset
        assert line is not None  # the parser sets both
        assert column is not None
        return line, self._column(line, column)

    def _column(self, line: int, bytes_: int) -> int:
        return len(self.lines[line - 1].encode()[:bytes_].decode())


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
