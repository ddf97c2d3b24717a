"""Samples a second of other loaders, and of the scripts that people pack with, on what Kolo reads. One
number, or nothing where the package is absent.

    data.py torch|h5py|ffcv|dali raw|jpeg FOLDER WORKERS
    data.py h5py pack-pixels|pack-vlen|pack-bytes FOLDER OUT

raw: FOLDER holds shards of kolo-pack, the dataset `images` is read in random order. jpeg: a tree of classes
with JPEG files; random
resized crop to 224, flip, normalised to f32, in batches of 256. The best of three rounds of about a second,
after one pass.

pack-pixels: a tree of classes to one dataset of 256 x 256 pixels, by Pillow (short side 256, centre cut out).
pack-vlen: the files' bytes,
one row of variable length a file. pack-bytes: all bytes read, joined and written at once, with their offsets;
it needs the memory for that.
The best of three, without the interpreter's start; none of them asks the disk for a sync, which kolo-pack
does."""
import glob
import os
import sys
import tempfile
import time

SIDE, BATCH = 224, 256
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def best(batches):
    """batches() yields the number of samples of each batch of an epoch."""
    for _ in batches():
        pass
    rate = 0.0
    for _ in range(3):
        made, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < 1:
            for n in batches():
                made += n
                if time.perf_counter() - begin > 3:
                    break
        rate = max(rate, made / (time.perf_counter() - begin))
    return rate


def h5py_raw(folder, _workers):
    import h5py
    import numpy

    files = [h5py.File(path, "r")["images"] for path in sorted(glob.glob(os.path.join(folder, "*.h5")))]
    where = [(f, i) for f in files for i in range(len(f))]
    batch = numpy.empty((BATCH,) + files[0].shape[1:], numpy.uint8)

    def batches():
        order = numpy.random.permutation(len(where))
        for first in range(0, len(order), BATCH):
            part = order[first : first + BATCH]
            for row, sample in enumerate(part):
                data, i = where[sample]
                data.read_direct(batch, numpy.s_[i : i + 1], numpy.s_[row : row + 1])
            yield len(part)

    return best(batches)


def torch_loader(dataset, workers):
    import torch

    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(
        dataset, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )

    def batches():
        for images, _ in loader:
            yield len(images)

    return best(batches)


def torch_raw(folder, workers):
    import h5py
    import torch

    class Shards(torch.utils.data.Dataset):
        def __init__(self):
            self.paths = sorted(glob.glob(os.path.join(folder, "*.h5")))
            counts = [len(h5py.File(path, "r")["images"]) for path in self.paths]
            self.where = [(f, i) for f, n in enumerate(counts) for i in range(n)]
            self.files = None

        def __len__(self):
            return len(self.where)

        def __getitem__(self, sample):
            if self.files is None:  # in the worker
                self.files = [h5py.File(path, "r")["images"] for path in self.paths]
            shard, i = self.where[sample]
            return torch.from_numpy(self.files[shard][i]), 0

    return torch_loader(Shards(), workers)


def torch_jpeg(folder, workers):
    from torchvision import datasets, transforms

    steps = [transforms.RandomResizedCrop(SIDE), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    steps.append(transforms.Normalize(MEAN, STD))
    return torch_loader(datasets.ImageFolder(folder, transforms.Compose(steps)), workers)


def ffcv_jpeg(folder, workers):
    import numpy
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor
    from ffcv.writer import DatasetWriter
    from torchvision import datasets

    path = os.path.join(tempfile.mkdtemp(), "images.beton")  # TMPDIR is the bench's room
    fields = {"image": RGBImageField(write_mode="jpg"), "label": IntField()}
    DatasetWriter(path, fields).from_indexed_dataset(datasets.ImageFolder(folder))
    scale = numpy.array([255.0])
    image = [RandomResizedCropRGBImageDecoder((SIDE, SIDE)), RandomHorizontalFlip()]
    image += [NormalizeImage(numpy.array(MEAN) * scale, numpy.array(STD) * scale, numpy.float32), ToTensor()]
    pipelines = {"image": image, "label": [IntDecoder(), ToTensor()]}
    loader = Loader(path, BATCH, max(workers, 1), order=OrderOption.RANDOM, pipelines=pipelines)

    def batches():
        for images, _ in loader:
            yield len(images)

    return best(batches)


def dali_jpeg(folder, workers):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH, num_threads=max(workers, 1), device_id=None)
    def images():
        jpegs, labels = fn.readers.file(file_root=folder, random_shuffle=True, name="files")
        images = fn.decoders.image_random_crop(jpegs, device="cpu", output_type=types.RGB)
        images = fn.resize(images, size=(SIDE, SIDE))
        mirror = fn.random.coin_flip()
        images = fn.crop_mirror_normalize(
            images, mirror=mirror, mean=[m * 255 for m in MEAN], std=[s * 255 for s in STD], dtype=types.FLOAT
        )
        return images, labels

    pipe = images()
    pipe.build()
    steps = pipe.epoch_size("files") // BATCH

    def batches():
        for _ in range(steps):
            pipe.run()
            yield BATCH

    return best(batches)


def list_tree(folder):
    """[(path, label)], classes and files in order."""
    rows = []
    for label, name in enumerate(sorted(os.listdir(folder))):
        rows += [(os.path.join(folder, name, f), label)
                 for f in sorted(os.listdir(os.path.join(folder, name)))]
    return rows


def best_packing(pack, folder, out):
    rate = 0.0
    for _ in range(3):
        if os.path.exists(out):
            os.remove(out)
        begin = time.perf_counter()
        made = pack(folder, out)
        rate = max(rate, made / (time.perf_counter() - begin))
    os.remove(out)
    return rate


def h5py_pack_pixels(folder, out):
    import h5py
    import numpy
    from PIL import Image

    def pack(folder, out, side=256):
        rows = list_tree(folder)
        with h5py.File(out, "w") as f:
            images = f.create_dataset("images", (len(rows), side, side, 3), "u1")
            f["label"] = numpy.array([label for _, label in rows], numpy.int32)
            for i, (path, _) in enumerate(rows):
                with Image.open(path) as image:
                    image = image.convert("RGB")
                w, h = image.size
                scale = side / min(w, h)
                w, h = max(side, round(w * scale)), max(side, round(h * scale))
                image = image.resize((w, h), Image.BILINEAR)
                left, top = (w - side) // 2, (h - side) // 2
                images[i] = numpy.asarray(image.crop((left, top, left + side, top + side)))
        return len(rows)

    return best_packing(pack, folder, out)


def h5py_pack_vlen(folder, out):
    import h5py
    import numpy

    def pack(folder, out):
        rows = list_tree(folder)
        with h5py.File(out, "w") as f:
            images = f.create_dataset("images", (len(rows),), h5py.vlen_dtype(numpy.uint8))
            f["label"] = numpy.array([label for _, label in rows], numpy.int32)
            for i, (path, _) in enumerate(rows):
                with open(path, "rb") as file:
                    images[i] = numpy.frombuffer(file.read(), numpy.uint8)
        return len(rows)

    return best_packing(pack, folder, out)


def h5py_pack_bytes(folder, out):
    import h5py
    import numpy

    def pack(folder, out):
        rows, blobs = list_tree(folder), []
        for path, _ in rows:
            with open(path, "rb") as file:
                blobs.append(file.read())
        with h5py.File(out, "w") as f:
            f["bytes"] = numpy.frombuffer(b"".join(blobs), numpy.uint8)
            f["offset"] = numpy.cumsum([0] + [len(blob) for blob in blobs])
            f["label"] = numpy.array([label for _, label in rows], numpy.int32)
        return len(rows)

    return best_packing(pack, folder, out)


def main():
    name, kind, folder, last = sys.argv[1:5]
    peers = {"torch raw": torch_raw, "torch jpeg": torch_jpeg, "h5py raw": h5py_raw}
    peers.update({"ffcv jpeg": ffcv_jpeg, "dali jpeg": dali_jpeg})
    peers.update({"h5py pack-pixels": h5py_pack_pixels, "h5py pack-vlen": h5py_pack_vlen})
    peers["h5py pack-bytes"] = h5py_pack_bytes
    try:
        rate = peers[name + " " + kind](folder, last if kind.startswith("pack") else int(last))
    except ModuleNotFoundError as missing:
        print(f"{name}: no package {missing.name}", file=sys.stderr)
        return 1
    print(f"{rate:.0f}", flush=True)
    os._exit(0)  # ffcv's threads would wait for ever


if __name__ == "__main__":
    sys.exit(main())
