"""PyTorch's all_reduce over gloo, f32 sums in place: "sizes gloo BYTES MEDIAN LEAST" over the repeats,
microseconds of the slowest rank.

    comm.py RENDEZVOUS-FILE RANK RANKS SECONDS BYTES...     one process a rank"""
import statistics
import sys
import time

import torch
import torch.distributed as dist

where, rank, ranks, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + where, rank=rank, world_size=ranks)
for size in map(int, sys.argv[5:]):
    data = torch.zeros(size // 4)
    calls = 50 if size <= 4096 else 1
    dist.all_reduce(data)
    samples, begin, more = [], time.perf_counter(), torch.ones(1)
    while more:
        data.zero_()
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(data)
        took = torch.tensor([(time.perf_counter() - start) / calls])
        dist.all_reduce(took, dist.ReduceOp.MAX)
        samples.append(1e6 * took.item())
        more.fill_(len(samples) < 9 or time.perf_counter() - begin < seconds)
        dist.broadcast(more, 0)
    if rank == 0:
        print(f"sizes gloo {size} {statistics.median(samples):.3f} {min(samples):.3f}", flush=True)
dist.destroy_process_group()
