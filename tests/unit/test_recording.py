"""A trace survives the file, and no file can do worse than be refused."""

from __future__ import annotations

import hashlib
import json
import os
import random
import stat
import zlib
from pathlib import Path

import pytest

from tether import facts
from tether.facts import Event, Operand, Site, Trace
from tether.store import layout
from tether.store.file import RecordingError, load, merge, save

MUTATIONS = int(os.environ.get("TETHER_FUZZ", "3000"))
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
        python="3.12.1",
        outcome="raised",
        dropped=7,
        events=[
            Event("clone", 0, (one,), (two,), (), facts.GRAD_ON, 0, 1, 0, "out"),
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
        tensors={0: facts.TensorFact("Parameter", 7, 9), 1: facts.TensorFact("Tensor", 8)},
        storages={0: facts.StorageFact(24, "cpu", 7, 9)},
        names=[facts.Name(0, "model.weight", 7, "Linear", False, "model")],
        optimizers=[facts.OptimizerFact("SGD", 0, 7, (0, 1))],
        gradients=[facts.Gradients("end", 9, 0, -1, {0: "none", 1: "unchecked"})],
        bridges=[facts.Bridge(7, 8, True, "the NumPy array")],
        arrays=[facts.ArrayFact(7, 9)],
        unseen=[facts.Unseen(0, 7, 8, 7, 1)],
        raised=[facts.Raised(9, "ValueError", "bad\nvalue", 0, True)],
        gaps=[facts.Gap("a compiled region", 0, 8)],
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


def sealed(text: bytes) -> bytes:
    """Return a file whose check sum fits, whatever its text says."""
    packed = zlib.compress(text)
    return b"tether recording 1\n" + packed + hashlib.sha256(packed).digest()


def text_of(path: Path) -> bytes:
    return zlib.decompress(path.read_bytes().split(b"\n", 1)[1][:-32])


def test_round_trip(tmp_path):
    trace = example()
    back = load(path_of(tmp_path, trace))
    assert back == trace
    assert isinstance(back.events[0].reads[0], Operand)
    assert isinstance(back.gradients[0].status[0], str)


def test_the_example_has_every_table():
    """So that a table or field added to the facts cannot be forgotten by the file."""
    trace = example()
    empty = [name for name, value in vars(trace).items() if not value]
    assert empty == []
    stored = {*layout.TABLES, *layout.SCALARS, "sources"} - {"operands"}
    assert set(vars(trace)) == stored


def test_empty_trace(tmp_path):
    assert load(path_of(tmp_path, Trace())) == Trace()


def test_many_chunks(tmp_path):
    trace = example()
    trace.events *= 30_000
    path = path_of(tmp_path, trace)
    assert text_of(path).count(b'["events"') > 2
    assert load(path) == trace
    assert path.stat().st_size < 60_000 * 4


def test_operands_are_shared(tmp_path):
    trace = example()
    back = load(path_of(tmp_path, trace))
    assert back.events[0].reads[0] is back.events[1].reads[0]


def test_truncated_at_every_length(tmp_path):
    path = path_of(tmp_path, example())
    data = path.read_bytes()
    short = tmp_path / "short.tether"
    for length in range(len(data)):
        short.write_bytes(data[:length])
        answer = opened(short)
        assert isinstance(answer, str), length
        assert "short.tether" in answer


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a tether recording"),
        (b"\x80\x04\x95", "not a tether recording"),
        (b"PK\x03\x04 a torch.save file", "not a tether recording"),
        (b"tether recording 2\n", "newer tether"),
        (b"tether recording 0\n", "damaged"),
        (b"tether recording 1", "damaged"),
        (b"tether recording x\n", "damaged"),
        (b"tether recording 1\n" + b"\0" * 100, "check sum"),
        (sealed(b""), "header"),
        (sealed(b"null\n"), "header"),
        (sealed(b'{"fields": {}, "trace": {}}\n'), "damaged"),
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
    text = text_of(path_of(tmp_path, example()))
    path = tmp_path / "newer.tether"
    path.write_bytes(sealed(text.replace(b'"user"', b'"colour"', 1)))
    assert "sites.colour" in str(opened(path))
    path.write_bytes(sealed(text.replace(b'"unseen":[', b'"x":[],"unseen":[', 1)))
    assert "table x" in str(opened(path))


def test_older_file_without_a_field(tmp_path):
    """A field that was added later takes its default."""
    header, *chunks = text_of(path_of(tmp_path, example())).split(b"\n")
    layout = json.loads(header)
    layout["fields"]["gaps"] = ["site", "reason"]
    lines = [json.dumps(layout).encode()]
    lines += (line for line in chunks if not line.startswith(b'["gaps"'))
    lines.insert(-1, b'["gaps",[[1,"old"]]]')
    path = tmp_path / "old.tether"
    path.write_bytes(sealed(b"\n".join(lines)))
    assert load(path).gaps == [facts.Gap("old", 1)]


def test_bomb_is_refused(tmp_path):
    path = tmp_path / "bomb.tether"
    path.write_bytes(sealed(b" " * (100 << 20) + b"\n"))
    assert path.stat().st_size < 200_000
    assert "line of it is too long" in str(opened(path))
    header = text_of(path_of(tmp_path, Trace()))
    path.write_bytes(sealed(header + b'["gaps",[]]\n' * (1 << 20)))
    with pytest.raises(RecordingError, match="unpacks to more than 1 MiB"):
        load(path, max_text=1 << 20)


def test_something_behind_the_data(tmp_path):
    packed = zlib.compress(text_of(path_of(tmp_path, example()))) + b"more"
    path = tmp_path / "more.tether"
    path.write_bytes(b"tether recording 1\n" + packed + hashlib.sha256(packed).digest())
    assert "follows its data" in str(opened(path))


def test_values_of_wrong_type(tmp_path):
    """Every number, word and list in the text is replaced once: it opens or is refused."""
    header, *chunks = text_of(path_of(tmp_path, example())).split(b"\n")
    path = tmp_path / "wrong.tether"
    tried = accepted = 0
    strangers = (None, True, 1.5, "x", [], {}, -2, 10**30, [[]])
    for number, line in enumerate(chunks[:-1]):
        for spot in spots(json.loads(line)):
            for stranger in strangers:
                changed = replaced(json.loads(line), spot, stranger)
                lines = [header, *chunks]
                lines[number + 1] = json.dumps(changed).encode()
                path.write_bytes(sealed(b"\n".join(lines)))
                tried += 1
                accepted += isinstance(opened(path), Trace)
    assert tried > 900
    assert accepted < tried / 3  # a number for a number, a word for a word, an empty table


def spots(value, here=()):
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield (*here, index)
            yield from spots(item, (*here, index))


def replaced(value, spot, new):
    holder = value
    for index in spot[:-1]:
        holder = holder[index]
    holder[spot[-1]] = new
    return value


def test_fuzz(tmp_path):
    """Bytes flipped, cut, repeated and swapped, on the file and, resealed, on the text inside."""
    source = random.Random(20)
    data = path_of(tmp_path, example()).read_bytes()
    text = text_of(tmp_path / "run.tether")
    path = tmp_path / "fuzzed.tether"
    refused = 0
    for round_ in range(MUTATIONS):
        path.write_bytes(sealed(mutated(text, source)) if round_ % 2 else mutated(data, source))
        answer = opened(path)
        if isinstance(answer, str):
            refused += 1
        else:
            answer.check()
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


def test_merge_keeps_ranks_apart():
    one, two = example(), example()
    merged = merge([one, two])
    merged.check()
    assert len(merged.events) == 4
    assert merged.dropped == 14
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
    bridge = merged.bridges[1]
    exported = merged.events[bridge.exit - merged.dropped]
    assert exported == merged.events[2]
    assert merged.spans[3].parent == 2
    assert merged.outcome == "raised"


def test_merge_of_one_and_none():
    trace = example()
    assert merge([trace]) is trace
    assert merge([]) == Trace()
