"""Writes that NumPy made to what a tensor's array shows: the row names the line, as the text has it."""

import io

from programs import record_program

HEAD = """\
import numpy as np
import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 2)


class Pump:
    def choose(self, level, noise):
        flow = net(torch.tensor(level, dtype=torch.float32)).detach()
        valve = flow.cpu().numpy()
        valve += noise
        return np.clip(valve, -1, 1), flow


pump = Pump()
for n in range(4):
    valve, flow = pump.choose([0.1 * n, 0.2, 0.3], 0.05)
    print(flow.sum().item())
"""


def report_of(text, tmp_path, **options):
    shown = io.StringIO()
    record_program(text, tmp_path).print(shown, 120, **options)
    return shown.getvalue()


def test_the_line_of_the_text_is_named(tmp_path):
    assert "unseen" not in report_of(HEAD, tmp_path)
    (tie,) = [one.tie for one in record_program(HEAD, tmp_path).about.ties]
    assert [one.line for one in tie.perhaps] == [12]


def test_what_no_line_of_the_text_may_have_written_is_left_to_show_all(tmp_path):
    text = HEAD.replace("valve += noise", "getattr(valve, '__iadd__')(noise)")
    assert "unseen" not in report_of(text, tmp_path)
    assert "unseen" in report_of(text, tmp_path, show_all=True)
