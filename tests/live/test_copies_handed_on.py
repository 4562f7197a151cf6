"""Copies of which views, or they themselves, are handed to what may keep them: nothing says "unread"."""

import pytest

from programs import record_program

FRAME = """\
import torch

album, drawn = [], {}


class Canvas:
    def lines(self, xs, ys):
        drawn["last"] = (xs, ys)


canvas = Canvas()


def remember(*frames):
    album.append(frames)


def look(frames):
    assert frames is not None
    return len(album)


def track(steps):
    walkers = [torch.rand(300, 2) for _ in range(steps)]
    state = torch.rand(steps, 300)
BODY
    return float(walkers[0].sum())


for steps in (3, 4, 5):
    track(steps)
"""

JOINED = {
    "two views for a canvas": """
    path = torch.cat(walkers)
    canvas.lines(path[:, 0], path[:, 1])
    """,
    "the result of cpu, and a view of that": """
    path = torch.cat(walkers, 0).cpu()
    remember(path.view(steps, 300, 2))
    """,
    "the parts of an unbind": """
    xs, ys = torch.cat(walkers).unbind(1)
    remember(xs, ys)
    """,
    "a view that a function only looks at": """
    path = torch.stack(walkers)
    look(path.flatten(0, 1))
    """,
    "a view of a view, in a dictionary": """
    drawn[steps] = torch.stack(walkers).transpose(0, 1)[:, 1]
    """,
}

CLONED = {
    "a view of a clone": """
    now = state.clone()
    remember(now[0])
    """,
    "a clone that contiguous gives back": """
    now = state.clone().contiguous()
    look(now)
    """,
}


def copies_in(body, tmp_path):
    recording = record_program(FRAME.replace("BODY", body.rstrip()), tmp_path)
    assert recording.error is None
    return [one for one in recording.findings if one.slug in ("needless-copy", "slow-copy")]


@pytest.mark.parametrize("body", JOINED.values(), ids=JOINED)
def test_a_join_whose_views_were_handed_on_is_not_told(body, tmp_path):
    assert copies_in(body, tmp_path) == []


@pytest.mark.parametrize("body", CLONED.values(), ids=CLONED)
def test_a_clone_whose_views_were_handed_on_is_told_with_its_source(body, tmp_path):
    (found,) = copies_in(body, tmp_path)
    assert "nothing reads" not in str(found.message)
    assert "neither is written while the other lives" in str(found.message)
    assert "Use the tensor itself" in found.fix.text


def test_a_clone_that_is_written_meanwhile_was_needed_for_its_view(tmp_path):
    body = """
    now = state.clone()
    remember(now[0])
    state.add_(1)
    """
    assert copies_in(body, tmp_path) == []


@pytest.mark.parametrize(
    ("line", "does"),
    [("pass", None), ("seen.mul_(2)", "mul_ writes the copy")],
    ids=["never touched", "written alone"],
)
def test_a_copy_that_nothing_took_is_told(line, does, tmp_path):
    body = f"""
    seen = state.clone()
    {line}
    state.add_(1)
    """
    (found,) = copies_in(body, tmp_path)
    assert "that nothing reads" in str(found.message)
    said = [str(one.text) for one in found.evidence]
    assert not any("reads the copy" in one for one in said)
    assert does is None or does in said


def test_a_model_copied_at_each_step_and_never_used_is_told(tmp_path):
    body = """
    import copy
    gate = torch.nn.Linear(2, 1)
    kept = copy.deepcopy(gate)
    gate.weight.data.add_(1)
    """
    told = copies_in(body, tmp_path)
    assert any("that nothing reads" in str(one.message) for one in told)
