"""clone(): its own memory, the gradient kept.

    tether run examples/clone_keeps_the_gradient.py

Look at "copies and conversions": both clones own their memory. The clone of a tensor that requires
grad is computed from it (a non-leaf, with CloneBackward0); the clone of a plain tensor is a leaf.
"""

import torch

plain = torch.tensor([1.0, 2.0, 3.0])
plain_copy = plain.clone()
print("plain copy:", plain_copy.is_leaf, plain_copy.grad_fn)

w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
w_copy = w.clone()
print("copy of w:", w_copy.is_leaf, type(w_copy.grad_fn).__name__)

(w_copy * 2).sum().backward()
print("w.grad:", w.grad.tolist())
