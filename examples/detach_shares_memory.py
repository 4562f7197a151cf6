"""detach(): the same memory, element for element, outside the graph.

    tether run examples/detach_shares_memory.py

A write through the detached tensor shows in the source. `tether why snapshot run.tether` (after
`tether run -o run.tether`) gives the chain: shared here, written there.
"""

import torch

w = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
snapshot = w.detach()
print("dtype kept:", snapshot.dtype, "requires grad:", snapshot.requires_grad)

snapshot[0] = 100.0
print("w is now", w.tolist())
