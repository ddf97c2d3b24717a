"""Training trajectories: a few steps on formula batches, in f32 and f64."""
import math

import torch
import torch.nn.functional as F

from . import formula, nets, optim, record


def run(case, seed, dtype):
    torch.set_default_dtype(dtype)
    model = formula.fill(nets.build(case["model"], case["classes"], case.get("option", "A")).to(dtype), seed)
    model.train()
    nets.freeze(model, case.get("freeze", ""))
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    spec = case["optimizer"]
    optimizer = optim.make_optimizer(spec, named)
    floats = {n: b for n, b in model.state_dict().items() if b.is_floating_point()}
    start = {n: p.detach().clone() for n, p in named}
    ema = {n: b.detach().clone() for n, b in floats.items()} if "ema" in case else None
    losses, norms, watch = [], [], nets.ReluWatch(model)
    for step in range(case["steps"]):
        scales = spec.get("lr_scale", [1.0])
        for group in optimizer.param_groups:
            group["lr"] = spec["lr"] * scales[min(step, len(scales) - 1)]
        shape = [case["batch"], case.get("channels", 3), *case["size"]]
        x = formula.unit_input(f"{case.get('input', 'input')}.{step}", shape, seed, dtype)
        y = formula.labels(f"labels.{step}", case["batch"], case["classes"], seed)
        for _, p in named:
            p.grad = None
        loss = F.cross_entropy(model(x), y, label_smoothing=case.get("smoothing", 0.0))
        loss.backward()
        losses.append(loss.item())
        norms.append(math.sqrt(sum(float((p.grad.double() ** 2).sum()) for _, p in named)))
        optim.clip(spec, [p for _, p in named])
        optimizer.step()
        if ema is not None:
            d = case["ema"]["decay"]
            if "ramp" in case["ema"]:
                d *= 1 - math.exp(-(step + 1) / case["ema"]["ramp"])
            for n, b in floats.items():
                ema[n].mul_(d).add_(b.detach(), alpha=1 - d)
    return {"watch": watch.close(), "losses": torch.tensor(losses, dtype=dtype),
            "grad_norms": torch.tensor(norms, dtype=dtype),
            "weights": {n: p.detach() for n, p in named}, "start": start,
            "running": {n: b for n, b in floats.items() if "running_" in n}, "ema": ema or {}}


def make(case, seed):
    low, high = run(case, seed, torch.float32), run(case, seed, torch.float64)
    torch.set_default_dtype(torch.float32)
    out = {"config": case, "rule": optim.RULES[case["optimizer"]["kind"]],
           "losses": record.full(low["losses"], high["losses"]),
           "grad_norms": record.full(low["grad_norms"], high["grad_norms"]),
           "weights": {}, "change": {}}
    if low["watch"].units:
        out["relu"] = high["watch"].report(low["watch"])
    for n in low["weights"]:
        out["weights"][n] = record.summary(n, low["weights"][n], high["weights"][n], seed, 0, short=True)
        moved = [side["weights"][n].double() - side["start"][n].double() for side in (low, high)]
        out["change"][n] = record.summary(n, moved[0].float(), moved[1], seed, 0, short=True)
    for group in ("running", "ema"):
        if low[group]:
            out[group] = {n: record.summary(n, low[group][n], high[group][n], seed, 0, short=True)
                          for n in low[group]}
    return out
