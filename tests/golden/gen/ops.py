"""Operation cases: small tensors, everything stored whole. Loss = sum(y * dy), dy by formula."""
import numpy as np
import torch
import torch.nn.functional as F

from . import formula, record

UNIT = formula.UNIT


def t(shape, a=0.0, b=UNIT):
    return {"shape": list(shape), "a": a, "b": b}


class Case:
    """inputs: name -> t(...); call(**tensors) -> one tensor or a dict of them; notes: what the call means."""

    def __init__(self, inputs, call, config=None, grads=True, ints=None):
        self.inputs, self.call, self.config, self.grads, self.ints = inputs, call, config or {}, grads, ints or {}


def conv(x, w, stride=1, padding=0, dilation=1, groups=1, bias=False):
    config = dict(op="conv2d", stride=stride, padding=padding, dilation=dilation, groups=groups, bias=bias)
    inputs = {"x": t(x), "w": t(w)}
    if bias:
        inputs["bias"] = t([w[0]], 0.0, 0.5)
    return Case(inputs, lambda x, w, bias=None: F.conv2d(x, w, bias, stride, padding, dilation, groups),
                config)


def batchnorm(x, train, eps=1e-5, momentum=0.1):
    c = [x[1]]

    def call(x, weight, bias, running_mean, running_var):
        mean, var = running_mean.detach().clone(), running_var.detach().clone()
        y = F.batch_norm(x, mean, var, weight, bias, train, momentum, eps)
        return {"y": y, "new_mean": mean, "new_var": var} if train else y

    inputs = {"x": t(x), "weight": t(c, 1, 0.2), "bias": t(c, 0, 0.2), "running_mean": t(c, 0, 0.2),
              "running_var": t(c, 1, 0.5)}
    return Case(inputs, call, dict(op="batchnorm", train=train, eps=eps, momentum=momentum),
                grads=["x", "weight", "bias"])


def layernorm(x, eps, first=False):
    """Over the last axis, or over axis 1 of an NCHW tensor."""
    c = [x[1] if first else x[-1]]

    def call(x, weight, bias):
        y = x.permute(0, 2, 3, 1) if first else x
        y = F.layer_norm(y, c, weight, bias, eps)
        return y.permute(0, 3, 1, 2) if first else y

    return Case({"x": t(x), "weight": t(c, 1, 0.2), "bias": t(c, 0, 0.2)}, call,
                dict(op="layernorm", axis=1 if first else -1, eps=eps))


def unary(name, shape, function, **config):
    return Case({"x": t(shape, 0.0, 8.0)}, lambda x: function(x), dict(op=name, **config))


def pool(name, shape, kernel, stride, padding, **more):
    function = F.max_pool2d if name == "maxpool" else F.avg_pool2d
    return Case({"x": t(shape)}, lambda x: function(x, kernel, stride, padding, **more),
                dict(op=name, kernel=kernel, stride=stride, padding=padding, **more))


def cross_entropy(n, classes, smoothing=0.0, space=()):
    def call(x, labels):
        return {"losses": F.cross_entropy(x, labels, label_smoothing=smoothing, reduction="none"),
                "loss": F.cross_entropy(x, labels, label_smoothing=smoothing)}

    return Case({"x": t([n, classes, *space], 0, 8.0)}, call,
                dict(op="softmax_cross_entropy", smoothing=smoothing, reduction="mean", grad_of="loss"),
                ints={"labels": ([n, *space], classes)})


def soft_cross_entropy(n, classes):
    """Targets: softmax of the formula tensor q."""
    def call(x, q):
        p = torch.softmax(q.detach(), 1)
        return {"targets": p, "losses": F.cross_entropy(x, p, reduction="none"), "loss": F.cross_entropy(x,
            p)}

    return Case({"x": t([n, classes], 0, 8.0), "q": t([n, classes], 0, 4.0)}, call,
                dict(op="soft_target_cross_entropy", reduction="mean", targets="softmax(q) over axis 1",
                     grad_of="loss"),
                grads=["x"])


def bce(shape):
    """Targets: u + 0.5 in [0, 1)."""
    def call(x, target):
        return {"losses": F.binary_cross_entropy_with_logits(x, target.detach(), reduction="none"),
                "loss": F.binary_cross_entropy_with_logits(x, target.detach(), reduction="sum")}

    return Case({"x": t(shape, 0, 8.0), "target": t(shape, 0.5, 1.0)}, call,
                dict(op="bce_with_logits", reduction="sum", grad_of="loss"), grads=["x"])


def relative_index(m):
    """index(i, j) = (yi - yj + m-1)(2m-1) + (xi - xj + m-1), positions row-major."""
    y, x = torch.meshgrid(torch.arange(m), torch.arange(m), indexing="ij")
    y, x = y.flatten(), x.flatten()
    return (y[:, None] - y[None] + m - 1) * (2 * m - 1) + (x[:, None] - x[None] + m - 1)


def shift_mask(h, w, m, s):
    """0 or -100 per window pair of positions, on the rolled map."""
    region = torch.zeros(h, w)
    for i, rows in enumerate((slice(0, -m), slice(-m, -s), slice(-s, None))):
        for j, cols in enumerate((slice(0, -m), slice(-m, -s), slice(-s, None))):
            region[rows, cols] = i * 3 + j
    label = region.view(h // m, m, w // m, m).permute(0, 2, 1, 3).reshape(-1, m * m)
    return torch.where(label[:, None, :] != label[:, :, None], -100.0, 0.0)


def window_attention(n, h, w, c, heads, m, shift):
    """x (N,H,W,C), H and W multiples of m: roll, windows, qkv, +bias, +mask, softmax, proj, back."""
    def call(x, qkv_weight, qkv_bias, proj_weight, proj_bias, table):
        y = torch.roll(x, (-shift, -shift), (1, 2)) if shift else x
        y = y.view(n, h // m, m, w // m, m, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, m * m, c)
        q, k, v = F.linear(y, qkv_weight, qkv_bias).view(-1, m * m, 3, heads, c // heads).permute(2, 0, 3, 1,
            4)
        logits = (q * (c // heads) ** -0.5) @ k.transpose(-1, -2)
        logits = logits + table[relative_index(m).flatten()].view(m * m, m * m, heads).permute(2, 0, 1)
        if shift:
            mask = shift_mask(h, w, m, shift).to(x.dtype)
            logits = (logits.view(n, -1, heads, m * m, m * m) + mask[None, :, None]).view(-1, heads, m * m,
                m * m)
        y = (torch.softmax(logits, -1) @ v).transpose(1, 2).reshape(-1, m * m, c)
        y = F.linear(y, proj_weight, proj_bias)
        y = y.view(n, h // m, w // m, m, m, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        return torch.roll(y, (shift, shift), (1, 2)) if shift else y

    scale = formula.UNIT / c**0.5
    inputs = {"x": t([n, h, w, c]), "qkv_weight": t([3 * c, c], 0, scale), "qkv_bias": t([3 * c], 0, 0.2),
              "proj_weight": t([c, c], 0, scale), "proj_bias": t([c], 0, 0.2),
              "table": t([(2 * m - 1) ** 2, heads], 0, 2.0)}
    return Case(inputs, call, dict(op="window_attention", heads=heads, window=m, shift=shift, layout="NHWC"))


def padded_attention(n, h, w, c, heads, m, shift):
    """The torchvision layer on a map that is no multiple of the window: zero pad bottom/right, attend,
    crop."""
    from torchvision.models.swin_transformer import shifted_window_attention

    def call(x, qkv_weight, qkv_bias, proj_weight, proj_bias, table):
        bias = table[relative_index(m).flatten()].view(m * m, m * m, heads).permute(2, 0, 1).unsqueeze(0)
        return shifted_window_attention(x, qkv_weight, proj_weight, bias, [m, m], heads, [shift, shift],
                                        0.0, 0.0, qkv_bias, proj_bias, None, False)

    case = window_attention(n, h, w, c, heads, m, shift)
    case.call = call
    case.config = dict(op="window_attention_padded", heads=heads, window=m, shift=shift, layout="NHWC",
                       pad="zeros at bottom and right, before the roll; the mask does not cover them")
    return case


def patch_merge(x):
    c = x[-1]

    def call(x, norm_weight, norm_bias, reduction):
        y = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return F.linear(F.layer_norm(y, [4 * c], norm_weight, norm_bias, 1e-5), reduction)

    return Case({"x": t(x), "norm_weight": t([4 * c], 1, 0.2), "norm_bias": t([4 * c], 0, 0.2),
                 "reduction": t([2 * c, 4 * c], 0, UNIT / (4 * c) ** 0.5)}, call,
                dict(op="patch_merge", layout="NHWC", order="(0,0) (1,0) (0,1) (1,1) as (row, column) parity",
                     eps=1e-5))


def drop_path(shape, mask, keep):
    def call(x, r):
        m = torch.tensor(mask, dtype=x.dtype).view(-1, *[1] * (len(shape) - 1))
        return x + r * m / keep

    return Case({"x": t(shape), "r": t(shape)}, call, dict(op="drop_path", mask=mask, keep=keep,
                                                         formula="y = x + r * mask[n] / keep"))


def table(sizes):
    """All operation cases; sizes is the case table of this set."""
    out = {}
    for name, spec in sizes["conv"].items():
        out["conv_" + name] = conv(**spec)
    for name, spec in sizes["batchnorm"].items():
        out["batchnorm_" + name] = batchnorm(**spec)
    for name, spec in sizes["layernorm"].items():
        out["layernorm_" + name] = layernorm(**spec)
    shape = sizes["map"]
    for name, spec in sizes["linear"].items():
        x, w = spec["x"], spec["w"]
        inputs = {"x": t(x), "w": t(w, 0, UNIT / w[1] ** 0.5)}
        if spec["bias"]:
            inputs["bias"] = t([w[0]], 0, 0.2)
        out["linear_" + name] = Case(inputs, lambda x, w, bias=None: F.linear(x, w, bias), dict(op="linear"))
    out["relu"] = unary("relu", shape, F.relu)
    out["gelu_exact"] = unary("gelu", shape, F.gelu, form="0.5 x (1 + erf(x / sqrt 2))")
    out["gelu_tanh"] = unary("gelu", shape, lambda x: F.gelu(x, approximate="tanh"),
                             form="0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))")
    out["silu"] = unary("silu", shape, F.silu)
    out["hard_swish"] = unary("hard_swish", shape, F.hardswish)
    out["hard_sigmoid"] = unary("hard_sigmoid", shape, F.hardsigmoid)
    out["relu6"] = unary("relu6", shape, F.relu6)
    out["leaky_relu_0.1"] = unary("leaky_relu", shape, lambda x: F.leaky_relu(x, 0.1), slope=0.1)
    out["sigmoid"] = unary("sigmoid", shape, torch.sigmoid)
    out["tanh"] = unary("tanh", shape, torch.tanh)
    out["softmax"] = unary("softmax", sizes["logits"], lambda x: torch.softmax(x, 1), axis=1)
    out["log_softmax"] = unary("log_softmax", sizes["logits"], lambda x: torch.log_softmax(x, 1), axis=1)
    n, k = sizes["logits"]
    out["cross_entropy"] = cross_entropy(n, k)
    out["cross_entropy_smooth"] = cross_entropy(n, k, 0.1)
    out["cross_entropy_soft"] = soft_cross_entropy(n, k)
    out["bce_with_logits"] = bce(sizes["logits"])
    for name, spec in sizes["pool"].items():
        out["pool_" + name] = pool(**spec)
    out["global_average"] = Case({"x": t(shape)}, lambda x: x.mean((2, 3)), dict(op="global_average"))
    out["upsample_2x"] = Case({"x": t(shape)}, lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
                              dict(op="upsample_nearest", factor=2))
    out["add"] = Case({"x": t(shape), "z": t(shape)}, lambda x, z: x + z, dict(op="add"))
    other = [shape[0], shape[1] + 2, *shape[2:]]
    out["concat"] = Case({"x": t(shape), "z": t(other)}, lambda x, z: torch.cat([x, z], 1),
                         dict(op="concat", axis=1))
    out["layer_scale"] = Case({"x": t(shape), "scale": t([shape[1], 1, 1], 0.5, 0.2)}, lambda x,
                              scale: x * scale,
                              dict(op="layer_scale", axis=1))
    out["drop_path"] = drop_path(**sizes["drop_path"])
    out["focus"] = Case({"x": t(sizes["even_map"])},
                        lambda x: torch.cat([x[:, :, ::2, ::2], x[:, :, 1::2, ::2], x[:, :, ::2, 1::2],
                                             x[:, :, 1::2, 1::2]], 1),
                        dict(op="focus", order="top-left, bottom-left, top-right, bottom-right"))
    out["shortcut_a"] = Case({"x": t(sizes["even_map"])}, lambda x: F.pad(x[:, :, ::2, ::2],
        (0, 0, 0, 0, 2, 2)),
                             dict(op="shortcut_a", pad_channels=2))
    for name, spec in sizes["attention"].items():
        out["attention_" + name] = window_attention(**spec)
    for name, spec in sizes["attention_padded"].items():
        out["attention_padded_" + name] = padded_attention(**spec)
    out["patch_merge"] = patch_merge(sizes["merge"])
    return out


def run(name, case, seed, dtype):
    torch.set_default_dtype(dtype)
    tensors = {}
    for key, spec in case.inputs.items():
        value = torch.from_numpy(formula.affine(f"{name}.{key}", tuple(spec["shape"]), seed, spec["a"],
                                                spec["b"]))
        tensors[key] = value.to(dtype).requires_grad_(True)
    extra = {}
    for key, (shape, classes) in case.ints.items():
        extra[key] = formula.labels(f"{name}.{key}", torch.Size(shape).numel(), classes, seed).view(shape)
    out = case.call(**tensors, **extra)
    out = out if isinstance(out, dict) else {"y": out}
    wanted = list(case.inputs) if case.grads is True else case.grads
    if "loss" in out:
        out["loss"].backward()
    else:
        dy = formula.affine(f"{name}.dy", tuple(out["y"].shape), seed, 0.0, UNIT)
        (out["y"] * torch.from_numpy(dy).to(dtype)).sum().backward()
    return out, {k: tensors[k].grad for k in wanted}, extra


def make(name, case, seed):
    (low, dlow, extra), (high, dhigh, _) = run(name, case, seed, torch.float32), run(name, case, seed,
        torch.float64)
    torch.set_default_dtype(torch.float32)
    out = {"config": case.config,
           "inputs": {k: {"name": f"{name}.{k}", "shape": s["shape"], "a": record.number(s["a"], record.F32),
                          "b": record.number(float(np.float32(s["b"])), record.F32)}
                      for k, s in case.inputs.items()}}
    if extra:
        out["labels"] = {k: {"name": f"{name}.{k}", "values": v.flatten().tolist()} for k, v in extra.items()}
    if "loss" not in low:
        out["dy"] = f"{name}.dy"
    out["outputs"] = {k: record.full(low[k], high[k]) for k in low}
    out["grads"] = {k: record.full(dlow[k], dhigh[k]) for k in dlow}
    return out
