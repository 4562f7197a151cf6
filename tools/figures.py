"""Figures of the source by the standard library: ``python tools/figures.py [SRC]``, `make figures`.

How large are files and functions, how branched, how many names are private, how often does the
source list operations outside `tether.operations`, or parse a program outside `tether.source`.
tests/meta/test_house.py holds what these figures may be.
"""

from __future__ import annotations

import ast
import functools
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPLEXITY = 12
PARAMETERS = 7
TABLE = 3
"""So many names of operations in one literal are a table, where they are half of it."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp,
             ast.comprehension, ast.Assert, ast.match_case)  # fmt: skip
_CONTAINERS = (ast.Set, ast.Tuple, ast.List, ast.Dict, ast.BinOp, ast.Starred)
_MAKERS = ("frozenset", "set", "dict", "tuple")


@dataclass(frozen=True)
class Measured:
    """One function: where it is, and how large."""

    file: str
    name: str
    line: int
    lines: int
    complexity: int
    parameters: int

    @property
    def place(self) -> str:
        """Name it in one word or two."""
        return f"{self.file} {self.name}"


@dataclass(frozen=True)
class File:
    """One file of the source, parsed once."""

    name: str
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        """Name the folder, or the file itself where it is in none."""
        return self.name.split("/")[0]


def files(source: Path) -> list[File]:
    """Return the Python files under a folder, by their path in it."""
    return [
        File(path.relative_to(source).as_posix(), text := path.read_text("utf-8"), ast.parse(text))
        for path in sorted(source.rglob("*.py"))
    ]


def functions(of: list[File]) -> list[Measured]:
    """Measure every function and method, nested ones by themselves."""
    return [
        Measured(file.name, node.name, node.lineno, 1 + (node.end_lineno or 0) - node.lineno,
                 complexity(node), parameters(node))
        for file in of
        for node in ast.walk(file.tree)
        if isinstance(node, Function)
    ]  # fmt: skip


def complexity(function: Function) -> int:
    """Return one more than the branches: also those of expressions, `and` and `or`."""
    return 1 + sum(
        isinstance(node, _BRANCHES) + (len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0)
        for node in _own(function)
    )


def _own(function: Function) -> Iterator[ast.AST]:
    """Walk a function's nodes, without those of the functions inside it."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Function):
            yield node
            waiting += ast.iter_child_nodes(node)


def parameters(function: Function) -> int:
    """Return how many arguments a function takes, beside `self`."""
    of = function.args
    names = [one.arg for one in (*of.posonlyargs, *of.args, *of.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


@functools.cache
def _operations() -> frozenset[str]:
    """Return every name that the table of operations knows."""
    from tether.operations.rows import ROWS, SAME_AS
    from tether.operations.table import schema

    return frozenset({*schema()["operations"], *ROWS, *SAME_AS} - _PYTHONS)


_PYTHONS = frozenset({"alias", "copy", "range", "slice", "storage", "sum", "type", "values"})
"""Words that name something else wherever they are listed."""


def tables(file: File) -> list[tuple[str, ...]]:
    """Return the literals of a file that list operations: the names in each, sorted."""
    parents = {child: node for node in ast.walk(file.tree) for child in ast.iter_child_nodes(node)}
    listed: dict[ast.AST, set[str]] = defaultdict(set)
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = set(node.value.split())  # "add mul div".split() is a list as well
            listed[_outermost(node, parents)] |= words if words <= _operations() else {node.value}
    found = ((tuple(sorted(words & _operations())), len(words)) for words in listed.values())
    return [names for names, words in found if len(names) >= max(TABLE, words / 2)]


def _outermost(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> ast.AST:
    """Return the literal that a constant is part of."""
    while _holds_literals(parent := parents.get(node)):
        assert parent is not None
        node = parent
    return node


def _holds_literals(node: ast.AST | None) -> bool:
    made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return isinstance(node, _CONTAINERS) or (made and node.func.id in _MAKERS)  # type: ignore[union-attr]


def parses(file: File) -> int:
    """Return how often a file parses program text."""
    return sum(
        isinstance(node, ast.Attribute)
        and node.attr == "parse"
        and isinstance(node.value, ast.Name)
        and node.value.id == "ast"
        for node in ast.walk(file.tree)
    )


def of_one_verdict(of: list[File]) -> dict[str, str]:
    """Return the modules of `analysis` that one verdict alone asks, itself or through others."""
    users = defaultdict[str, set[str]](set)
    names = {_module(one) for one in of}
    for file in of:
        for imported in _imported(file.tree):
            name = imported.removeprefix("tether.").replace(".", "/")
            if name.startswith("analysis/") and name in names:
                users[name].add(_module(file))
    asking = {module: _asking(users, module, {module}) for module in list(users)}
    return {
        module: found.pop().removeprefix("verdicts/")
        for module, found in asking.items()
        if len(found) == 1 and next(iter(found)).startswith("verdicts/")
    }


def _asking(users: dict[str, set[str]], module: str, seen: set[str]) -> set[str]:
    """Return the verdicts, and the other rooms, that ask a module of `analysis`."""
    found = set[str]()
    for name in users.get(module, set()) - seen:
        room, part, *_ = f"{name}/".split("/")
        if room == "analysis":
            seen.add(name)
            found |= _asking(users, name, seen)
        else:
            found.add(f"verdicts/{part}" if room == "verdicts" else room)
    return found


def _module(file: File) -> str:
    """Name what others import: a folder is its `__init__`."""
    return file.name.removesuffix(".py").removesuffix("/__init__")


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{one.name}" for one in node.names)


def same_names(of: list[File]) -> dict[str, int]:
    """Return the class names that are used more than once, and how often."""
    names = Counter(
        node.name for file in of for node in ast.walk(file.tree) if isinstance(node, ast.ClassDef)
    )
    return {name: times for name, times in sorted(names.items()) if times > 1}


def private(measured: list[Measured]) -> float:
    """Return the share of functions whose name begins with one underscore."""
    ours = [one for one in measured if one.name.startswith("_") and not one.name.startswith("__")]
    return len(ours) / len(measured)


def report(source: Path) -> Iterator[str]:
    """Yield the figures, a line for each."""
    of = files(source)
    measured = functions(of)
    yield from _sizes(of, measured)
    yield from _above("complexity", COMPLEXITY, measured)
    yield from _above("parameters", PARAMETERS, measured)
    yield from _listed(of)
    outside = {file.name: parses(file) for file in of if file.room != "source" and parses(file)}
    yield f"ast.parse outside source/: {sum(outside.values())} {', '.join(outside)}".rstrip()
    twice = same_names(of)
    yield f"class names used more than once: {len(twice)} {', '.join(twice)}".rstrip()


def _sizes(of: list[File], measured: list[Measured]) -> Iterator[str]:
    lines = [len(file.text.splitlines()) for file in of]
    long = sorted(one.lines for one in measured)
    yield (
        f"lines {sum(lines):,} in {len(of)} files, median {statistics.median(lines):.0f},"
        f" over 400: {sum(n > 400 for n in lines)}"
    )
    yield (
        f"functions {len(long):,}: median {statistics.median(long):.0f}, 90th percentile"
        f" {long[int(len(long) * 0.9)]}, longest {long[-1]}, over 80: {sum(n > 80 for n in long)};"
        f" private {private(measured):.0%}"
    )


def _above(what: str, limit: int, measured: list[Measured]) -> Iterator[str]:
    over = [one for one in measured if getattr(one, what) > limit]
    yield f"{what} above {limit}: {len(over)}"
    for one in sorted(over, key=lambda one: -getattr(one, what))[:8]:
        yield f"  {getattr(one, what):3d} {one.file}:{one.line} {one.name}"


def _listed(of: list[File]) -> Iterator[str]:
    counted = {file.name: tables(file) for file in of}
    inside = [t for name, found in counted.items() for t in found if name.startswith("operations/")]
    outside = {name: found for name, found in counted.items()
               if found and not name.startswith("operations/")}  # fmt: skip
    every = [table for found in outside.values() for table in found]
    yield f"tables of operations in operations/: {len(inside)}, {sum(map(len, inside)):,} entries"
    yield (
        f"tables of operations outside: {len(every)} with {sum(map(len, every)):,} entries,"
        f" in {len(outside)} files"
    )
    for name, found in outside.items():
        yield f"  {len(found):3d} {name}"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "src" / "tether"
    print("\n".join(report(where)))
