"""The same training step in PyTorch, for the ratio: prints one JSON line per measurement.

usage: peer.py MODEL BATCH SIZE MODE PRECISION [--device cuda] [--warmup N] [--steps N] [--rounds N]

MODEL: resnet20 (He et al. 2015, section 4.2) or a network of torchvision. MODE: eager, or compile (torch.compile, max-autotune, with CUDA
graphs), or reduce-overhead (the same without the tuning). PyTorch as a careful user runs it: channels_last, autocast, TF32 allowed, cuDNN's
benchmark mode, gradients set to None, fused SGD; pictures lie on the GPU already, and nothing is read back but once at the end.
"""
import argparse
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """CIFAR residual block, shortcut A."""

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


def build(name):
    if name == "resnet20":
        return resnet20(), 10
    import torchvision
    return getattr(torchvision.models, name)(), 1000


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("batch", type=int)
    p.add_argument("size", type=int)
    p.add_argument("mode", choices=("eager", "compile", "reduce-overhead"))
    p.add_argument("precision", choices=("f32", "tf32", "bf16", "fp16"))
    p.add_argument("--device", default="cuda")
    p.add_argument("--warmup", type=int, default=10)
    p.add_argument("--steps", type=int, default=30)
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()

    torch.manual_seed(0)
    device = torch.device(a.device)
    cuda = device.type == "cuda"
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = a.precision != "f32"
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(a.precision)
    model, classes = build(a.model)
    model = model.to(device, memory_format=torch.channels_last).train()
    x = torch.randn(a.batch, 3, a.size, a.size, device=device).to(memory_format=torch.channels_last)
    y = torch.randint(0, classes, (a.batch,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=cuda or None)
    scaler = torch.amp.GradScaler(device.type, enabled=a.precision == "fp16" and cuda)
    begin = time.perf_counter()

    def forward(pictures, labels):
        with torch.autocast(device.type, dtype=half or torch.bfloat16, enabled=half is not None):
            return F.cross_entropy(model(pictures), labels)

    if a.mode != "eager" and cuda:
        forward = torch.compile(forward, mode="max-autotune" if a.mode == "compile" else a.mode)
    elif a.mode != "eager":  # without a GPU only that it can be traced
        forward = torch.compile(forward, backend="eager")

    def step():
        torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        loss = forward(x, y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    def settle():
        if cuda:
            torch.cuda.synchronize()

    for _ in range(a.warmup):
        loss = step()
    settle()
    ready = time.perf_counter() - begin
    best = times = 0.0
    for _ in range(a.rounds):
        begin = time.perf_counter()
        for _ in range(a.steps):
            loss = step()
        settle()
        took = time.perf_counter() - begin
        times += took
        best = max(best, a.batch * a.steps / took)
    result = {"what": "peer", "program": "pytorch", "version": torch.__version__, "model": a.model, "batch": a.batch, "size": a.size,
              "mode": a.mode, "precision": a.precision, "img_s": round(a.batch * a.steps * a.rounds / times, 1), "best_img_s": round(best, 1),
              "ms": round(1e3 * times / a.steps / a.rounds, 3), "ready_s": round(ready, 1), "loss": round(float(loss), 4)}
    if cuda:
        result["peak_mib"] = torch.cuda.max_memory_allocated() >> 20
        result["reserved_mib"] = torch.cuda.max_memory_reserved() >> 20
        result["cudnn"] = torch.backends.cudnn.version()
    print(json.dumps(result))
    sys.stdout.flush()


main()
