"""A trace survives the file, and no file can do worse than be refused."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import random
import stat
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import NewType

import pytest

from lengths import LONG
from tether import facts
from tether.facts import Event, EventId, Moment, Operand, Site, SiteId, Trace
from tether.store import fields, file, frames, layout
from tether.store.columns import columns_of
from tether.store.fields import check, kinds_in, moved, numbers_in
from tether.store.file import RecordingError, load, load_all, merge, save

MUTATIONS = int(os.environ.get("TETHER_FUZZ", "3000" if LONG else "1000"))
"""How many damaged files are tried; TETHER_FUZZ=100000 before a release."""


def operand(tensor: int, storage: int, version: int = 0) -> Operand:
    return Operand(tensor, storage, version, 0, (2, 3), (3, 1), "float32", True, tensor == 0)


def example() -> Trace:
    """A trace with at least one fact of every kind, every field away from its default."""
    one, two = operand(0, 0), operand(1, 0, 4)
    return Trace(
        program=["train.py", "--name", 'a "quoted" \udc80 ü 你'],
        folder="/home/me",
        torch="2.13.0",
        outcome="raised",
        dropped=7,
        kept=[2],
        concluded="{}",
        events=[
            Event("randn", 0, (), (one,)),
            Event(
                "clone", 0, (one,), (two,), (), facts.GRAD_ON, 0, 1, 0, facts.OUT, 1, "Name", 0, 12
            ),
            Event("add_", 1, (one, two), (one,), (operand(0, 0, 1),), facts.GRAD_OFF, thread=2),
        ],
        sites=[
            Site("/home/me/train.py", 3, 5, 3, 14, "main", 1, True, "x.clone()", "y"),
            Site("/usr/lib/nn.py", 9, user=False),
        ],
        spans=[
            facts.Span("step", "SGD", 0, 7, 9),
            facts.Span("hook", "h", 1, 8, 9, 0, 8),
        ],
        kinds=[facts.Kind(("CloneBackward0",), 1, (0,), (1,), ((0, 0, -1),), True, False)],
        altered=[facts.Altered(8, 0, 3, True)],
        walks=[facts.Walk(8, 0, (0, 1), ((0, 3), (5, 9)), ((2, 2),), False, (), 8.0)],
        tensors={0: facts.TensorFact("Parameter", 7, 9), 1: facts.TensorFact("Tensor", 8)},
        storages={0: facts.StorageFact(24, "cpu", 7, 9, 3, 8)},
        names=[facts.Name(0, "model.weight", 7, "Linear", False, "model", True, 2)],
        reassigned=[facts.Reassigned(8, 1, 2, "weight", 0, 1, 1)],
        runs_again=[facts.RunAgain(8, 0, 7, 8, 0, 8, 9, 2, "stopped", True, False)],
        plain_flags=[facts.PlainFlag(8, "Linear", "requires_grad", (0, 1))],
        own_backwards=[facts.OwnBackward(8, "Reversed", 0)],
        in_rings=[facts.InRing(0)],
        cache_kept=[facts.CacheKept("Net.table", 0, 3, (1,), 4096, (0,))],
        made_once=[facts.MadeOnce(8, "head", 0, 2, ("a", "b"), (0, 1), "")],
        suspended=[facts.Suspended("tracks[0].gi_frame", 1)],
        holders=[facts.Holder(8, 0, "kept[0]", "slot", "train", 0, 1, sought="met")],
        backward_hooks=[facts.BackwardHooked(8, 1, "Linear", "model.head", True)],
        hooks=[facts.Hooked(1, "Linear", -1, (2, 7), "scale")],
        optimizers=[facts.OptimizerFact("SGD", 0, 7, (0, 1), (1, 1), (0.5, 0.0))],
        rates=[facts.Rate(9, 0, 1, 0.5)],
        schedules=[facts.Schedule("LambdaLR", 0, 9, 0, -1, (0.0, 0.5), (0.5, 0.5), 3, 0)],
        shared_rates=[facts.SharedRate(9, 0, 0, (0, 1), (0.0, 0.5), (1.0, 0.0))],
        shallow_copies=[facts.ShallowCopy(8, 1, "State", 0, 1, (0, 1), ("mean", "count"))],
        written_through=[facts.WrittenThrough(8, 1)],
        rates_of_others=[facts.RateOfAnother(9, 0, 0, 1, 0, 1, (0.5, 0.25, 0.1), False)],
        iterators_taken=[facts.IteratorTaken(9, 0, "SGD", "self.trainable")],
        given_twice=[facts.GivenTwice(9, 0, (1,))],
        iterators_held=[facts.IteratorHeld(9, 1, "params", "Module.parameters", True, 0)],
        rates_put_back=[facts.RatePutBack(9, 0, "LambdaLR", 0, 1, 0.5)],
        states_of_others=[facts.StateOfAnother(9, 0, 0, 0, 1, 1)],
        mode_switches=[facts.ModeSwitch(8, 0, False, (0, 1), ("Dropout",), True, (1,))],
        callers=[facts.Callers(0, (0,))],
        drifts=[facts.Drift(8, 1, 0, {0: 5})],
        reached=[facts.WayThere(8, 0, (1, 0))],
        movements=[facts.Movement("step", 9, 0, 0, {0: "moved", 1: "same"})],
        alike=[facts.SlicesAlike(0, 0, 8, 8, 3, False)],
        followed=[
            facts.Followed(8, 0, (facts.Stop(3, 0, True, "other", 0.0, 1.5),), (4,), (7,), (9,))
        ],
        gradients=[facts.Gradients("end", 9, 0, -1, {0: "none", 1: "unchecked"})],
        bridges=[
            facts.Bridge(7, 8, True, "the NumPy array"),
            facts.Bridge(7, 8, certain=False, via="`v`", doubtful=True),
        ],
        same=[facts.Same(8, 1, 0, 0, 4, (3, 1), 7)],
        tried=[facts.Tried(8, 0, same=True)],
        collisions=[facts.Collision(8, 2, 6)],
        addressed_apart=[facts.AddressedApart(8, 8, 1)],
        states_given=[facts.StateGiven(8, 1, 0, full=False)],
        states_left=[facts.StateLeft(8, 1, "Adam", 0, 0, 1, 3)],
        function_states=[facts.FunctionState(8, "factor", "0.5")],
        kept_by_hooks=[facts.KeptByHook(8, 9, 0, 1, 0, (4, 3), (3, 1), "float32", 0)],
        function_passes=[
            facts.FunctionPass(8, 9, 0, "Round", (0,), (1,), (0, 0), varied=True, filled=False)
        ],
        given_written=[facts.GivenWritten(8, 9, 0, "Round", 0, 0, 0, 9)],
        padded=[facts.Padded(8, 3, 2, 6, 1)],
        taken=[facts.Taken(8, 64, "unknown", 9, 3)],
        arrays_copied=[
            facts.ArrayCopied(8, 1, "rows[:3]", "float32", (3, 1), True, 64, "no", 9, 8)
        ],
        array_lines=[facts.ArrayLine(1, "tobytes", False, 12, 49152)],
        array_calls=[facts.ArrayCall(1, 8, True, 4096, 64, 0, "no", 9, 8, "write", False, 1)],
        entered=[facts.Entered(8, 3, 7, 2, True, 1)],
        on_others=[facts.OnOthers(8)],
        read_back=[facts.ReadBack(8, 7)],
        unmatched=[facts.Unmatched(7, 9, 0, "Linear", ("head.weight",), (1,), 2)],
        repeated=[facts.Repeated(8, 3)],
        arrays_again=[facts.ArrayAgain(8, 9, 40, 1 << 20, 4096)],
        drawn=[facts.Drawn(8, 40, 4096, 512, False)],
        kept_again=[facts.KeptAgain(9, 5, "seen", (1,), 8, 4096, 1024, 0, True, True, 16)],
        rewritten=[facts.Rewritten(8, 7, 3)],
        arrays=[facts.ArrayFact(7, 9)],
        arrays_kept=[facts.ArrayKept(7, 8, 9, "rows[2]", 64, 1 << 20)],
        mapped_files=[facts.MappedFile(8, 0, "rows.npy", (0, 3), False, 9, False)],
        unseen=[facts.Unseen(0, 7, 8, 7, 1, False)],
        forks=[facts.Fork(8, True, False)],
        inherited=[facts.Inherited(0, True, True, 1, 0)],
        shared=[facts.Shared(0, "received")],
        raised=[facts.Raised(9, "ValueError", "bad\nvalue", 0, True, -1, "bad", (0, 1))],
        gaps=[facts.Gap("compiled", "a region", 0, 8)],
        attached=[facts.Attached(1, 0, "gradient", 0, "grad", 8, 1)],
        allocators=[facts.Allocator("cuda:0", 4096, 512)],
        sources={"/home/me/train.py": "import torch\r\n\x00ü\n"},
    )


def path_of(tmp_path: Path, trace: Trace) -> Path:
    path = tmp_path / "run.tether"
    save(trace, path)
    return path


def opened(path: Path) -> Trace | str:
    """Return the trace, or the message of the one error that may come instead."""
    try:
        return load(path)
    except RecordingError as error:
        message = str(error)
        assert "\n" not in message
        assert len(message) < 600
        return message


def put(path: Path, data: bytes) -> None:
    """Write a new file: over an old one, some file systems wait for the disk."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def parts(path: Path) -> list[bytes]:
    """What the frames of a file hold, unpacked."""
    data, found = path.read_bytes().partition(b"\n")[2], []
    while data:
        length, _ = struct.unpack("<II", data[:8])
        found.append(zlib.decompress(data[8 : 8 + length]))
        data = data[8 + length :]
    return found


def sealed(*texts: bytes) -> bytes:
    """A file whose check sums fit, whatever its frames say."""
    packed = [zlib.compress(text) for text in texts]
    framed = [struct.pack("<II", len(one), zlib.crc32(one)) + one for one in packed]
    return frames.first_line() + b"".join(framed)


def test_round_trip(tmp_path):
    trace = example()
    back = load(path_of(tmp_path, trace))
    assert back == trace
    assert isinstance(back.events[0].results[0], Operand)
    assert isinstance(back.gradients[0].status[0], str)
    again = tmp_path / "again.tether"
    save(back, again)  # this time from the columns
    assert load(again) == trace


def test_the_example_has_every_table():
    """So that a table or field added to the facts cannot be forgotten by the file."""
    trace = example()
    empty = [name for name, value in vars(trace).items() if not value]
    assert empty == []
    numbers = {"events", "tensors", "storages"}
    assert set(vars(trace)) == {*layout.TABLES, *layout.SCALARS, *numbers, "sources"}


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
def test_a_count_may_be_of_any_size(tmp_path, number):
    """Of numbers that point at something, and of none, the file knows how many there are."""
    trace = Trace(sites=[Site("a.py", 1)], padded=[facts.Padded(-1, number, 2, 6, 1)])
    assert load(path_of(tmp_path, trace)) == trace
    trace = Trace(names=[facts.Name(number, "w", 0)])
    assert "a whole number was expected" in str(opened(path_of(tmp_path, trace)))


def test_empty_trace(tmp_path):
    assert load(path_of(tmp_path, Trace())) == Trace()


def test_columns_read_like_a_list():
    events = example().events
    columns = columns_of(events)
    assert columns == events
    assert [columns[0], columns[-1]] == [events[0], events[-1]]
    assert columns[1:] == events[1:]
    assert columns[1].reads[0] is columns[2].reads[0], "an operand is one object"
    assert columns.column("thread").tolist() == [0, 0, 2]
    with pytest.raises(IndexError):
        columns[3]


def test_many_events_are_small(tmp_path):
    trace = example()
    trace.events *= 30_000
    path = path_of(tmp_path, trace)
    assert load(path) == trace
    assert path.stat().st_size < 90_000 * 4


def test_truncated_at_every_length(tmp_path):
    path = path_of(tmp_path, example())
    short = path.rename(tmp_path / "short.tether")
    for length in reversed(range(short.stat().st_size)):
        os.truncate(short, length)
        answer = opened(short)
        if isinstance(answer, str):
            assert "short.tether" in answer
        else:
            assert answer.outcome == "unfinished"
            assert answer.gaps[0].code == "killed"


class _Growing(io.BytesIO):
    """A file to which the rest is written as soon as a read has met its end."""

    def __init__(self, there, rest):
        super().__init__(there)
        self.rest = rest

    def read(self, size=-1):
        found = super().read(size)
        if len(found) < size and self.rest:
            at = self.tell()
            self.seek(0, os.SEEK_END)
            self.write(self.rest)
            self.seek(at)
            self.rest = b""
        return found


def test_a_recording_that_grows_while_it_is_read(tmp_path):
    whole = path_of(tmp_path, example()).read_bytes()
    start = whole.index(b"\n") + 1
    (first,) = struct.unpack_from("<I", whole, start)
    for length in range(start + 8 + first, len(whole)):
        growing = _Growing(whole[:length], whole[length:])
        with contextlib.suppress(ValueError):  # where a batch lacks what it points at
            (trace,) = frames.read(growing, "growing.tether")
            assert trace.outcome == "unfinished"
        assert not growing.rest


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a tether recording"),
        (b"\x80\x04\x95", "not a tether recording"),
        (b"PK\x03\x04 a torch.save file", "not a tether recording"),
        (b"tether recording 3\n", "newer tether"),
        (b"tether recording 1\n", "older tether"),
        (b"tether recording 2", "damaged"),
        (b"tether rec", "cut off"),
        (b"tether recording ", "cut off"),
        (b"tether recording x\n", "damaged"),
        (b"tether recording 2\n" + b"\0" * 100, "damaged"),
        (b"tether recording 2\n" + struct.pack("<II", 1 << 31, 0), "too long"),
        (b"tether recording 2\n", "before anything was written"),
        (sealed(b""), "no tables"),
        (sealed(b"null\n"), "a table was expected"),
        (sealed(b'{"lines": {}}\n'), "beginning is missing"),
        (sealed(b'{"lines": {"events": 3}}\n'), "cut off"),
        (sealed(b'{"lines": {"colours": 3}}\n'), "newer tether"),
        (sealed(b"[" * 100_000 + b"\n"), "nested"),
        (sealed(b"NaN\n"), "NaN"),
        (sealed(b"\xff\xfe\n"), "damaged"),
    ],
)
def test_foreign_files(tmp_path, content, says):
    path = tmp_path / "some.tether"
    path.write_bytes(content)
    answer = opened(path)
    assert isinstance(answer, str)
    assert says in answer
    assert "some.tether" in answer


def test_no_such_file_a_folder_and_a_pipe(tmp_path):
    assert "cannot open" in str(opened(tmp_path / "nothing"))
    assert "cannot open" in str(opened(tmp_path))
    save_error = pytest.raises(RecordingError, match="cannot write")
    with save_error:
        save(example(), tmp_path / "no" / "folder" / "run.tether")


def test_newer_field_and_table(tmp_path):
    first, *rest = parts(path_of(tmp_path, example()))
    path = tmp_path / "newer.tether"
    path.write_bytes(sealed(first.replace(b'"user"', b'"colour"', 1), *rest))
    assert "sites.colour" in str(opened(path))
    path.write_bytes(sealed(first.replace(b'"unseen":[', b'"x":[],"unseen":[', 1), *rest))
    assert "table x" in str(opened(path))


def test_older_file_without_a_field(tmp_path):
    """A field that was added later takes its default."""
    first, *rest = parts(path_of(tmp_path, example()))
    header = json.loads(first.partition(b"\n")[0])
    header["fields"]["gaps"] = ["site", "code"]
    header["new"]["gaps"] = [[1, "traced"]]
    path = tmp_path / "old.tether"
    path.write_bytes(sealed(json.dumps(header).encode() + b"\n", *rest))
    assert load(path).gaps == [facts.Gap("traced", "", 1)]


OTHERS = sorted({*dir(Trace()), "x", ""} - layout.TABLES.keys())
"""What a trace has that is no table, and what it has not."""


@pytest.mark.parametrize("rows", [[], [[0, []]], [[0, 0]], [0]])
@pytest.mark.parametrize("part", ["whole", "new", "changed"])
def test_what_is_no_table_is_refused(tmp_path, part, rows):
    """Whatever in a trace goes by the name that a file gives to a table."""
    first, *rest = parts(path_of(tmp_path, Trace()))
    header, path = json.loads(first.partition(b"\n")[0]), tmp_path / "odd.tether"
    for name in OTHERS:
        put(path, sealed(json.dumps(header | {part: {name: rows}}).encode() + b"\n", *rest))
        assert "does not name" in str(opened(path)), name


@pytest.mark.parametrize("part", ["whole", "new", "changed"])
def test_a_table_that_the_header_leaves_out_is_refused(tmp_path, part):
    """A file from before a table was added has none of its rows."""
    first, *rest = parts(path_of(tmp_path, Trace()))
    header, path = json.loads(first.partition(b"\n")[0]), tmp_path / "odd.tether"
    for name in layout.TABLES:
        fields_left = {key: row for key, row in header["fields"].items() if key != name}
        odd = header | {"fields": fields_left, part: {name: []}}
        put(path, sealed(json.dumps(odd).encode() + b"\n", *rest))
        assert "does not name" in str(opened(path)), name


def test_bomb_is_refused(tmp_path):
    path = tmp_path / "bomb.tether"
    path.write_bytes(sealed(b" " * (100 << 20) + b"\n"))
    assert path.stat().st_size < 200_000
    with pytest.raises(RecordingError, match="unpacks to more"):
        load(path, most=1 << 20)
    head = parts(path_of(tmp_path, Trace()))[0]
    path.write_bytes(sealed(head, *[b'{"lines":{}}\n'] * (1 << 12)))
    with pytest.raises(RecordingError, match="unpacks to more"):
        load(path, most=1 << 15)


def test_something_behind_the_data(tmp_path):
    first, *rest = parts(path_of(tmp_path, example()))
    path = tmp_path / "more.tether"
    path.write_bytes(sealed(first + b"more", *rest))
    assert "follows its numbers" in str(opened(path))


@pytest.mark.parametrize(("name", "opens"), [("python", True), ("strange", False)])
def test_what_older_files_say_as_well_is_passed_over_and_what_none_says_is_refused(
    tmp_path, name, opens
):
    first, *rest = parts(path_of(tmp_path, plain()))
    text, _, numbers = first.partition(b"\n")
    small = json.loads(text)
    small["trace"][name] = "3.12.1"
    path = tmp_path / "older.tether"
    put(path, sealed(json.dumps(small).encode() + b"\n" + numbers, *rest))
    assert isinstance(opened(path), Trace) == opens


@pytest.mark.long
def test_values_of_wrong_type(tmp_path):
    """Every number, word and list in the text is replaced by others: it opens or is refused."""
    first, *rest = parts(path_of(tmp_path, example()))
    small = json.loads(first.partition(b"\n")[0])
    path = tmp_path / "wrong.tether"
    tried = accepted = 0
    source = random.Random(20)
    strangers = (None, True, 1.5, "x", [], {}, -2, 10**30, [[]])
    for spot in spots(small):
        if spot[0] == "tether":
            continue
        some = strangers if LONG else source.sample(strangers, 1)
        for stranger in some:
            changed = replaced(json.loads(json.dumps(small)), spot, stranger)
            put(path, sealed(json.dumps(changed).encode() + b"\n", *rest))
            tried += 1
            accepted += isinstance(opened(path), Trace)
    assert tried > (900 if LONG else 100)
    assert accepted < tried / 3  # a number for a number, a word for a word, an empty table


def spots(value, here=()):
    items = enumerate(value) if isinstance(value, list) else ()
    for key, item in value.items() if isinstance(value, dict) else items:
        yield (*here, key)
        yield from spots(item, (*here, key))


def replaced(value, spot, new):
    holder = value
    for index in spot[:-1]:
        holder = holder[index]
    holder[spot[-1]] = new
    return value


@pytest.mark.long
def test_fuzz(tmp_path):
    """Bytes flipped, cut, repeated and swapped, on the file and, resealed, on what is inside."""
    source = random.Random(20)
    path = path_of(tmp_path, example())
    data, inside = path.read_bytes(), parts(path)
    path = tmp_path / "fuzzed.tether"
    refused = 0
    for round_ in range(MUTATIONS):
        if round_ % 2:
            some = [mutated(one, source) if source.random() < 0.7 else one for one in inside]
            put(path, sealed(*some))
        else:
            put(path, mutated(data, source))
        answer = opened(path)
        if isinstance(answer, str):
            refused += 1
        else:
            check(answer)
            list(answer.events)
            dict(answer.tensors), dict(answer.storages)
    assert refused > MUTATIONS * 0.7


def mutated(data: bytes, source: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(source.choice((1, 1, 2, 5))):
        at, end = sorted(source.randrange(len(out) + 1) for _ in range(2))
        match source.randrange(5):
            case 0:
                out[at : at + 1] = bytes([source.randrange(256)])
            case 1:
                del out[at : min(end, at + source.choice((1, 8, 10_000)))]
            case 2:
                out[at:at] = out[at : min(end, at + 64)]
            case 3:
                out[at:at] = source.choice(
                    (b"[", b"]", b"-1", b",", b"null", b"9" * 30, b'"', b"\n")
                )
            case _:
                out[at : at + 1] = source.choice((b"0", b"1", b"9", b"-", b" "))
        if not out:
            out = bytearray(b"x")
    return bytes(out)


def test_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = path_of(tmp_path, example())
    before = path.read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordingError, match="No space left"):
        save(Trace(), path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["run.tether"]


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
def test_readable_as_any_new_file(tmp_path):
    path = path_of(tmp_path, example())
    other = tmp_path / "other"
    other.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)


def plain() -> Trace:
    """The example without an event from before the limit."""
    trace = example()
    trace.kept, trace.events = [], trace.events[1:]
    return trace


def test_merge_keeps_ranks_apart():
    one, two = plain(), plain()
    merged = merge([one, two])
    check(merged)
    assert len(merged.events) == 4
    assert (merged.dropped, merged.kept) == (16, [7, 8])
    assert merged.ended == 18
    assert merged.sites == one.sites
    ranks = [
        {item.tensor for event in half for item in event.reads}
        for half in (merged.events[:2], merged.events[2:])
    ]
    assert ranks[0] == {0, 1}
    assert ranks[1] == {2, 3}
    assert {event.thread for event in merged.events[:2]} == {0, 2}
    assert {event.thread for event in merged.events[2:]} == {3, 5}
    assert [name.tensor for name in merged.names] == [0, 2]
    assert merged.gradients[1].status == {2: "none", 3: "unchecked"}
    bridge = merged.bridges[2]
    assert merged.events[merged.position(bridge.exit)] == merged.events[2]
    assert merged.spans[3].parent == 2
    assert [one.memory for one in merged.storages.values()] == [3, 7]
    assert merged.outcome == "raised"
    assert merged.events[2].detail == "Name"


KINDS = [one for one in vars(facts).values() if isinstance(one, NewType)]
"""What a number in a fact can be the number of."""

BOUNDED = [*fields.PLACES, SiteId, EventId, Moment]


def numbers_of(trace: Trace, kind: NewType) -> list[int]:
    """All numbers of a kind in a trace, but for those that say that none is known."""
    rows = [fact for name in layout.TABLES for fact in getattr(trace, name)]
    rows += [*trace.events, *trace.tensors.values(), *trace.storages.values()]
    rows += [one for event in trace.events for one in event.reads + event.results + event.writes]
    return [number for fact in rows for number in numbers_in(fact, kind) if number >= 0]


@pytest.mark.parametrize("kind", [one for one in KINDS if one is not SiteId])
def test_no_number_means_two_things_when_recordings_are_merged(kind):
    """So that a new kind of numbers, or a column of them, cannot be forgotten."""
    one = example()
    one.tensors[1] = one.tensors[1]._replace(died=9)  # or it would be gone as the first one ended
    alone, both = numbers_of(one, kind), numbers_of(merge([one, one]), kind)
    assert alone
    assert len(both) == 2 * len(alone)
    step = max(both) - max(alone)
    assert step > 0
    assert sorted(both) == sorted([*alone, *(number + step for number in alone)])


def numbered(count: int, limit: int = 0, *kept: int) -> Trace:
    """So many calls, named by their numbers, of which the last `limit` are there and some others."""
    first = count - limit if limit else 0
    there = [*kept, *range(first, count)]
    return Trace(
        dropped=first,
        kept=list(kept),
        events=[Event(f"call {at}", 0, (operand(0, 0, at),)) for at in there],
        sites=[Site("a.py", 1)],
        tensors={0: facts.TensorFact("Tensor", 0, count)},
        raised=[facts.Raised(at + 1, "E", f"call {at}", 0, False, at) for at in there],
        gradients=[facts.Gradients("end", count, 0, -1, {})],
    )


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_events_are_found_when_recordings_under_a_limit_are_merged(tmp_path, order):
    all_of_them = [numbered(5), numbered(20, 3, 2, 7), numbered(9, 4), numbered(30, 2, 0, 1, 27)]
    traces = [all_of_them[number] for number in order]
    save(traces, path := tmp_path / "all.tether")
    merged = load(path)
    assert merged.ended == sum(one.ended for one in traces)
    forgotten = sum(one.dropped - len(one.kept) for one in traces)
    assert merged.dropped - len(merged.kept) == forgotten
    assert len(merged.events) == len(merged.raised) == 5 + 5 + 4 + 5
    for at, one in enumerate(merged.raised):
        assert merged.position(one.event) == at
        assert merged.events[at].operation == one.message
        assert merged.event_id(at) == one.event
        assert merged.first_after(one.at) == at + 1
    ends = itertools.accumulate(one.ended for one in traces)
    assert [one.at for one in merged.gradients] == list(ends)


@pytest.mark.parametrize(
    ("dropped", "kept"), [(-1, []), (0, [0]), (7, [7]), (7, [3, 3]), (7, [-1]), (7, [1, 2, 3, 4])]
)
def test_what_cannot_be_left_from_before_a_limit_is_refused(tmp_path, dropped, kept):
    trace = replace(numbered(3), dropped=dropped, kept=kept, raised=[], tensors={}, gradients=[])
    assert "before the limit" in str(opened(path_of(tmp_path, trace)))


def test_a_fact_from_after_the_end_is_refused_under_a_limit(tmp_path):
    trace = numbered(20, 3, 2, 7)
    trace.raised = [facts.Raised(20, "E", "", 0, False, 20)]
    assert "points at an event" in str(opened(path_of(tmp_path, trace)))


def test_a_call_is_of_its_kind_when_recordings_are_merged():
    def one(*nodes):
        calls = [Event(name, 0, kind=number) for number, name in enumerate(nodes)]
        kinds = [facts.Kind((name,)) for name in nodes]
        return Trace(events=calls, sites=[Site("a.py", 1)], kinds=kinds)

    merged = merge([one("exp", "sin"), one("mul"), one("mul", "exp")])
    assert len(merged.events) == 5
    for event in merged.events:
        assert merged.kinds[event.kind].nodes == (event.operation,)


def test_modules_of_two_processes_are_two():
    merged = merge([plain(), plain()])
    assert [one.holder for one in merged.names] == [2, 5]
    assert [one.holder for one in merged.reassigned] == [2, 5]
    assert [one.named for one in merged.reassigned] == [1, 2]


@pytest.mark.parametrize("stranger", [99, -2])
@pytest.mark.parametrize("kind", BOUNDED)
def test_a_fact_that_points_nowhere_is_refused(tmp_path, kind, stranger):
    homes = [name for name, row in layout.TABLES.items() if kind in kinds_in(row)]
    for name in homes:
        trace = plain()
        setattr(
            trace, name, [moved(one, {kind: lambda _: stranger}) for one in getattr(trace, name)]
        )
        assert "points at" in str(opened(path_of(tmp_path, trace))), name
    assert homes or kind is facts.KindId


@pytest.mark.parametrize("stranger", [99, -2])
@pytest.mark.parametrize("field", ["site", "inner", "span", "kind"])
def test_an_event_that_points_nowhere_is_refused(tmp_path, field, stranger):
    trace = plain()
    trace.events[1] = trace.events[1]._replace(**{field: stranger})
    with pytest.raises(ValueError, match="points at"):
        check(trace)
    assert "points at" in str(opened(path_of(tmp_path, trace)))


def test_what_lived_when_a_process_ended_ended_with_it():
    one = plain()
    merged = merge([one, one, one])
    assert [life.died for life in merged.tensors.values()][1::2] == [9, 18, -1]


@pytest.mark.long
def test_a_file_of_several_processes(tmp_path):
    traces = [replace(plain(), process=facts.Process(40 + n, n, 2)) for n in range(2)]
    path = tmp_path / "all.tether"
    save(traces, path)
    assert [one.process for one in load_all(path)] == [one.process for one in traces]
    assert [one.events for one in load_all(path)] == [one.events for one in traces]
    one, two = tmp_path / "one.tether", tmp_path / "two.tether"
    save(traces[0], one)
    save(traces[1], two)
    assert path.read_bytes() == one.read_bytes() + two.read_bytes()
    whole = path.read_bytes()
    step = 1 if LONG else 7
    for end in range(len(whole) - 1, one.stat().st_size, -step):  # the last was killed
        os.truncate(path, end)
        if not isinstance(opened(path), str):
            assert [one.outcome for one in load_all(path)[1:]] in ([], ["unfinished"])


def test_merge_of_one_and_none():
    trace = example()
    assert merge([trace]) is trace
    assert merge([]) == Trace()


def test_events_kept_from_before_a_limit_are_found():
    trace = example()
    assert [trace.event_id(position) for position in range(3)] == [2, 7, 8]
    assert [trace.position(at) for at in (2, 7, 8, 9)] == [0, 1, 2, 3]
    assert trace.position(5) == -1
    assert trace.ended == 9


def test_numbers_that_need_more_bits_from_frame_to_frame(tmp_path, monkeypatch):
    monkeypatch.setattr(file, "_AT_ONCE", 2)
    numbers = [0, 1, 90, -70, 1 << 14, 3, -(1 << 20), 1 << 30, 5]
    trace = Trace(outcome="finished", sites=[Site("a.py", 1)])
    trace.events = [
        Event(
            "a", 0, nodes=number, results=(Operand(n, n, 0, number, (2,), (1,), "u", False, True),)
        )
        for n, number in enumerate(numbers)
    ]
    save(trace, tmp_path / "x")
    assert list(load(tmp_path / "x").events) == trace.events
