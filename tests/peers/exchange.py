"""Weights to and from torchvision, timm and the programs of the papers: a table, one row a network and names.

    exchange.py KOLO FOLDER PICTURE [MODEL ...]

in:      their state dict, made from a formula and saved by torch.save, is taken by kolo (all tensors found)
out:     what kolo writes of it is loaded by them strictly, and every number is equal
logits:  distance of kolo's logits from theirs of PICTURE, relative
paper:   ConvNeXt's and Swin's own names; there timm's importer of those names (checkpoint_filter_fn) is the reader, and the writer kolo
onnx:    the exported graph passes onnx.checker, and onnxruntime's logits are as far from theirs; "-" where either is not installed

Exit status 1 if anything differs. KOLO: the program."""
import json
import os
import subprocess
import sys

import torch
import torchvision
from PIL import Image
from torchvision import transforms

LIMIT = 2e-5
BOTH = "resnet18 resnet34 resnet50 resnet101 resnet152 resnext50_32x4d resnext101_32x8d resnext101_64x4d wide_resnet50_2 wide_resnet101_2".split()
BOTH += "vgg11 vgg13 vgg16 vgg19 vgg11_bn vgg13_bn vgg16_bn vgg19_bn efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4".split()
WITH_PAPER = "convnext_tiny convnext_small convnext_base convnext_large swin_t swin_s swin_b".split()
TIMM_ONLY = ["resnet50d", "resnet101d"]
TIMM = {f"swin_{k}": f"swin_{w}_patch4_window7_224" for k, w in (("t", "tiny"), ("s", "small"), ("b", "base"))}


def size_of(name):
    return {"1": 240, "2": 260, "3": 300, "4": 380}.get(name[-1], 224) if name.startswith("efficientnet") else 224


def theirs(name, names):
    if names == "torchvision":
        return getattr(torchvision.models, name)(weights=None)
    import timm

    return timm.create_model(TIMM.get(name, name), pretrained=False)


def fill(model):
    """Weights that keep activations near one, statistics that matter."""
    g = torch.Generator().manual_seed(1)
    for key, t in model.state_dict().items():
        if not t.is_floating_point():
            continue
        r = torch.rand(t.shape, generator=g) - 0.5
        if key.endswith("running_var"):
            v = 1 + 0.5 * r
        elif key.endswith(("running_mean", "bias")):
            v = 0.2 * r
        elif "layer_scale" in key or key.endswith("gamma"):
            v = 0.5 + 0.2 * r
        elif t.ndim == 1:
            v = 1 + 0.2 * r
        else:
            v = 2 * 3**0.5 * r * t[0].numel() ** -0.5
        t.copy_(v)
    return model.eval()


def kolo(*words):
    p = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "KOLO_CACHE": os.environ.get("KOLO_CACHE", "/tmp")})
    if p.returncode:
        raise RuntimeError(p.stderr.strip().splitlines()[-1][:300])


def logits(program, name, file, picture, folder):
    out = os.path.join(folder, "logits.json")
    kolo(program, "predict", f"model={name}", f"weights={file}", picture, "--logits", out, "deterministic=true")
    return torch.tensor(json.load(open(out))[0]["logits"])


def input_of(name, picture):
    size = size_of(name)
    steps = [transforms.Resize(round(size * 256 / 224)), transforms.CenterCrop(size), transforms.ToTensor()]
    steps.append(transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    return transforms.Compose(steps)(Image.open(picture).convert("RGB"))[None]


def distance(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def by_onnx(program, name, file, x, want, folder):
    try:
        import onnx
        import onnxruntime
    except ImportError:
        return None
    path = os.path.join(folder, "graph.onnx")
    kolo(program, "export", f"model={name}", f"weights={file}", path)
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    out = session.run(None, {session.get_inputs()[0].name: torch.cat([x, x.flip(3)]).numpy()})[0]  # any number of rows
    return distance(torch.from_numpy(out[:1]), want)


def row(program, name, names, picture, folder, graph):
    from safetensors.torch import load_file

    source = "timm" if names == "paper" else names
    with torch.no_grad():
        model = fill(theirs(name, source))
    file, back = os.path.join(folder, "in.pth"), os.path.join(folder, "out.safetensors")
    torch.save(model.state_dict(), file)
    x = input_of(name, picture)
    with torch.no_grad():
        want = model(x)
    kolo(program, "export", f"model={name}", f"weights={file}", f"names={names}", back)
    state = load_file(back)
    if names == "paper":
        if name.startswith("swin"):
            from timm.models.swin_transformer import checkpoint_filter_fn
        else:
            from timm.models.convnext import checkpoint_filter_fn
        file = back  # and in under these names
        state = checkpoint_filter_fn(state, model)
    got = distance(logits(program, name, file, picture, folder), want)
    strict = theirs(name, source)
    strict.load_state_dict(state, strict=True)
    equal = all(torch.equal(v, strict.state_dict()[k]) for k, v in model.state_dict().items() if v.is_floating_point())
    onnx = by_onnx(program, name, file, x, want, folder) if graph else None
    good = equal and got < LIMIT and (onnx is None or onnx < LIMIT)
    print(f"{name:18s} {names:12s} in yes  out {'equal' if equal else 'DIFFERS'}  logits {got:.1e}  onnx {'-' if onnx is None else f'{onnx:.1e}'}", flush=True)
    return good


def main():
    program, folder, picture = sys.argv[1:4]
    wanted = sys.argv[4:] or BOTH + WITH_PAPER + TIMM_ONLY
    good = True
    for name in wanted:
        all_names = ["timm"] if name in TIMM_ONLY else ["torchvision", "timm"] + ["paper"] * (name in WITH_PAPER)
        for names in all_names:
            try:
                good &= row(program, name, names, picture, folder, names == all_names[0])
            except (RuntimeError, ValueError) as e:
                good = False
                print(f"{name:18s} {names:12s} FAILED: {str(e)[:400]}", flush=True)
    return not good


if __name__ == "__main__":
    sys.exit(main())
