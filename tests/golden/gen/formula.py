"""The number formula: every weight, input and label follows from (name, index, seed)."""
import math

import numpy as np
import torch

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def fnv1a64(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def bits(name, n, seed):
    """n values of z (uint64) for the tensor called name."""
    base = fnv1a64(name) ^ ((seed * GOLDEN) & MASK)
    with np.errstate(over="ignore"):
        z = np.uint64(base) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(GOLDEN)
        z ^= z >> np.uint64(30)
        z *= np.uint64(0xBF58476D1CE4E5B9)
        z ^= z >> np.uint64(27)
        z *= np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return z


def uniform(name, shape, seed):
    """u in [-0.5, 0.5), a multiple of 2^-24: exact in f32 (returned as f64)."""
    n = math.prod(shape)
    return (((bits(name, n, seed) >> np.uint64(40)).astype(np.float64)) * 2.0**-24 - 0.5).reshape(shape)


def affine(name, shape, seed, a=0.0, b=1.0):
    """f32(a + b*u): a and b are first rounded to f32, then the sum is formed in f64 and rounded once to
    f32."""
    return (float(np.float32(a)) + float(np.float32(b)) * uniform(name, shape, seed)).astype(np.float32)


UNIT = 2 * math.sqrt(3)  # b that gives variance 1


def coefficients(name, shape, gain):
    """(a, b) of a state-dict entry, by its kind."""
    if name.endswith("relative_position_bias_table"):
        return 0.0, 0.5
    if name.endswith("layer_scale"):
        return 0.5, 0.2
    if name.endswith("running_mean"):
        return 0.0, 0.2
    if name.endswith("running_var"):
        return 1.0, 0.5
    if name.endswith("bias"):
        return 0.0, 0.2
    if len(shape) == 1:
        return 1.0, 0.2
    return 0.0, UNIT * math.sqrt(gain / math.prod(shape[1:]))


def parameter(name, shape, seed, gain=1.0):
    return affine(name, shape, seed, *coefficients(name, tuple(shape), gain))


def fill(model, seed, gain=1.0, norm_bias=0.0):
    """Sets every floating entry of the state dict by the formula; num_batches_tracked becomes 0.

    norm_bias is the a of batch normalisation biases."""
    with torch.no_grad():
        state = model.state_dict()
        for name, entry in state.items():
            if norm_bias and name.endswith(".bias") and name[:-4] + "running_mean" in state:
                entry.copy_(torch.from_numpy(affine(name, tuple(entry.shape), seed, norm_bias, 0.2)))
            elif entry.is_floating_point():
                entry.copy_(torch.from_numpy(parameter(name, tuple(entry.shape), seed, gain)))
            elif name.endswith("num_batches_tracked"):
                entry.zero_()
    return model


def unit_input(name, shape, seed, dtype=torch.float64):
    return torch.from_numpy(affine(name, tuple(shape), seed, 0.0, UNIT)).to(dtype)


def labels(name, n, classes, seed):
    return torch.from_numpy((bits(name, n, seed) % np.uint64(classes)).astype(np.int64))
