"""Compares packed shards, as h5py reads them, with the files they were made of, as Pillow and numpy read
those. TAP lines without a plan.

    data_acceptance.py first NUMBER, then one per argument: KIND:TEXT:SHARDS:SOURCE[:MORE]

    idx:     SOURCE images.gz, MORE labels.gz        cifar:  SOURCE a .bin file
    kept:    files below SOURCE keep their bytes     pixels: files below SOURCE, resized as provenance says
    coco:    as kept; MORE the JSON file             yolo:   as kept; labels/ beside images/      voc: as
             kept; Annotations/

h5dump, where it is found, must give the same bytes for every dataset of numbers of every shard."""
import glob
import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree

import h5py
import numpy
from PIL import Image, ImageOps


class Differs(Exception):
    pass


def want(condition, text):
    if not condition:
        raise Differs(text)


def text_of(value):
    return bytes(value).split(b"\0")[0].decode()


def upright(path_or_bytes):
    image = Image.open(io.BytesIO(path_or_bytes) if isinstance(path_or_bytes, bytes) else path_or_bytes)
    return ImageOps.exif_transpose(image)


class Split:
    """All shards of a folder; sample i of shard s by its record."""

    def __init__(self, folder):
        self.files = [h5py.File(path, "r") for path in sorted(glob.glob(os.path.join(folder, "*.h5")))]
        want(self.files, "no shards")
        self.attributes = self.files[0].attrs
        self.options = dict(w.split("=", 1)
                            for w in text_of(self.files[0]["provenance"].attrs["options"]).split())
        self.names = [text_of(name) for name in self.files[0]["classes/name"][:]]
        self.count = 0

    def samples(self):
        for f in self.files:
            want(f.attrs["complete"] == 1, "a shard is not complete")
            want(f.attrs["first_sample"] == self.count, "shards do not follow each other")
            columns = {key: f[key][:] for key in f if isinstance(f[key], h5py.Dataset)
                       and key not in ("images", "bytes")}
            data = f["images"][:] if "images" in f else f["bytes"][:].tobytes()
            for i in range(len(columns["label"])):
                yield columns, i, data
                self.count += 1

    @staticmethod
    def source(columns, i):
        at = columns["source_offset"]
        return columns["source"][int(at[i]) : int(at[i + 1])].tobytes().decode()

    @staticmethod
    def blob(columns, i, data):
        at = columns["offset"]
        return data[int(at[i]) : int(at[i + 1])]


def check_idx(split, images, labels):
    with gzip.open(images) as f, gzip.open(labels) as g:
        pixels, label = f.read(), g.read()
    n, h, w = (int.from_bytes(pixels[4 * k : 4 * k + 4], "big") for k in (1, 2, 3))
    pixels, label = numpy.frombuffer(pixels, "u1", offset=16).reshape(n, h, w), numpy.frombuffer(label, "u1",
        offset=8)
    seen = set()
    for columns, i, data in split.samples():
        k = int(columns["id"][i])
        want(numpy.array_equal(data[i].reshape(h, w), pixels[k]) and columns["label"][i] == label[k],
             f"sample {k}")
        seen.add(k)
    want(len(seen) == n == split.count, f"{len(seen)} of {n} samples")


def check_cifar(split, path):
    rows = numpy.fromfile(path, "u1").reshape(-1, 3073)
    seen = set()
    for columns, i, data in split.samples():
        k = int(columns["id"][i])
        pixels = rows[k, 1:].reshape(3, 32, 32).transpose(1, 2, 0)
        want(numpy.array_equal(data[i], pixels) and columns["label"][i] == rows[k, 0], f"sample {k}")
        seen.add(k)
    want(len(seen) == len(rows) == split.count, f"{len(seen)} of {len(rows)} samples")


def check_kept(split, root, each=lambda columns, i, source: None):
    names, seen = split.names, set()
    for columns, i, data in split.samples():
        source = split.source(columns, i)
        blob = split.blob(columns, i, data)
        with open(os.path.join(root, source), "rb") as f:
            file = f.read()
        h, w = (int(side) for side in columns["size"][i])
        if columns["state"][i] == 1 and file[:2] == b"\xff\xd8":
            want(blob == file, f"{source}: other bytes")
            want(upright(blob).size == (w, h), f"{source}: size")
        elif "codec" in columns and columns["codec"][i] == 0:  # stored as pixels: no JPEG
            pixels = numpy.asarray(upright(file).convert("RGB"))
            want(blob == pixels.tobytes() and pixels.shape[:2] == (h, w), f"{source}: other pixels")
        else:  # encoded when it was packed
            a, b = numpy.asarray(upright(blob).convert("RGB"),
                                 float), numpy.asarray(upright(file).convert("RGB"), float)
            want(a.shape == b.shape and numpy.abs(a - b).mean() < 8, f"{source}: an image unlike it")
        if columns["label"][i] >= 0:  # a list names files, the others folders
            name = names[columns["label"][i]]
            want(name in source.split("/")[-2:], f"{source}: class {name}")
        each(columns, i, source)
        seen.add(source)
    want(len(seen) == split.count, "a source twice")


def check_pixels(split, root):
    side = int(split.options["size"])
    for columns, i, data in split.samples():
        source = split.source(columns, i)
        image = upright(os.path.join(root, source)).convert("RGB")
        w, h = image.size
        if w < h:
            w, h = side, side * h // w
        else:
            w, h = side * w // h, side
        if image.size != (w, h):
            image = image.resize((w, h), Image.BILINEAR)
        left, top = (w - side) // 2, (h - side) // 2
        pixels = numpy.asarray(image.crop((left, top, left + side, top + side)))
        want(numpy.array_equal(pixels, data[i]),
             f"{source}: other pixels, by {numpy.abs(pixels.astype(int) - data[i]).max()}")


def rows_of(columns, i):
    first, last = int(columns["box_offset"][i]), int(columns["box_offset"][i + 1])
    return [tuple(columns["box_source"][k]) + (int(columns["box_class"][k]),) for k in range(first, last)]


def check_coco(split, root, path):
    with open(path) as f:
        table = json.load(f)
    class_of = {c["id"]: k for k, c in enumerate(sorted(table["categories"], key=lambda c: c["id"]))}
    boxes = {}
    for a in table["annotations"]:
        boxes.setdefault(a["image_id"],
                         []).append(tuple(float(x) for x in a["bbox"]) + (class_of[a["category_id"]],))

    def each(columns, i, source):
        want(sorted(rows_of(columns, i)) == sorted(boxes.pop(int(columns["id"][i]), [])), f"{source}: boxes")

    check_kept(split, root, each)
    want(split.count == len(table["images"]) and not boxes, "images or boxes are missing")


def check_yolo(split, root):
    def each(columns, i, source):
        path = os.path.join(root, source.replace("images/", "labels/", 1).rsplit(".", 1)[0] + ".txt")
        lines = open(path).read().splitlines() if os.path.exists(path) else []
        rows = {tuple(float(x) for x in line.split()[1:]) + (int(line.split()[0]),) for line in lines}
        want(set(rows_of(columns, i)) == rows, f"{source}: boxes")

    check_kept(split, root, each)


def check_voc(split, root):
    def each(columns, i, source):
        xml = tree.parse(os.path.join(root, "Annotations",
                                      os.path.splitext(os.path.basename(source))[0] + ".xml"))
        rows = []
        for thing in xml.findall("object"):
            box = thing.find("bndbox")
            numbers = tuple(float(box.find(side).text) for side in ("xmin", "ymin", "xmax", "ymax"))
            rows.append(numbers + (split.names.index(thing.find("name").text),))
        want(sorted(rows_of(columns, i)) == sorted(rows), f"{source}: boxes")

    check_kept(split, root, each)


def check_h5dump(split):
    """The bytes of every dataset of numbers."""
    room = tempfile.mkdtemp()
    try:
        for f in split.files:
            paths = []
            f.visititems(lambda name, item: paths.append(name) if isinstance(item, h5py.Dataset) else None)
            for path in paths:
                if f[path].size == 0 or f[path].dtype.kind == "S":  # text it writes in its own way
                    continue
                out = os.path.join(room, "dump")
                command = ["h5dump", "-d", "/" + path, "-b", "LE", "-o", out, f.filename]
                done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                want(done.returncode == 0, f"{path}: h5dump ends with {done.returncode}")
                with open(out, "rb") as dumped:
                    want(dumped.read() == f[path][...].tobytes(), f"{path}: h5dump gives other bytes")
    finally:
        shutil.rmtree(room)


def main():
    number = int(sys.argv[1])
    checks = {"idx": check_idx, "cifar": check_cifar, "kept": check_kept, "pixels": check_pixels}
    checks.update({"coco": check_coco, "yolo": check_yolo, "voc": check_voc})
    for word in sys.argv[2:]:
        kind, text, folder, *rest = word.split(":")
        number += 1
        try:
            split = Split(folder)
            checks[kind](split, *rest)
            if shutil.which("h5dump"):
                check_h5dump(split)
            print(f"ok {number} - {text}: {split.count} samples as h5py, h5dump and another decoder read "
                "them", flush=True)
        except Differs as difference:
            print(f"not ok {number} - {text}\n#   {difference}", flush=True)


main()
