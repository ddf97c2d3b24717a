"""Lists every golden file with its maker."""
from functools import partial


def jobs(cases, data):
    """(file stem, maker(seed)) in the order of making."""
    from . import delayed, detect, images, inventory, models, ops, optim, second, train
    def with_input(stem, case):
        return {**case, "input": cases.INPUTS[stem]} if stem in cases.INPUTS else case

    out = [(f"models/{n}", partial(models.make, with_input(f"models/{n}", c))) for n,
           c in cases.MODELS.items()]
    out += [(f"ops/{n}", partial(ops.make, n, c)) for n, c in ops.table(cases.OPS).items()]
    out += [(f"train/{n}", partial(train.make, with_input(f"train/{n}", c))) for n, c in cases.TRAIN.items()]
    out += [(f"delayed/{n}", partial(delayed.make, with_input(f"delayed/{n}", c))) for n,
            c in cases.DELAYED.items()]
    out += [(f"optim/{n}", partial(optim.make, c, cases.OPTIM_SIZES)) for n, c in cases.OPTIM.items()]
    out += [("optim/schedules", partial(optim.make_schedules, cases.SCHEDULES)),
            ("optim/kfac", partial(second.make_kfac, cases.KFAC)),
            ("optim/adasum", partial(second.make_adasum, cases.ADASUM)),
            ("images/photos", partial(images.make_photos, cases.IMAGES, data)),
            ("images/mixing", partial(images.make_mixing, cases.MIXING)),
            ("models/inventory", partial(inventory.make, cases.INVENTORY)),
            ("detect/overlap", partial(detect.make_overlap, cases.OVERLAP)),
            ("detect/nms", partial(detect.make_nms, cases.NMS)),
            ("detect/yolox_loss", partial(detect.make_loss, cases.YOLOX_LOSS))]
    out += [(f"images/{n}", partial(images.make_photos, c, data / c["root"]))
            for n, c in getattr(cases, "MORE_IMAGES", {}).items()]
    out += [(f"detect/{n}", partial(detect.make_coco, c, data)) for n, c in cases.COCO.items()]
    return out
