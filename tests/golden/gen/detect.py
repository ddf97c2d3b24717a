"""Detection: box overlap, NMS, SimOTA and the YOLOX loss, COCO average precision."""
import contextlib
import io
import json

import numpy as np
import torch
import torch.nn.functional as F
from torchvision import ops

from . import formula, nets, record


def boxes(name, n, extent, seed):
    """x1 y1 x2 y2 with centre in [0.25, 0.75) extent and sides in [0.05, 0.55) extent; f32."""
    u = formula.uniform(name, (n, 4), seed) + 0.5
    centre, side = (0.25 + 0.5 * u[:, :2]) * extent, (0.05 + 0.5 * u[:, 2:]) * extent
    return np.hstack([centre - side / 2, centre + side / 2]).astype(np.float32)


def make_overlap(case, seed):
    hand = np.array(case["hand"], np.float32)
    pairs = {"formula": (boxes("iou.a", case["a"], 100, seed), boxes("iou.b", case["b"], 100, seed)),
             "hand": (hand, hand)}
    out = {"config": case, "rules": {"boxes": boxes.__doc__ + " Stored below as x1 y1 x2 y2",
                                     "iou": "inter / union", "giou": "iou - (hull - union)/hull"}}
    for name, (a, b) in pairs.items():
        low, high = [(torch.from_numpy(a).to(d), torch.from_numpy(b).to(d)) for d in (torch.float32,
            torch.float64)]
        out[name] = {"a": record.numbers(a, record.F32), "b": record.numbers(b, record.F32),
                     "iou": record.full(ops.box_iou(*low), ops.box_iou(*high)),
                     "giou": record.full(ops.generalized_box_iou(*low), ops.generalized_box_iou(*high))}
    return out


def make_nms(case, seed):
    n, k = case["n"], case["classes"]
    few = boxes("nms.boxes", -(-n // case["copies"]), case["extent"], seed)
    side = np.hstack([few[:, 2:] - few[:, :2]] * 2)
    shift = formula.uniform("nms.jitter", (n, 4), seed)
    b = np.array([few[i % len(few)] + case["jitter"] * side[i % len(few)] * shift[i] for i in range(n)],
                 np.float32)
    scores = (formula.uniform("nms.scores", (n,), seed) + 0.5).astype(np.float32)
    classes = formula.labels("nms.classes", n, k, seed).numpy()
    tb, ts = torch.from_numpy(b), torch.from_numpy(scores)
    iou = ops.box_iou(tb.double(), tb.double()).numpy()
    out = {"config": case, "boxes": record.numbers(b, record.F32), "scores": record.numbers(scores,
        record.F32),
           "classes": classes.tolist(),
           "rules": {"nms": "by falling score; a box is dropped if its IoU with a kept box (of its class, if class-aware) is > threshold",
                     "kept": "indices by falling score", "nearest": "smallest |IoU - threshold| over all pairs"},
           "results": {}}
    for threshold in case["thresholds"]:
        kept = []
        for c in range(k):
            index = np.nonzero(classes == c)[0]
            kept += index[ops.nms(tb[index], ts[index], threshold).numpy()].tolist()
        kept.sort(key=lambda i: -scores[i])
        out["results"][f"{threshold:g}"] = {"class_aware": kept, "agnostic": ops.nms(tb, ts,
            threshold).tolist(),
                                            "nearest": float(f"{np.abs(iou - threshold).min():.3g}")}
    return out


def cxcywh_iou(a, b):
    """a (G,4), b (A,4) as cx cy w h -> (G,A)."""
    tl = torch.max(a[:, None, :2] - a[:, None, 2:] / 2, b[:, :2] - b[:, 2:] / 2)
    br = torch.min(a[:, None, :2] + a[:, None, 2:] / 2, b[:, :2] + b[:, 2:] / 2)
    inter = (br - tl).clamp(min=0).prod(2)
    return inter / (a[:, 2:].prod(1)[:, None] + b[:, 2:].prod(1) - inter)


def assign(gt, gt_class, box, cls, obj, centre, stride, rule):
    """SimOTA of one image. Returns candidates, fg anchors, their GT, their IoU, k per GT, cost."""
    delta = (centre[None] - gt[:, None, :2]).abs()
    if rule == "centre_1.5":
        inside = (delta < 1.5 * stride[None, :, None]).all(2)
        candidate = inside.any(0)
        penalty = 1e6
    else:  # v0.3.0: in the box or within 2.5 strides of the centre; geometry wants both
        in_box = (delta < gt[:, None, 2:] / 2).all(2)
        in_centre = (delta < 2.5 * stride[None, :, None]).all(2)
        candidate, inside = in_box.any(0) | in_centre.any(0), in_box & in_centre
        penalty = 1e5
    index = candidate.nonzero().flatten()
    iou = cxcywh_iou(gt, box[index])
    p = (cls[index].sigmoid() * obj[index].sigmoid()).sqrt()
    onehot = F.one_hot(gt_class, cls.shape[1]).to(p.dtype)
    bce = F.binary_cross_entropy(p[None].expand(len(gt), -1, -1), onehot[:, None].expand(-1, len(index), -1),
                                 reduction="none").sum(2)
    cost = bce + 3 * -torch.log(iou + 1e-8) + penalty * ~inside[:, index]
    ks = torch.topk(iou, min(10, iou.shape[1]), 1)[0].sum(1).int().clamp(min=1).tolist()
    match = torch.zeros_like(cost, dtype=torch.bool)
    for g, k in enumerate(ks):
        match[g, torch.topk(cost[g], k, largest=False)[1]] = True
    contested = match.sum(0) > 1
    best = cost.argmin(0)
    match[:, contested] = False
    match[best[contested], contested] = True
    fg = match.any(0)
    owner = match[:, fg].int().argmax(0)
    return {"candidates": index, "fg": index[fg], "gt": owner, "iou": iou[owner, fg.nonzero().flatten()],
            "k": ks,
            "cost": cost, "contested": index[contested]}


def losses(case, seed, dtype, rule, use_l1):
    torch.set_default_dtype(dtype)
    size, strides, k = case["size"], [8, 16, 32], case["classes"]
    batch = len(case["truth"])
    raws, outs, centres, stride = [], [], [], []
    for level, s in enumerate(strides):
        h, w = size[0] // s, size[1] // s
        raw = formula.affine(f"loss.raw{level}", (batch, 5 + k, h, w), seed, 0.0, case["b"])
        raw[:, :4] = formula.affine(f"loss.raw{level}", (batch, 5 + k, h, w), seed, *case["reg"])[:, :4]
        raws.append(torch.from_numpy(raw).to(dtype).requires_grad_(True))
        y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack([x, y], 2).view(-1, 2).to(dtype)
        flat = raws[-1].flatten(2).transpose(1, 2)
        outs.append(torch.cat([(flat[..., :2] + grid) * s, torch.exp(flat[..., 2:4]) * s, flat[..., 4:]], 2))
        centres.append((grid + 0.5) * s)
        stride.append(torch.full((h * w,), float(s)))
    out, centre, stride = torch.cat(outs, 1), torch.cat(centres), torch.cat(stride)
    raw_reg = torch.cat([r.flatten(2).transpose(1, 2)[..., :4] for r in raws], 1)
    total = {"iou": 0.0, "obj": 0.0, "cls": 0.0, "l1": 0.0}
    found, count = [], 0
    for i, truth in enumerate(case["truth"]):
        target = torch.zeros(out.shape[1])
        if truth:
            table = torch.tensor(truth)
            gt, gt_class = table[:, 1:].to(dtype), table[:, 0].long()
            with torch.no_grad():
                a = assign(gt, gt_class, out[i, :, :4], out[i, :, 5:], out[i, :, 4:5], centre, stride, rule)
            found.append(a)
            fg, goal = a["fg"], gt[a["gt"]]
            count += len(fg)
            target[fg] = 1
            b = out[i, fg, :4]
            tl = torch.max(b[:, :2] - b[:, 2:] / 2, goal[:, :2] - goal[:, 2:] / 2)
            br = torch.min(b[:, :2] + b[:, 2:] / 2, goal[:, :2] + goal[:, 2:] / 2)
            inter = (br - tl).prod(1) * (tl < br).all(1)
            iou = inter / (b[:, 2:].prod(1) + goal[:, 2:].prod(1) - inter + 1e-16)
            total["iou"] = total["iou"] + (1 - iou**2).sum()
            want = F.one_hot(gt_class[a["gt"]], k) * a["iou"][:, None]
            total["cls"] = total["cls"] + F.binary_cross_entropy_with_logits(out[i, fg, 5:], want,
                reduction="sum")
            s = stride[fg][:, None]
            l1 = torch.cat([goal[:, :2] / s - (centre[fg] / s - 0.5), torch.log(goal[:, 2:] / s + 1e-8)], 1)
            total["l1"] = total["l1"] + (raw_reg[i, fg] - l1).abs().sum()
        else:
            found.append(None)
        total["obj"] = total["obj"] + F.binary_cross_entropy_with_logits(out[i, :, 4], target,
            reduction="sum")
    n = max(count, 1)
    parts = {"iou": 5 * total["iou"] / n, "obj": total["obj"] / n, "cls": total["cls"] / n}
    if use_l1:
        parts["l1"] = total["l1"] / n
    whole = sum(parts.values())
    whole.backward()
    return {"total": whole, **parts}, [r.grad for r in raws], found, n, raws


def package_losses(case, raws, use_l1):
    """The same total by the yolox package (its v0.3.0 rule)."""
    head = nets.yolox("s", case["classes"]).head.train()
    head.use_l1 = use_l1
    n = max(len(t) for t in case["truth"])
    label = torch.zeros(len(case["truth"]), n, 5)
    for i, truth in enumerate(case["truth"]):
        if truth:
            label[i, :len(truth)] = torch.tensor(truth)
    outputs, xs, ys, ss, origin = [], [], [], [], []
    for k, (raw, s) in enumerate(zip(raws, head.strides)):
        raw = raw.detach()
        if use_l1:
            origin.append(raw[:, :4].flatten(2).transpose(1, 2).clone())
        out, grid = head.get_output_and_grid(raw.clone(), k, s, raw.type())
        outputs.append(out)
        xs.append(grid[:, :, 0])
        ys.append(grid[:, :, 1])
        ss.append(torch.full((1, grid.shape[1]), float(s)))
    return head.get_losses(None, xs, ys, ss, label, torch.cat(outputs, 1), origin, raws[0].dtype)


def make_loss(case, seed):
    out = {"config": case,
           "rules": {"raw": "level l, stride 8*2^l: loss.raw{l}, shape (N, 5+C, H/s, W/s), channels reg4, obj, cls; (a, b) = reg in the reg channels, else (0, b)",
                     "truth": "per image: rows of class cx cy w h in pixels", "anchors": "level by level, row-major",
                     "centre_1.5": "candidates and geometry: cell centre within 1.5 strides of the GT centre in x and y; penalty 1e6",
                     "v0.3.0": "candidates: centre in the box, or within 2.5 strides; geometry: both; penalty 1e5",
                     "cost": "sum_cls BCE(sqrt(sig(cls) sig(obj)), onehot) + 3*(-log(IoU + 1e-8)) + penalty*(not geometry)",
                     "loss": "5 sum(1-IoU^2)/N + sum BCE(obj)/N + sum BCE(cls, onehot*IoU)/N [+ L1/N]; N = max(fg, 1) over the batch"},
           "results": {}}
    for rule in ("centre_1.5", "v0.3.0"):
        for use_l1 in (False, True):
            low = losses(case, seed, torch.float32, rule, use_l1)
            high = losses(case, seed, torch.float64, rule, use_l1)
            assigned = []
            for a, b in zip(low[2], high[2]):
                if b is None:
                    assigned.append(None)
                    continue
                if a["fg"].tolist() != b["fg"].tolist() or a["gt"].tolist() != b["gt"].tolist():
                    raise ValueError("f32 and f64 assign differently: choose other truth")
                assigned.append({"candidates": len(b["candidates"]), "k": b["k"],
                                 "contested": b["contested"].tolist(),
                                 "fg": b["fg"].tolist(), "gt": b["gt"].tolist(), "iou": record.full(a["iou"],
                                     b["iou"])})
            if rule == "v0.3.0":
                torch.set_default_dtype(torch.float32)
                theirs = package_losses(case, low[4], use_l1)
                if abs(float(theirs[0]) / float(low[0]["total"].detach()) - 1) > 1e-5:
                    raise ValueError(f"the yolox package disagrees: {float(theirs[0])} {float(low[0]['total'])}")
            torch.set_default_dtype(torch.float32)
            entry = {"fg_total": high[3], "assignment": assigned,
                     "loss": {key: record.scalar(low[0][key], high[0][key]) for key in high[0]},
                     "grads": {f"raw{k}": record.summary(f"loss.raw{k}", a, b, seed, 8)
                               for k, (a, b) in enumerate(zip(low[1], high[1]))}}
            if not use_l1 and rule == "centre_1.5":
                entry["grads_full"] = {f"raw{k}": record.full(a, b) for k,
                                       (a, b) in enumerate(zip(low[1], high[1]))}
            out["results"][rule + ("_l1" if use_l1 else "")] = entry
    return out


def detections(truth, seed, share):
    """COCO result rows by formula: jittered copies of annotations, some of a wrong class, and strays; scores
    have ties."""
    rows = []
    categories = sorted({a["category_id"] for a in truth["annotations"]})
    images = {i["id"]: i for i in truth["images"]}
    for a in sorted(truth["annotations"], key=lambda a: a["id"]):
        u = formula.uniform(f"det.{a['id']}", (10,), seed) + 0.5
        if u[0] > share:
            continue
        x, y, w, h = a["bbox"]
        spread = 0.5 * u[8]
        w2, h2 = w * (1 + spread * (u[3] - 0.5)), h * (1 + spread * (u[4] - 0.5))
        box = [x + spread * w * (u[1] - 0.5), y + spread * h * (u[2] - 0.5), w2, h2]
        category = categories[int(u[6] * len(categories))] if u[5] < 0.08 else a["category_id"]
        rows.append(dict(image_id=a["image_id"], category_id=category, bbox=[round(v, 2) for v in box],
                         score=round(u[7], 2)))
        if u[9] < 0.2:  # a second, worse box
            rows.append(dict(image_id=a["image_id"], category_id=category,
                             bbox=[round(v * f, 2) for v,
                                   f in zip(box, (1.02, 0.98, 0.9, 1.1))], score=round(u[7] * 0.8, 2)))
    for index, image in enumerate(sorted(images)):
        for k in range(4):
            u = formula.uniform(f"stray.{index}.{k}", (6,), seed) + 0.5
            w, h = (0.05 + 0.5 * u[2]) * images[image]["width"], (0.05 + 0.5 * u[3]) * images[image]["height"]
            rows.append(dict(image_id=image, category_id=categories[int(u[4] * len(categories))],
                             bbox=[round(u[0] * 0.5 * images[image]["width"], 2),
                                   round(u[1] * 0.5 * images[image]["height"], 2),
                                   round(w, 2), round(h, 2)], score=round(u[5] * 0.6, 2)))
    return rows


STATS = ["AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large", "AR1", "AR10", "AR100", "AR_small",
         "AR_medium", "AR_large"]


def make_coco(case, data, seed):
    from importlib.metadata import version
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval
    path = data / case["annotations"]
    truth = json.loads(path.read_text())
    rows = detections(truth, seed, case["share"])
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(path))
        found = coco.loadRes(rows)
        run = COCOeval(coco, found, "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    precision = run.eval["precision"]  # (iou, recall, category, area, maxdets)

    def mean(values):
        values = values[values > -1]
        return record.number(values.mean() if values.size else -1.0)

    per = {str(c): {"AP": mean(precision[:, :, i, 0, 2]), "AP50": mean(precision[0, :, i, 0, 2])}
           for i, c in enumerate(run.params.catIds)}
    return {"config": case, "software": {"pycocotools": version("pycocotools")},
            "rules": {"detections": "the rows below in this order; many scores tie, and ties keep their order (stable sort)",
                      "AP": "-1 where no annotation counts"},
            "stats": {n: record.number(v) for n, v in zip(STATS, run.stats)},
            "per_iou_AP": {f"{t:.2f}": mean(precision[i, :, :, 0, 2]) for i,
                           t in enumerate(run.params.iouThrs)},
            "per_category": {k: v for k, v in per.items() if v["AP"] != "-1"},
            "detections": [record.Text(json.dumps(r)) for r in rows]}
