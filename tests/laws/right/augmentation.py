"""Images changed in place after a copy was taken, pairs of views, and a batch kept as it was."""

import numpy as np
import torch

rng = np.random.default_rng(0)
torch.manual_seed(0)


def flipped(image):
    image = image.clone()
    image[:, : image.shape[1] // 2] = 0
    return image.flip(1)


def normalised(batch):
    batch = batch.clone()
    batch -= batch.mean()
    batch /= batch.std()
    return batch


def pair(image):
    return image + 0.1 * torch.randn_like(image), flipped(image)


photo = rng.random((4, 4)).astype(np.float32)
dataset = [torch.tensor(photo * k) for k in range(1, 4)]
frame = np.zeros((2, 2), dtype=np.float32)
frames = []
for k in range(4):
    frame[:] = k
    frames.append(torch.tensor(frame))
views = [pair(image) for image in dataset]
batch = torch.stack(dataset)
done = normalised(batch)
print(torch.stack(frames).sum((1, 2)).tolist(), batch.mean().item(), done.mean().abs() < 1e-5)
print([float(a.sum() - b.sum()) for a, b in views], photo.sum())
