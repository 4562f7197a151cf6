"""What a call of a copying operation copies, as the program's text has it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tether.operations.table import Operation, operation
from tether.source.syntax import expression, is_module


def copied_text(name: str, text: str) -> str:
    """Return the text of what a call copies, as far as the call is a plain one; else "".

    ``x.clone()`` and ``torch.clone(x)`` both copy ``x``, and so does ``y.copy_(x)``.
    """
    tree = expression(text)
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, (ast.Attribute, ast.Name)):
        return ""
    function = tree.func
    called = function.attr if isinstance(function, ast.Attribute) else function.id
    row = operation(name)
    if called != (row.typed or name):
        return ""
    taken = _copied(row, tree, _owner(function))
    return ast.unparse(taken) if taken is not None else ""


def _copied(row: Operation, call: ast.Call, owner: ast.expr | None) -> ast.expr | None:
    """Return what a call takes the elements from: one of its arguments, or what it is called on."""
    into = bool(row.writes and row.copies)
    # What makes a tensor of something is no method of it, whatever torch is imported as.
    if owner is not None and not (row.enters or into or 0 in row.template):
        return owner
    # Rows stand behind their numbers, and a source behind what a function puts it into.
    place = int(row.rows or (into and owner is None))
    return call.args[place] if len(call.args) > place else None


def called_by(text: str) -> str:
    """Return the last name of what a call calls: `table` of ``self.table(x)``; or ""."""
    match expression(text):
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
            return name
    return ""


def with_method(text: str, old: str, new: str) -> str:
    """Return the text of a call with another name for its own method; "" where it calls another.

    ``Normal(memory.sample(8), 1).rsample()`` of ``Normal(memory.sample(8), 1).sample()``: what it
    is given stays as it is.
    """
    text = text.strip()
    match expression(text):
        case ast.Call(func=ast.Attribute(attr=name) as method) if name == old:
            kept = text.encode()
            end = method.end_col_offset or 0
            return (kept[: end - len(old.encode())] + new.encode() + kept[end:]).decode()
    return ""


def without_keyword(text: str, name: str) -> str:
    """Return the text of a call without one argument, ``F.elu(x)`` of ``F.elu(x, inplace=True)``.

    "" where the call has no such argument.
    """
    tree = expression(text)
    if not isinstance(tree, ast.Call) or all(one.arg != name for one in tree.keywords):
        return ""
    kept = [one for one in tree.keywords if one.arg != name]
    return ast.unparse(ast.Call(func=tree.func, args=tree.args, keywords=kept))


def is_decided_elsewhere(call: ast.AST | None, name: str) -> bool:
    """Whether a call is given an argument by its name that is no constant, or may be, by ``**``."""
    given = call.keywords if isinstance(call, ast.Call) else []
    return any(one.arg in (name, None) and not _is_constant(one.value) for one in given)


def as_operand(text: str) -> str:
    """Return the text of an expression so that a method's call may stand behind it.

    ``(a + b)`` of ``a + b``; ``x`` and ``f(x)`` stay as they are.
    """
    bare = isinstance(expression(text), (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    return text if bare else f"({text})"


def is_target(text: str) -> bool:
    """Whether another tensor may be called so: ``x``, ``self.x``; into ``x[0]`` it is written."""
    return isinstance(expression(text), (ast.Name, ast.Attribute))


def deep_copied(text: str) -> str:
    """Return the text of what ``copy.deepcopy(x)`` copies; "" of any other expression."""
    tree = expression(text)
    if isinstance(tree, ast.Call) and tree.args and called_by(text) == "deepcopy":
        return ast.unparse(tree.args[0])
    return ""


def listed_of(text: str) -> str:
    """Return the text of what becomes a list by an expression: ``x`` of ``x.tolist()``; or ""."""
    match expression(text):
        case ast.Call(func=ast.Attribute(value=owner, attr="tolist"), args=[], keywords=[]):
            return ast.unparse(owner)
    return ""


def fixed(name: str, text: str) -> bool:
    """Whether a call is given a tensor and constants alone: ``x.topk(5)`` with any `x`."""
    source, tree = copied_text(name, text), expression(text)
    if not source or not isinstance(tree, ast.Call):
        return False
    given = [*tree.args, *(one.value for one in tree.keywords)]
    return all(ast.unparse(one) == source or _is_constant(one) for one in given)


def _is_constant(node: ast.expr) -> bool:
    """Whether an expression is written out; `float("-inf")` is a number that no literal is."""
    match node:
        case ast.UnaryOp(operand=operand):
            return _is_constant(operand)
        case ast.Call(func=ast.Name(id="float" | "int"), args=[given], keywords=[]):
            return _is_constant(given)
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError):
        return False
    return True


def operand_text(text: str, place: int, count: int) -> str:
    """Return the text of one of the tensors that an operator was given: `x` of ``x * 1.0``; or "".

    As many of its operands as were tensors are no constants, or it is not known which is which.
    """
    match expression(text):
        case ast.BinOp(left=left, right=right):
            variable = [one for one in (left, right) if not _is_constant(one)]
            return ast.unparse(variable[place]) if len(variable) == count else ""
    return ""


def repeats_once(name: str, text: str, alike: Iterable[int]) -> bool:
    """Whether a call that repeats is told in its text to say some dimensions once, as they are.

    The dimensions are counted from the end: -1 is the last. A number that is written out and is not
    one is no amount of such a dimension.
    """
    amounts = _given(name, expression(text))
    if amounts is None:
        return False
    last = dict(enumerate(reversed(amounts[1:]), 1))
    return all(-at not in last or _is_constant(last[-at]) for at in alike)


def takes_tensors_alone(name: str, text: str, count: int) -> bool:
    """Whether a call that was given some tensors was given constants beside, and nothing else.

    As where its text has as many arguments that are no constants, or one, which holds them all.
    """
    given = _given(name, expression(text))
    if given is None:
        return False
    variable = sum(not _is_constant(one) for one in given)
    return 0 < variable <= count and variable in (1, count)


def _given(name: str, tree: ast.expr | None) -> list[ast.expr] | None:
    """Return what the text of an operation gives it; None where that is not all to be seen."""
    if isinstance(tree, ast.BinOp):
        return [tree.left, tree.right]
    if isinstance(tree, ast.UnaryOp):
        return [tree.operand]
    if not isinstance(tree, ast.Call) or not _calls(name, tree.func) or _unpacks(tree):
        return None
    owner = _owner(tree.func) if isinstance(tree.func, (ast.Attribute, ast.Name)) else None
    given = [*tree.args, *(one.value for one in tree.keywords)]
    return [*_parts(given if owner is None else [owner, *given])]


def _calls(name: str, function: ast.expr) -> bool:
    """Whether a call's text names an operation: ``torch.linalg.svd`` is linalg_svd."""
    called = ast.unparse(function).rpartition(".")[2]
    return called == name or name.endswith(f"_{called}")


def _unpacks(tree: ast.Call) -> bool:
    """Whether a call's text does not say how many things it gives."""
    starred = any(isinstance(one, ast.Starred) for one in tree.args)
    return starred or not all(one.arg for one in tree.keywords)


def _parts(given: Iterable[ast.expr]) -> Iterator[ast.expr]:
    """Yield what is given, the elements of a list that is written out by themselves."""
    for one in given:
        if isinstance(one, (ast.List, ast.Tuple)):
            yield from _parts(one.elts)
        else:
            yield one


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
    return None if is_module(function.value) else function.value
