"""Training with weights that are late, or averaged: the trajectories of asynchronous pipelines, stale
gradients, local SGD and SWAP.

Everything is simulated in one process, step by step; no rank, thread or clock takes part.
"""
import math

import torch
import torch.nn.functional as F

from . import formula, nets, optim, record

RULES = {
    "pipedream": "stage s of p (from 0): batch t is computed forward and backward with the weights that stage s had after max(0, t-(p-1-s)) updates "
                 "(weight stashing); the update is applied to the newest weights",
    "pipedream_vertical": "all stages: batch t is computed with the weights after max(0, t-(p-1)) updates (vertical sync); the update is applied to the "
                          "newest weights",
    "two_buffered": "all stages: batch t is computed with the weights after max(0, t-1) updates; the update is applied to the newest weights (PipeDream-2BW)",
    "pipelined": "stage s of p: forward of batch t with the weights after max(0, t-2(p-1-s)) updates, backward with the newest weights, after t updates "
                 "(no stashing: dx by the newest weights, dw by the stored input); the update is applied to the newest weights",
    "spike": "correction spike: with D = 2(p-1-s), d = g + wd*w, v = mu*v + d: w -= lr * (mu^D v + (1-mu^D)/(1-mu) d)",
    "stale": "all tensors: the gradient of batch t is formed with the weights after max(0, t-tau) updates and applied to the newest weights",
    "local_sgd": "R ranks, rank r takes rows [r b/R, (r+1) b/R) of every batch, mean loss over its own rows. The first `sync_steps` steps: one step of all with "
                 "the mean gradient. Then each rank steps alone (its own momentum, never averaged) and after every H of these steps the weights are averaged; "
                 "at the end they are averaged. losses: mean over ranks, before the update",
    "predict": "correction predict: instead of weights after t updates forward uses w - lr D v, as momentum v is after t updates",
    "both": "both corrections: w -= lr * (mu^D v + (1-mu^D)/(1-mu) d), and forward uses w - lr D v",
    "outer": "outer: of an average m and the weights a that ranks went out from nesterov makes a step of torch's SGD from a by the gradient a - m; "
             "slowmo u = momentum u + (a - m)/lr, w = a - rate lr u",
    "swap": "the first `sync_steps` steps as local_sgd; then each rank goes on alone, momentum starting at 0, and the weights are averaged once, at the end",
}


class OldForward(torch.nn.Module):
    """y = f(x, old weights); dx and the place of dw by the weights of now."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.old = layer, None

    def apply_with(self, x, weight, bias):
        if isinstance(self.layer, torch.nn.Linear):
            return F.linear(x, weight, bias)
        return F.conv2d(x, weight, bias, self.layer.stride, self.layer.padding)

    def forward(self, x):
        now = self.apply_with(x, self.layer.weight, self.layer.bias)
        if self.old is None:
            return now
        with torch.no_grad():
            gap = self.apply_with(x, *self.old) - now
        return now + gap


def batch(case, seed, step, dtype):
    shape = [case["batch"], case.get("channels", 3), *case["size"]]
    x = formula.unit_input(f"{case.get('input', 'input')}.{step}", shape, seed, dtype)
    return x, formula.labels(f"labels.{step}", case["batch"], case["classes"], seed)


def stage_of(case, name):
    for s, prefixes in enumerate(case["stages"]):
        if any(name == p or name.startswith(p + ".") for p in prefixes):
            return s
    raise ValueError(f"{name} belongs to no stage")


@torch.no_grad()
def spike(case, named, late, velocity):
    """A step of SGD in which each tensor makes up for as many updates as its gradients lack."""
    o = case["optimizer"]
    mu, wd = o["momentum"], o.get("weight_decay", 0.0)
    for n, p in named:
        d = p.grad + wd * p
        velocity[n] = mu * velocity[n] + d if n in velocity else d
        keep = mu ** late[n]
        p.sub_(o["lr"] * (keep * velocity[n] + (1 - keep) / (1 - mu) * d))


class Outer:
    """What weights become behind an average: they are on all ranks the same before and after."""

    def __init__(self, spec, lr, named):
        self.spec, self.lr = spec, lr
        self.anchor = [p.detach().clone().requires_grad_() for _, p in named]
        self.slow = [torch.zeros_like(p) for p in self.anchor]
        self.sgd = torch.optim.SGD(self.anchor, lr=spec["rate"], momentum=spec["momentum"],
                                   nesterov=spec["kind"] == "nesterov")

    @torch.no_grad()
    def step(self, means):
        if self.spec["kind"] == "nesterov":
            for a, m in zip(self.anchor, means):
                a.grad = a - m
            self.sgd.step()
        else:
            for a, u, m in zip(self.anchor, self.slow, means):
                u.mul_(self.spec["momentum"]).add_((a - m) / self.lr)
                a.sub_(self.spec["rate"] * self.lr * u)
        return [a.detach().clone() for a in self.anchor]


def run_delayed(case, seed, dtype):
    model = formula.fill(nets.build(case["model"], case["classes"], case.get("option", "A")).to(dtype), seed)
    model.train()
    mode, named = case["mode"], list(model.named_parameters())
    late = {}
    if mode == "pipelined":
        for name, layer in list(model.named_children()):
            if isinstance(layer, (torch.nn.Linear, torch.nn.Conv2d)):
                late[name] = OldForward(layer)
                setattr(model, name, late[name])
    names = [n for n, _ in named]
    delay = {}
    for n in names:
        if mode in ("pipedream", "pipelined"):
            d = len(case["stages"]) - 1 - stage_of(case, n)
            delay[n] = d if mode == "pipedream" else 2 * d
        elif mode == "pipedream_vertical":
            delay[n] = len(case["stages"]) - 1
        else:
            delay[n] = 1 if mode == "two_buffered" else case["tau"]
    optimizer, velocity = optim.make_optimizer(case["optimizer"], named), {}
    start = {n: p.detach().clone() for n, p in named}
    history, losses, watch = [{n: p.detach().clone() for n, p in named}], [], nets.ReluWatch(model)
    for t in range(case["steps"]):
        x, y = batch(case, seed, t, dtype)
        newest = {n: p.detach().clone() for n, p in named}
        version = {n: history[max(0, t - delay[n])][n] for n in names}
        with torch.no_grad():
            for n, p in named:
                p.grad = None
                if mode != "pipelined":
                    p.copy_(version[n])
            for name, layer in late.items():
                layer.old = (version[name + ".weight"], version[name + ".bias"])
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            for n, p in named:
                p.copy_(newest[n])
        optim.clip(case["optimizer"], [p for _, p in named])
        correction = case.get("correction")
        if correction:
            spike(case, named, {n: 0 for n in names} if correction == "predict" else delay, velocity)
        else:
            optimizer.step()
        ahead = case["optimizer"]["lr"] if correction in ("predict", "both") else 0.0
        history.append({n: p.detach() - ahead * delay[n] * velocity[n] if ahead else p.detach().clone()
                        for n, p in named})
    running = {n: b for n, b in model.state_dict().items() if "running_" in n}
    return {"watch": watch.close(), "losses": torch.tensor(losses, dtype=dtype),
            "weights": {n: p.detach() for n, p in named}, "start": start,
            "running": running}


def run_local(case, seed, dtype):
    ranks, build = case["ranks"], lambda: formula.fill(nets.build(case["model"], case["classes"],
        case.get("option", "A")).to(dtype), seed)
    models = [build() for _ in range(ranks)]
    named = [list(m.named_parameters()) for m in models]
    optimizers = [optim.make_optimizer(case["optimizer"], n) for n in named]
    start = {n: p.detach().clone() for n, p in named[0]}
    watch = nets.ReluWatch(models[0])
    losses, alone, rows = [], 0, case["batch"] // ranks
    outer = None

    @torch.no_grad()
    def average():
        means = [sum(p.detach() for _, p in entries) / ranks for entries in zip(*named)]
        if outer:
            means = outer.step(means)
        for entries, mean in zip(zip(*named), means):
            for _, p in entries:
                p.copy_(mean)

    for t in range(case["steps"]):
        x, y = batch(case, seed, t, dtype)
        total, sync = 0.0, t < case["sync_steps"]
        if t == case["sync_steps"] and "outer" in case:
            outer = Outer(case["outer"], case["optimizer"]["lr"], named[0])
        for r, model in enumerate(models):
            model.train()
            for _, p in named[r]:
                p.grad = None
            loss = F.cross_entropy(model(x[r * rows:(r + 1) * rows]), y[r * rows:(r + 1) * rows])
            loss.backward()
            total += loss.item()
        losses.append(total / ranks)
        if sync:
            for entries in zip(*named):
                mean = sum(p.grad for _, p in entries) / ranks
                for _, p in entries:
                    p.grad = mean.clone()
        if t == case["sync_steps"] and case["mode"] == "swap":
            optimizers = [optim.make_optimizer(case["optimizer"], n) for n in named]
        for o in optimizers:
            o.step()
        if not sync and case["mode"] == "local_sgd":
            alone += 1
            if alone % case["every"] == 0 or t == case["steps"] - 1:
                average()
    if case["mode"] == "swap" or not alone:
        average()
    return {"watch": watch.close(), "losses": torch.tensor(losses, dtype=dtype),
            "weights": {n: p.detach() for n, p in named[0]}, "start": start, "running": {}}


def run(case, seed, dtype):
    torch.set_default_dtype(dtype)
    return (run_local if case["mode"] in ("local_sgd", "swap") else run_delayed)(case, seed, dtype)


def make(case, seed):
    low, high = run(case, seed, torch.float32), run(case, seed, torch.float64)
    torch.set_default_dtype(torch.float32)
    more = [RULES[k] for k in ("spike", "predict", "both", "outer") if k in (case.get("correction"), "outer" if "outer" in case else "")]
    out = {"config": case, "rule": ". ".join([RULES[case["mode"]], *more]),
           "optimizer_rule": optim.RULES[case["optimizer"]["kind"]],
           "losses": record.full(low["losses"],
                                 high["losses"]), "relu": high["watch"].report(low["watch"]), "weights": {}, "change": {}}
    for n in low["weights"]:
        out["weights"][n] = record.summary(n, low["weights"][n], high["weights"][n], seed, 0, short=True)
        moved = [side["weights"][n].double() - side["start"][n].double() for side in (low, high)]
        out["change"][n] = record.summary(n, moved[0].float(), moved[1], seed, 0, short=True)
    if low["running"]:
        out["running"] = {n: record.summary(n, low["running"][n], high["running"][n], seed, 0, short=True)
                          for n in low["running"]}
    return out


def margin(case, seed):
    """(flips, smallest distance of a ReLU input from 0) of a case, to choose its input by."""
    low, high = run(case, seed, torch.float32), run(case, seed, torch.float64)
    torch.set_default_dtype(torch.float32)
    report = high["watch"].report(low["watch"])
    return report["flips_f32_f64"], report["margin"]
