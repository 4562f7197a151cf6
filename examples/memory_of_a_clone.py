"""What `b = a` takes of memory, and what `b = a.clone()` takes.

    tether memory examples/memory_of_a_clone.py        or: tether run --memory ...

`b = a` gives the same tensor a second name and allocates nothing, whatever its size. `a.clone()`
allocates as many bytes as `a` holds: 4 here, 64 MiB there. The peak comes at the second clone.
"""

import torch

a = torch.ones(1)
b = a
c = a.clone()
large = torch.ones(16, 1024, 1024)
same = large
copy = large.clone()
del copy
print("b is a:", b is a, " c is a:", c is a, " same is large:", same is large)
