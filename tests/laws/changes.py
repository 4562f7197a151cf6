"""One change in one place of a right program: what people leave out, put in, or write shorter.

A change is made in the program's text and in nothing else. Whether it broke the program is asked of
the program: see `outcomes`.
"""

import ast
from typing import NamedTuple

import torch


class Change(NamedTuple):
    """A stretch of a program's text, and what stands there instead.

    Some changes do more than tie places together: a list multiplied also evaluates its item once.
    Those have another text, with the same values and no tie, to which they are compared.
    """

    kind: str
    first: int  # lines that the change concerns
    last: int
    start: int  # characters
    end: int
    text: str
    untied: str = ""

    def made_in(self, program):
        """Return the program with the change made."""
        return program[: self.start] + self.text + program[self.end :]

    def untied_in(self, program):
        """Return the program to compare with."""
        if not self.untied:
            return program
        return program[: self.start] + self.untied + program[self.end :]


COPIES = {"clone": 0, "copy": 0, "deepcopy": 1, "detach": 0, "item": 0, "contiguous": 0}
"""Methods and functions that can be left out: how many arguments they have, at the least."""

VIEWS = {
    "torch.tensor": "torch.as_tensor",
    "np.array": "np.asarray",
    "numpy.array": "numpy.asarray",
}


def changes_of(program):
    """Yield each single change of a program."""
    lines = _Lines(program)
    for node in ast.walk(ast.parse(program)):
        for kind, old, new in _options(node, lines):
            whole = node if isinstance(node, (ast.With, ast.FunctionDef)) else old
            untied = (
                f"[__import__('copy').deepcopy(x) for x in {new}]" if "multiplied" in kind else ""
            )
            yield Change(kind, whole.lineno, whole.end_lineno, *lines.span(old, node), new, untied)


class _Lines:
    """A program's text by the positions that its syntax tree gives, in bytes of a line."""

    def __init__(self, program):
        self._program = program
        self._lines = program.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)

    def _at(self, line, column):
        text = self._lines[line - 1].encode()[:column].decode()
        return self._starts[line - 1] + len(text)

    def span(self, node, whole=None):
        """Return the characters of a node; of a block's or a function's, with what stands around."""
        start = self._at(node.lineno, node.col_offset)
        end = self._at(node.end_lineno, node.end_col_offset)
        if isinstance(whole, ast.With):
            return self._at(whole.lineno, whole.col_offset), end
        return start - isinstance(whole, ast.FunctionDef), end

    def text(self, node):
        start, end = self.span(node)
        return self._program[start:end]


def _options(node, lines):
    """Yield the changes at a node: their kind, what is replaced, and by what."""
    if isinstance(node, ast.Call):
        yield from _calls(node, lines)
    elif isinstance(node, ast.ListComp):
        yield from _repeated(node, lines)
    elif isinstance(node, ast.Assign) and len(node.targets) == 1:
        yield from _assigned(node, lines)
    elif isinstance(node, ast.With):
        if len(node.items) == 1 and _is_no_grad(node.items[0].context_expr):
            yield "no_grad dropped", node.items[0].context_expr, "if True"
    elif isinstance(node, ast.FunctionDef):
        for one in node.decorator_list:
            if _is_no_grad(one):
                yield "no_grad dropped", one, ""


def _is_no_grad(node):
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
        ("no_grad", "inference_mode")
    )


def _calls(node, lines):
    name = ast.unparse(node.func)
    last = name.rpartition(".")[2]
    if last in COPIES and not node.keywords and len(node.args) == COPIES[last]:
        kept = node.args[0] if node.args else node.func.value
        text = lines.text(kept)
        yield f"{last} taken out", node, text if _binds_tightly(kept) else f"({text})"
    elif name in ("copy.copy", "tether.copy", "torch.clone") and node.args:
        yield "copy taken out", node, lines.text(node.args[0])
    elif name in VIEWS:
        yield "copy made a view", node.func, VIEWS[name]
    receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
    if isinstance(receiver, ast.Name) and hasattr(torch.Tensor, f"{last}_"):
        yield "made in place", node, lines.text(node).replace(f".{last}(", f".{last}_(", 1)


def _binds_tightly(node):
    return isinstance(
        node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant, ast.List, ast.Dict)
    )


def _repeated(node, lines):
    used = {one.id for one in ast.walk(node.elt) if isinstance(one, ast.Name)}
    for loop in node.generators[:1]:
        bound = {one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
        counted = isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "range"
        if len(node.generators) == 1 and not loop.ifs and not used & bound and counted:
            count = f"len({lines.text(loop.iter)})"
            yield "list multiplied", node, f"[{lines.text(node.elt)}] * {count}"


def _assigned(node, lines):
    target, value = node.targets[0], node.value
    if not isinstance(target, (ast.Name, ast.Attribute)):
        return
    name = ast.unparse(target)
    if isinstance(value, ast.BinOp) and ast.unparse(value.left) == name:
        operator = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}.get(type(value.op))
        if operator is not None:
            yield "updated in place", node, f"{name} {operator}= {lines.text(value.right)}"
    if isinstance(value, ast.Call) and isinstance(target, ast.Name):
        yield "detach put in", value, f"{lines.text(value)}.detach()"
