"""The line of the program that puts tensors into a container: ``losses.append(loss)``.

Python makes such a call without asking PyTorch, so only the program's text shows it. Which of
several lines it was is judged by what was recorded: the calls inside the value that a line puts
there must have made the tensors that are in the container.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from tether.analysis.history import History
from tether.analysis.surroundings import WaysThere
from tether.facts import Site
from tether.source.handing import handings
from tether.source.loops import comprehension_at, taken_by_loop
from tether.source.names import container_of, last_word, root_of, steps_in
from tether.source.syntax import CALLABLES, INTO_CONTAINERS, Source, called, site_of_node, source_of


class Filling(NamedTuple):
    """A statement or call that puts values into something."""

    source: Source
    file: str
    node: ast.Call | ast.stmt
    into: ast.expr
    values: tuple[ast.expr, ...]
    owner: str  # the class whose body it is in
    scope: tuple[int, int]  # first and last line of the function around it; (0, 0): none

    @property
    def site(self) -> Site:
        """Where it stands."""
        return site_of_node(self.file, self.node, self.source.lines)


def growth_of(history: History, name: str, tensors: Iterable[int]) -> Site | None:
    """Return the line that puts some tensors into the container of a name; None if several may.

    Where the text fills nothing of that name it is the comprehension in which they were made.
    """
    tensors = set(tensors)
    lines = history.get(_Lines).into(last_word(name) or name)
    found = fitting(history, name, lines, tensors)
    if not lines:
        return comprehended(history, tensors)
    if len(found) != 1:
        return None
    return found[0].site


def set_at(history: History, name: str, tensor: int) -> Site | None:
    """Return the one line that sets the attribute of a name, or fills the container there.

    None if several may, or if a variable holds the tensor by itself.
    """
    steps = steps_in(name)
    attribute = last_word(name) or name
    if len(steps) > 1 and any(one == f".{attribute}" for one in steps[1:]):
        found = fitting(history, name, history.get(_Lines).setting(attribute), {tensor})
        if len(found) == 1:
            return found[0].site
    return growth_of(history, container_of(name), [tensor]) if name.endswith("]") else None


def comprehended(history: History, tensors: Iterable[int]) -> Site | None:
    """Return the one comprehension that made each of some tensors as a part of what it gives."""
    found: set[Site | None] = set()
    for made in {history.made_at(one) for one in tensors}:
        lines = (history.events[made].site, *history.get(WaysThere).above(made))
        around = (
            comprehension_at(source_of(one.file, history.trace.sources.get(one.file, "")), one)
            for one in map(history.site, lines)
        )
        found.add(next((one for one in around if one is not None), None))
    return found.pop() if len(found) == 1 else None


def handed_on(history: History, tensor: int) -> Site | None:
    """Return the one line that hands a tensor to a call which may keep it; None if several may.

    A call that was recorded is PyTorch's: it is given the tensor to compute with.
    """
    made = history.made_at(tensor)
    site = history.site_of(history.events[made]) if made >= 0 else None
    if site is None or not site.target.isidentifier():
        return None
    source = source_of(site.file, history.trace.sources.get(site.file, ""))
    found = [
        one
        for one in handings(source, site, site.target)
        if one.line >= site.line and not history.get(_Lines).is_recorded(one)
    ]
    return found[0] if len(found) == 1 else None


def put_at(history: History, tensor: int) -> Site | None:
    """Return the one line that puts the variable which a tensor was given into a container.

    None if several may; that of a loop is given what each turn takes.
    """
    made = history.made_at(tensor)
    site = history.site_of(history.events[made]) if made >= 0 else None
    if site is None:
        return None
    known = history.get(_Lines)
    source = source_of(site.file, history.trace.sources.get(site.file, ""))
    names = {site.target, *taken_by_loop(source, site, known.is_of_numbers)}
    found = [
        line
        for line in known.all
        if line.file == site.file and _takes(line, site, names, known.classes)
    ]
    return found[0].site if len(found) == 1 else None


def _takes(line: Filling, site: Site, names: Collection[str], classes: Collection[str]) -> bool:
    """Whether a line after a site, in the same function, puts one of some variables somewhere.

    An object of the program's own classes keeps what it is made of.
    """
    parts = [part for value in line.values for part in _parts(value)]
    for part in parts:
        if isinstance(part, ast.Call) and called(part.func) in classes:
            parts += (*part.args, *(one.value for one in part.keywords))
        elif isinstance(part, ast.Subscript):
            parts.append(part.value)
    given = any(isinstance(part, ast.Name) and part.id in names for part in parts)
    return given and _holds(line.scope, site) and line.node.lineno >= site.line


def fitting(
    history: History, name: str, lines: Iterable[Filling], tensors: set[int]
) -> list[Filling]:
    """Return the lines that may have put tensors into the container of a name, as recorded.

    One, where the calls on a line made a tensor that is there.
    """
    known = history.get(_Lines)
    possible: list[Filling] = []
    for line in lines:
        made, whole = known.made_by(line)
        if made & tensors:
            return [line]
        if not whole:
            possible.append(line)
    return _nearest(history, _of_owner(history, name, possible), tensors)


def puts_others(history: History, site: Site, tensor: int) -> bool:
    """Whether all that a line puts somewhere was made on that line, and a tensor was not."""
    known = history.get(_Lines)
    line = known.at.get(site.position)
    made, whole = known.made_by(line) if line is not None else (set(), False)
    return whole and tensor not in made


def _of_owner(history: History, name: str, lines: list[Filling]) -> list[Filling]:
    """Leave out lines that fill an attribute of another class's objects, if the class is known."""
    inside = (f"{name}[", f"{name}.")
    owners = {fact.owner for fact in history.trace.names if fact.name.startswith(inside)}
    owners = history.get(_Lines).with_bases(owners)
    own = [one for one in lines if root_of(ast.unparse(one.into)) != "self" or one.owner in owners]
    return own or lines


def _nearest(history: History, lines: list[Filling], tensors: set[int]) -> list[Filling]:
    """Prefer the lines of the function that makes the tensors, where there are several."""
    made = [history.site_of(history.events[at]) for at in map(history.made_at, tensors) if at >= 0]
    near = [
        line
        for line in lines
        if any(line.file == one.file and _holds(line.scope, one) for one in made)
    ]
    return lines if len(lines) < 2 or not near else near


def _holds(scope: tuple[int, int], site: Site) -> bool:
    if scope == (0, 0):
        return site.function == "<module>"
    return scope[0] <= site.line <= scope[1]


class _Lines:
    """The lines of the program that put something somewhere, and what was made on them."""

    def __init__(self, history: History) -> None:
        self.all: list[Filling] = []
        self._bases: dict[str, set[str]] = defaultdict(set)
        self.classes: set[str] = set()  # that the program's text makes
        self._lines: dict[str, list[Filling]] = defaultdict(list)
        for file, text in sorted(history.trace.sources.items()):
            source = source_of(file, text)
            for node in source.nodes:
                if isinstance(node, ast.ClassDef):
                    self.classes.add(node.name)
                    self._bases[node.name] |= {called(one) for one in node.bases}
            for line in _lines_of(source, file, _put):
                self._lines[_called(line.into)].append(line)
                self.all.append(line)
        self._sources = history.trace.sources
        self.at = {self._site(one, _filler(one.node)): one for one in self.all}
        self._made: dict[tuple[str, int, int, int, int], set[int]] = defaultdict(set)
        for event in history.events:
            results = {int(one.tensor) for one in event.results}
            self._made[history.site_of(event).position] |= results

    def into(self, name: str) -> list[Filling]:
        """Return the lines that put something into what has this last name."""
        return self._lines.get(name, [])

    def setting(self, attribute: str) -> list[Filling]:
        """Return the statements that set an attribute of this name."""
        return [one for one in self._setting if called(one.into) == attribute]

    @cached_property
    def _setting(self) -> list[Filling]:
        """The statements that set an attribute: only errors are told with them."""
        texts = sorted(self._sources.items())
        return [one for file, text in texts for one in _lines_of(source_of(file, text), file, _set)]

    def made_by(self, line: Filling) -> tuple[set[int], bool]:
        """Return the tensors that the calls on a line made, and whether those are all it takes.

        A variable may hold anything; a constant holds no tensor.
        """
        own = self._site(line, line.node)
        if isinstance(line.node, ast.AugAssign) and own in self._made:
            return self._made[own], True  # an operator of tensors, not of lists
        sites = [
            self._site(line, node)
            for value in line.values
            for node in _parts(value)
            if not isinstance(node, ast.Constant)
        ]
        seen = [self._made[site] for site in sites if site in self._made]
        return set().union(*seen), len(seen) == len(sites)

    def with_bases(self, owners: set[str]) -> set[str]:
        """Return some classes with those that they are made from."""
        found = list(owners)
        for one in found:
            found += self._bases[one].difference(found)
        return set(found)

    def is_recorded(self, site: Site) -> bool:
        """Whether a call of PyTorch's stands at a site."""
        return site.position in self._made

    def is_of_numbers(self, site: Site) -> bool:
        """Whether a call of PyTorch's stands at a site that gave no tensor."""
        return site.position in self._made and not self._made[site.position]

    @staticmethod
    def _site(line: Filling, node: ast.expr | ast.stmt) -> tuple[str, int, int, int, int]:
        return site_of_node(line.file, node, line.source.lines).position


def _filler(node: ast.Call | ast.stmt) -> ast.expr | ast.stmt:
    """Return what stands for a line where `source.filling` names it: what is assigned."""
    return node.value if isinstance(node, ast.Assign) else node


def _parts(value: ast.expr) -> Iterator[ast.expr]:
    """Yield what a value is made of: the parts of a tuple, list or dictionary, or itself."""
    if isinstance(value, (ast.Tuple, ast.List, ast.Dict)):
        for part in value.values if isinstance(value, ast.Dict) else value.elts:
            yield from _parts(part)
    else:
        yield value


_Put = tuple[ast.Call | ast.stmt, ast.expr, tuple[ast.expr, ...]]
"""A node that puts something somewhere, where to, and what."""


def _lines_of(
    source: Source, file: str, put_by: Callable[[ast.AST], _Put | None]
) -> Iterator[Filling]:
    """Yield the lines of a file that put something somewhere."""
    if source.tree is not None:
        yield from _lines_in(source, file, (source.tree, "", (0, 0)), put_by)


def _lines_in(
    source: Source,
    file: str,
    inside: tuple[ast.AST, str, tuple[int, int]],
    put_by: Callable[[ast.AST], _Put | None],
) -> Iterator[Filling]:
    """Yield the lines inside a node, of a class and a function, that put something somewhere."""
    node, owner, scope = inside
    if isinstance(node, ast.ClassDef):
        owner = node.name
    elif isinstance(node, CALLABLES):
        scope = node.lineno, node.end_lineno or node.lineno
    put = put_by(node)
    if put is not None:
        yield Filling(source, file, *put, owner, scope)
    for child in ast.iter_child_nodes(node):
        yield from _lines_in(source, file, (child, owner, scope), put_by)


def _set(node: ast.AST) -> _Put | None:
    """Return a node that sets an attribute, which, and to what."""
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            for one in target.elts if isinstance(target, (ast.Tuple, ast.List)) else (target,):
                if isinstance(one, ast.Attribute):
                    return node, one, (node.value,)
    return None


def _put(node: ast.AST) -> _Put | None:
    """Return a node that puts something somewhere, where to, and what."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in INTO_CONTAINERS:
            values = (*node.args[-1:], *(one.value for one in node.keywords))
            return node, node.func.value, values
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                return node, target.value, (node.value,)
            added = _added(ast.unparse(target), node.value)
            if added:
                return node, target, added
    elif isinstance(node, ast.AugAssign):
        return node, node.target, (node.value,)
    return None


def _added(name: str, value: ast.expr) -> tuple[ast.expr, ...]:
    """Return what is put beside the parts of a container: x of ``[*kept, x]``, ``kept + [x]``."""
    parts: list[ast.expr] = []
    if isinstance(value, ast.BinOp) and isinstance(value.right, (ast.List, ast.Tuple)):
        parts = [value.left, *value.right.elts]
    elif isinstance(value, (ast.List, ast.Tuple)):
        parts = [one.value if isinstance(one, ast.Starred) else one for one in value.elts]
    before = [one for one in parts if ast.unparse(one) == name]
    return tuple(one for one in parts if one not in before) if before else ()


def _called(node: ast.expr) -> str:
    """Return the last name of an expression: losses of ``self.losses[k]``."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return called(node)
