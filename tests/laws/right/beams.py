"""Beam search over copies of sequences, and a cache of keys reordered by beams."""

import torch

torch.manual_seed(0)
table = torch.randn(6, 6)


def search(width, length):
    tokens = torch.zeros(width, length, dtype=torch.long)
    scores = torch.zeros(width)
    cache = torch.zeros(width, length, 6)
    for t in range(1, length):
        cache[:, t] = table[tokens[:, t - 1]]
        total = (scores[:, None] + torch.log_softmax(cache[:, t], 1)).flatten()
        scores, where = total.topk(width)
        beams, last = where // 6, where % 6
        tokens = tokens[beams].clone()
        tokens[:, t] = last
        cache = cache[beams].clone()
    return tokens, scores, cache.sum()


def expanded(prompt, beams):
    rows = prompt.repeat(beams, 1)
    rows[0, 0] = 5
    return rows


print(search(3, 4))
print(expanded(torch.tensor([[1, 2, 3]]), 3).tolist())
