"""Shifts that a norm takes out again: the bias of a layer right before a batch norm.

A norm that computes its statistics from what it is given takes away the mean of each channel, and
with it whatever was added to the channel. The derivative for such a bias is zero; what comes back
is what rounding leaves of it.
"""

from __future__ import annotations

from tether.analysis.history import History
from tether.facts import UNKNOWN, Event, TensorId
from tether.operations.table import operation


def taken_out_by(history: History, tensor: TensorId) -> int:
    """Return the position of a norm that takes a bias out, as at each of its uses, or UNKNOWN."""
    norm = UNKNOWN
    for at in history.reads_of(tensor):
        event = history.events[at]
        if not any(one.requires_grad and not one.leaf for one in event.results):
            continue
        if not _is_bias(event, tensor):
            return UNKNOWN
        for later in history.reads_of(event.results[0].tensor):
            if not _takes_the_mean_out(history.events[later], event.results[0].tensor):
                return UNKNOWN
            norm = later if norm == UNKNOWN else norm
    return norm


def _is_bias(event: Event, tensor: TensorId) -> bool:
    """Whether a call multiplies by a weight, and adds a tensor's values to the second dimension."""
    if not operation(event.operation).rounds or len(event.reads) != 3 or len(event.results) != 1:
        return False
    _, weight, shift = event.reads
    dimensions = len(event.results[0].shape)
    # A convolution's weight has more dimensions than two, and its channels are the second.
    second = dimensions == 2 or len(weight.shape) > 2
    return shift.tensor == tensor and len(shift.shape) == 1 and second


def _takes_the_mean_out(event: Event, given: TensorId) -> bool:
    """Whether a norm updates its statistics by what it is given: it computes with these, then."""
    norm = operation(event.operation).notes == "statistics" and bool(event.writes)
    return norm and event.reads[0].tensor == given
