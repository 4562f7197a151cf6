"""Which tensors are leaves, and whose .grad backward fills.

    tether run examples/leaves_and_their_gradients.py

`scaled` is computed, so it is no leaf and its .grad stays None; `kept` is no leaf either, but
asked for its gradient with retain_grad(). tether names the read and the leaf behind it.
"""

import torch

w = torch.tensor([1.0, 2.0], requires_grad=True)
scaled = w * 3
kept = w * 5
kept.retain_grad()

(scaled + kept).sum().backward()

print("w.grad", w.grad)
print("kept.grad", kept.grad)
print("scaled.grad", scaled.grad)
