"""Heat on a rod and a game of life: each step reads the old grid and writes a new one."""

import torch


def heat(rod, steps):
    now = rod.clone()
    for _ in range(steps):
        old = now.clone()
        now[1:-1] = old[1:-1] + 0.25 * (old[2:] - 2 * old[1:-1] + old[:-2])
    return now


def life(board, steps):
    frames = [board.clone()]
    for _ in range(steps):
        padded = torch.nn.functional.pad(board, (1, 1, 1, 1))
        around = sum(
            padded[1 + i : 1 + i + board.shape[0], 1 + j : 1 + j + board.shape[1]]
            for i in (-1, 0, 1)
            for j in (-1, 0, 1)
            if (i, j) != (0, 0)
        )
        alive = ((around == 3) | ((board == 1) & (around == 2))).float()
        board.copy_(alive)
        frames.append(board.clone())
    return frames


rod = torch.zeros(9)
rod[4] = 1.0
board = torch.zeros(5, 5)
board[2, 1:4] = 1.0
print(heat(rod, 4).tolist(), rod.sum().item())
print([frame.sum(0).tolist() for frame in life(board, 3)])
