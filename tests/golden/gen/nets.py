"""Builders of the reference networks, by name."""
import math

import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torchvision.models.inception import BasicConv2d


class Mlp(nn.Module):
    """784-512-512-classes, ReLU."""

    def __init__(self, classes=10, inputs=784, hidden=512):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden,
            classes)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.fc3(self.relu(self.fc2(self.relu(self.fc1(x.flatten(1))))))


class Lenet5(nn.Module):
    """conv1 5x5 pad 2, ReLU, max pool 2; conv2 5x5, ReLU, max pool 2; fc1 400-120, fc2 84, fc3; 28x28
    input."""

    def __init__(self, classes=10, channels=1):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(channels, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, classes)
        self.relu = nn.ReLU()

    def forward(self, x):
        x = F.max_pool2d(self.relu(self.conv1(x)), 2)
        x = F.max_pool2d(self.relu(self.conv2(x)), 2)
        return self.fc3(self.relu(self.fc2(self.relu(self.fc1(x.flatten(1))))))


class CifarBlock(nn.Module):
    def __init__(self, inner, planes, stride, option):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inner, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False), nn.BatchNorm2d(planes)
        self.relu, self.pad = nn.ReLU(), 0
        self.shortcut = nn.Sequential()
        if stride != 1 or inner != planes:
            if option == "A":
                self.pad = planes // 4
            else:
                self.shortcut = nn.Sequential(nn.Conv2d(inner, planes, 1, stride, bias=False),
                                              nn.BatchNorm2d(planes))

    def forward(self, x):
        skip = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad)) if self.pad else self.shortcut(x)
        return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))) + skip)


class CifarResnet(nn.Module):
    """The 6n+2 layer CIFAR network: widths 16, 32, 64; shortcut option A (no parameters) or B (1x1 + BN)."""

    def __init__(self, depth, option="A", classes=10):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.relu = nn.ReLU()
        inner = 16
        for index, (planes, stride) in enumerate(((16, 1), (32, 2), (64, 2)), 1):
            blocks = []
            for step in range((depth - 2) // 6):
                blocks.append(CifarBlock(inner, planes, stride if step == 0 else 1, option))
                inner = planes
            setattr(self, f"layer{index}", nn.Sequential(*blocks))
        self.linear = nn.Linear(64, classes)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))


YOLOX = {"nano": (0.33, 0.25, True), "tiny": (0.33, 0.375, False), "s": (0.33, 0.5, False),
         "m": (0.67, 0.75, False), "l": (1.0, 1.0, False), "x": (1.33, 1.25, False)}


def yolox(size, classes):
    from yolox.models import YOLOX as Whole, YOLOPAFPN, YOLOXHead
    depth, width, depthwise = YOLOX[size]
    channels = [256, 512, 1024]
    model = Whole(YOLOPAFPN(depth, width, in_channels=channels, depthwise=depthwise),
                  YOLOXHead(classes, width, in_channels=channels, depthwise=depthwise))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps, module.momentum = 1e-3, 0.03
    return model


def yolox_raw(model, x):
    """Neck features P3..P5 and raw head outputs per level, channels [reg 4, obj 1, cls C], nothing
    decoded."""
    feats, head, outs = model.backbone(x), model.head, []
    for k, feat in enumerate(feats):
        y = head.stems[k](feat)
        cls, reg = head.cls_convs[k](y), head.reg_convs[k](y)
        outs.append(torch.cat([head.reg_preds[k](reg), head.obj_preds[k](reg), head.cls_preds[k](cls)], 1))
    return feats, outs


VIT = {"vit_s_16": (6, 384), "vit_b_16": (12, 768)}


def vit(name, classes, size):
    heads, width = VIT[name]
    return torchvision.models.VisionTransformer(image_size=size[0], patch_size=16, num_layers=12,
                                                num_heads=heads, hidden_dim=width, mlp_dim=4 * width,
                                                num_classes=classes)


def build(name, classes, option="A", size=(224, 224), auxiliary=False):
    if name == "mlp":
        return Mlp(classes)
    if name == "lenet5":
        return Lenet5(classes)
    if name.endswith("_cifar"):
        return CifarResnet(int(name[6:-6]), option, classes)
    if name.startswith("yolox_"):
        return yolox(name[6:], classes)
    if name.startswith("vit"):
        model = vit(name, classes, size)
    elif name == "inception_v3":  # its initial weights take long, and are replaced
        model = torchvision.models.inception_v3(num_classes=classes, aux_logits=auxiliary, init_weights=False)
    else:
        model = getattr(torchvision.models, name)(num_classes=classes)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    for module in model.modules():
        if isinstance(module, torchvision.ops.StochasticDepth):
            module.p = 0.0
    return model


def freeze(model, names):
    """The modules of this list, comma separated, keep parameters and running statistics."""
    for name in filter(None, names.split(",")):
        module = model.get_submodule(name).eval()
        for p in module.parameters():
            p.requires_grad_(False)


def stages(name):
    """Modules whose outputs are summarised."""
    if name in ("mlp",):
        return ["fc1", "fc2"]
    if name == "lenet5":
        return ["conv1", "conv2", "fc1", "fc2"]
    if name.endswith("_cifar"):
        return ["conv1", "bn1", "layer1", "layer2", "layer3"]
    if name.startswith("yolox"):
        return ["backbone.backbone." + s for s in ("stem", "dark2", "dark3", "dark4", "dark5")]
    if name.startswith("vit"):
        return [f"encoder.layers.encoder_layer_{i}" for i in range(12)] + ["encoder.ln"]
    if name == "inception_v3":
        return ["Conv2d_1a_3x3", "Conv2d_2a_3x3", "Conv2d_2b_3x3", "maxpool1", "Conv2d_3b_1x1", "Conv2d_4a_3x3",
                "maxpool2", *(f"Mixed_{m}" for m in "5b 5c 5d 6a 6b 6c 6d 6e 7a 7b 7c".split()), "avgpool"]
    if name.startswith("mobilenet"):
        return [f"features.{i}" for i in range({"v2": 19, "v3_small": 13, "v3_large": 17}[name[10:]])]
    if name.startswith(("convnext", "swin")):
        return [f"features.{i}" for i in range(8)]
    return ["conv1", "bn1", "maxpool", "layer1", "layer2", "layer3", "layer4", "avgpool"]


# where slopes change
KINKS = {nn.ReLU: (0,), nn.ReLU6: (0, 6), nn.Hardswish: (-3, 3), nn.Hardsigmoid: (-3, 3)}


class ReluWatch:
    """Notes on which side of its kinks (0 of a ReLU) every input lies and how near to one the nearest is, in
    units of its tensor's rms."""

    def __init__(self, model):
        self.masks, self.margin, self.units = [], math.inf, 0
        self.hooks = [m.register_forward_pre_hook(self.look) for m in model.modules() if type(m) in KINKS]
        self.hooks += [m.bn.register_forward_hook(self.look_behind) for m in model.modules()
                       if isinstance(m, BasicConv2d)]

    def look(self, module, inputs):
        self.note(inputs[0].detach(), KINKS[type(module)])

    def look_behind(self, _module, _inputs, out):
        """Of a norm whose ReLU is no module."""
        self.note(out.detach(), (0,))

    def note(self, x, kinks):
        self.units += x.numel()
        for kink in kinks:
            self.masks.append(x > kink)
            self.margin = min(self.margin, float((x - kink).abs().min() / x.pow(2).mean().sqrt()))

    def close(self):
        for hook in self.hooks:
            hook.remove()
        return self

    def report(self, other):
        flips = sum(int((a != b).sum()) for a, b in zip(self.masks, other.masks))
        return {"units": self.units, "flips_f32_f64": flips, "margin": float(f"{self.margin:.3g}")}
