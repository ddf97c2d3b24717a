#!/usr/bin/env python3
"""Writes tests/golden_image_ap.h: average precision of image labels by scikit-learn. Usage:
image_ap_figures.py > tests/golden_image_ap.h

Scores and labels follow from a formula that the test has too, so only scikit-learn's figures are stored."""
import numpy as np
import sklearn
from sklearn.metrics import average_precision_score

# samples, classes, different scores, unknown: every so many
CASES = [(40, 5, 7, 0), (200, 12, 100000, 0), (64, 3, 4, 3), (30, 8, 1000, 2)]


def draw(i):
    """splitmix64, upper 32 bits"""
    mask = (1 << 64) - 1
    z = (i + 1) * 0x9E3779B97F4A7C15 & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return (z ^ z >> 31) >> 32


def case(samples, classes, levels, unknown):
    score, label = np.zeros((samples, classes), np.float32), np.zeros((samples, classes), int)
    for n in range(samples):
        for c in range(classes):
            i = n * classes + c
            label[n, c] = 1 if draw(3 * i) % (c + 2) == 0 and c else 0  # class 0 has no positive
            score[n, c] = (draw(3 * i + 1) % levels + label[n, c] * (levels // 3)) / np.float32(1024)
            if unknown and draw(3 * i + 2) % unknown == 0:
                label[n, c] = -1
    return score, label


print("/* Written by tests/peers/image_ap_figures.py with scikit-learn %s: samples, classes, levels, "
    "unknown; macro over classes with a positive; micro. */" % sklearn.__version__)
print("#ifndef TESTS_GOLDEN_IMAGE_AP_H\n#define TESTS_GOLDEN_IMAGE_AP_H\n")
print("static const struct { int samples, classes, levels, unknown; double macro, micro, of_class[12]; } "
    "golden_image_ap[] = {")
for samples, classes, levels, unknown in CASES:
    score, label = case(samples, classes, levels, unknown)
    known = label >= 0
    own = [average_precision_score(label[known[:, c], c], score[known[:, c], c])
           if (label[known[:, c], c] > 0).any() else -1.0 for c in range(classes)]
    macro = np.mean([a for a in own if a >= 0])
    micro = average_precision_score(label[known], score[known])
    if not unknown:
        shown = [c for c in range(classes) if label[:, c].any()]
        assert abs(macro - average_precision_score(label[:, shown], score[:, shown], average="macro")) < 1e-12
        assert abs(micro - average_precision_score(label, score, average="micro")) < 1e-12
    print("    {%d, %d, %d, %d, %.15g, %.15g, {%s}}," % (samples, classes, levels, unknown, macro, micro,
                                                         ", ".join("%.15g" % a for a in own)))
print("};\n\n#endif")
