"""Weights to and from torchvision, timm and the programs of the papers: a table, one row a network and names.

    exchange.py KOLO FOLDER IMAGE [MODEL ...]

in:      their state dict, made from a formula and saved by torch.save, is taken by kolo (all tensors found)
out:     what kolo writes of it is loaded by them strictly, and every number is equal
logits:  distance of kolo's logits from theirs of IMAGE, relative
paper:   ConvNeXt's and Swin's own names; there timm's importer of those names (checkpoint_filter_fn) is the
         reader, and the writer kolo
gradients: the worst distance of a parameter's, of images that are no squares too, where the network pools
to a fixed number of pixels
onnx:    the exported graph passes onnx.checker, and onnxruntime's logits are as far from theirs; "-" where
         either is not installed

Detectors have no package to load them. Of YOLOX a checkpoint is written as its trainer writes them, with the
names of its repository
(tests/golden/models/inventory.json), of darknet's networks a .weights file; taken, and given back equal.
boxes: what onnxruntime's heads say, decoded here, is what
kolo predict says: the worst distance in pixels of how many boxes of every level, the finest first, scores
within two thousandths. What predicts is set such that they are spread.

A line ends in "ok" or in what is wrong; exit status 1 if anything is. KOLO: the program."""
import json
import math
import os
import shutil
import subprocess
import sys

import numpy
import torch
import torch.nn.functional as F
import torchvision
from PIL import Image, ImageOps
from torchvision import transforms

LIMIT = 2e-5
BOTH = ("resnet18 resnet34 resnet50 resnet101 resnet152 resnext50_32x4d resnext101_32x8d "
        "resnext101_64x4d wide_resnet50_2 wide_resnet101_2").split()
BOTH += ("vgg11 vgg13 vgg16 vgg19 vgg11_bn vgg13_bn vgg16_bn vgg19_bn "
         "efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4").split()
WITH_PAPER = "convnext_tiny convnext_small convnext_base convnext_large swin_t swin_s swin_b".split()
OTHER_SIZES = 32, 64, 96, 160, 161, 288  # of SIZED
SIZED = ["vgg11", "vgg16_bn"]
STEPS = {"vgg11": [(161, 97), (224, 224)]}  # width, height
TIMM_ONLY = ["resnet50d", "resnet101d"]
TORCHVISION_ONLY = ["inception_v3"]  # of timm the same names
DETECTORS = "yolox_nano yolox_tiny yolox_s yolox_m yolox_l yolox_x yolox_darknet53 yolov3_tiny yolov3".split()
ANCHORS = {
    "yolov3": [[(10, 13), (16, 30), (33, 23)], [(30, 61), (62, 45), (59, 119)],
               [(116, 90), (156, 198), (373, 326)]],
    "yolov3_tiny": [[(10, 14), (23, 27), (37, 58)], [(81, 82), (135, 169), (344, 319)]],
}
NORMALIZED = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.485, 0.456, 0.406),
    (0.229, 0.224, 0.225))])
TIMM = {f"swin_{k}": f"swin_{w}_patch4_window7_224" for k, w in (("t", "tiny"), ("s", "small"),
    ("b", "base"))}


def size_of(name):
    if name == "inception_v3":
        return 299
    return {"1": 240, "2": 260, "3": 300, "4": 380}.get(name[-1],
                                                        224) if name.startswith("efficientnet") else 224


def theirs(name, names):
    if name == "inception_v3":  # as with its published weights
        return torchvision.models.inception_v3(weights=None, transform_input=True, init_weights=False)
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
    p = subprocess.run(words, capture_output=True, text=True,
                       env={**os.environ, "KOLO_CACHE": os.environ.get("KOLO_CACHE", "/tmp")})
    if p.returncode:
        raise RuntimeError(p.stderr.strip().splitlines()[-1][:300])


def logits(program, name, file, image, folder, size, *words):
    out = os.path.join(folder, "logits.json")
    kolo(program, "predict", f"model={name}", f"size={size}", f"weights={file}", image, "--logits", out,
         "deterministic=true", *words)
    return torch.tensor(json.load(open(out))[0]["logits"])


def input_of(size, image):
    return transforms.Compose([transforms.Resize(round(size * 256 / 224)), transforms.CenterCrop(size),
                               NORMALIZED])(Image.open(image).convert("RGB"))[None]


def distance(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def by_onnx(program, name, file, x, want, folder, size):
    try:
        import onnx
        import onnxruntime
    except ImportError:
        return None
    path = os.path.join(folder, "graph.onnx")
    kolo(program, "export", f"model={name}", f"size={size}", f"weights={file}", path)
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    # any number of rows; the logits come first
    out = session.run(None, {session.get_inputs()[0].name: torch.cat([x, x.flip(3)]).numpy()})[0]
    return distance(torch.from_numpy(out[:1]), want)


def row(program, name, names, image, folder, graph):
    from safetensors.torch import load_file

    source = "timm" if names == "paper" else names
    with torch.no_grad():
        model = fill(theirs(name, source))
    file, back = os.path.join(folder, "in.pth"), os.path.join(folder, "out.safetensors")
    torch.save(model.state_dict(), file)
    size = size_of(name)
    x = input_of(size, image)
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
    got = distance(logits(program, name, file, image, folder, size), want)
    strict = theirs(name, source)
    strict.load_state_dict(state, strict=True)
    equal = all(torch.equal(v, strict.state_dict()[k]) for k, v in model.state_dict().items()
                if v.is_floating_point())
    x = model._transform_input(x) if name == "inception_v3" else x
    onnx = by_onnx(program, name, file, x, want, folder, size) if graph else None
    good = equal and got < LIMIT and (onnx is None or onnx < LIMIT)
    print(f"{name:18s} {names:12s} in yes  out {'equal' if equal else 'DIFFERS'}  logits {got:.1e}  onnx "
        f"{'-' if onnx is None else f'{onnx:.1e}'}  {'ok' if good else 'FAR'}", flush=True)
    return good


def step(program, name, image, folder, width, height):
    """A network's step of plain gradient descent on an image and its mirror image, beside torch: the worst
    distance of a parameter's gradient from torch's; a line."""
    from safetensors.torch import load_file

    source, data, run, back = (os.path.join(folder, word) for word in ("source", "data", "run",
        "out.safetensors"))
    for old in (source, data, run):
        shutil.rmtree(old, ignore_errors=True)
    photo, file = Image.open(image).convert("RGB").resize((width, height)), os.path.join(folder, "in.pth")
    photos = [photo, ImageOps.mirror(photo)]
    for label, one in enumerate(photos):
        os.makedirs(os.path.join(source, str(label)))
        one.save(os.path.join(source, str(label), "a.png"))
    kolo(os.path.join(os.path.dirname(program), "kolo-pack"), "--source", "imagefolder", "--in", source,
         "--encoding", "raw", "--out", data)
    with torch.no_grad():
        model = fill(theirs(name, "torchvision"))
    torch.save(model.state_dict(), file)
    F.cross_entropy(model(torch.stack([NORMALIZED(one) for one in photos])), torch.tensor([0, 1])).backward()
    lr = 100.0  # the steps are then no smaller than the weights, and their difference has all digits
    plain = [f"lr={lr}", "schedule=constant", "momentum=0", "weight_decay=0", "dropout=0", "flip=false",
             "deterministic=true"]
    mean, std = ("mean=0.485,0.456,0.406", "std=0.229,0.224,0.225")
    kolo(program, "train", f"model={name}", f"data={data}", "classes=1000", "batch=2", "steps=1",
         "optimizer=sgd", mean, std, *plain, f"init={file}", "init_head=load", f"run={run}")
    kolo(program, "export", run, back)
    after = load_file(back)
    worst = max(distance((p.detach().double() - after[key].double()) / lr, p.grad) for key,
                p in model.named_parameters())
    print(f"{name:18s} {width} x {height} pixels, gradients {worst:.1e}  {'ok' if worst < 1e-4 else 'FAR'}",
          flush=True)
    return worst < 1e-4


def sizes(program, name, image, folder):
    """Networks that average to a fixed number of pixels, of images of other sizes; a line each; and their
    gradients."""
    with torch.no_grad():
        model = fill(theirs(name, "torchvision"))
    file, all_good = os.path.join(folder, "in.pth"), True
    torch.save(model.state_dict(), file)
    for size in OTHER_SIZES:
        x = input_of(size, image)
        with torch.no_grad():
            want = model(x)
        got, onnx = distance(logits(program, name, file, image, folder, size), want), by_onnx(program, name,
            file, x, want, folder, size)
        good = got < LIMIT and (onnx is None or onnx < LIMIT)
        print(f"{name:18s} {size:3d} pixels   logits {got:.1e}  onnx "
            f"{'-' if onnx is None else f'{onnx:.1e}'}  {'ok' if good else 'FAR'}", flush=True)
        all_good &= good
    for width, height in STEPS.get(name, []):
        all_good &= step(program, name, image, folder, width, height)
    return all_good


def numbers(name, shapes):
    """A state dict of these shapes, such that heads put out numbers about 1; what has none is a counter."""
    state = {key: torch.zeros(shape) if shape else torch.tensor(5) for key, shape in shapes.items()}

    class Holder:
        def state_dict(self):
            return state

        def eval(self):
            return self

    fill(Holder())
    return state


def state_of(program, name, folder):
    """Of YOLOX the names of its repository, where they are listed, and numbers of ours; of darknet's
    networks, and larger ones of YOLOX, which are built alike, what kolo has."""
    from safetensors.torch import load_file

    inventory = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/models/inventory.json")
    shapes = json.load(open(inventory))["names"].get(name) if name.startswith("yolox") else None
    if shapes is None:
        kolo(program, "export", f"model={name}", "seed=1", os.path.join(folder, "seed.safetensors"))
        state = load_file(os.path.join(folder, "seed.safetensors"))
        if not name.startswith("yolox"):
            return state
        shapes = {key: list(t.shape) for key, t in state.items()}
    return numbers(name, shapes)


def written(program, name, folder, state):
    """Writes FOLDER/in.pth as YOLOX' trainer does, or FOLDER/in.weights; its name, and whether kolo gives
    back all of it under the same names."""
    from safetensors.torch import load_file, save_file

    back = os.path.join(folder, "out.safetensors")
    if name.startswith("yolox"):
        file = os.path.join(folder, "in.pth")
        # as pycocotools tells them
        torch.save({"start_epoch": 300, "model": state, "optimizer": {"state": {},
            "param_groups": [{"lr": 0.01,
                              "params": [0,
                                         1]}]}, "best_ap": numpy.float64(0.1), "curr_ap": numpy.float64(0.1)},
                                             file)
    else:
        file = os.path.join(folder, "in.weights")
        save_file(state, os.path.join(folder, "in.safetensors"))
        kolo(program, "export", f"model={name}", f"weights={os.path.join(folder, 'in.safetensors')}", file)
    kolo(program, "export", f"model={name}", f"weights={file}", back)
    got = load_file(back)
    floats = {key for key, t in state.items() if t.is_floating_point()}
    return file, floats <= set(got) <= set(state) and all(torch.equal(got[key], state[key]) for key in floats)


def calm(name, state, heads, size):
    """Changes the layers that predict such that every channel has mean 0 and deviation 1 over the image,
    but: coarser levels are surer, as they have fewer answers, and
    the larger a level's anchors, the smaller a part of them are its boxes, that they lie in the image. So
    boxes and scores of all levels are spread."""
    if name.startswith("yolox"):
        layers = [[f"head.{part}_preds.{level}" for part in ("reg", "obj", "cls")] for level in range(3)]
    else:
        layers = [[key[:-5]] for key, t in sorted(state.items(), key=lambda item: -int(item[0].split(".")[1]))
                  if key.endswith("conv.bias") and len(t) == 255]
    for level, head in enumerate(heads):
        head = torch.from_numpy(head[0]).flatten(1)
        wanted = torch.zeros(len(head))
        wanted[4::85] = level
        if name in ANCHORS:
            for k in (2, 3):
                wanted[k::85] = math.log(size / 2 / max(max(anchor) for anchor in ANCHORS[name][level]))
        at = 0
        for layer in layers[level]:
            weight, bias = state[f"{layer}.weight"], state[f"{layer}.bias"]
            part = slice(at, at + len(bias))
            deviation, at = head[part].std(1), at + len(bias)
            weight /= deviation.view(-1, 1, 1, 1)
            bias.sub_(head[part].mean(1)).div_(deviation).add_(wanted[part])


def decoded(name, heads, size, least):
    """[score, class, x0, y0, x1, y1, level] of every answer that is as sure."""
    found = []
    for level, head in enumerate(heads):
        head = torch.from_numpy(head[0]).double()
        stride = size // head.shape[1]
        rows, columns = torch.meshgrid(torch.arange(head.shape[1]), torch.arange(head.shape[2]),
                                       indexing="ij")
        for k, anchor in enumerate(ANCHORS.get(name, [[None]] * 3)[level]):
            h = head if anchor is None else head.chunk(3)[k]
            if anchor is None:
                x, y = (h[0] + columns) * stride, (h[1] + rows) * stride
                w, t = h[2].exp() * stride, h[3].exp() * stride
            else:
                x, y = (h[0].sigmoid() + columns) * stride, (h[1].sigmoid() + rows) * stride
                w, t = h[2].exp() * anchor[0], h[3].exp() * anchor[1]
            box = torch.stack([x - w / 2, y - t / 2, x + w / 2, y + t / 2])
            scores = h[4].sigmoid() * h[5:].sigmoid()
            # farther, kolo tells none: exponentials too large
            scores = torch.where((box.abs() < 1e9).all(0), scores, -1.0)
            box = box.clamp(0, size)
            if anchor is None:  # one class an answer
                best = scores.argmax(0)
                scores = torch.where(torch.arange(len(scores))[:, None, None] == best, scores, -1.0)
            for c, i, j in (scores >= least).nonzero().tolist():
                found.append([scores[c, i, j].item(), c] + box[:, i, j].tolist() + [level])
    return found


def heads_of(program, name, size, file, photo, folder):
    """What onnxruntime says of the exported graph, the finest level first; None without it."""
    try:
        import onnx
        import onnxruntime
    except ImportError:
        return None
    path = os.path.join(folder, "graph.onnx")
    kolo(program, "export", f"model={name}", f"size={size}", f"weights={file}", path)
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    x = transforms.ToTensor()(Image.open(photo))[None]
    x = x.flip(1) * 255 if name.startswith("yolox") else x
    return sorted(session.run(None, {session.get_inputs()[0].name: x.numpy()}),
                  key=lambda head: -head.shape[2])


def detector(program, name, image, folder):
    size, photo = 96, os.path.join(folder, "square.png")
    Image.open(image).convert("RGB").resize((size, size)).save(photo)
    state = state_of(program, name, folder)
    file, equal = written(program, name, folder, state)
    heads, good, text = heads_of(program, name, size, file, photo, folder), True, "boxes -"
    if heads is not None:
        calm(name, state, heads, size)
        file, again = written(program, name, folder, state)
        equal &= again
        heads = heads_of(program, name, size, file, photo, folder)
        good, text = worst_box(by_kolo(program, name, size, file, photo), decoded(name, heads, size, 0))
    good &= equal
    print(f"{name:18s} in yes  out {'equal' if equal else 'DIFFERS'}  {text}  {'ok' if good else 'FAR'}",
          flush=True)
    return good


def by_kolo(program, name, size, file, photo):
    """A function of the least score: [score, class, x0, y0, x1, y1] of every answer that is as sure."""

    def ask(least):
        printed = subprocess.run([program, "predict", f"model={name}", f"size={size}", f"weights={file}",
                                  photo, f"box_threshold={least:.6f}", "nms=1", "deterministic=true"],
                                      capture_output=True, text=True, check=True)
        told = []
        for line in printed.stdout.splitlines()[1:]:
            score, c, left, top, w, h = map(float, line.split())
            told.append([score, c, left, top, left + w, top + h])
        return told

    return ask


def worst_box(ask, answers):
    """Whether the 200 likeliest answers, some of each level, are told, and a text about it."""
    of_class = {}
    for a in sorted(answers, reverse=True):
        of_class.setdefault(a[1], []).append(a)
    answers = [a for one in of_class.values() for a in one[:100]]  # no more of a class are told
    least = min(sorted((a[0] for a in answers), reverse=True)[:200], default=math.inf)
    told = ask(least)
    # thinner ones lie outside, or are none in f32
    want = [a for a in answers if a[0] > least + 1e-3 and min(a[4] - a[2], a[5] - a[3]) >= 1]
    counts, worst = [0] * (1 + max(a[6] for a in answers)), 0
    for a in want:
        near = [max(abs(p - q) for p, q in zip(a[2:6], t[2:])) for t in told if t[1] == a[1]
                and abs(t[0] - a[0]) < 2e-3]
        worst = max(worst, min(near, default=math.inf))
        counts[a[6]] += 1
    spread = max((a[0] for a in want), default=0) - least
    good = worst < 0.2 and len(told) >= len(want) and min(counts) >= 3 and spread > 0.05
    boxes = " + ".join(map(str, counts))
    return good, f"boxes {worst:.2f} of {boxes}, scores {least:.2f} to {least + spread:.2f}"


def main():
    program, folder, image = sys.argv[1:4]
    wanted = sys.argv[4:] or BOTH + WITH_PAPER + TIMM_ONLY + TORCHVISION_ONLY + DETECTORS
    good = True
    for name in wanted:
        if name in DETECTORS:
            try:
                good &= detector(program, name, image, folder)
            except (RuntimeError, ValueError, OSError, subprocess.CalledProcessError) as e:
                good = False
                print(f"{name:18s} FAILED: {str(e)[:400]}", flush=True)
            continue
        all_names = (["timm"] if name in TIMM_ONLY else ["torchvision"] if name in TORCHVISION_ONLY else
                     ["torchvision", "timm"] + ["paper"] * (name in WITH_PAPER))
        for names in all_names:
            try:
                good &= row(program, name, names, image, folder, names == all_names[0])
            except (RuntimeError, ValueError, OSError, subprocess.CalledProcessError) as e:
                good = False
                print(f"{name:18s} {names:12s} FAILED: {str(e)[:400]}", flush=True)
        if name in SIZED:
            good &= sizes(program, name, image, folder)
    return not good


if __name__ == "__main__":
    sys.exit(main())
