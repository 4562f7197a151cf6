"""The text of a file and its syntax tree, read once and kept.

Positions come in two kinds. A `Site` counts characters from 1, as people do; the tree counts
UTF-8 bytes from 0. `Source` translates on each question rather than for every node.
"""

from __future__ import annotations

import ast
import functools
import io
import linecache
import os
import re
import sys
import tokenize
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from tether.facts import Site

MAX_TEXT = 8 << 20
"""Characters of one file that are looked at. A larger one is data, not program text."""

_KEPT = 256  # files

_ESCAPES = re.compile(r"\\[^\n]")

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
CALLABLES = (*FUNCTIONS, ast.Lambda)
RUNS = (*CALLABLES, ast.Module)
"""What runs by itself, and has variables of its own."""
SCOPES = (*RUNS, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LOOPS = (ast.For, ast.AsyncFor, ast.While)

Key = tuple[int, int, int, int]  # line, byte column, end line, end byte column of a node


class Source:
    """The text of one file, its lines, and its syntax tree when it has one."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def lines(self) -> list[str]:
        """The lines as Python counts them: a form feed or U+2028 ends none."""
        return io.StringIO(self.text, newline=None).read().split("\n")

    def line(self, number: int) -> str:
        """Return line `number` (from 1) without its end; "" when there is none."""
        return self.lines[number - 1] if 1 <= number <= len(self.lines) else ""

    @cached_property
    def tree(self) -> ast.Module | None:
        """The syntax tree; None when the text is not Python, or too deep for its parser."""
        return parsed(self.text)

    @cached_property
    def _index(self) -> tuple[dict[Key, ast.AST], dict[tuple[int, int], list[ast.AST]]]:
        """Nodes by whole position, and by their end."""
        whole: dict[Key, ast.AST] = {}
        ends: dict[tuple[int, int], list[ast.AST]] = {}
        self._parents: dict[ast.AST, ast.AST] = {}
        waiting: list[ast.AST] = [self.tree] if self.tree else []
        while waiting:
            node = waiting.pop()
            for child in ast.iter_child_nodes(node):
                self._parents[child] = node
                waiting.append(child)
            key = key_of(node)
            if key is None or isinstance(node, (ast.expr_context, ast.keyword)):
                continue
            held = whole.get(key)
            if held is None or (isinstance(node, ast.expr) and not isinstance(held, ast.expr)):
                whole[key] = node
            if isinstance(node, ast.expr):
                ends.setdefault(key[2:], []).append(node)
        return whole, ends

    @cached_property
    def loop_variables(self) -> frozenset[str]:
        """The names that loops and comprehensions of this file assign to."""
        loops = (ast.For, ast.AsyncFor, ast.comprehension)
        targets = (node.target for node in self.nodes if isinstance(node, loops))
        return frozenset(_stored(targets))

    @cached_property
    def variables(self) -> frozenset[str]:
        """The names that assignments of this file assign to."""
        found: list[ast.expr] = []
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                found += node.targets
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
                found.append(node.target)
        return frozenset(_stored(found))

    @cached_property
    def imported(self) -> frozenset[str]:
        """Names that the text imports: modules, and what is in them."""
        found = (one for one in self.nodes if isinstance(one, ast.alias))
        return frozenset(one.asname or one.name.partition(".")[0] for one in found)

    @cached_property
    def functions(self) -> list[Function]:
        """Every function that is defined by a statement."""
        return [one for one in self.nodes if isinstance(one, FUNCTIONS)]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree; none where there is no tree."""
        return list(ast.walk(self.tree)) if self.tree else []

    def parent(self, node: ast.AST) -> ast.AST | None:
        """Return the node around `node`."""
        _ = self._index
        return self._parents.get(node)

    def outwards(
        self, node: ast.AST | None, until: tuple[type[ast.AST], ...] = ()
    ) -> Iterator[ast.AST]:
        """Yield a node and what it is in, the nearest first, before the first of some kinds."""
        while node is not None and not isinstance(node, until):
            yield node
            node = self.parent(node)

    def around(self, node: ast.AST, kinds: tuple[type[ast.AST], ...] = SCOPES) -> ast.AST:
        """Return the nearest node of some kinds that a node is, or is in; else the whole text.

        Where no kinds are given: the function, lambda or class in which it stands.
        """
        return next((one for one in self.outwards(node) if isinstance(one, kinds)), self.nodes[0])

    def function_around(self, line: int) -> Function | None:
        """Return the innermost function that a line is in."""
        around = [one for one in self.functions if one.lineno <= line <= (one.end_lineno or 0)]
        return max(around, key=lambda one: one.lineno, default=None)

    def function_at(self, site: Site) -> Function | None:
        """Return the function that a site is in; None of the text itself, and of a lambda."""
        found = (one for one in self.functions if _begins(one) == site.first_line)
        return next(found, None)

    def scope_at(self, site: Site) -> Function | ast.Module | None:
        """Return the function that a site is in, or the whole text; None where neither is known."""
        if site.function == "<module>":
            return self.tree
        found = self.function_at(site)
        named = found is not None and found.name == site.function.rpartition(".")[2]
        return found if named else None

    def node_at(self, site: Site) -> ast.AST | None:
        """Return the expression (or augmented assignment) that stands at a site.

        Where a method chain runs over several lines the interpreter says that the call starts at
        the method's name, so a node that only ends where the site ends is taken as well.
        """
        key = self.key(site)
        if key is None or self.tree is None:
            return None
        whole, ends = self._index
        if exact := whole.get(key):
            return exact
        around = [node for node in ends.get(key[2:], ()) if _start(node) <= key[:2]]
        return max(around, key=_start, default=None)

    def key(self, site: Site) -> Key | None:
        """Return the place of a site in byte columns, None when its columns are not known."""
        if site.line < 1 or site.column < 1 or site.end_column < 1:
            return None
        first, last = self.line(site.line), self.line(site.end_line)
        if site.column > len(first) + 1 or site.end_column > len(last) + 1:
            return None  # the file is not the one that ran
        return (
            site.line,
            len(first[: site.column - 1].encode("utf-8", "replace")),
            site.end_line,
            len(last[: site.end_column - 1].encode("utf-8", "replace")),
        )

    def text_of(self, node: ast.AST) -> str:
        """Return the text of a node on one line, without comments; "" when it cannot be told."""
        key = key_of(node)
        return self.between(key) if key else ""

    def between(self, key: Key) -> str:
        """Return the text from one place to another (byte columns), on one line."""
        line, column, end_line, end_column = key
        if not 1 <= line <= end_line <= len(self.lines):
            return ""
        if line == end_line:
            return _cut(self.line(line), column, end_column)
        parts = [
            _cut(self.line(line), column, None),
            *self.lines[line : end_line - 1],
            _cut(self.line(end_line), 0, end_column),
        ]
        return one_line("\n".join(parts))


class QuietSource(Source):
    """A text that is read while the program runs: no warning may be given, and no filter touched.

    A parser warns of escapes that are none. What stands behind a backslash is left out, so that
    all else keeps its place; a string with an escape is another one then.
    """

    @cached_property
    def tree(self) -> ast.Module | None:
        """The syntax tree; None when the text is not Python."""
        try:
            return ast.parse(_ESCAPES.sub("xx", self.text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def parsed(text: str) -> ast.Module | None:
    """Return the syntax tree of a text; None when it is not Python, or too deep for its parser."""
    tree = _parsed(text, "exec")
    return tree if isinstance(tree, ast.Module) else None


@functools.lru_cache(maxsize=8192)
def expression(text: str) -> ast.expr | None:
    """Return the tree of an expression, one for all who ask: it is not to be changed."""
    tree = _parsed(text.strip(), "eval")
    return tree.body if isinstance(tree, ast.Expression) else None


def _parsed(text: str, mode: str) -> ast.AST | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the program's own invalid escapes were warned about
        try:
            tree: ast.AST = ast.parse(text, mode=mode)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    return tree


def _stored(targets: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the variables among some targets: a and b of ``(a, b)``, none of ``x.y``."""
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def key_of(node: ast.AST) -> Key | None:
    """Return where a node stands, or None for one that stands nowhere (a module, a context)."""
    line = getattr(node, "lineno", None)
    if line is None:
        return None
    end_line, end_column = node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
    return line, node.col_offset, end_line or line, end_column or 0  # type: ignore[attr-defined]


_MODULES = frozenset({"torch", "copy", "nn", "F", "np", "numpy"})
"""What programs call the modules whose functions they call on tensors."""


def is_module(node: ast.expr) -> bool:
    """Whether an expression names such a module, or one in it: ``nn.init``, ``self.torch``."""
    if isinstance(node, ast.Attribute):
        return node.attr in ("torch", "numpy") or is_module(node.value)
    return isinstance(node, ast.Name) and node.id in _MODULES


INTO_CONTAINERS = frozenset(
    {"append", "appendleft", "extend", "insert", "add", "setdefault", "update"}
)
"""Methods of Python's containers that put what they are given into the one they are called on."""


def own(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield what stands in a scope, and in no function or class inside it."""
    for one in ast.iter_child_nodes(scope):
        yield one
        if not isinstance(one, SCOPES):
            yield from own(one)


def _begins(function: Function) -> int:
    """Return the first line of a function, decorators counted."""
    return min([function.lineno, *(one.lineno for one in function.decorator_list)])


def called(function: ast.expr) -> str:
    """Return the name by which a call names its function: ``exp`` of ``torch.exp``, or ""."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def names(node: ast.AST, name: str) -> bool:
    """Whether a node reads or writes a variable, or says that it is another function's."""
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return name in node.names
    return isinstance(node, ast.Name) and node.id == name


def _start(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _cut(line: str, start: int, end: int | None) -> str:
    if line.isascii():
        return line[start:end]
    return line.encode("utf-8", "replace")[start:end].decode("utf-8", "replace")


def one_line(text: str) -> str:
    """Return an expression of several lines on one: comments dropped, breaks made one space."""
    kept: list[str] = []
    row, column = 1, 0
    lines = ("(" + text + "\n)").split("\n")  # in parentheses any line break is allowed
    try:
        for token in tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline):
            if token.type in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER):
                continue
            if token.start[0] == row:
                kept.append(lines[row - 1][column : token.start[1]])
            elif kept and kept[-1][-1:] not in "([{." and token.string[:1] not in ")]}.,":
                kept.append(" ")
            kept.append(token.string)
            row, column = token.end
    except (tokenize.TokenError, SyntaxError):
        return " ".join(text.split())
    return "".join(kept).strip()[1:-1].strip()


_cache: OrderedDict[tuple[str, str], Source] = OrderedDict()


def source_of(file: str, text: str) -> Source:
    """Return the `Source` of a text; the same one for the same file and text."""
    key = (file, text)
    found = _cache.get(key)
    if found is None:
        found = _cache[key] = Source(text)
        while len(_cache) > _KEPT:
            _cache.popitem(last=False)
    _cache.move_to_end(key)
    return found


_OF_EVERY_EXEC = "<string>"
"""What all code is called that `exec` was given as text; from Python 3.13 on `linecache` has the
text of ``python -c`` by that name."""


def read(file: str) -> str:
    """Return the text of a source file, "" when there is none.

    As the interpreter's tracebacks find it: files of any declared encoding, modules in a zip
    archive, notebook cells and whatever else registered its text with `linecache`.
    """
    if file == _OF_EVERY_EXEC:
        return ""
    try:
        lines = linecache.getlines(file, _globals_of(file))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    text = "".join(lines)
    return text if len(text) <= MAX_TEXT else ""


def _globals_of(file: str) -> dict[str, object] | None:
    """Return the globals of the module made from `file`: its loader may be a zip archive's."""
    if file in linecache.cache:
        return None
    for module in list(sys.modules.values()):
        space = getattr(module, "__dict__", None)
        own = space.get("__file__") if isinstance(space, dict) else None
        # A module found in a relative entry of `sys.path` has a relative name.
        if own == file or (isinstance(own, str) and own and file.endswith(os.sep + own)):
            return space
    return None


def site_of_node(file: str, node: ast.expr | ast.stmt, lines: Sequence[str]) -> Site:
    """Return where a node stands in a file of these lines, columns in characters."""

    def column(line: int, offset: int) -> int:
        raw = lines[line - 1].encode("utf-8", "replace") if line <= len(lines) else b""
        return len(raw[:offset].decode("utf-8", "replace")) + 1

    end_line = node.end_lineno or node.lineno
    return Site(
        file,
        node.lineno,
        column(node.lineno, node.col_offset),
        end_line,
        column(end_line, node.end_col_offset or 0),
        expression=ast.unparse(node),
    )
