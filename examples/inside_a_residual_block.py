"""Every intermediate of a residual block, by name: memory and gradient.

    tether run -o run.tether examples/inside_a_residual_block.py
    tether why out run.tether

What others print by hand (addresses, grad_fn, gradients) is in the recording: `tether why NAME`
for any of x, identity, hidden, out gives the calls that made, used and wrote it.
"""

import torch
from torch import nn

torch.manual_seed(0)
first, second = nn.Linear(4, 4), nn.Linear(4, 4)
x = torch.randn(2, 4, requires_grad=True)

identity = x
hidden = torch.relu(first(x))
out = second(hidden)
out += identity
loss = out.sum()
loss.backward()

print("x.grad", tuple(x.grad.shape))
