"""Training steps of a network on two data-parallel ranks of the CPU that shard what they hold, over gloo;
prints `pytorch ... X img/s` and the resident set of the larger rank, as `kolo bench train shard=` does.
Starts the ranks itself.

usage: shard.py MODEL BATCH SIZE fsdp|zero|deepspeed THREADS STEPS
fsdp: fully_shard of every block and of the whole; zero: DistributedDataParallel with ZeroRedundancyOptimizer;
deepspeed: ZeRO stage 2. THREADS: of each rank; BATCH: of both together. AdamW.
"""
import os
import resource
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

from networks import build

RANKS = 2
WARM_UP = 3
OPTIONS = {"lr": 1e-3, "weight_decay": 0.05}


def blocks(module):
    """What a residual network is made of: each is gathered by itself, with all that it consists of."""
    for part in module.children():
        if isinstance(module, nn.Sequential) and any(True for _ in part.parameters()):
            yield part
        else:
            yield from blocks(part)


def fsdp(model):
    from torch.distributed.fsdp import fully_shard

    for block in blocks(model):
        fully_shard(block)
    fully_shard(model)
    return model, torch.optim.AdamW(model.parameters(), **OPTIONS)


def zero(model):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    return model, ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, **OPTIONS)


def plain_step(model, optimizer):
    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def deepspeed_step(model, batch):
    import deepspeed

    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        config={
            "train_micro_batch_size_per_gpu": batch,
            "optimizer": {"type": "AdamW", "params": {**OPTIONS, "torch_adam": True}},
            "zero_optimization": {"stage": 2},
        },
    )

    def step(x, y):
        engine.backward(F.cross_entropy(engine(x), y))
        engine.step()

    return step


def run(rank, store, name, batch, size, how, threads, steps):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS))
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    model, classes = build(name)
    layout = torch.channels_last if how == "zero" else torch.contiguous_format  # the others take no other
    model = model.to(memory_format=layout).train()
    step = deepspeed_step(model, batch // RANKS) if how == "deepspeed" else plain_step(*globals()[how](model))
    x = torch.rand(batch // RANKS, 3, size, size).to(memory_format=layout)
    y = torch.randint(0, classes, (batch // RANKS,))
    for _ in range(WARM_UP):
        step(x, y)
    dist.barrier()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step(x, y)
        dist.barrier()
        times.append(time.perf_counter() - begin)
    peak = torch.tensor([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024])
    dist.all_reduce(peak, dist.ReduceOp.MAX)
    if rank == 0:
        print(f"pytorch {torch.__version__} {how} {name} batch {batch} size {size}, {RANKS} ranks x {threads}"
              f" threads, {1e3 * sum(times) / steps:.3f} ms/step (fastest {1e3 * min(times):.3f}), "
              f"peak {peak.item():.0f} MiB: {batch * steps / sum(times):.1f} img/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    model_name, total, side, mode, cores, count = sys.argv[1:7]
    with tempfile.TemporaryDirectory() as folder:
        store_path = os.path.join(folder, "store")
        mp.spawn(run, (store_path, model_name, int(total), int(side), mode, int(cores), int(count)),
                 nprocs=RANKS)
