"""Windows over a signal, each detrended on memory of its own, and a ring of recent values."""

import torch


def windows(signal, size, step):
    pieces = [piece.clone() for piece in signal.unfold(0, size, step)]
    for piece in pieces:
        piece -= piece.mean()
    return torch.stack(pieces)


class Ring:
    def __init__(self, size):
        self.values, self.at = torch.zeros(size), 0

    def push(self, value):
        self.values[self.at % len(self.values)] = value
        self.at += 1

    def view(self):
        return self.values.clone()


signal = torch.arange(10.0)
print(windows(signal, 4, 2).tolist(), signal.sum().item())
ring, seen = Ring(4), []
for k in range(6):
    ring.push(float(k))
    seen.append(ring.view())
print(torch.stack(seen).sum(1).tolist())
