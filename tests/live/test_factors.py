"""The factor of a slow copy is measured here, and a copy that is not slow here is not told."""

import re

from programs import record_program
from tether.live import factors
from tether.verdicts import slow_copy

ONE_BY_ONE = """
    import torch
    scores = torch.randn(300)
    values = [one.item() for one in scores]
"""


def findings(tmp_path):
    recording = record_program(ONE_BY_ONE, tmp_path)
    return recording, [one for one in recording.findings if one.slug == "slow-copy"]


def test_a_factor_is_measured(tmp_path):
    recording, (found,) = findings(tmp_path)
    (told,) = factors.measured([found], recording.history)
    factor = re.search(r"Measured here at 300 float32: ([\d.]+)x slower", told.message)
    assert float(factor[1]) > 2


def test_what_is_not_slow_here_is_not_told(tmp_path):
    recording, (found,) = findings(tmp_path)
    specs = recording.history.memo["slow-copy"]
    for key, spec in specs.items():
        specs[key] = spec._replace(slow=spec.fast)
    assert factors.measured([found], recording.history) == []


def test_what_cannot_be_tried_is_told_without_a_factor(tmp_path):
    recording, (found,) = findings(tmp_path)
    specs = recording.history.memo["slow-copy"]
    for key, spec in specs.items():
        specs[key] = spec._replace(device="cuda:17")
    assert factors.measured([found], recording.history) == [found]


def test_every_way_can_be_run(tmp_path):
    """Each pair of ways gives equal values on a tensor like the program's."""
    for verdict in (one for one in slow_copy.VERDICT.examples if one.expected):
        history = record_program(verdict.program, tmp_path).history
        list(slow_copy.check(history))
        for spec in history.memo["slow-copy"].values():
            names = factors._names(spec)
            slow, fast = eval(spec.slow, names), eval(spec.fast, names)
            assert (
                getattr(slow, "tolist", lambda s=slow: s)()
                == getattr(fast, "tolist", lambda f=fast: f)()
            )
