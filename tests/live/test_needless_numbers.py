"""Copies that gave what was there for a number, a size or a branch of this run; and look-alikes.

The answer stands on the line that copies, with a part of the reason where it is not "no".
"""

import textwrap

import pytest

from programs import record_program
from test_needless_spellings import check_needs

START = """
import torch, numpy as np
torch.manual_seed(0)
sound = torch.randn(6, 8000)
taps = torch.ones(8000, 2)
class Mixer:
    gain, copies, shift = 1.0, 1, 0
mixer = Mixer()
"""

COMPUTED = {
    "a gain that is a setting": """
        y = sound * mixer.gain  #? unknown a number that it is given
        print((y @ taps).sum())
        """,
    "a gain on the left, in a variable": """
        gain = mixer.gain
        y = gain * sound  #? unknown a number that it is given
        print((y @ taps).sum())
        """,
    "a gain that is written out": """
        y = sound * 1.0  #? no
        print((y @ taps).sum())
        """,
    "an offset that came to nothing": """
        y = sound + (mixer.copies - 1)  #? unknown a number that it is given
        print((y @ taps).sum())
        """,
    "a gain by the function": """
        y = torch.mul(sound, mixer.gain)  #? unknown a number that it is given
        print((y @ taps).sum())
        """,
    "a gain that became a tensor": """
        y = sound * torch.tensor(mixer.gain)  #? unknown made of numbers
        print((y @ taps).sum())
        """,
    "gains, all of one value": """
        y = sound * torch.full((8000,), mixer.gain)  #? unknown made of numbers
        print((y @ taps).sum())
        """,
    "gains that are a parameter, and not trained": """
        gains = torch.nn.ParameterList([torch.ones(8000)]).requires_grad_(False)
        y = sound * gains[0]  #? unknown a parameter or a buffer
        print((y @ taps).sum())
        """,
    "gains that are ones": """
        y = sound * torch.ones(8000)  #? no
        print((y @ taps).sum())
        """,
    "two sounds, one of them weighed by nothing": """
        other = torch.zeros(6, 8000)
        y = torch.lerp(sound, other, mixer.gain - 1)  #? unknown a number that it is given
        print((y @ taps).sum())
        """,
    "nothing is masked by a value that no literal is": """
        y = sound.masked_fill(torch.zeros(8000, dtype=torch.bool), float("-inf"))  #? no
        print((y @ taps).sum())
        """,
    "turned round twice by its sign": """
        y = -sound
        z = -y  #? no
        print((z @ taps).sum())
        """,
    "added up along a dimension of one": """
        y = sound[None].cumsum(0)  #? unknown longer along a dimension of one
        print((y @ taps).sum())
        """,
}

CHOSEN = {
    "turned round along a dimension of one": """
        y = sound.view(1, -1).flip(0)  #? unknown longer along a dimension of one
        print(y.sum())
        """,
    "rolled along a dimension of one": """
        y = sound[:1].roll(1, 0)  #? unknown longer along a dimension of one
        print(y.sum())
        """,
    "said as often as a setting wants": """
        y = sound.repeat(mixer.copies, 1)  #? unknown may be others
        print((y * 2).sum())
        """,
    "said as often as a setting wants, by others": """
        y = torch.tile(sound, (mixer.copies, 1))  #? unknown may be others
        z = sound.repeat_interleave(mixer.copies, 0)  #? unknown may be others
        print((y * 2).sum(), (z * 2).sum())
        """,
    "said for each of several, once along the other": """
        y = sound[:1].repeat(len(taps), mixer.copies)  #? unknown may be others
        print((y * 2).sum())
        """,
    "said for each of several": """
        y = sound[0].repeat(len(sound), 1)  #? no
        print((y * 2).sum())
        """,
    "a format there and back, which is a setting": """
        wide = [torch.float64][mixer.shift]
        y = sound.to(wide).float()  #? unknown the format that it goes through
        print((y * 2).sum())
        """,
    "a format there and back, which is named": """
        y = sound.to(torch.float64).float()  #? no
        print((y * 2).sum())
        """,
    "a store that gives back what came in until it is full": """
        class Store:
            def __init__(self, most):
                self.most, self.kept = most, []

            def exchange(self, some):
                given = []
                for one in some.split(2):
                    if len(self.kept) < self.most:
                        self.kept.append(one)
                        given.append(one)
                    else:
                        given.append(self.kept[0].clone())
                        self.kept[0] = one
                return torch.cat(given)  #? unknown decided as the program runs
        print((Store(50).exchange(sound) * 2).sum())
        """,
    "parts that are loud enough": """
        y = torch.cat([one for one in sound.split(2) if one.abs().max() > 0])  #? unknown decided as
        print((y * 2).sum())
        """,
    "parts up to the first that is silent": """
        loud = []
        for one in sound.split(2):
            if not one.any():
                break
            loud.append(one)
        y = torch.cat(loud)  #? unknown decided as the program runs
        print((y * 2).sum())
        """,
    "a choice between two numbers of parts, and each is joined": """
        for size in (2, 3):
            if size > 2:
                parts = []
                for one in sound.split(size):
                    parts.append(one)
                y = torch.cat(parts)  #? no
                print((y * 2).sum())
        """,
    "parts, one after the other": """
        y = torch.cat([one for one in sound.split(2)])  #? no
        print((y * 2).sum())
        """,
}

PROGRAMS = COMPUTED | CHOSEN


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_number_or_a_size_decides(name, tmp_path):
    turns = textwrap.indent(textwrap.dedent(PROGRAMS[name]), "    ")
    check_needs(f"{START}\nfor turn in range(2):\n{turns}", tmp_path)


def note_on(body, tmp_path):
    turns = textwrap.indent(textwrap.dedent(body), "    ")
    found = record_program(f"{START}\nfor turn in range(3):\n{turns}", tmp_path).findings
    (note,) = [one for one in found if one.slug == "needless-copy"]
    return note


PLACES = """
table = torch.nn.Embedding(64, 128)
for n in {sizes}:
    at = table(torch.arange(n)[None])
    print((torch.randn(2, n, 128) + at).sum())
"""


@pytest.mark.parametrize(
    ("sizes", "said", "fix"),
    [
        ((64, 64, 64), "a copy of `table.weight`", "as long as the numbers that take it are"),
        ((64, 64, 32), "a copy of all or a part of `table.weight`", "Use a slice of"),
        ((32, 16, 48), "a copy of a part of `table.weight`", "Use a slice of"),
    ],
)
def test_rows_of_a_table_are_all_of_it_in_some_runs(sizes, said, fix, tmp_path):
    note = note_on(PLACES.format(sizes=sizes), tmp_path)
    assert said in note.message
    assert fix in note.fix.text
    assert "itself" not in note.fix.text


def test_slices_that_meet_for_their_numbers_are_said_to_do_so(tmp_path):
    body = """
        first = second = 3 + mixer.shift
        y = torch.cat([sound[:first], sound[second:]])
        print((y * 2).sum())
        """
    note = note_on(body, tmp_path)
    assert any("lies side by side in other runs, too" in one for one in map(str, note.assumes))
    written = note_on(body.replace("first]", "3]").replace("second:]", "3:]"), tmp_path)
    assert not any("side by side" in one for one in map(str, written.assumes))


def test_a_dimension_of_one_may_be_no_more_than_a_size(tmp_path):
    batch = note_on("y = sound[:1].repeat(6, 1)\nprint((y + sound).sum())", tmp_path)
    assert any("has one element there in other runs" in one for one in map(str, batch.assumes))
    made = note_on("y = sound[0][None].repeat(6, 1)\nprint((y + sound).sum())", tmp_path)
    assert not any("one element there" in one for one in map(str, made.assumes))


CLEARED = """
import torch
torch.manual_seed(0)
probe = torch.nn.Linear(20_000, 1)

def moved(beam):
    beam.requires_grad_()
    probe(beam).pow(2).mean().backward()
    beam = beam.grad
    beam /= beam.norm()
    probe.zero_grad()
    way = beam * 1.0
    return probe(torch.rand(2, 20_000) + way).mean()

for turn in range(4):
    print(moved(torch.rand(2, 20_000)))
"""


def test_it_is_called_as_the_line_calls_it(tmp_path):
    """`beam.grad` was its name, and is None by the time the line runs."""
    found = record_program(CLEARED, tmp_path).findings
    (note,) = [one for one in found if one.slug == "needless-copy"]
    assert "is `beam` over again" in note.message
    assert "Use `beam` itself" in note.fix.text


def test_a_choice_is_a_copy_of_what_it_chose_of(tmp_path):
    body = "y = torch.where(torch.ones(8000, dtype=torch.bool), sound, 0.0)\nprint((y * 2).sum())"
    assert "is a copy of `sound`" in note_on(body, tmp_path).message
