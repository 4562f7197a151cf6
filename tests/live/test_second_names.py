"""The line that led to what an error or a note is about, though nothing was called on it."""

from programs import record_program

FROZEN = """\
import copy
import torch
from torch import nn

online, head = nn.Linear(4, 4), nn.Linear(4, 4)
target = ONLINE
for p in target.parameters():
    p.requires_grad_(False)
opt = torch.optim.SGD([*online.parameters(), *head.parameters()], lr=0.1)
for _ in range(3):
    x = torch.randn(8, 4)
    loss = (head(online(x)) - target(x)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def lines_of(recording, slug):
    """Return the lines that the findings of a verdict name."""
    found = [one for one in recording.findings if one.slug == slug]
    return {step.site.line for one in found for step in one.evidence}


def test_a_module_that_is_frozen_by_its_second_name(tmp_path):
    recording = record_program(FROZEN.replace("ONLINE", "online"), tmp_path)
    assert 6 in lines_of(recording, "parameter-frozen")


def test_a_copy_that_is_frozen_is_no_second_name(tmp_path):
    recording = record_program(FROZEN.replace("ONLINE", "copy.deepcopy(online)"), tmp_path)
    assert not lines_of(recording, "parameter-frozen")


REFUSED = """\
import torch

w = torch.ones(3, requires_grad=True)DETACHED
x = torch.ones(3, requires_grad=True).detach()
scaled = w * x
scaled.retain_grad()
scaled.sum().backward()
print(scaled.grad)
"""


def test_why_a_tensor_that_is_asked_for_its_gradient_has_none(tmp_path):
    recording = record_program(REFUSED.replace("DETACHED", ".detach()"), tmp_path)
    assert {3, 6} <= lines_of(recording, "tie-error")
    right = record_program(REFUSED.replace("DETACHED", ""), tmp_path)
    assert not right.findings


TERMS = """\
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
encoder, decoder, codes = nn.Linear(4, 3), nn.Linear(3, 4), nn.Embedding(8, 3)
opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters(), *codes.parameters()])
for _ in range(3):
    x = torch.randn(6, 4)
    z = encoder(x)
    q = codes(torch.cdist(z, codes.weight).argmin(1))
    copied = z + (q - z).detach()
    pull = F.mse_loss(q, z.DETACH())
    push = F.mse_loss(z, q.detach())
    opt.zero_grad()
    (F.mse_loss(decoder(copied), x) + pull + 0.25 * push).backward()
    opt.step()
"""


def test_a_term_is_lost_where_a_tensor_itself_was_taken_off(tmp_path):
    recording = record_program(TERMS.replace("DETACH", "detach_"), tmp_path)
    assert 13 in lines_of(recording, "gradient-lost")
    assert not record_program(TERMS.replace("DETACH", "detach"), tmp_path).findings
