"""numpy() of a tensor that requires grad: PyTorch's error, and the call that works.

    tether run examples/numpy_of_a_tensor_that_requires_grad.py

The program ends with PyTorch's own error, unchanged; the report says which tensor it was, where it
was made, and what to write instead.
"""

import torch

w = torch.ones(3, requires_grad=True)
loss_per_item = w * 2
print(loss_per_item.detach().numpy())

print(loss_per_item.numpy())
