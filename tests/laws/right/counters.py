"""Accumulators, one for each class and each split."""

import torch

torch.manual_seed(0)


class Meter:
    def __init__(self, classes):
        self.sums = [torch.zeros(3) for _ in range(classes)]
        self.counts = {name: torch.zeros(classes) for name in ("train", "valid")}

    def add(self, label, value, split):
        self.sums[label] += value
        self.counts[split][label] += 1


def confusion(pairs, n):
    tables = [torch.zeros(n, n) for _ in range(2)]
    for fold, (a, b) in enumerate(pairs):
        tables[fold % 2][a, b] += 1
    return tables


meter = Meter(3)
for k in range(9):
    meter.add(k % 3, torch.randn(3), "train" if k % 2 else "valid")
tables = confusion([(0, 1), (1, 1), (2, 0), (0, 1)], 3)
print(meter.sums, meter.counts, tables)
