"""numpy() shares memory: a write to the array changes the tensor, and no version counter moves.

    tether run examples/numpy_shares_memory.py

Two findings, one for each direction: the array that was taken as a record follows the tensor, and
the tensor follows the array. Both name where the array was taken.
"""

import torch

weights = torch.tensor([1.0, 2.0, 3.0])
snapshot = weights.numpy()

weights.mul_(10)
print("the snapshot followed:", snapshot.tolist())

snapshot[0] = -1.0
print("and the tensor follows the array:", weights.sum().item())
