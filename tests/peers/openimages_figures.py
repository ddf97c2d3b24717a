#!/usr/bin/env python3
"""Writes tests/golden_openimages.h: Open Images Challenge's average precision of drawn boxes. Usage:
openimages_figures.py > tests/golden_openimages.h   (numpy)

The rules are those of the TensorFlow Object Detection API's per_image_evaluation.py,
object_detection_evaluation.py (group_of_weight 1, matching
IoU .5), metrics.py and oid_hierarchical_labels_expansion.py, put down again from their description: matrices
of overlaps, arg-max a row, flags of what
a result is matched to. Boxes follow from a formula that the test has too."""
import numpy as np

IMAGES, CLASSES = 12, 6
PARENTS = {3: [1, 0], 4: [1, 0], 1: [0], 5: [2]}  # the kinds of whose they are; 0 and 2 are top


def draw(i):
    mask = (1 << 64) - 1
    z = (i + 1) * 0x9E3779B97F4A7C15 & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return (z ^ z >> 31) >> 32


def boxes(case):
    """truth: image, class, box, difficult, group; found: image, class, box, score; verified: image, class,
    positive. Boxes x0 y0 x1 y1."""
    truth, found, verified, n = [], [], [], case * 100000
    for image in range(IMAGES):
        for k in range(draw(n) % 5):
            d = [draw(n + 10 + 20 * k + j) for j in range(8)]
            box = [d[0] % 40, d[1] % 40, d[0] % 40 + 10 + d[2] % 30, d[1] % 40 + 10 + d[3] % 30]
            group = d[5] % 4 == 0
            truth.append((image, d[4] % CLASSES, box, d[6] % 7 == 0 and not group, group))
            for r in range(d[7] % 4):  # results near it
                e = [draw(n + 1000 + 100 * k + 10 * r + j) for j in range(6)]
                near = [box[0] + e[0] % 5, box[1] + e[1] % 5, box[2] + e[2] % 5 - (e[5] % 2) * 5,
                        box[3] + e[3] % 5 - (e[5] % 2) * 5]
                found.append((image, d[4] % CLASSES if e[4] % 5 else (d[4] + 1) % CLASSES, near,
                              (e[4] % 997 + 1) / 1000))
        for k in range(draw(n + 1) % 4):
            verified.append((image, draw(n + 500 + k) % CLASSES, draw(n + 600 + k) % 2 == 1))
        n += 5000
    return truth, found, verified


def expand(truth, found, verified):
    up = lambda c: [c] + PARENTS.get(c, [])
    down = lambda c: [c] + [k for k, v in PARENTS.items() if c in v]
    return ([(i, a, b, d, g) for i, c, b, d, g in truth for a in up(c)], [(i, a, b, s) for i, c, b,
        s in found for a in up(c)],
            [(i, a, p) for i, c, p in verified for a in (up(c) if p else down(c))])


def area(b):
    return (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])


def intersection(a, b):
    w = np.minimum(a[:, None, 2], b[None, :, 2]) - np.maximum(a[:, None, 0], b[None, :, 0])
    h = np.minimum(a[:, None, 3], b[None, :, 3]) - np.maximum(a[:, None, 1], b[None, :, 1])
    return np.maximum(w, 0) * np.maximum(h, 0)


def judge_image(det, score, gt, difficult, group):
    order = np.argsort(-score, kind="stable")
    det, score = det[order], score[order]
    one, grp, hard = gt[~group], gt[group], difficult[~group]
    tp, to_hard, to_group = (np.zeros(len(det), bool) for _ in range(3))
    if len(one):
        both = intersection(det, one)
        iou = both / (area(det)[:, None] + area(one)[None] - both)
        seen = np.zeros(len(one), bool)
        for i, g in enumerate(iou.argmax(1)):
            if iou[i, g] < .5:
                continue
            if hard[g]:
                to_hard[i] = True
            elif not seen[g]:
                tp[i] = seen[g] = True
    best = np.zeros(len(grp))
    if len(grp):
        ioa = intersection(det, grp) / area(det)[:, None]
        for i, g in enumerate(ioa.argmax(1)):
            if not tp[i] and not to_hard[i] and ioa[i, g] >= .5:
                to_group[i] = True
                best[g] = max(best[g], score[i])
    keep = ~to_hard & ~to_group
    return np.concatenate([score[keep], best[best > 0]]), np.concatenate([tp[keep].astype(float),
        np.ones((best > 0).sum())])


def average_precision(score, tp, wanted):
    tp = tp[np.argsort(-score, kind="stable")]
    hits = np.cumsum(tp)
    precision, recall = hits / np.arange(1, len(tp) + 1), hits / wanted
    recall, precision = np.concatenate([[0], recall, [1]]), np.concatenate([[0], precision, [0]])
    for i in range(len(precision) - 2, -1, -1):
        precision[i] = max(precision[i], precision[i + 1])
    at = np.where(recall[1:] != recall[:-1])[0] + 1
    return float(((recall[at] - recall[at - 1]) * precision[at]).sum())


def evaluate(truth, found, verified):
    looked = {(i, c) for i, c, *_ in truth} | {(i, c) for i, c, _ in verified}
    ap = []
    for c in range(CLASSES):
        own = [t for t in truth if t[1] == c]
        wanted, score, tp = sum(not t[3] for t in own), [np.zeros(0)], [np.zeros(0)]
        for image in range(IMAGES):
            d = [f for f in found if f[0] == image and f[1] == c and (image, c) in looked]
            if not d:
                continue
            g = [t for t in own if t[0] == image]
            a, b = judge_image(np.array([f[2] for f in d], float), np.array([f[3] for f in d]),
                               np.array([t[2] for t in g], float).reshape(-1, 4),
                               np.array([t[3] for t in g], bool), np.array([t[4] for t in g], bool))
            score.append(a), tp.append(b)
        ap.append(average_precision(np.concatenate(score), np.concatenate(tp), wanted) if wanted else -1.0)
    return ap, float(np.mean([a for a in ap if a >= 0]))


print("/* Written by tests/peers/openimages_figures.py: of each case whether the hierarchy is used, truths, "
    "results, labels, AP of every class, their mean. */")
print("#ifndef TESTS_GOLDEN_OPENIMAGES_H\n#define TESTS_GOLDEN_OPENIMAGES_H\n\nenum { GOLDEN_IMAGES = %d, "
    "GOLDEN_CLASSES = %d };" % (IMAGES, CLASSES))
print("static const struct { int number, tree, truths, founds, labels; double ap[GOLDEN_CLASSES], mean; } "
    "golden_openimages[] = {")
for case in range(4):
    for tree in (0, 1):
        lists = boxes(case)
        ap, mean = evaluate(*(expand(*lists) if tree else lists))
        print("    {%d, %d, %d, %d, %d, {%s}, %.15g}," % (case, tree, *map(len, lists),
                                                          ", ".join("%.15g" % a for a in ap), mean))
print("};\n\n#endif")
