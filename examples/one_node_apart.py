"""`detach().clone()` against `clone().detach()`: what is the same, and what the order costs.

    tether run examples/one_node_apart.py

Both give memory of their own and no gradient: in the table of copies each has a row that "owns"
and a row that "cuts". The second makes a node of the gradient graph, which its detach drops at
once. The finding names the factor, measured on your machine at the size of `small`; at the size of
`large`, where the bytes are what costs, there is nothing to find.
"""

import torch

small = torch.zeros(16, requires_grad=True)
large = torch.zeros(1 << 20, requires_grad=True)

first, second = [], []
for _ in range(200):
    first.append(small.detach().clone())
    second.append(small.clone().detach())
    with torch.no_grad():
        small += 1

for _ in range(5):
    a = large.detach().clone()
    b = large.clone().detach()
    a += 1
    b += 1

same = all(not x.requires_grad and torch.equal(x, y) for x, y in zip(first, second, strict=True))
print("the same values and ties:", same, torch.equal(a, b))
