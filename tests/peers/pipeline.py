"""Training steps of a network cut into two stages with torch.distributed.pipelining (gloo) on the CPU; prints
`pytorch ... X img/s`, as `kolo bench train stages=2` does. Starts one process a stage itself.

usage: pipeline.py MODEL BATCH SIZE MICRO_BATCHES CUT gpipe|1f1b THREADS STEPS
CUT: the module with which the second stage begins, such as layer3.0; THREADS: of each stage. Networks of
torchvision whose modules follow each other (its ResNets). Layers are channels_last, as pytorch_train.py has
them; what passes between stages is contiguous, as gloo wants it.
"""
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from networks import build

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
WARM_UP = 3


class ChannelsLast(torch.autograd.Function):
    """What a stage receives is contiguous, what it computes with is channels_last, and so backward."""

    @staticmethod
    def forward(ctx, x):
        return x.contiguous(memory_format=torch.channels_last)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.contiguous()


class Stage(nn.Sequential):
    def forward(self, x):
        return super().forward(ChannelsLast.apply(x)).contiguous()


def chain(model):
    """The modules one after the other, by name: layer1.0 and not layer1."""
    for name, module in model.named_children():
        if isinstance(module, nn.Sequential):
            for inner, part in module.named_children():
                yield f"{name}.{inner}", part
        elif isinstance(module, nn.Linear):
            yield name, nn.Sequential(nn.Flatten(), module)
        else:
            yield name, module


def stage_of(model, cut, rank):
    modules = list(chain(model))
    at = [name for name, _ in modules].index(cut)
    return Stage(*[m for _, m in (modules[at:] if rank else modules[:at])])


def run(rank, store, name, batch, size, slots, cut, order, threads, steps):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    model, classes = build(name)
    module = stage_of(model, cut, rank).to(memory_format=torch.channels_last).train()
    stage = PipelineStage(module, rank, 2, torch.device("cpu"))
    schedule = SCHEDULES[order](stage, slots, loss_fn=F.cross_entropy)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    x, y = torch.rand(batch, 3, size, size), torch.randint(0, classes, (batch,))

    def step():
        optimizer.zero_grad(set_to_none=True)
        schedule.step(x) if rank == 0 else schedule.step(target=y, losses=[])
        optimizer.step()

    for _ in range(WARM_UP):
        step()
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    dist.barrier()
    seconds = time.perf_counter() - begin
    if rank == 0:
        print(f"pytorch {torch.__version__} {name} batch {batch} size {size}, 2 stages x {threads} threads, "
              f"{order}, {slots} micro-batches: {batch * steps / seconds:.1f} img/s")
    dist.destroy_process_group()


def main():
    name, batch, size, slots, cut, order, threads, steps = sys.argv[1:9]
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, nprocs=2, args=(os.path.join(folder, "store"), name, int(batch), int(size), int(slots),
                                      cut, order, int(threads), int(steps)))


if __name__ == "__main__":
    main()
