"""`tether.why`: from a live graph, without a recording, why a gradient reaches a tensor or not."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tether.cards import card, chip, words

MOST = 200_000
"""Nodes of a graph that are looked at. A larger graph is answered with what was seen by then."""


@dataclass(frozen=True)
class Reach:
    """Whether gradients of `loss` reach a tensor; printed it is a sentence or two.

    `path` names the graph's nodes from the loss to the tensor, the shortest way, both ends
    included; it is empty where no way was found.
    """

    reaches: bool
    reason: str
    path: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.reaches

    def __str__(self) -> str:
        if not self.path:
            return self.reason
        return f"{self.reason}\n  loss <- {' <- '.join(self.path)}"

    def _repr_html_(self) -> str:
        """Return the card that a notebook shows, with the way from the loss as chips."""
        title = f"<b>{'gradients arrive' if self.reaches else 'no gradient arrives'}</b>"
        rows = [("because", words(self.reason))]
        if self.path:
            rows.append(("way", " &larr; ".join(map(chip, ("loss", *self.path)))))
        return card(title, rows, "good" if self.reaches else "bad")


def why(tensor: torch.Tensor, loss: torch.Tensor) -> Reach:
    """Say whether ``loss.backward()`` gives `tensor` a gradient, and why not.

    Walks the graph that hangs on `loss`, before or after backward, without changing it. The line
    that cut a path is not in the graph: for that, record the program (``tether run``).

    Raises `TypeError` for anything but two tensors.
    """
    for name, value in (("tensor", tensor), ("loss", loss)):
        if not isinstance(value, torch.Tensor):
            kind = type(value).__name__
            raise TypeError(f"why() takes tensors; {name} is a {kind}")
    if not loss.requires_grad:
        return Reach(
            False,
            "the loss does not require grad: it was computed under no_grad, from detached tensors,"
            " or from Python numbers",
        )
    if not tensor.requires_grad:
        return Reach(False, "the tensor does not require grad: switch it on with requires_grad_()")
    if tensor is loss:
        return Reach(True, "it is the loss itself")
    if loss.grad_fn is None:
        return Reach(False, "the loss is a leaf: nothing was computed to make it")
    path, complete = _path(loss.grad_fn, tensor)
    if path is not None:
        note = ""
        if not tensor.is_leaf and not tensor.retains_grad:
            note = "; it is no leaf, so its .grad stays None unless retain_grad() was called before"
        return Reach(True, f"gradients of the loss reach it{note}", path)
    if not complete:
        return Reach(False, f"not found among the first {MOST:,} nodes of the graph")
    return Reach(
        False,
        "no path leads from the loss to it: its values were cut off (detach, no_grad, a Python"
        " number, NumPy) or never used. `tether run` names the line",
    )


def _path(
    root: torch.autograd.graph.Node, tensor: torch.Tensor
) -> tuple[tuple[str, ...] | None, bool]:
    """Shortest path of node names from `root` to the node of `tensor`, and whether all was seen."""
    target = tensor.grad_fn
    before: dict[torch.autograd.graph.Node, torch.autograd.graph.Node | None] = {root: None}
    queue = [root]
    for node in queue:  # grows while it is walked: breadth first
        if node is target or (target is None and getattr(node, "variable", None) is tensor):
            names = []
            at: torch.autograd.graph.Node | None = node
            while at is not None:
                names.append(at.name().rpartition("::")[2])
                at = before[at]
            return tuple(reversed(names)), True
        if len(before) > MOST:
            return None, False
        for following, _ in node.next_functions:
            if following is not None and following not in before:
                before[following] = node
                queue.append(following)
    return None, True
