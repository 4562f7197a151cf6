"""What the numbers in facts count, and the number that says none is known.

Identity. A tensor and a storage are known by serial numbers, minted when first seen and never used
again, since addresses come back within microseconds. `UNKNOWN` (-1) means "not known" wherever a
number is expected, and each unknown has a `Gap` or a reason beside it.

Time. The index of an `Event` is the only clock. An `EventId` is the index of one event; a `Moment`
is a time between events: "so many events had been recorded by then". So is a `NameId` among names.
"""

from __future__ import annotations

from typing import Final, NewType

EventId = NewType("EventId", int)
Moment = NewType("Moment", int)
SiteId = NewType("SiteId", int)
TensorId = NewType("TensorId", int)
StorageId = NewType("StorageId", int)
MemoryId = NewType("MemoryId", int)
SpanId = NewType("SpanId", int)
ThreadId = NewType("ThreadId", int)
OptimizerId = NewType("OptimizerId", int)
KindId = NewType("KindId", int)
ModuleId = NewType("ModuleId", int)
NameId = NewType("NameId", int)

UNKNOWN: Final = -1
"""No number is known."""
