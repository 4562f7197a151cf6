"""Repairs as edits of the program's text: found from a finding, applied, shown as a diff.

An edit replaces one stretch of the text by another and touches nothing else, so formatting and
comments stay as they are. What is put in is made of the program's own text around it; every edit is
tried on the text, and given only when the result is still Python.
"""

from __future__ import annotations

import ast
import difflib
import io
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tether.facts import Site
from tether.finding import Edit, Finding
from tether.operations.table import operation
from tether.source.filling import FILLING
from tether.source.syntax import Source, called, is_module, key_of, parsed


def _may_leave_out(slug: str, name: str) -> bool:
    """Whether a finding of this kind asks to leave out such a call."""
    row = operation(name)
    if slug == "gradient-cut":
        return row.outside or row.leaves == "number" or (row.enters and bool(row.copies))
    return slug != "needless-copy" or bool(row.copies)


def mended(finding: Finding, source: Source) -> Finding:
    """Return the finding with the edits that would carry its repair out, where there are any."""
    if finding.fix is None or finding.fix.edits or source.tree is None:
        return finding
    edits = _edits(finding, source)
    if not edits:
        return finding
    if parsed(apply(source.text, edits)) is None:
        return finding
    return replace(finding, fix=replace(finding.fix, edits=edits))


def _edits(finding: Finding, source: Source) -> tuple[Edit, ...]:
    fix = finding.fix
    assert fix is not None
    site, name = fix.site or finding.site, finding.operation
    match fix.action or _ACTIONS.get(finding.slug, ""):
        case "leave out" if _may_leave_out(finding.slug, name):
            return _left_out(site, name, source, cut=finding.slug != "gradient-cut")
        case "copy":
            return _copied(site, name, source)
        case "deep copy":
            return _deep_copied(site, source)
        case "clone":
            return _after(site, ".clone()", source)
        case "out of place":
            return _out_of_place(site, source)
        case "detach":
            return _detached(site, source)
        case "wait":
            return _without_keyword(site, "non_blocking", source)
    return ()


_ACTIONS = {
    "needless-copy": "leave out",
    "gradient-cut": "leave out",
    "saved-overwritten": "out of place",
    "alias-write": "copy",
    "unsynchronized-read": "wait",
}


# -- leaving a call out ----------------------------------------------------------------------------


def _left_out(site: Site, name: str, source: Source, *, cut: bool) -> tuple[Edit, ...]:
    """Replace a call by what it was given: ``x.clone()`` and ``torch.clone(x)`` by ``x``.

    With `cut`, what was out of the graph stays so.
    """
    node = source.node_at(site)
    row = operation(name)
    typed = row.typed or name
    if isinstance(node, ast.Attribute) and node.attr == typed:
        return _replaced(site, node, node.value, source)
    if not isinstance(node, ast.Call) or called(node.func) != typed:
        return ()
    if name == "to" and isinstance(node.func, ast.Attribute):
        return _without_keyword(site, "copy", source)
    given = _given(node, by_argument=bool(row.writes) or 0 in row.template)
    if given is None:
        return ()
    after = ".detach()" if cut and row.enters else ""  # unlike torch.tensor(x), x may have a graph
    return _replaced(site, node, given, source, after)


def _given(call: ast.Call, *, by_argument: bool) -> ast.expr | None:
    """Return what a call copies: its first argument, or what its method belongs to."""
    function = call.func
    first = call.args[0] if call.args and not isinstance(call.args[0], ast.Starred) else None
    if not isinstance(function, ast.Attribute):
        return first
    return first if is_module(function.value) or by_argument else function.value


def _replaced(
    site: Site, node: ast.AST, kept: ast.expr, source: Source, after: str = ""
) -> tuple[Edit, ...]:
    """Replace an expression by a part of it, with the parentheses and comments that it has."""
    key, inner = key_of(node), key_of(kept)
    if key is None or inner is None:
        return ()
    statement = source.parent(node)
    if not after and isinstance(statement, ast.Assign) and _onto_itself(statement, kept, source):
        return _taken_out(site, statement, source)
    text = _verbatim(inner, source)
    around = _verbatim((*key[:2], *inner[:2]), source)
    behind = _verbatim((*inner[2:], *key[2:]), source)
    opened = len(around) - len(around.rstrip("( \n\t"))
    depth = around[len(around) - opened :].count("(")
    if depth and not _calls(kept, node):  # ``(a + b).clone()``: its parentheses stay
        closing = _closing(behind, depth)
        text = around[len(around) - opened :].lstrip() + text + behind[:closing]
    elif isinstance(kept, _LOOSE) or ("\n" in text and not text.startswith("(")):
        text = f"({text})"
    return (_edit(site.file, key, text + after, source),)


_LOOSE = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Lambda, ast.NamedExpr,
          ast.Await, ast.Yield, ast.GeneratorExp, ast.Tuple)  # fmt: skip


def _onto_itself(statement: ast.Assign, kept: ast.expr, source: Source) -> bool:
    """Whether an assignment of a value gives its one target what that is already: ``x = x``.

    In the body of a class it makes an attribute of a variable.
    """
    plain = (ast.Name, ast.Attribute, ast.expr_context)  # reading it does nothing else
    return (
        len(statement.targets) == 1
        and not isinstance(source.parent(statement), ast.ClassDef)
        and all(isinstance(one, plain) for one in ast.walk(kept))
        and ast.unparse(statement.targets[0]) == ast.unparse(kept)
    )


def _taken_out(site: Site, statement: ast.stmt, source: Source) -> tuple[Edit, ...]:
    """Take a statement out with its lines, or put `pass` there for what cannot go without.

    That is where its lines hold more, or its block nothing else.
    """
    key, block = key_of(statement), source.parent(statement)
    if key is None or block is None:
        return ()
    line, column, end_line, end_column = key
    before = source.line(line).encode("utf-8", "replace")[:column]
    behind = source.line(end_line).encode("utf-8", "replace")[end_column:]
    alone = any(held == [statement] for _, held in ast.iter_fields(block))
    if alone or before.strip() or behind.partition(b"#")[0].strip():
        return (_edit(site.file, key, "pass", source),)
    return (Edit(site.file, line, 1, end_line + 1, 1, ""),)


def _calls(kept: ast.expr, node: ast.AST) -> bool:
    """Whether the part kept is an argument, so that the parenthesis before it is the call's."""
    return isinstance(node, ast.Call) and kept in node.args


def _closing(text: str, depth: int) -> int:
    """Return where so many closing parentheses end in a text."""
    for at, character in enumerate(text):
        if character == ")":
            depth -= 1
            if not depth:
                return at + 1
    return 0


# -- putting a copy in, and other repairs ----------------------------------------------------------


def _copied(site: Site, name: str, source: Source) -> tuple[Edit, ...]:
    """Give what a call returns memory of its own."""
    node = source.node_at(site)
    text = source.text_of(node) if node is not None else ""
    if isinstance(node, ast.Call) and text.endswith("state_dict()"):
        return _deep_copied(site, source)
    row = operation(name)
    if row.leaves == "array":
        return _after(site, ".copy()", source) if isinstance(node, ast.Call) else ()
    may_share = row.view or row.own_counter or row.copies
    return _after(site, ".clone()", source) if may_share else ()


def _deep_copied(site: Site, source: Source) -> tuple[Edit, ...]:
    """Give what a call returns, and all that it holds, memory of its own."""
    node = source.node_at(site)
    key = key_of(node) if isinstance(node, ast.Call) else None
    if key is None:
        return ()
    whole = _edit(site.file, key, f"copy.deepcopy({_verbatim(key, source)})", source)
    return (*_import_of("copy", site.file, source), whole)


def _after(site: Site, text: str, source: Source) -> tuple[Edit, ...]:
    """Put a call behind an expression; where a method stores it, behind what is stored."""
    node = source.node_at(site)
    match node:
        case ast.Call(func=ast.Attribute(attr=method), args=[*_, stored]) if method in FILLING:
            node = stored if isinstance(source.parent(node), ast.Expr) else node
    key = key_of(node) if node is not None else None
    if key is None or not isinstance(node, (ast.Call, ast.Attribute, ast.Subscript, ast.Name)):
        return ()
    return (_edit(site.file, (*key[2:], *key[2:]), text, source),)


def _out_of_place(site: Site, source: Source) -> tuple[Edit, ...]:
    """Let a write in place make a new tensor: ``x += y`` becomes ``x = x + y``."""
    node = source.node_at(site)
    if isinstance(node, ast.AugAssign) and isinstance(node.target, (ast.Name, ast.Attribute)):
        return _assigned(site, node, source)
    if not isinstance(node, ast.Call):
        return ()
    if any(one.arg == "inplace" for one in node.keywords):
        return _kept(node, site, _without_keyword(site, "inplace", source), source)
    func = node.func
    if isinstance(func, ast.Attribute) and func.attr.endswith("_") and func.attr[-2:] != "__":
        return _without_underscore(site, node, func, source)
    return ()


def _without_underscore(
    site: Site, node: ast.Call, method: ast.Attribute, source: Source
) -> tuple[Edit, ...]:
    """Turn ``x.add_(y)`` into ``x.add(y)``; as a statement, into ``x = x.add(y)``."""
    name, target = key_of(method), key_of(method.value)
    if name is None or target is None:
        return ()
    renamed = _edit(site.file, (name[2], name[3] - 1, name[2], name[3]), "", source)
    return _kept(node, site, (renamed,), source)


def _kept(node: ast.Call, site: Site, edits: tuple[Edit, ...], source: Source) -> tuple[Edit, ...]:
    """Return edits that make a call give a new tensor, and let a statement keep what it gives.

    In place of what it had written: of its owner, or of its first argument.
    """
    statement = source.parent(node)
    key = key_of(statement) if isinstance(statement, ast.Expr) else None
    if key is None:
        return edits
    given = _given(node, by_argument=False)
    target = key_of(given) if isinstance(given, (ast.Name, ast.Attribute)) else None
    if target is None:
        return ()
    assigned = f"{_verbatim(target, source)} = "
    return (_edit(site.file, (*key[:2], *key[:2]), assigned, source), *edits)


def _assigned(site: Site, node: ast.AugAssign, source: Source) -> tuple[Edit, ...]:
    """Turn ``x += y`` into ``x = x + y``."""
    target, value = key_of(node.target), key_of(node.value)
    if target is None or value is None:
        return ()
    name, between = _verbatim(target, source), _verbatim((*target[2:], *value[:2]), source)
    sign, _, rest = between.partition("=")  # the rest is white space and perhaps parentheses
    edits = [_edit(site.file, (*target[2:], *value[:2]), f" = {name}{sign}{rest}", source)]
    if isinstance(node.value, _LOOSE) and "(" not in rest:
        edits = [
            _edit(site.file, (*target[2:], *value[:2]), f" = {name}{sign}{rest}(", source),
            _edit(site.file, (*value[2:], *value[2:]), ")", source),
        ]
    return tuple(edits)


def _detached(site: Site, source: Source) -> tuple[Edit, ...]:
    """Let a running total take the value without its graph."""
    node = source.node_at(site)
    if not isinstance(node, ast.AugAssign):
        return ()
    key = key_of(node.value)
    if key is None:
        return ()
    if isinstance(node.value, _LOOSE):
        opening = _edit(site.file, (*key[:2], *key[:2]), "(", source)
        return (opening, _edit(site.file, (*key[2:], *key[2:]), ").detach()", source))
    return (_edit(site.file, (*key[2:], *key[2:]), ".detach()", source),)


def _without_keyword(site: Site, name: str, source: Source) -> tuple[Edit, ...]:
    """Leave one keyword argument of a call out."""
    node = source.node_at(site)
    if not isinstance(node, ast.Call):
        return ()
    arguments: list[ast.AST] = sorted(
        [*node.args, *node.keywords], key=lambda one: key_of(one) or (0, 0, 0, 0)
    )
    for number, one in enumerate(arguments):
        if not isinstance(one, ast.keyword) or one.arg != name:
            continue
        key = key_of(one)
        before = key_of(arguments[number - 1]) if number else None
        after = key_of(arguments[number + 1]) if number + 1 < len(arguments) else None
        if key is None:
            return ()
        if before is not None:
            key = (*before[2:], *key[2:])
        elif after is not None:
            key = (*key[:2], *after[:2])
        return (_edit(site.file, key, "", source),)
    return ()


def _import_of(module: str, file: str, source: Source) -> tuple[Edit, ...]:
    """Import a module above the first import that is there, unless it is imported already."""
    tree = source.tree
    assert tree is not None
    imports = [one for one in tree.body if isinstance(one, (ast.Import, ast.ImportFrom))]
    for one in imports:
        if isinstance(one, ast.Import) and any(
            name.name == module and name.asname is None for name in one.names
        ):
            return ()
    first = next((one for one in imports if getattr(one, "module", "") != "__future__"), None)
    line = first.lineno if first is not None else _after_what_comes_first(tree)
    return (Edit(file, line, 1, line, 1, f"import {module}\n"),)


def _after_what_comes_first(tree: ast.Module) -> int:
    """Return the line behind the docstring and the imports of `__future__`."""
    line = 1
    for one in tree.body:
        is_text = isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
        if not (is_text or (isinstance(one, ast.ImportFrom) and one.module == "__future__")):
            break
        line = (one.end_lineno or one.lineno) + 1
    return line


# -- text ------------------------------------------------------------------------------------------


def _verbatim(key: tuple[int, int, int, int], source: Source) -> str:
    """Return the text between two places, line breaks and comments included."""
    line, column, end_line, end_column = key
    rows = [source.line(number).encode("utf-8", "replace") for number in range(line, end_line + 1)]
    if len(rows) == 1:
        return rows[0][column:end_column].decode("utf-8", "replace")
    rows[0], rows[-1] = rows[0][column:], rows[-1][:end_column]
    return b"\n".join(rows).decode("utf-8", "replace")


def _edit(file: str, key: tuple[int, int, int, int], text: str, source: Source) -> Edit:
    """Return an edit of a stretch given in byte columns."""
    line, column, end_line, end_column = key
    first = source.line(line).encode("utf-8", "replace")[:column].decode("utf-8", "replace")
    last = source.line(end_line).encode("utf-8", "replace")[:end_column].decode("utf-8", "replace")
    return Edit(file, line, len(first) + 1, end_line, len(last) + 1, text)


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits made; of two that overlap the later one is left out.

    Line ends stay what they are.
    """
    lines = list(io.StringIO(text, newline=""))
    starts = [0, *itertools.accumulate(map(len, lines))]
    ending = "\r\n" if "\r\n" in text else "\n"

    def place(line: int, column: int) -> int:
        return starts[min(line - 1, len(starts) - 1)] + column - 1

    wanted = [
        (place(one.line, one.column), place(one.end_line, one.end_column), one.text)
        for one in dict.fromkeys(edits)
    ]
    parts, done = [], 0
    for first, last, new in sorted(wanted, key=lambda one: one[:2]):
        if first < done or first > last:
            continue
        parts += [text[done:first], new.replace("\n", ending)]
        done = last
    return "".join([*parts, text[done:]])


def diff(path: str, before: str, after: str) -> str:
    """Return a unified diff of one file, as ``patch`` takes it."""
    changed = difflib.unified_diff(_rows(before), _rows(after), f"a/{path}", f"b/{path}")
    return "".join(one if one.endswith("\n") else f"{one}\n{_NO_NEWLINE}\n" for one in changed)


_NO_NEWLINE = "\\ No newline at end of file"


def _rows(text: str) -> list[str]:
    """Return the lines of a text as ``patch`` counts them; the last one may have no end."""
    *whole, last = text.split("\n")
    return [f"{one}\n" for one in whole] + ([last] if last else [])


def by_file(findings: Sequence[Finding], *, unsafe: bool) -> dict[str, list[Edit]]:
    """Return the edits of findings by file; the unsafe ones only where they are asked for."""
    found: dict[str, list[Edit]] = {}
    for one in findings:
        if one.fix is not None and (one.fix.safe or unsafe):
            for edit in one.fix.edits:
                found.setdefault(edit.file, []).append(edit)
    return found
