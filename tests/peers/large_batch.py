"""CIFAR ResNet-20 at a batch of 2,048 in PyTorch on the CPU, as tests/long/large_batch.t trains it with SGD:
top-1 of the test images, a line a seed.

usage: large_batch.py FOLDER SEED... (FOLDER has train/CLASS/*.jpg and test/CLASS/*.jpg; OMP_NUM_THREADS
threads)
Blocks of 128 images have their own batch statistics, gradients are the mean over blocks; running statistics
follow the mean of the blocks' once a step.
lr 1.6, momentum .9, decay 5e-4 of all parameters, an epoch of warm-up from 0, cosine by steps, 5 epochs;
crops of 32 from images padded by 4, flips.
"""
import math
import os
import sys

import numpy
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

from networks import build

BATCH, BLOCK, EPOCHS, RATE = 2048, 128, 5, 1.6


def images(folder):
    x, y = [], []
    for label, name in enumerate(sorted(os.listdir(folder))):
        for file in sorted(os.listdir(os.path.join(folder, name))):
            with Image.open(os.path.join(folder, name, file)) as image:
                x.append(numpy.asarray(image.convert("RGB")))
            y.append(label)
    return torch.from_numpy(numpy.stack(x)).permute(0, 3, 1, 2).contiguous(), torch.tensor(y)


def augmented(x):
    """Every image by itself: padded by 4 black pixels, cropped at random, mirrored half the time."""
    n = len(x)
    rows = torch.randint(0, 9, (n, 1, 1, 1)) + torch.arange(32).view(1, 1, 32, 1)
    columns = torch.arange(32).view(1, 1, 1, 32).expand(n, 1, 1, 32)
    columns = torch.where(torch.rand(n, 1, 1, 1) < 0.5, 31 - columns, columns) + torch.randint(0, 9,
        (n, 1, 1, 1))
    return F.pad(x, (4, 4, 4, 4))[torch.arange(n).view(n, 1, 1, 1), torch.arange(3).view(1, 3, 1, 1), rows,
                                  columns]


def rate(step, per_epoch):
    if step < per_epoch:
        return RATE * step / per_epoch
    return RATE * (1 + math.cos(math.pi * (step - per_epoch) / ((EPOCHS - 1) * per_epoch))) / 2


def step_of(model, norms, x, y):
    """Gradients of a batch, block by block, and one update of the running statistics by the blocks' mean."""
    before = [(m.running_mean.clone(), m.running_var.clone()) for m in norms]
    after = [(torch.zeros_like(mean), torch.zeros_like(var)) for mean, var in before]
    loss = 0
    for i in range(0, BATCH, BLOCK):
        for m, (mean, var) in zip(norms, before):
            m.running_mean.copy_(mean), m.running_var.copy_(var)
        part = F.cross_entropy(model(x[i:i + BLOCK]), y[i:i + BLOCK]) * BLOCK / BATCH
        part.backward()
        loss += part.item()
        for m, (mean, var) in zip(norms, after):
            mean.add_(m.running_mean, alpha=BLOCK / BATCH), var.add_(m.running_var, alpha=BLOCK / BATCH)
    for m, (mean, var) in zip(norms, after):
        m.running_mean.copy_(mean), m.running_var.copy_(var)
    return loss


def train(seed, data, test):
    torch.manual_seed(seed)
    model = build("resnet20")[0]
    # as akamaster's networks, and so kolo's, begin; the head is torch.nn.Linear's own
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight)
    model = model.to(memory_format=torch.channels_last).train()
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9, weight_decay=5e-4)
    mean, std = (f(data[0].float().div(255), (0, 2, 3)).view(1, 3, 1, 1) for f in (torch.mean, torch.std))
    per_epoch = len(data[0]) // BATCH

    def ready(x):
        return ((x.float() / 255 - mean) / std).contiguous(memory_format=torch.channels_last)

    for step in range(EPOCHS * per_epoch):
        if step % per_epoch == 0:
            order = torch.randperm(len(data[0]))
        rows = order[step % per_epoch * BATCH:][:BATCH]
        for group in optimizer.param_groups:
            group["lr"] = rate(step, per_epoch)
        optimizer.zero_grad(set_to_none=True)
        loss = step_of(model, norms, ready(augmented(data[0][rows])), data[1][rows])
        optimizer.step()
        if step % 8 == 0:
            print(f"# seed {seed} step {step} loss {loss:.4f}", flush=True)
    model.eval()
    with torch.no_grad():
        hits = sum(int((model(ready(x)).argmax(1) == y).sum()) for x, y in zip(test[0].split(500),
            test[1].split(500)))
    print(f"seed {seed}: top-1 {hits / len(test[1]):.4f}", flush=True)


def main():
    data, test = (images(os.path.join(sys.argv[1], part)) for part in ("train", "test"))
    for seed in sys.argv[2:]:
        train(int(seed), data, test)


main()
