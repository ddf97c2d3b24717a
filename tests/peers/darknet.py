"""Networks of darknet's language, and YOLOX on Darknet-53, beside programs of others.

    darknet.py KOLO FOLDER IMAGE [YOLOX_SOURCE]

OpenCV reads a cfg file and a .weights file that are both written here, layer by layer as the papers' tables
have them, and so does kolo: once by the cfg, once as the network
of that name. What kolo predict finds is what OpenCV's layers say: boxes, the worst distance in pixels, scores
within two thousandths; of a classifier, the distance of its logits, up to what softmax forgets. out: kolo
export writes the file's numbers again.

YOLOX_SOURCE: a folder with the package yolox (0.3.0): its own model, by its own names, strictly; the same
comparison of boxes.

A line ends in "ok" or in what is wrong; exit status 1 if anything is."""
import importlib.machinery
import os
import subprocess
import sys
import types
from unittest.mock import MagicMock

import numpy
import torch
from PIL import Image

from exchange import ANCHORS, LIMIT, by_kolo, calm, distance, fill, kolo, logits, worst_box

SIZE = 160
YOLO = {"jitter": ".3", "ignore_thresh": ".7", "truth_thresh": 1, "random": 1}


class Cfg:
    """The text of a cfg file, and the numbers of its .weights, as one goes through its layers."""

    def __init__(self, seed=1):
        self.text, self.numbers, self.opencv, self.channels, self.layers = [], [], [], [3], 0
        self.heads = {}  # name of a layer that predicts: where its numbers begin
        self.draw = numpy.random.default_rng(seed)
        self.section("net", batch=64, subdivisions=16, width=SIZE, height=SIZE, channels=3, momentum=0.9,
                     decay=0.0005, angle=0, saturation=1.5, exposure=1.5, hue=".1", learning_rate=0.001,
                         burn_in=1000, max_batches=500200, policy="steps", steps="400000,450000",
                             scales=".1,.1")

    def section(self, name, **keys):
        self.text += [f"[{name}]"] + [f"{k}={v}" for k, v in keys.items()] + [""]

    def layer(self, name, out, **keys):
        self.section(name, **keys)
        self.channels.append(out)
        self.layers += 1

    def put(self, low, high, n, more=0):
        """more: that OpenCV has to be given to compute the same."""
        numbers = self.draw.uniform(low, high, n)
        self.numbers.append(numbers.astype(numpy.float32))
        self.opencv.append((numbers + more).astype(numpy.float32))

    def conv(self, out, size, stride=1, leaky=True, gain=1.0):
        norm, fan_in = leaky, self.channels[-1] * size * size
        keys = {"batch_normalize": 1} if norm else {}
        self.put(-0.1, 0.1, out)
        if norm:
            self.put(0.9, 1.1, out)
            self.put(-0.1, 0.1, out)
            # a variance: epsilon is OpenCV's 1e-6, not that of darknet on GPUs
            self.put(0.75, 1.25, out, 1e-5 - 1e-6)
        most = (gain if norm else 0.2) * (6 / fan_in) ** 0.5
        self.put(-most, most, out * fan_in)
        if out == 255:
            self.heads[f"conv_{self.layers}"] = len(self.numbers) - 2
        self.layer("convolutional", out, **keys, filters=out, size=size, stride=stride, pad=1,
                   activation="leaky" if leaky else "linear")

    def shortcut(self):
        self.layer("shortcut", self.channels[-1], **{"from": -3, "activation": "linear"})

    def route(self, *layers):
        at = [n if n < 0 else n - self.layers for n in layers]
        self.layer("route", sum(self.channels[n] for n in at), layers=", ".join(map(str, layers)))

    def yolo(self, anchors, mask):
        self.layer("yolo", 255, mask=",".join(map(str, mask)), anchors=",  ".join(f"{w},{h}" for w,
            h in anchors), classes=80, num=len(anchors), **YOLO)

    def darknet53(self):
        """Table 1 of arXiv:1804.02767. The last layer of each stage."""
        ends = []
        self.conv(32, 3)
        for out, blocks in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
            self.conv(out, 3, 2)
            for _ in range(blocks):
                self.conv(out // 2, 1)
                self.conv(out, 3, gain=0.3)  # or numbers grow from block to block
                self.shortcut()
            ends.append(self.layers - 1)
        return ends

    def calm(self, folder, name, photo):
        """Spreads what OpenCV says of the image in front of [yolo]."""
        state = {}
        for layer, at in self.heads.items():
            self.opencv[at:at + 2] = self.numbers[at:at + 2]
            for key, numbers in zip(("bias", "weight"), self.numbers[at:at + 2]):
                state[f"module_list.{layer[5:]}.conv.{key}"] = torch.from_numpy(numbers).view(255,
                    *([-1, 1, 1] if key == "weight" else []))
        calm(name, state, sorted(by_opencv(self.write(folder, name), photo, list(self.heads)),
                                 key=lambda head: -head.shape[2]), SIZE)

    def write(self, folder, name):
        paths = [os.path.join(folder, f"{name}.{end}") for end in ("cfg", "opencv.cfg", "weights",
            "opencv.weights")]
        text = "\n".join(self.text)
        open(paths[0], "w").write(text)
        # OpenCV holds back what is less likely
        open(paths[1], "w").write(text.replace("[yolo]", "[yolo]\nthresh=0.000001"))
        for path, numbers in zip(paths[2:], (self.numbers, self.opencv)):
            with open(path, "wb") as f:
                numpy.array([0, 2, 0, 0, 0], numpy.int32).tofile(f)
                numpy.concatenate(numbers).tofile(f)
        return paths


def darknet53():
    c = Cfg()
    c.darknet53()
    c.layer("avgpool", c.channels[-1])
    c.conv(1000, 1, leaky=False)
    c.layer("softmax", 1000, groups=1)
    return c


def yolov3():
    c = Cfg(2)
    ends, anchors = c.darknet53(), [a for level in ANCHORS["yolov3"] for a in level]
    for level, width in enumerate((512, 256, 128)):
        if level:
            c.route(-4)
            c.conv(width, 1)
            c.layer("upsample", width, stride=2)
            c.route(-1, ends[4 - level])
        for _ in range(3):
            c.conv(width, 1)
            c.conv(2 * width, 3)
        c.conv(255, 1, leaky=False)
        c.yolo(anchors, range(6 - 3 * level, 9 - 3 * level))
    return c


def yolov3_tiny():
    c = Cfg(3)
    anchors = [a for level in ANCHORS["yolov3_tiny"] for a in level]
    for out in (16, 32, 64, 128, 256, 512):
        c.conv(out, 3)
        c.layer("maxpool", out, size=2, stride=2 if out < 512 else 1)
    c.conv(1024, 3)
    c.conv(256, 1)
    c.conv(512, 3)
    c.conv(255, 1, leaky=False)
    c.yolo(anchors, (3, 4, 5))
    c.route(-4)
    c.conv(128, 1)
    c.layer("upsample", 128, stride=2)
    c.route(-1, 8)
    c.conv(256, 3)
    c.conv(255, 1, leaky=False)
    c.yolo(anchors, (0, 1, 2))
    return c


def by_opencv(paths, photo, layers=None):
    import cv2

    net = cv2.dnn.readNetFromDarknet(paths[1], paths[3])
    net.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
    net.setInput(cv2.dnn.blobFromImage(cv2.imread(photo), 1 / 255, swapRB=True))
    return net.forward(layers or net.getUnconnectedOutLayersNames())


def boxes_of_opencv(outputs):
    """[score, class, x0, y0, x1, y1, level]; a score is 0 where OpenCV held it back."""
    found = []
    for level, rows in enumerate(outputs):
        for x, y, w, h, _, *scores in rows.reshape(-1, rows.shape[-1]).astype(float).tolist():
            box = [max(0.0, min(SIZE, v * SIZE)) for v in (x - w / 2, y - h / 2, x + w / 2, y + h / 2)]
            found += [[s, c] + box + [level] for c, s in enumerate(scores) if s > 0]
    return found


def same_numbers(program, name, file, folder):
    back = os.path.join(folder, "back.weights")
    kolo(program, "export", f"model={name}", f"weights={file}", back)
    a, b = (numpy.fromfile(p, numpy.float32)[5:] for p in (file, back))
    return len(a) == len(b) and bool((a == b).all())


def of_darknet(program, name, photo, folder):
    c = globals()[name]()
    if c.heads:
        c.calm(folder, name, photo)
    paths = c.write(folder, name)
    outputs, equal, good = by_opencv(paths, photo), same_numbers(program, name, paths[2], folder), True
    for model in (paths[0], name):
        told = "by cfg " if model.endswith(".cfg") else "by name"
        if name == "darknet53":
            want = torch.from_numpy(outputs[0].reshape(-1)).double().log()
            # the image as it is, not the middle of a larger one
            got = logits(program, model, paths[2], photo, folder, SIZE, f"val_resize={SIZE}").double()
            # softmax forgets what all of them have in common
            far = distance(got - got.mean(), want - want.mean())
            fine, text = far < LIMIT, f"logits {far:.1e}"
        else:
            fine, text = worst_box(by_kolo(program, model, SIZE, paths[2], photo), boxes_of_opencv(outputs))
        fine &= equal
        good &= fine
        print(f"{name:18s} {told} out {'equal' if equal else 'DIFFERS'}  {text}  {'ok' if fine else 'FAR'}",
              flush=True)
    return good


def of_yolox(program, source, photo, folder):
    # only what trains asks for them
    for module in ("loguru", "cv2", "tabulate", "psutil", "thop", "pycocotools", "pycocotools.coco",
                   "pycocotools.cocoeval", "tqdm"):
        try:
            __import__(module)
        except ImportError:
            sys.modules[module] = MagicMock(__spec__=importlib.machinery.ModuleSpec(module, None))
    package = types.ModuleType("yolox")
    package.__path__ = [os.path.join(source, "yolox")]
    sys.modules["yolox"] = package
    from safetensors.torch import load_file
    from yolox.models import YOLOFPN, YOLOX, YOLOXHead

    pixels = torch.from_numpy(numpy.asarray(Image.open(photo).convert("RGB"))[:, :, ::-1].copy()).permute(2,
        0, 1)[None].float()
    model = YOLOX(YOLOFPN(), YOLOXHead(80, 1.0, in_channels=[128, 256, 512], act="lrelu"))
    with torch.no_grad():
        fill(model)
        norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
        for m in norms:
            m.eps, m.momentum = 1e-3, 1.0
            m.train()
        model(pixels)  # statistics of this image: or numbers grow from block to block
    model.eval()
    file, back = os.path.join(folder, "in.pth"), os.path.join(folder, "out.safetensors")
    torch.save({"model": model.state_dict()}, file)
    kolo(program, "export", "model=yolox_darknet53", f"weights={file}", back)
    state = load_file(back)
    model.load_state_dict(state, strict=True)
    with torch.no_grad():
        rows = model(pixels)[0].double()
    score, best = (rows[:, 4:5] * rows[:, 5:]).max(1)
    box = torch.cat([rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], 1).clamp(0, SIZE)
    level = [n for n, stride in enumerate((8, 16, 32)) for _ in range((SIZE // stride) ** 2)]
    answers = [[s, c] + b + [n] for s, c, b, n in zip(score.tolist(), best.tolist(), box.tolist(), level)]
    good, text = worst_box(by_kolo(program, "yolox_darknet53", SIZE, file, photo), answers)
    print(f"yolox_darknet53    in yes  out strict  {text}  {'ok' if good else 'FAR'}", flush=True)
    return good


def attempt(name, check, *words):
    try:
        return check(*words)
    except (RuntimeError, ValueError, OSError, KeyError, subprocess.CalledProcessError) as e:
        print(f"{name:18s} FAILED: {str(e)[:400]}", flush=True)
        return False


def main():
    program, folder, image = sys.argv[1:4]
    photo = os.path.join(folder, "square.png")
    Image.open(image).convert("RGB").resize((SIZE, SIZE)).save(photo)
    good = True
    for name in ("darknet53", "yolov3_tiny", "yolov3"):
        good &= attempt(name, of_darknet, program, name, photo, folder)
    if len(sys.argv) > 4:
        good &= attempt("yolox_darknet53", of_yolox, program, sys.argv[4], photo, folder)
    return not good


if __name__ == "__main__":
    sys.exit(main())
