"""Adding tensors of two devices: PyTorch's error, and which operand came from where.

Run `tether run examples/operands_on_two_devices.py`. PyTorch's message names two devices and no
tensor. Look below it in the report: which operand is on which device, the line that made each, and
the one-line repair. Where there is no CUDA device, the example takes PyTorch's ``meta`` device,
whose tensors have shapes and no memory; the rule, the error and the answer are the same.
"""

import torch

device = "cuda" if torch.cuda.is_available() else "meta"

weights = torch.ones(3, device=device)
offset = torch.zeros(3)
scale = torch.tensor(2.0)  # one number may come from the CPU: PyTorch takes it along

scaled = weights * scale
moved = scaled + offset.to(device)
print("works on", moved.device.type)

print(scaled + offset)
