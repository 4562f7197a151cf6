"""What a call of a copying operation copies, as the program's text has it."""

from __future__ import annotations

import ast

from tether.operations.table import operation
from tether.source.syntax import expression

_MODULES = frozenset({"torch", "copy", "nn", "F"})
"""What programs call the modules whose functions they call on tensors."""


def copied_text(name: str, text: str) -> str:
    """Return the text of what a call copies, as far as the call is a plain one; else "".

    ``x.clone()`` and ``torch.clone(x)`` both copy ``x``.
    """
    tree = expression(text)
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, (ast.Attribute, ast.Name)):
        return ""
    function = tree.func
    called = function.attr if isinstance(function, ast.Attribute) else function.id
    row = operation(name)
    if called != (row.typed or name):
        return ""
    argument = tree.args[0] if tree.args else None
    # What makes a tensor of something is no method of it, whatever torch is imported as.
    given = row.enters or 0 in row.template or _owner(function) is None
    taken = argument if given else _owner(function)
    return ast.unparse(taken) if taken is not None else ""


def fixed(name: str, text: str) -> bool:
    """Whether a call is given a tensor and constants alone: ``x.topk(5)`` with any `x`."""
    source, tree = copied_text(name, text), expression(text)
    if not source or not isinstance(tree, ast.Call):
        return False
    given = [*tree.args, *(one.value for one in tree.keywords)]
    return all(ast.unparse(one) == source or _is_constant(one) for one in given)


def _is_constant(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError):
        return False
    return True


def lists_parts(text: str) -> bool:
    """Whether a call's text has a list of all that it is given: ``torch.cat([x, y])``."""
    tree = expression(text)
    first = tree.args[0] if isinstance(tree, ast.Call) and tree.args else None
    if not isinstance(first, (ast.List, ast.Tuple)):
        return False
    return not any(isinstance(one, ast.Starred) for one in first.elts)


def _owner(function: ast.Attribute | ast.Name) -> ast.expr | None:
    """Return what a method is called on; None for a function, of a module or not."""
    if isinstance(function, ast.Name):
        return None
    owner = root = function.value
    while isinstance(root, ast.Attribute):
        root = root.value
    return None if isinstance(root, ast.Name) and root.id in _MODULES else owner
