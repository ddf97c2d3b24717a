"""Preprocessing: JPEG decoding and resampling by Pillow, crops, mixing, normalisation."""
import zlib

import numpy as np
import torch
from PIL import Image, ImageOps, features

from . import formula, record

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def sums(image):
    pixels = np.asarray(image)
    return [int(s) for s in pixels.reshape(-1, pixels.shape[2]).astype(np.int64).sum(0)]


def grid(image, cells=8):
    """cells x cells samples, rows then columns then channels: pixel (y, x) = (floor((2r+1) H / (2 cells)),
    same for x)."""
    pixels = np.asarray(image)
    rows = [(2 * r + 1) * pixels.shape[0] // (2 * cells) for r in range(cells)]
    cols = [(2 * c + 1) * pixels.shape[1] // (2 * cells) for c in range(cells)]
    return pixels[np.ix_(rows, cols)].reshape(-1).tolist()


def crc(image):
    return f"{zlib.crc32(np.asarray(image).tobytes()):08x}"


def described(image):
    return {"size": list(image.size), "sums": sums(image), "crc32": crc(image), "grid": grid(image)}


def short_side(image, side, kernel):
    w, h = image.size
    if w <= h:
        size = side, int(side * h / w)
    else:
        size = int(side * w / h), side
    return image if size == image.size else image.resize(size, kernel)


def centre(image, side):
    w, h = image.size
    top, left = int(round((h - side) / 2.0)), int(round((w - side) / 2.0))
    return image.crop((left, top, left + side, top + side)), [top, left]


def box_for(name, w, h, seed):
    """(i, j, h, w) of a crop: sides between 40 % and 100 % of the image, by formula."""
    u = formula.uniform(name + ".box", (4,), seed) + 0.5
    ch, cw = max(1, int(h * (0.4 + 0.6 * u[0]))), max(1, int(w * (0.4 + 0.6 * u[1])))
    return int(u[2] * (h - ch + 1)), int(u[3] * (w - cw + 1)), ch, cw


def photo(path, name, case, seed):
    stored = Image.open(path)
    out = {"mode": stored.mode, "stored_size": list(stored.size), "orientation": stored.getexif().get(0x0112,
        None)}
    rgb = stored.convert("RGB")
    out["decoded"] = described(rgb)
    if out["orientation"] not in (None, 1):
        out["upright"] = described(ImageOps.exif_transpose(Image.open(path)).convert("RGB"))
    w, h = rgb.size
    for label, kernel in (("bilinear", Image.BILINEAR), ("bicubic", Image.BICUBIC)):
        resized = short_side(rgb, case["resize"], kernel)
        cropped, corner = centre(resized, case["crop"])
        out[f"eval_{label}"] = {"resized": list(resized.size), "resized_crc32": crc(resized),
                                "corner": corner,
                                **described(cropped)}
    i, j, ch, cw = box_for(name, w, h, seed)
    flip = bool(formula.bits(name + ".flip", 1, seed)[0] & np.uint64(1))
    train = rgb.crop((j, i, j + cw, i + ch)).resize((case["crop"], case["crop"]), Image.BILINEAR)
    if flip:
        train = train.transpose(Image.FLIP_LEFT_RIGHT)
    out["random_resized_crop"] = {"box_ijhw": [i, j, ch, cw], "flip": flip, **described(train)}
    normal = (np.asarray(train).astype(np.float64) / 255 - MEAN) / STD
    out["random_resized_crop"]["normalised"] = {"mean": record.numbers(normal.mean((0, 1)), record.F64),
                                                "std": record.numbers(normal.std((0, 1)), record.F64)}
    return out


def check(path, case, seed, name):
    """torchvision's transforms must give the same pixels."""
    from torchvision import transforms
    from torchvision.transforms import functional as TF
    rgb = Image.open(path).convert("RGB")
    for kernel, mode in ((Image.BILINEAR, TF.InterpolationMode.BILINEAR),
                         (Image.BICUBIC, TF.InterpolationMode.BICUBIC)):
        theirs = transforms.CenterCrop(case["crop"])(transforms.Resize(case["resize"], mode)(rgb))
        assert crc(theirs) == crc(centre(short_side(rgb, case["resize"], kernel), case["crop"])[0])
    i, j, h, w = box_for(name, *rgb.size, seed)
    theirs = TF.resized_crop(rgb, i, j, h, w, [case["crop"]] * 2)
    assert crc(theirs) == crc(rgb.crop((j, i, j + w, i + h)).resize((case["crop"],) * 2, Image.BILINEAR))


def make_photos(case, data, seed):
    import PIL
    out = {"config": case, "software": {"pillow": PIL.__version__,
                                        "libjpeg_turbo": features.version_feature("libjpeg_turbo")},
           "rules": {
               "decoded": "Image.open(...).convert('RGB'), no EXIF turn; sums per channel R,G,B; crc32 of the bytes row by row, R G B",
               "upright": "only where an EXIF orientation other than 1 is stored: turned upright by ImageOps.exif_transpose",
               "grid": grid.__doc__,
               "eval": "short side to resize (other side floor(resize*long/short)), Pillow resize (antialiased), centre crop with "
                       "corner [top, left] = round((side-crop)/2), half to even; the corner may lie outside only if the image is smaller",
               "random_resized_crop": "crop box (i, j, h, w) = (top, left, height, width), Pillow bilinear to crop x crop, then flip",
               "normalised": "(x/255 - mean)/std per channel: mean and (population) std over pixels"},
           "mean": list(MEAN), "std": list(STD), "photos": {}}
    for name in case["photos"]:
        path = data / name
        check(path, case, seed, name)
        out["photos"][name] = photo(path, name, case, seed)
    return out


def make_mixing(case, seed):
    """Mixup and CutMix of formula images with given lambda and boxes; label targets."""
    n, c, h, w = case["shape"]
    k, eps = case["classes"], case["smoothing"]
    x = formula.unit_input("mix.x", case["shape"], seed)
    y = formula.labels("mix.labels", n, k, seed)
    onehot = torch.nn.functional.one_hot(y, k).double()
    smooth = onehot * (1 - eps) + eps / k
    out = {"config": case, "labels": y.tolist(),
           "rules": {"image": "mix.x, a=0, b=2 sqrt(3)",
                     "pairs": "roll: partner of i is i-1 (mod N); flip: partner of i is N-1-i",
                     "mixup": "lam*x[i] + (1-lam)*x[partner]",
                     "cutmix": "box [x1,y1,x2,y2) from the partner; lam := 1 - area/(H W)",
                     "cutmix_box": "centre (rx, ry), half sides floor(0.5*sqrt(1-lam)*W), floor(0.5*sqrt(1-lam)*H), clipped to the image",
                     "targets": "lam*s[i] + (1-lam)*s[partner], s = onehot*(1-eps) + eps/K"}}
    partners = {"roll": [(i - 1) % n for i in range(n)], "flip": [n - 1 - i for i in range(n)]}
    for pairs, partner in partners.items():
        for lam in case["lambdas"]:
            mixed = [(lam * v + (1 - lam) * v[partner]) for v in (x, smooth)]
            single = [(lam * v + (1 - lam) * v[partner]) for v in (x.float(), smooth.float())]
            out[f"mixup_{pairs}_{lam:g}"] = {"image": record.full(single[0], mixed[0]),
                                             "targets": record.full(single[1], mixed[1])}
        for rx, ry, lam in case["cuts"]:
            half_w, half_h = int(0.5 * (1 - lam) ** 0.5 * w), int(0.5 * (1 - lam) ** 0.5 * h)
            x1, x2 = max(rx - half_w, 0), min(rx + half_w, w)
            y1, y2 = max(ry - half_h, 0), min(ry + half_h, h)
            real = 1 - (x2 - x1) * (y2 - y1) / (w * h)
            image = x.clone()
            image[:, :, y1:y2, x1:x2] = x[partner][:, :, y1:y2, x1:x2]
            targets = real * smooth + (1 - real) * smooth[partner]
            out[f"cutmix_{pairs}_{rx}_{ry}_{lam:g}"] = {
                "box_x1y1x2y2": [x1, y1, x2, y2], "lambda": record.number(real),
                "image": record.full(image.float(), image), "targets": record.full(targets.float(), targets)}
    return out
