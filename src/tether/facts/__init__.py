"""What happened: the plain facts of one recording.

A fact is what happened, once, as it was then. Facts hold numbers and strings only: no tensor, no
frame, no live object. The recorder makes them; every verdict and report reads them through
`History` and needs no torch.

A field's type says what its number is (`facts.identity`). Checking, saving and merging are derived
from these annotations (`tether.store`), so a new fact is a class in the file of its subject, a
table in `Trace`, and whatever collects it. Everyone imports facts from here.
"""

from tether.facts.arrays import (
    RUNS_OF_ARRAYS,
    ArrayAgain,
    ArrayCall,
    ArrayCopied,
    ArrayFact,
    ArrayKept,
    ArrayLine,
    Drawn,
    MappedFile,
    OnOthers,
    Rewritten,
    Taken,
    Unseen,
)
from tether.facts.calls import (
    BACKWARDS,
    CREATE_GRAPH,
    GRAD_INFERENCE,
    GRAD_OFF,
    GRAD_ON,
    INFERENCE,
    KEEPS,
    MOST_REACHED,
    NAMED,
    NON_BLOCKING,
    NONE,
    ON,
    OUT,
    RAISED,
    RETAIN_GRAPH,
    Callers,
    Event,
    Operand,
    Raised,
    Site,
    Span,
    SpanKind,
    WayThere,
)
from tether.facts.gradients import (
    MOST_RUNS,
    Altered,
    BackwardHooked,
    Followed,
    FunctionPass,
    FunctionState,
    GivenWritten,
    Gradients,
    GradientStatus,
    Hooked,
    KeptByHook,
    Kind,
    RunAgain,
    RunEnd,
    Stop,
    Walk,
)
from tether.facts.holders import (
    CACHE,
    WAITING,
    CacheKept,
    Holder,
    HolderKind,
    MadeOnce,
    Name,
    Reassigned,
    ShallowCopy,
    Sought,
    Suspended,
    WrittenThrough,
)
from tether.facts.identity import (
    UNKNOWN,
    EventId,
    KindId,
    MemoryId,
    ModuleId,
    Moment,
    NameId,
    OptimizerId,
    SiteId,
    SpanId,
    StorageId,
    TensorId,
    ThreadId,
)
from tether.facts.lives import PRETENDED, Allocator, Attached, InRing, StorageFact, TensorFact
from tether.facts.modules import (
    Drift,
    ModeSwitch,
    Movement,
    OwnBackward,
    Padded,
    PlainFlag,
    SlicesAlike,
    Unmatched,
    ValueStatus,
)
from tether.facts.optimizers import (
    MOST_HELD,
    GivenTwice,
    IteratorHeld,
    IteratorTaken,
    OptimizerFact,
    Rate,
    RateOfAnother,
    RatePutBack,
    Schedule,
    SharedRate,
    StateGiven,
    StateLeft,
    StateOfAnother,
)
from tether.facts.processes import LOADER, Fork, Inherited, Process, Shared, SharedBy
from tether.facts.trace import (
    SCRIPTED_FUNCTION,
    SCRIPTED_MODULE,
    STRICT,
    Gap,
    GapCode,
    Outcome,
    Trace,
)
from tether.facts.values import (
    COMPARED,
    LEAST_OF_A_LIST,
    AddressedApart,
    Bridge,
    Collision,
    Entered,
    KeptAgain,
    ReadBack,
    Repeated,
    Same,
    Tried,
)

__all__ = [
    "BACKWARDS", "CACHE", "COMPARED", "CREATE_GRAPH", "GRAD_INFERENCE", "GRAD_OFF", "GRAD_ON",
    "INFERENCE", "KEEPS", "LEAST_OF_A_LIST", "LOADER", "MOST_HELD", "MOST_REACHED", "MOST_RUNS",
    "NAMED", "NONE", "NON_BLOCKING", "ON", "OUT", "PRETENDED", "RAISED", "RETAIN_GRAPH",
    "RUNS_OF_ARRAYS", "SCRIPTED_FUNCTION", "SCRIPTED_MODULE", "STRICT", "UNKNOWN", "WAITING",
    "AddressedApart", "Allocator", "Altered", "ArrayAgain",
    "ArrayCall", "ArrayCopied", "ArrayFact", "ArrayKept", "ArrayLine", "Attached",
    "BackwardHooked", "Bridge", "CacheKept", "Callers", "Collision", "Drawn", "Drift", "Entered",
    "Event", "EventId", "Followed", "Fork", "FunctionPass", "FunctionState", "Gap", "GapCode",
    "GivenTwice", "GivenWritten", "GradientStatus", "Gradients", "Holder", "HolderKind", "Hooked",
    "InRing", "Inherited", "IteratorHeld", "IteratorTaken", "KeptAgain", "KeptByHook", "Kind",
    "KindId", "MadeOnce", "MappedFile", "MemoryId", "ModeSwitch", "ModuleId", "Moment", "Movement",
    "Name", "NameId", "OnOthers", "Operand", "OptimizerFact", "OptimizerId", "Outcome",
    "OwnBackward", "Padded", "PlainFlag", "Process", "Raised", "Rate", "RateOfAnother",
    "RatePutBack", "ReadBack", "Reassigned", "Repeated", "Rewritten", "RunAgain",
    "RunEnd", "Same", "Schedule", "ShallowCopy", "Shared", "SharedBy", "SharedRate", "Site",
    "SiteId", "SlicesAlike", "Sought", "Span", "SpanId", "SpanKind", "StateGiven", "StateLeft",
    "StateOfAnother", "Stop", "StorageFact", "StorageId", "Suspended", "Taken", "TensorFact",
    "TensorId", "ThreadId", "Trace", "Tried", "Unmatched", "Unseen", "ValueStatus", "Walk",
    "WayThere", "WrittenThrough",
]  # fmt: skip
