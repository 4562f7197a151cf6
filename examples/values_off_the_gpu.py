"""Does `x.detach().clone().cpu().numpy()` take more GPU memory? What each call of it takes.

    tether run --memory examples/values_off_the_gpu.py

"detach and clone both allocate" is wrong: the table of copies says that `detach` shares, 0 bytes;
`clone` takes the bytes of `x` on the device of `x`; `cpu` takes them on the host when `x` is on a
GPU, and is the very same tensor when it is not. So on a GPU `cpu()` is a copy already and the clone
before it is one too many, which the report says at its line; on the CPU the clone is the copy, and
the only one. An array of its own from either: `x.detach().cpu().numpy()` on a GPU, with `.copy()`
behind it where `x` may be on the CPU.
"""

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.ones(512, 512, device=device, requires_grad=True)

shared = x.detach()
cloned = shared.clone()
fetched = cloned.cpu()
twice = fetched.numpy()
once = x.detach().cpu().numpy()

with torch.no_grad():
    x += 1
print("on a GPU both are arrays of their own, here", device, twice[0, 0], once[0, 0])
