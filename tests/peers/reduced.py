"""A recipe of this repository in torchvision on the CPU, from the same first weights: losses of epochs and
top-1 of the validation photos.

usage: reduced.py RECIPE.yaml FOLDER FIRST.safetensors [threads]
FOLDER has train/CLASS/*.JPEG and val/CLASS/*.JPEG; FIRST is made by `kolo export model=NAME seed=N
FIRST.safetensors`. Reads model, size, batch,
epochs, lr, weight_decay, warmup, lr_end, clip_norm, drop_path, label_smoothing, crop_area_min: AdamW, linear
warm-up, cosine by steps, flips.
"""
import glob
import math
import os
import sys

import torch
import torch.nn.functional as F
import torchvision
import yaml
from PIL import Image
from safetensors.torch import load_file
from torchvision import transforms


class Photos(torch.utils.data.Dataset):
    def __init__(self, folder, transform):
        self.transform, self.list = transform, []
        for label, name in enumerate(sorted(os.listdir(folder))):
            for path in sorted(glob.glob(os.path.join(folder, name, "*"))):
                with Image.open(path) as photo:
                    self.list.append((photo.convert("RGB"), label))

    def __len__(self):
        return len(self.list)

    def __getitem__(self, i):
        photo, label = self.list[i]
        return self.transform(photo), label


def loaders(recipe, folder):
    size = recipe["size"]
    scale = [transforms.ToTensor(), transforms.Normalize(recipe["mean"], recipe["std"])]
    train = transforms.Compose([transforms.RandomResizedCrop(size, (recipe["crop_area_min"], 1.0)),
                                transforms.RandomHorizontalFlip(), *scale])
    val = transforms.Compose([transforms.Resize(size * 256 // 224), transforms.CenterCrop(size), *scale])
    return (torch.utils.data.DataLoader(Photos(os.path.join(folder, "train"), train), recipe["batch"],
                                        shuffle=True, drop_last=True),
            torch.utils.data.DataLoader(Photos(os.path.join(folder, "val"), val), 100))


def rate(recipe, step, per_epoch):
    """As `schedule: cosine` with warm-up from 0."""
    warm, steps = recipe["warmup"] * per_epoch, recipe["epochs"] * per_epoch
    if step < warm:
        return recipe["lr"] * step / warm
    end = recipe.get("lr_end", 0)
    return end + (recipe["lr"] - end) * (1 + math.cos(math.pi * (step - warm) / (steps - warm))) / 2


def main():
    recipe = {key: float(v) if isinstance(v, str) and v[:1].isdigit() else v for key,
              v in yaml.safe_load(open(sys.argv[1])).items()}
    recipe.setdefault("mean", [0.485, 0.456, 0.406])
    recipe.setdefault("std", [0.229, 0.224, 0.225])
    torch.manual_seed(0)
    torch.set_num_threads(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    train, val = loaders(recipe, sys.argv[2])
    model = getattr(torchvision.models, recipe["model"])(num_classes=10)
    branches = [m for m in model.modules() if isinstance(m, torchvision.ops.StochasticDepth)]
    for i, branch in enumerate(branches):
        branch.p = recipe["drop_path"] * i / (len(branches) - 1)
    missing, extra = model.load_state_dict(load_file(sys.argv[3]), strict=False)
    if extra or [name for name in missing if "relative_position_index" not in name]:
        raise SystemExit(f"missing {missing}, unknown {extra}")
    axes = [[p for n, p in model.named_parameters()
             if (p.squeeze().ndim > 1 and "position_bias" not in n) == many] for many in (True, False)]
    optimizer = torch.optim.AdamW([{"params": axes[0], "weight_decay": recipe["weight_decay"]},
                                   {"params": axes[1], "weight_decay": 0}], recipe["lr"])
    step = 0
    for epoch in range(recipe["epochs"]):
        model.train()
        total = 0
        for x, y in train:
            for group in optimizer.param_groups:
                group["lr"] = rate(recipe, step, len(train))
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(x), y, label_smoothing=recipe["label_smoothing"])
            loss.backward()
            if "clip_norm" in recipe:
                torch.nn.utils.clip_grad_norm_(model.parameters(), recipe["clip_norm"])
            optimizer.step()
            total, step = total + loss.item(), step + 1
        model.eval()
        hits, cost = 0, 0
        with torch.no_grad():
            for x, y in val:
                logits = model(x)
                hits, cost = hits + int((logits.argmax(1) == y).sum()), cost + F.cross_entropy(logits, y,
                    reduction="sum").item()
        print(f"epoch {epoch + 1}: loss {total / len(train):.4f}, validation {cost / len(val.dataset):.4f}, "
            f"top-1 {hits / len(val.dataset):.4f}", flush=True)


main()
