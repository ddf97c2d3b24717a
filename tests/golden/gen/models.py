"""Model cases: one train-mode forward and backward, and one eval-mode forward, in f32 and f64."""
import torch
import torch.nn.functional as F

from . import formula, nets, record


def shape_of(case):
    return [case["batch"], case.get("channels", 3), *case["size"]]


def classify(case, seed, dtype):
    torch.set_default_dtype(dtype)
    name, gain = case["model"], case.get("gain", 1.0)
    net = nets.build(name, case["classes"], case.get("option", "A"), case["size"], "auxiliary" in case)
    model = formula.fill(net.to(dtype), seed, gain, case.get("norm_bias", 0.0))
    x = formula.unit_input(case.get("input", "input"), shape_of(case), seed, dtype)
    y = formula.labels("labels", case["batch"], case["classes"], seed)
    model.eval()
    with torch.no_grad():
        eval_logits = model(x)
    model.train()
    seen = {}
    modules = dict(model.named_modules())
    hooks = [modules[m].register_forward_hook(lambda _m, _i, out, key=m: seen.__setitem__(key,
        out.detach().clone()))
             for m in nets.stages(name)]
    watch = nets.ReluWatch(model)
    x.requires_grad_(True)
    made = model(x)
    logits, second = made if "auxiliary" in case else (made, None)
    watch.close()
    for hook in hooks:
        hook.remove()
    loss, smooth = F.cross_entropy(logits, y), F.cross_entropy(logits, y, label_smoothing=0.1)
    if second is not None:
        loss = loss + case["auxiliary"] * F.cross_entropy(second, y)
        smooth = smooth + case["auxiliary"] * F.cross_entropy(second, y, label_smoothing=0.1)
    loss.backward()
    return {"watch": watch, "labels": y, "scalars": {"loss": loss, "loss_smooth_0.1": smooth},
            "logits": {"train": logits, "eval": eval_logits},
            "activations": seen,
            "grads": {**{n: p.grad for n, p in model.named_parameters()}, "input": x.grad},
            "running": {n: b for n, b in model.named_buffers() if n.endswith(("running_mean",
                "running_var"))}}


def detect(case, seed, dtype):
    torch.set_default_dtype(dtype)
    model = formula.fill(nets.build(case["model"], case["classes"]).to(dtype), seed, case.get("gain", 1.0))
    x = formula.unit_input(case.get("input", "input"), shape_of(case), seed, dtype)

    def named(feats, outs):
        return {**{f"P{k + 3}": f for k, f in enumerate(feats)},
                **{f"head{k}": o for k, o in enumerate(outs)}}

    model.eval()
    with torch.no_grad():
        evaluated = named(*nets.yolox_raw(model, x))
        model.head.decode_in_inference = True
        decoded = model(x)
    model.train()
    seen = {}
    modules = dict(model.named_modules())
    hooks = []
    for m in nets.stages(case["model"]):
        hooks.append(modules[m].register_forward_hook(
            lambda _m, _i, out, key=m: seen.__setitem__(key, out.detach().clone())))
    x.requires_grad_(True)
    feats, outs = nets.yolox_raw(model, x)
    for hook in hooks:
        hook.remove()
    loss = sum((o * torch.from_numpy(formula.uniform(f"head{k}.loss", tuple(o.shape), seed)).to(dtype)).sum()
               for k, o in enumerate(outs))
    loss.backward()
    return {"scalars": {"loss": loss},
            "activations": {**seen, **named(feats, outs)},
            "eval": {**evaluated, "decoded": decoded},
            "grads": {**{n: p.grad for n, p in model.named_parameters()}, "input": x.grad},
            "running": {n: b for n, b in model.named_buffers() if n.endswith(("running_mean",
                "running_var"))}}


def make(case, seed):
    run = detect if case["model"].startswith("yolox") else classify
    low, high = run(case, seed, torch.float32), run(case, seed, torch.float64)
    torch.set_default_dtype(torch.float32)
    out = {"config": case, "input": {"name": case.get("input", "input"), "shape": shape_of(case)}}
    if "labels" in low:
        out["labels"] = {"name": "labels", "values": low["labels"].tolist()}
    if "watch" in low and low["watch"].units:
        out["relu"] = high["watch"].report(low["watch"])
    for key in low["scalars"]:
        out[key] = record.scalar(low["scalars"][key], high["scalars"][key])
    for key, value in low.get("logits", {}).items():
        rec = {"probe": f"logits.{key}", **record.summary(f"logits.{key}", value, high["logits"][key], seed,
                                                          first=0)}
        rows = max(1, 640 // value.shape[1])
        rec["rows"] = record.full(value[:rows], high["logits"][key][:rows])
        out[f"logits_{key}"] = rec
    for group, first in (("activations", 8), ("eval", 8), ("grads", 4), ("running", 0)):
        if group in low:
            out[group] = {n: record.summary(n, low[group][n], high[group][n], seed, first)
                          for n in low[group]}
    largest = max(float(g.norm()) for g in high["grads"].values())
    for n, g in high["grads"].items():
        if float(g.norm()) < 1e-9 * largest:  # 0 but for rounding: a distance relative to itself says nothing
            noise = float(low["grads"][n].double().norm()) / largest
            out["grads"][n].update(zero=True, rel_l2=record.number(noise, "%.3g"),
                                   rel_max=record.number(noise, "%.3g"))
    zero = [n for n, g in high["grads"].items() if not torch.any(g)]
    if zero:
        raise ValueError(f"all-zero gradients: {zero}")
    return out
