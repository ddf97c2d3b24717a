"""The same training step in PyTorch, for the ratio: prints one JSON line per measurement.

usage: peer.py MODEL BATCH SIZE MODE PRECISION [--device cuda] [--warmup N] [--steps N] [--rounds N]

MODEL: resnet20 (He et al. 2015, section 4.2) or a network of torchvision. MODE: eager, or compile
(torch.compile, max-autotune, with CUDA
graphs), or reduce-overhead (the same without the tuning). PyTorch as a careful user runs it: channels_last,
autocast, TF32 allowed, cuDNN's
benchmark mode, gradients set to None, fused SGD; images lie on the GPU already, and nothing is read back
but once at the end.
"""
import argparse
import json
import os
import sys
import time

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers"))
from networks import build


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
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4,
                                fused=cuda or None)
    scaler = torch.amp.GradScaler(device.type, enabled=a.precision == "fp16" and cuda)
    begin = time.perf_counter()

    def forward(images, labels):
        with torch.autocast(device.type, dtype=half or torch.bfloat16, enabled=half is not None):
            return F.cross_entropy(model(images), labels)

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
    result = {"what": "peer", "program": "pytorch", "version": torch.__version__, "model": a.model,
              "batch": a.batch, "size": a.size,
              "mode": a.mode, "precision": a.precision, "img_s": round(a.batch * a.steps * a.rounds / times,
                  1), "best_img_s": round(best, 1),
              "ms": round(1e3 * times / a.steps / a.rounds, 3), "ready_s": round(ready,
                  1), "loss": round(float(loss), 4)}
    if cuda:
        result["peak_mib"] = torch.cuda.max_memory_allocated() >> 20
        result["reserved_mib"] = torch.cuda.max_memory_reserved() >> 20
        result["cudnn"] = torch.backends.cudnn.version()
    print(json.dumps(result))
    sys.stdout.flush()


main()
