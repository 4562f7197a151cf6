"""Why PyTorch refused to write to a leaf, when that ended the program: which leaf, and ways out."""

from __future__ import annotations

from collections.abc import Iterator

from tether.facts import Event, Operand, Trace
from tether.report.document import Block, Paragraph, Phrase
from tether.report.filters import shown_path
from tether.report.gradients import shortest_names

# How PyTorch's two messages open (torch/csrc/autograd/VariableTypeUtils.h, check_inplace).
_OF_LEAF = "a leaf Variable that requires grad is being used in an in-place operation"
_OF_VIEW = "a view of a leaf Variable that requires grad is being used in an in-place operation"


def refused(trace: Trace) -> Iterator[Block]:
    """Give nothing unless the program ended because it wrote to a leaf that requires grad."""
    event = _refused_write(trace)
    leaf = _leaf_of(event, trace) if event is not None else None
    if event is None or leaf is None:
        return
    names = shortest_names(trace)
    site = trace.sites[event.site]
    made = next((one for one in trace.events if _among(leaf, one.results)), None)
    name = names.get(leaf.tensor) or (trace.sites[made.site].target if made else "") or "it"
    where = f"{shown_path(site.file, trace.folder)}:{site.line}"
    sentence = f"`{site.expression or event.operation}` at {where} writes to `{name}`"
    if event.reads[0].tensor != leaf.tensor:
        sentence += " through a view of it"
    if made is not None and made.site >= 0:
        origin = trace.sites[made.site]
        sentence += f", made at {shown_path(origin.file, trace.folder)}:{origin.line}"
    sentence += (
        f". `{name}` is a leaf that requires grad: the write would turn it into a result, and"
        " gradients would no longer be kept in its `.grad`."
    )
    yield Paragraph((Phrase("because ", "bad"), Phrase(sentence)))
    for start, text in (
        ("to change its value:  ", "write inside `with torch.no_grad():`, before the forward pass"),
        ("to compute with the changed value:  ", f"write to `{name}.clone()`; gradients reach it"),
        (
            f"not through `{name}.data`:  ",
            "that write is not counted: a backward that needs the old value is silently wrong",
        ),
    ):
        yield Paragraph((Phrase(f"- {start}", "dim"), Phrase(text)))


def _refused_write(trace: Trace) -> Event | None:
    """Return the call whose refusal ended the program."""
    end = next((one for one in reversed(trace.raised) if one.fatal), None)
    if end is None or not end.message.startswith((_OF_LEAF, _OF_VIEW)):
        return None
    heard = [one for one in trace.raised if not one.fatal and one.message == end.message]
    if not heard:
        return None
    return next(
        (
            one
            for one in reversed(trace.events)
            if one.note == "raised" and one.site == heard[-1].site and one.site >= 0 and one.reads
        ),
        None,
    )


def _leaf_of(event: Event, trace: Trace) -> Operand | None:
    """Return the leaf that was to be written: the operand itself, or the one it is a view of."""
    written = event.reads[0]
    if written.leaf and written.requires_grad:
        return written
    operands = (one for other in trace.events for one in (*other.reads, *other.results))
    return next(
        (
            one
            for one in operands
            if one.storage == written.storage >= 0 and one.leaf and one.requires_grad
        ),
        None,
    )


def _among(operand: Operand, operands: tuple[Operand, ...]) -> bool:
    return any(one.tensor == operand.tensor for one in operands)
