"""Optimizers by name, their rules in words, and optimizer-only cases."""
import math

import torch
from timm.optim import Lamb, Lars, NvNovoGrad, RMSpropTF
from timm.optim.lookahead import Lookahead

from . import formula, record

RULES = {
    "sgd": "d = g + wd*w; b = d at step 1, then b = mu*b + (1-dampening)*d; nesterov: d = d + mu*b, else d = b; w -= lr*d",
    "adam": "g += wd*w; m = b1*m + (1-b1)*g; v = b2*v + (1-b2)*g^2; w -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps)",
    "adamw": "w *= 1 - lr*wd; then as adam without wd",
    "lars": "tensors with wd != 0: r = coeff*|w|/(|g| + wd*|w| + eps), 1 if |w| or |g| is 0; d = r*(g + wd*w). Tensors with "
            "wd = 0: d = g. Then b = d at step 1, b = mu*b + d; nesterov: d + mu*b; w -= lr*d (lr outside the buffer)",
    "lars_tf": "tensors with wd != 0: r as lars; others r = 1; b = mu*b + lr*r*(g + wd*w); w -= b (lr inside the buffer)",
    "lars_clip": "as lars, but r is min(r/lr, 1): the effective rate is min(r, lr)",
    "lamb": "c = max(1, |g_all|/max_grad_norm) over ALL tensors (absent if None); g /= c; m = b1*m + (1-b1)*g; "
            "v = b2*v + (1-b2)*g^2; u = (m/(1-b1^t)) / (sqrt(v)/sqrt(1-b2^t) + eps) + wd*w; r = |w|/|u| (1 if either is 0) "
            "when wd != 0 or always_adapt, else 1; w -= lr*r*u. bias_correction False: both corrections are 1. trust_clip: min(r,1)",
    "novograd": "n = |g|^2 per tensor; v = n while v is 0, then v = b2*v + (1-b2)*n; d = g/(sqrt(v)+eps) + wd*w; "
                "grad_averaging: d *= 1-b1; m = b1*m + d (m = 0 at first); w -= lr*m",
    "rmsprop": "g += wd*w; v = alpha*v + (1-alpha)*g^2 (v = 0 at first); centered: a = alpha*a + (1-alpha)*g, s = sqrt(v - a^2), "
               "else s = sqrt(v); d = g/(s+eps); momentum: b = mu*b + d, w -= lr*b; else w -= lr*d",
    "rmsprop_tf": "g += wd*w; v = 1 at first, v += (1-alpha)*(g^2 - v); d = g/sqrt(v+eps); b = mu*b + lr*d; w -= b",
    "lookahead": "inner optimizer each step; every k steps: slow += alpha*(fast - slow); fast = slow. "
                 "slow_start 'initial': slow is w at step 0 (paper). 'first_sync': slow is w at step k, so the first "
                 "synchronisation changes nothing (timm)",
}


class LarsTf(torch.optim.Optimizer):
    """LARS with the learning rate inside the momentum buffer."""

    def __init__(self, params, lr, momentum, trust_coeff, eps, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, momentum=momentum, trust_coeff=trust_coeff, eps=eps,
                                      weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            wd = group["weight_decay"]
            for p in group["params"]:
                ratio = 1.0
                if wd:
                    w, g = p.norm(), p.grad.norm()
                    if w > 0 and g > 0:
                        ratio = group["trust_coeff"] * w / (g + wd * w + group["eps"])
                buf = self.state[p].setdefault("b", torch.zeros_like(p))
                buf.mul_(group["momentum"]).add_(group["lr"] * ratio * (p.grad + wd * p))
                p.sub_(buf)


class PaperLookahead:
    """Lookahead whose slow weights start at the initial weights."""

    def __init__(self, inner, k, alpha):
        self.inner, self.k, self.alpha, self.count = inner, k, alpha, 0
        self.param_groups = inner.param_groups
        self.slow = [[p.detach().clone() for p in g["params"]] for g in inner.param_groups]

    @torch.no_grad()
    def step(self):
        self.inner.step()
        self.count += 1
        if self.count % self.k == 0:
            for group, slows in zip(self.param_groups, self.slow):
                for p, slow in zip(group["params"], slows):
                    slow.add_(p - slow, alpha=self.alpha)
                    p.copy_(slow)


def make_optimizer(spec, named):
    """spec: kind, lr, weight_decay, decay ('all' or 'matrices': tensors of one axis get 0), and the kind's
    options."""
    spec = dict(spec)
    kind, lr, wd = spec.pop("kind"), spec.pop("lr"), spec.pop("weight_decay", 0.0)
    scope = spec.pop("decay", "all")
    look = spec.pop("lookahead", None)
    for key in ("lr_scale", "clip_norm", "clip_value"):
        spec.pop(key, None)
    yes = [p for n, p in named if scope == "all"
           or (p.ndim > 1 and not n.endswith("relative_position_bias_table"))]
    no = [p for n, p in named if not any(p is q for q in yes)]
    groups = [{"params": yes, "weight_decay": wd}] + ([{"params": no, "weight_decay": 0.0}] if no else [])
    makers = {
        "sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop,
        "lars": Lars, "lars_clip": lambda g, **k: Lars(g, trust_clip=True,
                                                       **k), "lars_tf": LarsTf, "lamb": Lamb,
        "novograd": NvNovoGrad, "rmsprop_tf": RMSpropTF,
    }
    optimizer = makers[kind](groups, lr=lr, **spec)
    if look:
        start = look["slow_start"]
        wrap = PaperLookahead if start == "initial" else Lookahead
        optimizer = wrap(optimizer, k=look["k"], alpha=look["alpha"])
    return optimizer


def clip(spec, params):
    """Returns the unclipped global norm, or None."""
    if "clip_norm" in spec:
        return torch.nn.utils.clip_grad_norm_(params, spec["clip_norm"])
    if "clip_value" in spec:
        torch.nn.utils.clip_grad_value_(params, spec["clip_value"])
    return None


def run(case, tensors, steps, keep, seed, dtype):
    torch.set_default_dtype(dtype)
    spec = case
    named = [(n, torch.nn.Parameter(torch.from_numpy(formula.parameter(n, tuple(s), seed)).to(dtype)))
             for n, s in tensors.items()]
    optimizer = make_optimizer(spec, named)
    kept = {}
    for step in range(1, steps + 1):
        scale = spec.get("lr_scale", [1.0])[min(step, len(spec.get("lr_scale", [1.0]))) - 1]
        for group in optimizer.param_groups:
            group["lr"] = spec["lr"] * scale
        for n, p in named:
            p.grad = torch.from_numpy(formula.affine(f"{n}.grad.{step}", tuple(p.shape), seed, 0.0,
                                                     0.5)).to(dtype)
        clip(spec, [p for _, p in named])
        optimizer.step()
        if step in keep:
            kept[step] = {n: p.detach().clone() for n, p in named}
    return kept


def make(case, sizes, seed):
    args = case, sizes["tensors"], sizes["steps"], sizes["keep"], seed
    low, high = run(*args, torch.float32), run(*args, torch.float64)
    torch.set_default_dtype(torch.float32)
    kind = case["kind"]
    out = {"config": case, "rule": RULES[kind]}
    if "lookahead" in case:
        out["lookahead_rule"] = RULES["lookahead"]
    out["tensors"] = sizes["tensors"]
    out["grads"] = "NAME.grad.t, t = 1, 2, ...: a = 0, b = 0.5"
    out["weights_after_step"] = {str(s): {n: record.full(low[s][n], high[s][n]) for n in low[s]} for s in low}
    return out


def schedule_values(spec):
    """Learning rates for steps 0 .. steps-1, in f64."""
    kind, n, lr = spec["kind"], spec["steps"], spec["lr"]
    warm, start, end = spec.get("warmup", 0), spec.get("warmup_from", 0.0), spec.get("end", 0.0)
    out = []
    for t in range(n):
        if t < warm and kind != "onecycle":
            x = t / warm
            out.append(lr * x * x if spec.get("warmup_shape") == "quadratic" else start + (lr - start) * x)
            continue
        u, total = t - warm, n - warm
        if kind == "constant":
            out.append(lr)
        elif kind == "step":
            out.append(lr * spec["gamma"] ** (t // spec["every"]))
        elif kind == "multistep":
            out.append(lr * spec["gamma"] ** sum(t >= m for m in spec["milestones"]))
        elif kind == "cosine":
            out.append(end + 0.5 * (lr - end) * (1 + math.cos(math.pi * u / total)))
        elif kind == "poly":
            out.append((lr - end) * (1 - u / total) ** spec["power"] + end)
        elif kind == "linear":
            out.append(lr + (end - lr) * u / total)
        elif kind == "exponential":
            out.append(lr * spec["gamma"] ** t)
        elif kind == "yolox":
            hold = spec["hold"]
            out.append(end if t >= n - hold else
                       end + 0.5 * (lr - end) * (1 + math.cos(math.pi * u / (total - hold))))
        elif kind == "onecycle":
            out.append(None)
    if kind == "onecycle":
        p = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        inner = torch.optim.SGD([p], lr=lr, momentum=0.9)
        cycle = torch.optim.lr_scheduler.OneCycleLR(inner, lr, total_steps=n, pct_start=spec["pct_start"],
                                                    div_factor=spec["div_factor"],
                                                    final_div_factor=spec["final_div_factor"],
                                                    anneal_strategy=spec["anneal"], three_phase=False,
                                                    base_momentum=0.85, max_momentum=0.95)
        rates, momenta = [], []
        for _ in range(n):
            rates.append(inner.param_groups[0]["lr"])
            momenta.append(inner.param_groups[0]["momentum"])
            inner.step()
            cycle.step() if len(rates) < n else None
        return rates, momenta
    return out, None


def torch_check(spec, values):
    """Largest difference from torch's own scheduler where it has one without warm-up, else None."""
    p = torch.nn.Parameter(torch.zeros(1))
    inner = torch.optim.SGD([p], lr=spec["lr"])
    s = torch.optim.lr_scheduler
    n = spec["steps"]
    if spec.get("warmup"):
        return None
    made = {"step": lambda: s.StepLR(inner, spec["every"], spec["gamma"]),
            "multistep": lambda: s.MultiStepLR(inner, spec["milestones"], spec["gamma"]),
            "cosine": lambda: s.CosineAnnealingLR(inner, n, spec.get("end", 0.0)),
            "exponential": lambda: s.ExponentialLR(inner, spec["gamma"]),
            "poly": lambda: s.PolynomialLR(inner, n,
                                           spec["power"]) if not spec.get("end") else None}.get(spec["kind"])
    made = made() if made else None
    if made is None:
        return None
    worst = 0.0
    for v in values:
        worst = max(worst, abs(inner.param_groups[0]["lr"] - v))
        inner.step()
        made.step()
    return worst


SCHEDULE_RULES = {
    "warm-up": "t < W: start + (lr-start)*t/W (linear) or lr*(t/W)^2 (quadratic); u = t - W, T = steps - W",
    "step": "lr*gamma^floor(t/every)", "multistep": "lr*gamma^(number of milestones <= t)",
    "cosine": "end + (lr-end)/2*(1+cos(pi*u/T))", "poly": "(lr-end)*(1-u/T)^power + end", "linear": "lr + (end-lr)*u/T",
    "exponential": "lr*gamma^t", "constant": "lr",
    "yolox": "t >= steps-hold: end; else cosine with T = steps - W - hold",
    "onecycle": "torch OneCycleLR, two phases: from lr/div to lr until step pct_start*steps - 1, then to lr/(div*final_div) at "
                "step steps-1; anneal(a, b, f) = b + (a-b)/2*(1+cos(pi*f)) or linear; momentum moves the other way 0.95 - 0.85",
}


def make_schedules(table, seed):
    out = {"rules": SCHEDULE_RULES, "t": "0-based step; rates for t = 0 .. steps-1", "schedules": {}}
    for name, spec in table.items():
        rates, momenta = schedule_values(spec)
        entry = {"config": spec, "lr": record.numbers(rates, record.F64)}
        worst = torch_check(spec, rates)
        if worst is not None:
            entry["torch_difference"] = record.number(worst, "%.2g")
        if momenta:
            entry["momentum"] = record.numbers(momenta, record.F64)
        out["schedules"][name] = entry
    return out
