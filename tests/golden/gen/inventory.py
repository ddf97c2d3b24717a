"""Parameter counts, state-dict entries and multiply-accumulates of every model name."""
import torch
from torch import nn
from torchvision.models import swin_transformer as swin

from . import nets


def macs(model, shape):
    """Multiply-accumulates of convolutions and linear layers (bias not counted), on the meta device."""
    total = {"conv": 0, "linear": 0, "attention": 0}

    def conv(m, _i, out):
        total["conv"] += out.numel() * m.weight[0].numel()

    def linear(m, _i, out):
        total["linear"] += out.numel() * m.in_features

    def heads(m, inputs, _out):  # queries, keys, values and the output's layer are no modules that are called
        tokens, width = inputs[0].shape[1], m.embed_dim
        total["linear"] += inputs[0].shape[0] * tokens * 4 * width * width
        total["attention"] += inputs[0].shape[0] * 2 * tokens * tokens * width

    hooks = []
    for m in model.modules():
        if isinstance(m, nn.MultiheadAttention):
            hooks.append(m.register_forward_hook(heads))
        if isinstance(m, nn.Conv2d):
            hooks.append(m.register_forward_hook(conv))
        elif isinstance(m, nn.Linear):
            hooks.append(m.register_forward_hook(linear))
    inner = swin.shifted_window_attention

    def attention(x, qkv, proj, bias, window, *args, **kw):
        n, h, w, c = x.shape
        ph, pw = -(-h // window[0]) * window[0], -(-w // window[1]) * window[1]
        tokens, size = n * ph * pw, window[0] * window[1]
        total["linear"] += tokens * (qkv.numel() + proj.numel())
        total["attention"] += 2 * tokens * size * c
        return inner(x, qkv, proj, bias, window, *args, **kw)

    swin.shifted_window_attention = attention
    try:
        with torch.no_grad():
            x = torch.zeros(shape, device="meta")
            nets.yolox_raw(model.eval(), x) if hasattr(model, "backbone") else model.eval()(x)
    finally:
        swin.shifted_window_attention = inner
        for hook in hooks:
            hook.remove()
    return total


def entry(name, classes, size, option="A", channels=3):
    with torch.device("meta"):
        model = nets.build(name, classes, option, (size, size), True)
    state = model.state_dict()
    out = {"classes": classes, "input": [1, channels, size, size],
           "parameters": sum(p.numel()
                             for p in model.parameters()), "parameter_tensors": len(list(model.parameters())),
           "state_entries": len(state), "running_floats": sum(b.numel() for n,
               b in state.items() if "running_" in n)}
    counted = macs(model, (1, channels, size, size))
    out["macs"] = {k: v for k, v in counted.items() if v}
    out["macs_total"] = sum(counted.values())
    return out


def make(case, seed):
    out = {"rules": {"macs": "one image; conv: output elements x (in/groups x kh x kw); linear: output elements x inputs; attention: "
                             "q k^T and (softmax) v products over whole (padded) windows; biases, norms, activations and pooling not counted. "
                             "Swin maps are padded to window multiples before qkv, as torchvision does"},
           "models": {}, "names": {}}
    for name, spec in case["models"].items():
        out["models"][name] = entry(**spec)
    for name in case["names"]:
        spec = case["models"][name]
        with torch.device("meta"):
            model = nets.build(spec["name"], spec["classes"], spec.get("option", "A"),
                               (spec["size"], spec["size"]), True)
        out["names"][name] = {n: list(v.shape) for n, v in model.state_dict().items()}
    return out
