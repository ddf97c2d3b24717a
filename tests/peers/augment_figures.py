"""Makes tests/golden_augment.h: what Pillow, torchvision and timm make of formula images.

usage: augment_figures.py > tests/golden_augment.h        (Pillow, numpy, torch, torchvision, timm)

Run by hand when a case is added. The images: value i of an image (height, width, channels) has
z = splitmix64 of i; kind 0 is z >> 56, kind 1 is 40 + 2 x + y + 20 c + (z >> 61), modulo 256: smooth, not all
values.
"""
import zlib

import numpy as np
import PIL
import timm
import torch
import torchvision
from PIL import Image, ImageEnhance, ImageOps
from timm.data import auto_augment as timm_ops
from torchvision.transforms import InterpolationMode
from torchvision.transforms import autoaugment as torch_ops
from torchvision.transforms import functional as F
from torchvision.transforms.v2 import functional as F2


def image(kind, height, width, channels):
    n = height * width * channels
    with np.errstate(over="ignore"):
        z = (np.arange(n, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    if kind == 0:
        value = z >> np.uint64(56)
    else:
        i = np.arange(n)
        c, x, y = i % channels, i // channels % width, i // channels // width
        value = (40 + 2 * x + y + 20 * c + (z >> np.uint64(61)).astype(np.int64)) % 256
    value = value.astype(np.uint8).reshape(height, width, channels)
    return value[:, :, 0] if channels == 1 else value


def crc(arrays):
    value = 0
    for a in arrays:
        value = zlib.crc32(np.ascontiguousarray(np.array(a)).tobytes(), value)
    return value


def tensor(a):
    return torch.from_numpy(a.copy()).permute(2, 0, 1)


def fill(image):
    return (10, 20, 30) if image.mode == "RGB" else 10


def rotate(image, degrees, cubic):
    return image.rotate(degrees, Image.BICUBIC if cubic else Image.BILINEAR, fillcolor=fill(image))


def affine(image, degrees, right, down, scale, shear_x, shear_y):
    f = fill(image)
    return F.affine(image, degrees, [right, down], scale, [shear_x, shear_y], InterpolationMode.BILINEAR,
                    fill=list(f) if isinstance(f, tuple) else f)


SINGLE = {
    "invert": (lambda m: ImageOps.invert(m), [()]),
    "posterize": (lambda m, bits: ImageOps.posterize(m, bits), [(1,), (3,), (4,), (7,), (8,)]),
    "solarize": (lambda m, t: ImageOps.solarize(m, t), [(0,), (100,), (127.5,), (128,), (255,), (256,)]),
    "solarize_add": (lambda m, add, t: timm_ops.solarize_add(m, add, t), [(0, 128), (55, 128), (110, 128),
        (200, 90)]),
    "autocontrast": (lambda m: ImageOps.autocontrast(m), [()]),
    "equalize": (lambda m: ImageOps.equalize(m), [()]),
    "brightness": (lambda m, f: ImageEnhance.Brightness(m).enhance(f), [(0,), (0.1,), (0.73,), (1,), (1.27,),
        (1.9,)]),
    "contrast": (lambda m, f: ImageEnhance.Contrast(m).enhance(f), [(0,), (0.1,), (0.73,), (1,), (1.27,),
        (1.9,)]),
    "color": (lambda m, f: ImageEnhance.Color(m).enhance(f), [(0,), (0.1,), (0.73,), (1,), (1.27,), (1.9,)]),
    "sharpness": (lambda m, f: ImageEnhance.Sharpness(m).enhance(f), [(0,), (0.1,), (0.73,), (1,), (1.27,),
        (1.9,)]),
    "grayscale": (lambda m: m.convert("L").convert(m.mode), [()]),
    "rotate": (rotate, [(a, c) for c in (0, 1) for a in (0, 13.7, -30, 90, 135, 180, -135)]),
    "affine": (affine, [(0, 3, 0, 1, 0, 0), (0, 0, -5, 1, 0, 0), (17, 2, -3, 1.2, 5, -4),
                        (-100, 0, 0, 0.5, 0, 20)]),
}

NEAR = {
    "jitter_contrast": (lambda t, f: F2.adjust_contrast(t, f), [(0.6,), (1.4,)]),
    "jitter_saturation": (lambda t, f: F2.adjust_saturation(t, f), [(0,), (0.6,), (1.4,)]),
    "jitter_hue": (lambda t, f: F2.adjust_hue(t, f), [(-0.5,), (-0.1,), (0.03,), (0.25,)]),
    "blur": (lambda t, s, r: F2.gaussian_blur(t, [2 * r + 1, 2 * r + 1], [s, s]),
             [(0.3, 1), (0.9, 3), (2.0, 6)]),
}

SHAPES = [(0, 37, 45, 3), (1, 41, 30, 3), (0, 70, 131, 3), (1, 23, 70, 1), (0, 3, 2, 3)]


def singles():
    print("/* operation of adjust.h, what it is given, and the crc32 of its results for the images of "
        "golden_shapes */")
    print("static const struct golden_single {\n    const char *name;\n    double p[6];\n    uint32_t crc;\n"
          "} golden_singles[] = {")
    for name, (call, cases) in SINGLE.items():
        for p in cases:
            value = crc(call(Image.fromarray(image(*s)), *p) for s in SHAPES)
            print('    {"%s", {%s}, 0x%08X},' % (name, ", ".join("%g" % x if x == float("%g" % x) else repr(x)
                for x in (p or (0,))), value))
    print("};\n")


def near():
    print("/* the same where rounding is the machine's: every byte, of image {%d, %d, %d, %d} "
        "*/" % NEAR_SHAPE)
    print("static const struct golden_near {\n    const char *name;\n    double p[6];\n    const char "
        "*bytes;\n"
          "} golden_nears[] = {")
    for name, (call, cases) in NEAR.items():
        for p in cases:
            out = call(tensor(image(*NEAR_SHAPE)), *p).permute(1, 2, 0).contiguous().numpy().tobytes().hex()
            print('    {"%s", {%s},' % (name, ", ".join("%g" % x if x == float("%g" % x) else repr(x)
                                                        for x in p)))
            rows = [out[i:i + 104] for i in range(0, len(out), 104)]
            print("\n".join('     "%s"' % r for r in rows) + "},")
    print("};\n")


NEAR_SHAPE = (0, 7, 13, 3)


def policies():
    print("/* all bins in golden_bins, both signs, of one operation of torchvision's policies; crc32 over "
        "the results */")
    print("static const int golden_bins[] = {0, 1, 4, 9, 15, 16, 22, 30};")
    bins = (0, 1, 4, 9, 15, 16, 22, 30)
    for wide, policy in ((0, torch_ops.RandAugment()), (1, torch_ops.TrivialAugmentWide())):
        print("static const uint32_t golden_%s[] = {" % ("trivial" if wide else "rand"))
        for name in policy._augmentation_space(31) if wide else policy._augmentation_space(31, (1, 1)):
            results = []
            for s in SHAPES:
                image = Image.fromarray(image(*s))
                space = policy._augmentation_space(31) if wide else policy._augmentation_space(31,
                    (s[1], s[2]))
                magnitudes, signed = space[name]
                for b in bins:
                    for negative in (0, 1):
                        m = float(magnitudes[b]) if magnitudes.ndim else 0.0
                        m = -m if signed and negative else m
                        results.append(torch_ops._apply_op(image, name, m, InterpolationMode.BILINEAR, None))
            print("    0x%08X, /* %s */" % (crc(results), name))
        print("};")
    print("\n/* the same of timm's increasing operations, for magnitudes, signs and both interpolations; "
        "mean colour 128 */")
    levels = (0.0, 1.3, 5.0, 8.7, 9.9)
    print("static const double golden_levels[] = {%s};" % ", ".join("%g" % x for x in levels))
    print("static const uint32_t golden_timm[] = {")
    for name in timm_ops._RAND_INCREASING_TRANSFORMS:
        results = []
        for s in SHAPES:
            image = Image.fromarray(image(*s))
            for level in levels:
                for negative in (0, 1):
                    for cubic in (0, 1):
                        timm_ops._randomly_negate = lambda v, n=negative: -v if n else v
                        call = timm_ops.LEVEL_TO_ARG[name]
                        results.append(timm_ops.NAME_TO_OP[name](
                            image, *(call(level, {})
                                     if call else ()), fillcolor=128 if s[3] == 1 else (128,) * 3,
                            resample=Image.BICUBIC if cubic else Image.BILINEAR))
        print("    0x%08X, /* %s */" % (crc(results), name))
    print("};\n")


def resizes():
    print("/* Image.resize((width, height), filter, box = (left, top, right, bottom)) of image {0, 61, 83, "
        "channels} */")
    print("static const struct golden_resize {\n    int filter, channels, height, width;\n    double "
        "box[4];\n"
          "    uint32_t crc;\n} golden_resizes[] = {")
    filters = (("bilinear", Image.BILINEAR), ("bicubic", Image.BICUBIC), ("lanczos", Image.LANCZOS),
               ("box", Image.BOX))
    for name, number in filters:
        for channels in (3, 1):
            image = Image.fromarray(image(0, 61, 83, channels))
            for width, height, box in ((32, 24, (0, 0, 83, 61)), (120, 90, (0, 0, 83, 61)),
                                       (17, 40, (5, 3, 77, 50)),
                                       (83, 20, (0, 0, 83, 61)), (9, 61, (0, 0, 83, 61)), (1, 1,
                                           (10, 10, 11, 60))):
                # cut out first, so that nothing outside of the box counts
                out = image.crop(box).resize((width, height), number)
                print("    {KOLO_interpolation_%s, %d, %d, %d, {%s}, 0x%08X}," %
                      (name, channels, height, width, ", ".join("%g" % x for x in box), crc([out])))
    print("};\n")


def main():
    torch.set_num_threads(1)
    print("/* Made by tests/peers/augment_figures.py: Pillow %s, torch %s, torchvision %s, timm %s. */" %
          (PIL.__version__, torch.__version__.split("+")[0], torchvision.__version__.split("+")[0],
           timm.__version__))
    print("#ifndef TESTS_GOLDEN_AUGMENT_H\n#define TESTS_GOLDEN_AUGMENT_H\n\n#include <stdint.h>\n\n"
          '#include "base/option.h"\n')
    print("/* kind, height, width, channels */\nstatic const int golden_shapes[][4] = {%s};" %
          ", ".join("{%d, %d, %d, %d}" % s for s in SHAPES))
    print("static const int golden_near_shape[4] = {%d, %d, %d, %d};\n" % NEAR_SHAPE)
    singles()
    near()
    policies()
    resizes()
    print("#endif")


if __name__ == "__main__":
    main()
