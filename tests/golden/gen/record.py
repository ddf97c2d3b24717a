"""What a golden file looks like: full tensors, summaries, and a JSON writer with stated float formats."""
import json

import numpy as np

from . import formula

F32, F64 = "%.9g", "%.17g"


class Text(str):
    """A ready piece of JSON."""


def numbers(values, form):
    out = [form % v for v in np.asarray(values, dtype=np.float64).ravel()]
    if any("n" in t for t in out):
        raise ValueError("a value is not finite")
    return Text("[" + ",".join(out) + "]")


def number(value, form=F64):
    if not np.isfinite(value):
        raise ValueError("a value is not finite")
    return Text(form % value)


def array(tensor):
    return tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else np.asarray(tensor)


def distance(low, high):
    low, high = low.astype(np.float64), high.astype(np.float64)
    diff = low - high
    norm, top = np.linalg.norm(high.ravel()), np.abs(high).max(initial=0)
    return {"rel_l2": number(np.linalg.norm(diff.ravel()) / norm if norm else 0.0, "%.3g"),
            "rel_max": number(np.abs(diff).max(initial=0) / top if top else 0.0, "%.3g")}


def full(low, high):
    """Both results, whole, with their distance."""
    low, high = array(low), array(high)
    assert low.dtype == np.float32 and high.dtype == np.float64 and low.shape == high.shape
    return {"shape": list(high.shape), **distance(low, high), "f64": numbers(high, F64),
            "f32": numbers(low, F32)}


def full64(value):
    """A float64-only tensor (numpy arithmetic)."""
    value = np.asarray(value, dtype=np.float64)
    return {"shape": list(value.shape), "f64": numbers(value, F64)}


def summary(name, low, high, seed, first=4, short=False):
    """l2, sum, dot with the formula vector NAME.probe and the first values, for both results."""
    low, high = array(low), array(high)
    assert low.dtype == np.float32 and high.dtype == np.float64 and low.shape == high.shape
    probe = formula.uniform(name + ".probe", (high.size,), seed)

    def of(value, form):
        flat = value.astype(np.float64).ravel()
        out = {"l2": number(np.sqrt((flat * flat).sum()))}
        if not short:
            out["sum"] = number(flat.sum())
        out["dot"] = number((flat * probe).sum())
        if first:
            out["first"] = numbers(flat[:first], form)
        return out

    return {"shape": list(high.shape), **distance(low, high), "f64": of(high, F64), "f32": of(low, F32)}


def scalar(low, high):
    low, high = float(array(low)), float(array(high))
    return {"rel": number(abs(low - high) / abs(high) if high else abs(low), "%.3g"),
            "f64": number(high), "f32": number(low, F32)}


def dump(value, depth=0):
    """JSON text: one line for small things, one line per entry for large dicts."""
    if isinstance(value, Text):
        return value
    if isinstance(value, dict):
        parts = [json.dumps(str(k)) + ":" + dump(v, depth + 1) for k, v in value.items()]
        inside = sum(map(len, parts))
        if inside < 400:
            return "{" + ", ".join(parts) + "}"
        pad = " " * depth
        return "{\n" + ",\n".join(pad + " " + p for p in parts) + "\n" + pad + "}"
    if isinstance(value, (list, tuple)):
        parts = [dump(v, depth + 1) for v in value]
        if sum(map(len, parts)) < 400 or all(not isinstance(v, (dict, list, tuple, Text)) for v in value):
            return "[" + ",".join(parts) + "]"
        pad = " " * depth
        return "[\n" + ",\n".join(pad + " " + p for p in parts) + "\n" + pad + "]"
    if isinstance(value, (float, np.floating)):
        return json.dumps(float(value), allow_nan=False)
    if isinstance(value, np.integer):
        return str(int(value))
    return json.dumps(value)


def save(path, record):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = dump(record) + "\n"
    json.loads(text)
    path.write_text(text)
    return len(text)
