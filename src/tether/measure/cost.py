"""What copies cost: the plain figures that `tether.measure.bench` measures and the reports read.

Times are seconds of one call, sizes are bytes. The figures go to a file and come back unchanged,
so that an old run can be held against a new one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

SCHEMA = 1
"""Version of the file that `Bench.to_dict` describes."""


class Cost(NamedTuple):
    """One way of copying at one size."""

    way: str  # what is written: "x.clone().detach()"
    family: str  # ways that are held against each other: "tensor", "numpy", "expression"
    nbytes: int  # of `x`
    seconds: float | None  # median of one call; None: it could not be measured, `note` says why
    low: float = 0.0  # lower quartile
    high: float = 0.0  # upper quartile
    runs: int = 0  # samples behind the median, each of `calls` calls
    calls: int = 0
    faults: float = 0.0  # page faults of one call, minor and major, all threads
    allocated: int | None = None  # bytes that one call newly allocates; None: not known
    peak: int | None = None  # bytes it holds at most at once, beside `x`
    waits: int | None = None  # times that it waits for the device; None: not known
    memory: str = ""  # tie of the result to `x`, in the words of `relate`
    gradient: str = ""
    note: str = ""  # why something is not known, or PyTorch's refusal

    @property
    def speed(self) -> float | None:
        """Bytes of `x` per second."""
        return self.nbytes / self.seconds if self.seconds else None


class Limit(NamedTuple):
    """One thing that the machine itself does with bytes, measured."""

    name: str  # "mapped memory, one thread"
    nbytes: int
    seconds: float
    low: float
    high: float
    faults: float = 0.0

    @property
    def speed(self) -> float:
        """Bytes per second."""
        return self.nbytes / self.seconds


class Bench(NamedTuple):
    """One run: its figures and the machine they were made on."""

    costs: tuple[Cost, ...] = ()
    floor: dict[int, float] = {}  # noqa: RUF012 -- size: seconds of the memory's own copy
    limits: tuple[Limit, ...] = ()
    machine: dict[str, str] = {}  # noqa: RUF012 -- "torch": "2.13.0", "cores": "2", ...
    noise: tuple[str, ...] = ()  # what disturbed the measurement, in words

    def share(self, cost: Cost) -> float | None:
        """Return the share of the memory's own speed that `cost` reaches: 1.0 is all of it."""
        floor = self.floor.get(cost.nbytes)
        return floor / cost.seconds if floor and cost.seconds else None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return {
            "schema": SCHEMA,
            "kind": "tether bench",
            "machine": dict(self.machine),
            "noise": list(self.noise),
            "floor": [{"nbytes": size, "seconds": s} for size, s in self.floor.items()],
            "costs": [
                {**cost._asdict(), "bytes_per_second": cost.speed, "share": self.share(cost)}
                for cost in self.costs
            ],
            "limits": [
                {**limit._asdict(), "bytes_per_second": limit.speed} for limit in self.limits
            ],
        }


def from_dict(found: Any) -> Bench:
    """Return the run that `Bench.to_dict` wrote.

    Raises `ValueError` that says what is wrong when it is something else.
    """
    if not isinstance(found, dict) or found.get("kind") != "tether bench":
        raise ValueError("it was not written by tether bench --save")
    if found.get("schema") != SCHEMA:
        raise ValueError(f"its schema is {found.get('schema')!r}, this tether reads {SCHEMA}")
    try:
        return Bench(
            costs=tuple(_picked(Cost, item) for item in found["costs"]),
            floor={int(item["nbytes"]): float(item["seconds"]) for item in found["floor"]},
            limits=tuple(_picked(Limit, item) for item in found["limits"]),
            machine={str(key): str(value) for key, value in found["machine"].items()},
            noise=tuple(map(str, found["noise"])),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is damaged: {error}") from None


def _picked(kind: Any, item: dict[str, Any]) -> Any:
    return kind(**{name: item[name] for name in kind._fields if name in item})
