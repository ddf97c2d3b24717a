"""Makes tests/golden_detect.h: what YOLOX 0.3.0 makes of formula images and boxes for given random numbers.

usage: detect_figures.py YOLOX_SOURCE > tests/golden_detect.h        (numpy, opencv)

Run by hand. YOLOX_SOURCE is its unpacked release; only data_augment.py and mosaicdetection.py are used. Their
random
numbers come from a list, and cv2.warpAffine is given the map whose pixel middles lie at (0.5, 0.5), as in
detect.h.
Image n of size (height, width): value 40 + |(2 x + y + 50 c + 37 n) mod 320 - 160|, in BGR as OpenCV has
it.
"""
import importlib.util
import sys
import types

import cv2
import numpy as np

SIZES = [(120, 90), (64, 200), (97, 61), (150, 150), (80, 130)]
OUT = (96, 128)
BOXES = [
    [(10, 20, 60, 100, 0), (0, 0, 90, 120, 1), (80, 110, 90, 120, 2)],
    [(5, 5, 195, 60, 3), (100, 30, 102, 33, 4)],
    [(30, 40, 31, 41, 5), (1, 2, 58, 95, 6)],
    [(75, 75, 149, 149, 7)],
    [(20, 10, 120, 70, 8), (0, 60, 30, 80, 9)],
]


class Script:
    """Stands for the module random, and answers from a list."""

    def __init__(self):
        self.values = []

    def next(self):
        return self.values.pop(0)

    def random(self):
        return self.next()

    def uniform(self, low, high):
        return low + (high - low) * self.next()

    def randint(self, low, high):
        value = self.next()
        return value if isinstance(value, int) else min(high, low + int(value * (high - low + 1)))


def load(path, name, stubs):
    sys.modules.update(stubs)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def utils():
    def cxcywh(b):
        b[:, 2] -= b[:, 0]
        b[:, 3] -= b[:, 1]
        b[:, 0] += b[:, 2] * 0.5
        b[:, 1] += b[:, 3] * 0.5
        return b

    def adjust(bbox, scale, padw, padh, w_max, h_max):
        bbox[:, 0::2] = np.clip(bbox[:, 0::2] * scale + padw, 0, w_max)
        bbox[:, 1::2] = np.clip(bbox[:, 1::2] * scale + padh, 0, h_max)
        return bbox

    return types.SimpleNamespace(xyxy2cxcywh=cxcywh, adjust_box_anns=adjust, get_local_rank=lambda: 0)


def image(n):
    height, width = SIZES[n]
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    rgb = (40 + np.abs((2 * x + y + 50 * c + 37 * n) % 320 - 160)).astype(np.uint8)
    return np.ascontiguousarray(rgb[:, :, ::-1])


class Source:
    """A data set of the five images, resized to fit as YOLOX's are when they are read."""

    input_dim = OUT

    def __len__(self):
        return len(SIZES)

    def load_anno(self, n):
        return self.pull_item(n)[1]

    def pull_item(self, n):
        image = image(n)
        r = min(OUT[0] / image.shape[0], OUT[1] / image.shape[1])
        size = (int(image.shape[1] * r), int(image.shape[0] * r))
        boxes = np.array(BOXES[n], dtype=np.float64)
        boxes[:, :4] *= r
        return cv2.resize(image, size, interpolation=cv2.INTER_LINEAR), boxes, SIZES[n], np.array([n])


# name, random numbers in YOLOX's order, and the draw that they mean
CASES = [
    # mosaic center y, x, three images, angle, scale, shear x, shear y, translate x, y; flip of mixup ..
    # jitter
    dict(name="mosaic", center=(0.5, 0.5), angle=0.5, scale=0.4736842105263158, shear=(0.5, 0.5),
         move=(0.5, 0.5)),
    dict(name="mosaic turned", center=(0.3, 0.7), angle=0.9, scale=0.35, shear=(0.2, 0.8), move=(0.9, 0.6)),
    dict(name="mosaic enlarged", center=(0.8, 0.2), angle=0.2, scale=0.8, shear=(0.9, 0.4), move=(0.1, 0.2)),
    dict(name="mixup smaller", center=(0.4, 0.6), angle=0.6, scale=0.5, shear=(0.5, 0.3), move=(0.4, 0.7),
         mixup=(0.0, 0.2, 0.5, 0.5)),
    dict(name="mixup larger, mirrored", center=(0.6, 0.5), angle=0.4, scale=0.6, shear=(0.6, 0.6),
         move=(0.5, 0.4),
         mixup=(0.75, 0.9, 0.3, 0.8), flip=True),
    dict(name="single", single=True),
    dict(name="single, mirrored", single=True, flip=True),
]


def main():
    source = sys.argv[1]
    script = Script()
    augment = load(source + "/yolox/data/data_augment.py", "peer.data_augment", {"yolox.utils": utils()})
    augment.random = script
    warp = cv2.warpAffine

    def centred(image, m, dsize, borderValue):
        shift = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
        return warp(image, (np.linalg.inv(shift) @ np.vstack([m, [0, 0, 1]]) @ shift)[:2], dsize,
                    borderValue=borderValue)

    cv2.warpAffine = centred

    class Dataset:
        def __init__(self, size, mosaic=True):
            self.input_dim = size

        @staticmethod
        def mosaic_getitem(call):
            return call

    wrapper = types.SimpleNamespace(Dataset=Dataset)
    package = types.ModuleType("peer")
    package.__path__ = []
    inner = types.ModuleType("peer.datasets")
    inner.__path__ = []
    mosaic = load(source + "/yolox/data/datasets/mosaicdetection.py", "peer.datasets.mosaicdetection",
                  {"peer": package, "peer.datasets": inner, "peer.datasets.datasets_wrapper": wrapper,
                   "yolox.utils": utils()})
    mosaic.random = script
    print("/* Made by tests/peers/detect_figures.py: YOLOX 0.3.0, OpenCV %s. */" % cv2.__version__)
    print("#ifndef TESTS_GOLDEN_DETECT_H\n#define TESTS_GOLDEN_DETECT_H\n")
    print("enum { GOLDEN_HEIGHT = %d, GOLDEN_WIDTH = %d, GOLDEN_GRID = 12 };" % OUT)
    print("static const int golden_sizes[5][2] = {%s};" % ", ".join("{%d, %d}" % s for s in SIZES))
    print("static const struct golden_box {\n    int image;\n    float box[4];\n    int cls;\n} "
        "golden_boxes[] = {")
    for n, boxes in enumerate(BOXES):
        for b in boxes:
            print("    {%d, {%g, %g, %g, %g}, %d}," % ((n,) + b))
    print("};\n")
    print("/* draws in [0, 1), the boxes that come out, and the image at the middles of 12 x 12 cells "
        "(hexadecimal) */")
    print("static const struct golden_detect {\n    const char *name;\n    int mosaic, mixup, flip;\n"
          "    double center[2], angle, scale, shear[2], move[2], mixup_draws[4];\n    int count;\n    float "
              "box[12][5];\n"
          "    const char *grid;\n} golden_detects[] = {")
    for case in CASES:
        one(case, script, mosaic, augment)
    print("};\n\n#endif")


def one(case, script, mosaic, augment):
    single, flip, mixup = case.get("single", False), case.get("flip", False), case.get("mixup")
    transform = augment.TrainTransform(max_labels=50, flip_prob=1.0 if flip else 0.0, hsv_prob=0.0)
    source = mosaic.MosaicDetection(Source(), OUT, mosaic=not single, preproc=transform, degrees=10.0,
                                    translate=0.1,
                                    mosaic_scale=(0.1, 2), mixup_scale=(0.5,
                                        1.5), shear=2.0, enable_mixup=bool(mixup),
                                    mosaic_prob=1.0, mixup_prob=1.0)
    script.values = []
    if not single:
        script.values += [0.0, *case["center"], 1, 2, 3, case["angle"], case["scale"], *case["shear"],
                          *case["move"]]
        if mixup:
            larger = 0.5 + mixup[0] > 1
            script.values += [0.0, mixup[0], mixup[1], 4] + ([mixup[2], mixup[3]] if larger else [])
    script.values += [0.5, 0.5]
    image, labels, _, _ = source[0]
    assert script.values == [], script.values
    image = image.transpose(1, 2, 0)[:, :, ::-1].astype(np.uint8)
    found = [r for r in labels if r[3] > 0]
    grid = "".join("%02x" % v for r in range(12) for x in range(12)
                   for v in image[(2 * r + 1) * OUT[0] // 24, (2 * x + 1) * OUT[1] // 24])
    pair = lambda key: "{%g, %g}" % case.get(key, (0, 0))
    print('    {"%s", %d, %d, %d, %s, %.17g, %.17g, %s, %s, {%s}, %d,' % (
        case["name"], not single, bool(mixup), flip, pair("center"), case.get("angle", 0), case.get("scale",
            0),
        pair("shear"), pair("move"), ", ".join("%g" % v for v in (mixup or (0, 0, 0, 0))), len(found)))
    rows = ["{%.4f, %.4f, %.4f, %.4f, %d}" % (r[1] - r[3] / 2, r[2] - r[4] / 2, r[1] + r[3] / 2,
                                              r[2] + r[4] / 2, r[0])
            for r in found]
    print("     {" + ",\n      ".join(rows) + "},")
    print("\n".join('     "%s"' % grid[i:i + 108] for i in range(0, len(grid), 108)) + "},")


if __name__ == "__main__":
    main()
