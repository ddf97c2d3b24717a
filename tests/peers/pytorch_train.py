"""One training configuration in PyTorch on the CPU; prints `pytorch ... X img/s` and its resident set, as
`kolo bench train` does.

usage: pytorch_train.py MODEL BATCH SIZE f32|bf16 THREADS STEPS
"tuned" is set from outside: MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 (no page faults every
step), channels_last here.
"""
import resource
import sys
import time

import torch
import torch.nn.functional as F

from networks import build


def main():
    name, batch, size, precision, threads, steps = sys.argv[1:7]
    batch, size, steps = int(batch), int(size), int(steps)
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    model, classes = build(name)
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
    print(f"pytorch {torch.__version__} {name} batch {batch} size {size} {precision}, {threads} threads, "
        f"{1e3 * sum(times) / steps:.3f} ms/step "
          f"(fastest {1e3 * min(times):.3f}), peak {rss:.0f} MiB: {batch * steps / sum(times):.1f} img/s")


main()
