"""Places known by what stands there, not by their lines: they survive what is added above them."""

from __future__ import annotations

import ast
import hashlib
from functools import lru_cache
from typing import NamedTuple

from tether.facts import Site
from tether.report.filters import shown_path
from tether.source import syntax


class Key(NamedTuple):
    """A place in a program, as it is known from one version of its source to the next."""

    file: str  # relative to the program's folder where it lies in it
    function: str
    what: str  # the expression without its layout; the operation where the text is not known


def key(site: Site, operation: str, folder: str) -> Key:
    """Return the key of what `operation` did at a site."""
    return Key(shown_path(site.file, folder), site.function, plain(site.expression) or operation)


@lru_cache(maxsize=8192)
def plain(expression: str) -> str:
    """Return an expression without the layout, quotes and brackets that change nothing."""
    tree = syntax.expression(expression)
    try:
        return ast.unparse(tree) if tree is not None else " ".join(expression.split())
    except RecursionError:  # a sum of a thousand terms
        return " ".join(expression.split())


def fingerprint(one: Key, *more: str) -> str:
    """Return a short text that is the same whenever the key is."""
    text = "\0".join((*one, *more))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:32]
