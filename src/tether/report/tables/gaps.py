"""What could not be seen, in words: a sentence for each code of a `facts.Gap`."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tether.analysis.wording import listed
from tether.facts import Gap, GapCode, Trace
from tether.verdicts import VERDICTS

SENTENCES: dict[GapCode, str] = {
    "killed": "The recording stops before the program ended: the program was killed or is still"
    " running, or the disk was full. The calls of the last second, and up to 256 more, are"
    " missing.",
    "forgotten": "{detail} of the first calls were forgotten (--limit); those that made tensors"
    " still alive or wrote their memory last are kept. {off} off, and {some} may miss what only the"
    " forgotten calls show.",
    "steps": "Only the optimizer steps {detail} were recorded.",
    "sampled": "{detail} optimizer steps were recorded (--sample): the first, then ever rarer ones,"
    " and what is called seldom. What happened between them is unknown.",
    "failed": "tether could not look at a call ({detail}).",
    "pytorch": "This PyTorch has no {detail} as tether knows it: calls of it are not recorded.",
    "release": "PyTorch {detail} is newer than any that this tether was tried with.",
    "child": "A {detail} process was not recorded. What it did to shared memory is unknown.",
    "thread": "A thread was not recorded ({detail}).",
    "compiled": "A compiled region is recorded as one call; --eager shows what happens inside.",
    "scripted": "TorchScript runs {detail}: what happens inside is not seen. A call of it is"
    " recorded as one that reads what it is given.",
    "traced": "{detail} runs without being recorded.",
    "memory": "The memory of {detail} cannot be seen.",
    "pretended": "Tensors of the meta device and under FakeTensorMode have no memory: their bytes"
    " are those that they would have, and their values are not known.",
    "array-large": "Writes through NumPy arrays larger than {detail} were not checked.",
    "array-many": "Writes to arrays under more than {detail} tensors were not checked.",
    "array-time": "Writes through NumPy arrays were no longer checked: comparing had taken"
    " {detail} of the run.",
    "gradient-threads": "Several threads train: each looks only at the gradients of the tensors"
    " that it met.",
    "autosave": "From some moment on nothing was saved while the program ran: {detail}.",
    "analysis": "tether failed at {detail}. The rest of the report stands.",
}


class GapRow(NamedTuple):
    """One reason for not seeing something, and how often it was met."""

    code: GapCode
    reason: str  # a sentence
    times: int


def sentence(gap: Gap) -> str:
    """Say what a gap means."""
    off = [one.slug for one in VERDICTS if one.past == "all"]
    some = [one.slug for one in VERDICTS if one.past == "some"]
    return SENTENCES[gap.code].format(
        detail=gap.detail,
        off=f"{listed(off)} {'is' if len(off) == 1 else 'are'}",
        some=listed(some, len(some)),
    )


def gap_rows(trace: Trace) -> list[GapRow]:
    """Return each reason for a gap, the most frequent first."""
    counted: Counter[tuple[GapCode, str]] = Counter()
    for gap in trace.gaps:
        counted[gap.code, sentence(gap)] += gap.times
    return [GapRow(code, text, count) for (code, text), count in counted.most_common()]
