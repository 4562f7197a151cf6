"""One tensor where the program means several: part of `alias-write`.

A list multiplied, one buffer appended again and again, a model copied by `copy.copy`: each place
shows what was written last. No call of PyTorch makes such a place, so it is found from the names
that one tensor bears, and from the program's text.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.fillings import Filling, fitting
from tether.analysis.history import History
from tether.analysis.wording import evidence, place
from tether.facts import Event, Site
from tether.finding import Evidence, Finding, Fix
from tether.source.syntax import site_of_node, source_of

_PLACE = re.compile(r"(.+)\[(\d+|'[^']*')\]$")
_LOOPS = (ast.For, ast.While, ast.AsyncFor)


class Made(NamedTuple):
    """The text that puts one tensor into several places."""

    site: Site
    operation: str
    how: str  # what it does, in words
    fix: str
    loop: tuple[int, int] | None = None  # lines of the loop around it, where it stands in one


def repeated(history: History) -> Iterator[Finding]:
    """Find tensors at several places of one container that were written after they got there."""
    texts = _Texts(history)
    for tensor, names in _places(history).items():
        fact, operand = history.trace.tensors.get(tensor), history.operand_of(tensor)
        if fact is None or operand is None or fact.kind == "Parameter" or tensor in history.held:
            continue
        container = _PLACE.match(names[0])
        made = texts.filling(container[1], tensor) if container else None
        if made is None:
            continue
        born = history.made_at(tensor)
        written = sorted({*history.writes_to(operand, born), *_accumulated(history, tensor)})
        writes = [at for at in written if _after(history, at, made)]
        reads = [
            at
            for at in history.on_storage(operand)
            if writes and at > writes[-1] and history.events[at].reads
        ]
        if len(writes) < (1 if made.loop is None else 2) or not reads:
            continue
        yield _finding(history, tensor, names, made, writes[-1], reads[0])


def _places(history: History) -> dict[int, list[str]]:
    """Return the tensors that bear the names of several places in one container."""
    found: dict[tuple[int, str], dict[str, None]] = defaultdict(dict)
    for name in history.trace.names:
        match = _PLACE.match(name.name)
        if match and not name.module:
            found[name.tensor, match[1]][name.name] = None
    return {tensor: list(names) for (tensor, _), names in found.items() if len(names) > 1}


def _accumulated(history: History, tensor: int) -> list[int]:
    """Positions of the backward passes that added to a gradient while the program held it."""
    operand = history.operand_of(tensor)
    made = history.made_at(tensor)
    if operand is None or made < 0 or history.events[made].operation != "grad.__get__":
        return []
    versions = [
        (at, one.version)
        for at in history.on_storage(operand)
        for one in (*history.events[at].reads, *history.events[at].results)
        if one.tensor == tensor
    ]
    moved = [
        (first, last)
        for (first, before), (last, after) in itertools.pairwise(versions)
        if before < after
    ]
    return [at for at in history.backwards if any(one < at < other for one, other in moved)]


def _after(history: History, at: int, made: Made) -> bool:
    """Whether a write comes after the tensor was put where it is."""
    site = history.site_of(history.events[at])
    if made.loop is not None:
        return site.file == made.site.file and made.loop[0] <= site.line <= made.loop[1]
    return site.file != made.site.file or site.line != made.site.line


def _finding(
    history: History, tensor: int, names: list[str], made: Made, write: int, read: int
) -> Finding:
    container = names[0][: names[0].rindex("[")]
    events = history.events
    return Finding(
        slug="alias-write",
        severity="warning",
        subject=container,
        site=made.site,
        operation=made.operation,
        message=(
            f"`{container}` holds one tensor {len(names)} times: {made.how} ({place(made.site)})."
            f" The write at {place(history.site_of(events[write]))} shows in every place."
        ),
        also=tuple(names[:8]),
        evidence=(
            Evidence("shared", made.site, made.how),
            evidence(
                history, "written", events[write], f"written here by {events[write].operation}"
            ),
            evidence(history, "read", events[read], "read here: every place holds what came last"),
        ),
        fix=Fix(made.fix),
        count=len(names),
        tensors=(tensor,),
    )


# -- two models that are one -----------------------------------------------------------------------


def shallow_models(history: History) -> Iterator[Finding]:
    """Find models made by `copy.copy`, whose parameters are the other model's own, and trained."""
    texts = _Texts(history)
    for target, source, site in texts.shallow_copies():
        shared = _common(history, target, source)
        for tensor in shared:
            operand = history.operand_of(tensor)
            writes = [] if operand is None else list(history.writes_to(operand))
            trained = [at for at in writes if _changes(history.events[at])]
            if not trained:
                continue
            name = next(n for n in history.names_of(tensor) if n.startswith(f"{target}."))
            write = history.events[trained[-1]]
            yield Finding(
                slug="alias-write",
                severity="warning",
                subject=target,
                site=site,
                operation="copy",
                message=(
                    f"`{target}` is a shallow copy of `{source}` ({place(site)}): their"
                    f" {len(shared)} parameters and buffers are the same tensors, and"
                    f" {place(history.site_of(write))} writes them."
                ),
                also=(name,),
                evidence=(
                    Evidence(
                        "shared", site, "copy.copy copies the object, and none of its tensors"
                    ),
                    evidence(history, "written", write, f"{write.operation} writes them here"),
                ),
                fix=Fix(f"Copy the tensors too: {target} = copy.deepcopy({source})."),
                tensors=tuple(shared),
            )
            break


def _common(history: History, one: str, other: str) -> list[int]:
    """Return the tensors of modules that bear a name under each of two variables."""
    holders: dict[int, set[str]] = defaultdict(set)
    for name in history.trace.names:
        root = name.name.partition(".")[0]
        if name.module and root in (one, other):
            holders[name.tensor].add(root)
    return [tensor for tensor, roots in holders.items() if len(roots) == 2]


def _changes(event: Event) -> bool:
    """Whether a write is a change of what is there, and no initialisation."""
    return event.operation == "step" or event.operation in ("copy_", "add_", "sub_", "mul_")


# -- the program's text ----------------------------------------------------------------------------


class _Texts:
    """The statements of the program that put one object into several places."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._fillings: dict[str, list[tuple[Filling, Made]]] = defaultdict(list)
        self._shallow: list[tuple[str, str, Site]] = []
        for file, text in history.trace.sources.items():
            try:
                tree = ast.parse(text)
            except (SyntaxError, ValueError, RecursionError):
                continue
            self._visit(file, text, tree, None, (0, 0))

    def filling(self, container: str, tensor: int) -> Made | None:
        """Return the statement that may have filled a container with one tensor, if one does."""
        options = self._fillings.get(container, [])
        found = fitting(self._history, container, [line for line, _ in options], {tensor})
        return next((made for line, made in options if found and line is found[-1]), None)

    def shallow_copies(self) -> list[tuple[str, str, Site]]:
        """Return (target, source, site) of each ``target = copy.copy(source)``."""
        return self._shallow

    def _visit(
        self, file: str, text: str, node: ast.AST, loop: ast.stmt | None, scope: tuple[int, int]
    ) -> None:
        if isinstance(node, _LOOPS):
            loop = node
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            loop, scope = None, (node.lineno, node.end_lineno or node.lineno)
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            self._assigned(file, text, node, scope)
        elif loop is not None and isinstance(node, ast.Call):
            self._appended(file, text, node, loop, scope)
        for child in ast.iter_child_nodes(node):
            self._visit(file, text, child, loop, scope)

    def _fills(
        self, file: str, text: str, node: ast.Call | ast.stmt, into: ast.expr, item: ast.expr,
        scope: tuple[int, int], made: Made,
    ) -> None:  # fmt: skip
        line = Filling(source_of(file, text), file, node, into, (item,), "", scope)
        self._fillings[ast.unparse(into)].append((line, made))

    def _assigned(self, file: str, text: str, node: ast.Assign, scope: tuple[int, int]) -> None:
        into, value = node.targets[0], node.value
        target = ast.unparse(into)
        if (
            isinstance(value, ast.BinOp)
            and isinstance(value.op, ast.Mult)
            and isinstance(value.left, ast.List)
            and len(value.left.elts) == 1
        ):
            item = ast.unparse(value.left.elts[0])
            count = ast.unparse(value.right)
            made = Made(
                site_of_node(file, value, text.splitlines()),
                "list * number",
                "multiplying a list repeats the object, not its memory",
                f"Make each its own: [{item} for _ in range({count})].",
            )
            self._fills(file, text, node, into, value.left.elts[0], scope, made)
        elif isinstance(value, ast.ListComp) and _one_object(value):
            item = ast.unparse(value.elt)
            made = Made(
                site_of_node(file, value, text.splitlines()),
                "list of one name",
                f"the list takes `{item}` itself each time, not what it holds",
                f"Put a copy there each time: {item}.clone().",
            )
            self._fills(file, text, node, into, value.elt, scope, made)
        elif (
            isinstance(value, ast.Call)
            and ast.unparse(value.func).endswith("dict.fromkeys")
            and len(value.args) == 2
        ):
            keys, item = (ast.unparse(one) for one in value.args)
            made = Made(
                site_of_node(file, value, text.splitlines()),
                "dict.fromkeys",
                "dict.fromkeys gives every key the same object",
                f"Make each its own: {{key: {item} for key in {keys}}}"
                + (f", with {item}.clone()." if item.isidentifier() else "."),
            )
            self._fills(file, text, node, into, value.args[1], scope, made)
        elif (
            isinstance(value, ast.Call)
            and ast.unparse(value.func) in ("copy.copy", "copy")
            and len(value.args) == 1
        ):
            self._shallow.append(
                (target, ast.unparse(value.args[0]), site_of_node(file, value, text.splitlines()))
            )

    def _appended(
        self, file: str, text: str, node: ast.Call, loop: ast.stmt, scope: tuple[int, int]
    ) -> None:
        func = node.func
        if not isinstance(func, ast.Attribute) or func.attr != "append" or len(node.args) != 1:
            return
        item = node.args[0]
        if not isinstance(item, (ast.Name, ast.Attribute)):
            return
        made = Made(
            site_of_node(file, node, text.splitlines()),
            "append",
            f"append puts `{ast.unparse(item)}` itself there, not what it holds now",
            f"Append a copy: {ast.unparse(func)}({ast.unparse(item)}.clone()).",
            (loop.lineno, loop.end_lineno or loop.lineno),
        )
        self._fills(file, text, node, func.value, item, scope, made)


def _one_object(value: ast.ListComp) -> bool:
    """Whether each item of a comprehension is one variable that the comprehension does not set."""
    bound = {
        node.id
        for generator in value.generators
        for node in ast.walk(generator)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    item = value.elt
    while isinstance(item, ast.Attribute):
        item = item.value
    return isinstance(item, ast.Name) and item.id not in bound
