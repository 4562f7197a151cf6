"""What a definition makes once, in the text: the value of a default, of an attribute of a class."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tether.facts import Site
from tether.source.syntax import Source, called, site_of_node


def default_of(source: Source, site: Site, name: str) -> Site | None:
    """Return where the default of an argument stands, in the function defined at a site."""
    function = source.function_at(site)
    if function is None:
        return None
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    pairs = [
        *zip(plain[len(plain) - len(given.defaults) :], given.defaults, strict=True),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    found = (default for argument, default in pairs if argument.arg == name and default is not None)
    return next((site_of_node(site.file, default, source.lines) for default in found), None)


def kept_as(source: Source, site: Site, name: str) -> Iterator[Site]:
    """Yield the lines of the function defined at a site that give an attribute an argument."""
    function = source.function_at(site)
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            names = (one.id for one in ast.walk(node.value) if isinstance(one, ast.Name))
            if name in names:
                yield site_of_node(site.file, node, source.lines)


def attribute_of(source: Source, file: str, owner: str, name: str) -> Site | None:
    """Return where the body of a class gives an attribute its value."""
    for node in source.nodes:
        for one in node.body if isinstance(node, ast.ClassDef) and node.name == owner else ():
            targets = one.targets if isinstance(one, ast.Assign) else ()
            target = one.target if isinstance(one, ast.AnnAssign) else next(iter(targets), None)
            value = one.value if isinstance(one, (ast.Assign, ast.AnnAssign)) else None
            if value is not None and isinstance(target, ast.Name) and target.id == name:
                return site_of_node(file, value, source.lines)
    return None


def is_asked_of_class(source: Source, owner: str, name: str) -> bool:
    """Whether a line asks the class itself for an attribute: it is known to be the class's."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == name
        and (called(node.value) in (owner, "cls", "__class__") or isinstance(node.value, ast.Call))
        for node in source.nodes
    )
