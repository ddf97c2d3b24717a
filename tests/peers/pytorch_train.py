"""One training configuration in PyTorch on the CPU; prints `pytorch ... X img/s` and its resident set, as `kolo bench train` does.

usage: pytorch_train.py MODEL BATCH SIZE f32|bf16 THREADS STEPS
"tuned" is set from outside: MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 (no page faults every step), channels_last here.
"""
import resource
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """CIFAR residual block (He et al. 2015, section 4.2), shortcut A."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.extra = (outputs - inputs) // 2
        self.stride = stride

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        if self.stride != 1 or self.extra:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.extra, self.extra))
        return F.relu(y + x, inplace=True)


def resnet20(classes=10):
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    inputs = 16
    for outputs, first in ((16, 1), (32, 2), (64, 2)):
        for i in range(3):
            layers.append(Block(inputs, outputs, first if i == 0 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def lenet5(classes=10):
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes))


def main():
    name, batch, size, precision, threads, steps = sys.argv[1:7]
    batch, size, steps = int(batch), int(size), int(steps)
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    if name in ("resnet20", "lenet5"):
        model, classes = {"resnet20": resnet20, "lenet5": lenet5}[name](), 10
    else:
        import torchvision
        model, classes = getattr(torchvision.models, name)(), 1000
    model = model.to(memory_format=torch.channels_last).train()
    x = torch.rand(batch, 1 if name == "lenet5" else 3, size, size).to(memory_format=torch.channels_last)
    y = torch.randint(0, classes, (batch,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    for _ in range(3):
        step()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"pytorch {torch.__version__} {name} batch {batch} size {size} {precision}, {threads} threads, {1e3 * sum(times) / steps:.3f} ms/step "
          f"(fastest {1e3 * min(times):.3f}), peak {rss:.0f} MiB: {batch * steps / sum(times):.1f} img/s")


main()
