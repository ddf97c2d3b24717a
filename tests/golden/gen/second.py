"""K-FAC and Adasum in float64 numpy."""
import numpy as np
import torch
import torch.nn.functional as F

from . import formula, record

SCALINGS = {
    "osawa": "A = (1/B) sum over b,s of a a^T; G = (1/(B S)) sum (B g)(B g)^T; linear: S = 1",
    "sc20": "A = (1/B) sum (a/S)(a/S)^T; G = (1/(B S)) sum (B S g)(B S g)^T; linear: S = 1, so G = B sum g g^T",
    "kaisa": "A = (1/(B S)) sum (a/S)(a/S)^T; G = (1/(B S)) sum (g/S)(g/S)^T; linear: S = 1",
}


def factors(a, g, batch, spatial, scaling):
    """a (B*S, in[+1]), g (B*S, out): rows are samples and positions; g is the gradient of the mean loss."""
    if scaling == "osawa":
        return a.T @ a / batch, (batch * g).T @ (batch * g) / (batch * spatial)
    if scaling == "sc20":
        return (a / spatial).T @ (a / spatial) / batch, (batch * spatial * g).T @ (batch * spatial * g) / (batch * spatial)
    return (a / spatial).T @ (a / spatial) / (batch * spatial), (g / spatial).T @ (g / spatial) / (batch * spatial)


def eigen(A, G, grad, damping):
    da, qa = np.linalg.eigh(A)
    dg, qg = np.linalg.eigh(G)
    da, dg = np.maximum(da, 0), np.maximum(dg, 0)
    return qg @ ((qg.T @ grad @ qa) / (np.outer(dg, da) + damping)) @ qa.T


def inverse(A, G, grad, damping):
    return np.linalg.solve(G + damping * np.eye(len(G)), grad) @ np.linalg.inv(A + damping * np.eye(len(A)))


def tikhonov(A, G, grad, damping):
    pi = np.sqrt((np.trace(A) / len(A)) / (np.trace(G) / len(G)))
    root = np.sqrt(damping)
    return np.linalg.solve(G + root / pi * np.eye(len(G)),
                           grad) @ np.linalg.inv(A + pi * root * np.eye(len(A)))


def layer(name, spec, seed, step):
    """Runs one layer and a linear loss; returns (a rows, g rows, weight gradient [out, in(+1)], B, S)."""
    d = torch.float64
    x = torch.from_numpy(formula.affine(f"{name}.x.{step}", tuple(spec["x"]), seed, 0.2, formula.UNIT)).to(d)
    w = torch.from_numpy(formula.parameter(f"{name}.weight", tuple(spec["w"]),
                                           seed)).to(d).requires_grad_(True)
    bias = torch.zeros(spec["w"][0], dtype=d, requires_grad=True) if spec["bias"] else None
    batch = spec["x"][0]
    if len(spec["w"]) == 2:
        y = F.linear(x, w, bias)
        rows = x.numpy()
        spatial = 1
    else:
        y = F.conv2d(x, w, bias, spec["stride"], spec["padding"])
        rows = F.unfold(x, spec["w"][2:], padding=spec["padding"], stride=spec["stride"]).transpose(1, 2)
        rows = rows.reshape(-1, rows.shape[2]).numpy()
        spatial = y.shape[2] * y.shape[3]
    y.retain_grad()
    dy = torch.from_numpy(formula.affine(f"{name}.dy.{step}", tuple(y.shape), seed, 0.0, formula.UNIT)).to(d)
    (y * dy / batch).sum().backward()
    g = y.grad if len(spec["w"]) == 2 else y.grad.permute(0, 2, 3, 1).reshape(-1, y.shape[1])
    grad = w.grad.reshape(spec["w"][0], -1).numpy()
    if spec["bias"]:
        rows = np.hstack([rows, np.ones((len(rows), 1))])
        grad = np.hstack([grad, bias.grad.numpy()[:, None]])
    return rows, g.numpy(), grad, batch, spatial


def make_kfac(case, seed):
    out = {"config": case,
           "rules": {
               "layer": "x = f32(0.2 + 2 sqrt(3) u) of LAYER.x.STEP, weight by the parameter formula of LAYER.weight (gain 1), bias 0, "
                        "loss = sum(y*dy)/B with dy of LAYER.dy.STEP (a=0, b=2 sqrt(3)); a row = im2col patch in (in_c, kh, kw) order, "
                        "bias column 1 last (sc20 and kaisa conv: the bias 1 is divided by S with the rest of a)",
               "scalings": SCALINGS,
               "eigen": "Q_G [ (Q_G^T grad Q_A) / (d_G d_A^T + damping) ] Q_A^T, eigenvalues clamped at 0",
               "inverse": "(G + damping I)^-1 grad (A + damping I)^-1",
               "tikhonov": "pi = sqrt((tr A/dim A)/(tr G/dim G)); (G + sqrt(damping)/pi I)^-1 grad (A + pi sqrt(damping) I)^-1",
               "average": "X = rho X + (1-rho) X_new, X = I at first; after steps 0 and 1; gradient of step 1",
               "kl_clip": "nu = min(1, sqrt(kappa / |sum over layers of sum(v*grad) * lr^2|)), v by the eigen rule with the averaged "
                          "kaisa factors",
           }, "layers": {}}
    totals = {}
    for name, spec in case["layers"].items():
        entry = {}
        first, second = layer(name, spec, seed, 0), layer(name, spec, seed, 1)
        for scaling in SCALINGS:
            A, G = factors(*first[:2], *first[3:], scaling)
            A2, G2 = factors(*second[:2], *second[3:], scaling)
            rho = case["rho"]
            averaged = [rho * (rho * np.eye(len(X)) + (1 - rho) * X) + (1 - rho) * Y for X,
                        Y in ((A, A2), (G, G2))]
            part = {"A": record.full64(A), "G": record.full64(G)}
            for rule in (eigen, inverse, tikhonov):
                for damping in case["damping"]:
                    part[f"{rule.__name__}_{damping:g}"] = record.full64(rule(A, G, first[2], damping))
                part[f"averaged_{rule.__name__}_{case['damping'][0]:g}"] = record.full64(
                    rule(*averaged, second[2], case["damping"][0]))
            part["averaged_A"], part["averaged_G"] = map(record.full64, averaged)
            entry[scaling] = part
            if scaling == "kaisa":
                totals[name] = float((eigen(*averaged, second[2], case["damping"][0]) * second[2]).sum())
        out["layers"][name] = {"gradient_step0": record.full64(first[2]),
                               "gradient_step1": record.full64(second[2]), **entry}
    total = sum(totals.values()) * case["lr"] ** 2
    out["kl_clip"] = {"sum": record.number(total),
                      "nu": record.number(min(1.0, np.sqrt(case["kappa"] / abs(total))))}
    return out


def pair(a, b):
    """(1 - ab/(2|a|^2)) a + (1 - ab/(2|b|^2)) b; a coefficient is 1 when its |.|^2 < sqrt(DBL_MIN)."""
    tiny = np.sqrt(np.finfo(np.float64).tiny)
    dot, aa, bb = a @ b, a @ a, b @ b
    return (1 - dot / (2 * aa) if aa >= tiny else 1.0) * a + (1 - dot / (2 * bb) if bb >= tiny else 1.0) * b


def doubling(vectors):
    """Powers of two: rank XOR 1, then XOR 2, XOR 4 ..."""
    while len(vectors) > 1:
        vectors = [pair(vectors[i], vectors[i + 1]) for i in range(0, len(vectors), 2)]
    return vectors[0]


def fold_high(vectors):
    """q = largest power of two <= n: v[q+i] is first combined into v[i], then doubling over q."""
    q = 1 << (len(vectors).bit_length() - 1)
    return doubling([pair(vectors[i], vectors[q + i]) if q + i < len(vectors) else vectors[i]
                     for i in range(q)])


def fold_adjacent(vectors):
    """r = n - q: v[2i+1] is first combined into v[2i] for i < r, then doubling over the q that remain in
    order."""
    n = len(vectors)
    q = 1 << (n.bit_length() - 1)
    r = n - q
    return doubling([pair(vectors[2 * i], vectors[2 * i + 1]) for i in range(r)] + list(vectors[2 * r:]))


def halves(vectors):
    """Adasum(halves of the first floor(n/2), halves of the rest)."""
    if len(vectors) == 1:
        return vectors[0]
    cut = len(vectors) // 2
    return pair(halves(vectors[:cut]), halves(vectors[cut:]))


def make_adasum(case, seed):
    out = {"config": case, "rules": {f.__name__: f.__doc__.strip() for f in (pair, doubling, fold_high,
        fold_adjacent, halves)},
           "vectors": "rank r: f32(2 sqrt(3) (u + c v)) with u of v.RANK, v of v.common, c = common, formed in f64, one rounding; "
                      "then split into layers of the given sizes. whole: the rule on the whole vector; per_layer: on each layer",
           "results": {}}
    n = sum(case["layers"])
    common = formula.uniform("v.common", (n,), seed)
    edges = np.cumsum([0, *case["layers"]])
    for ranks in case["ranks"]:
        data = [(formula.UNIT * (formula.uniform(f"v.{r}", (n,),
                                                 seed) + case["common"] * common)).astype(np.float32)
                .astype(np.float64) for r in range(ranks)]
        trees = [doubling] if ranks & (ranks - 1) == 0 else [fold_high, fold_adjacent, halves]
        out["results"][str(ranks)] = {
            tree.__name__: {"whole": record.full64(tree(data)),
                            "per_layer": record.full64(np.concatenate(
                                [tree([v[a:b] for v in data]) for a, b in zip(edges, edges[1:])]))}
            for tree in trees}
    e = np.eye(4)
    hand = {"orthogonal": (e[0], 3 * e[1]), "parallel": (np.array([1.0, 2, 3, 4]), np.array([2.0, 4, 6, 8])),
            "opposite": (np.array([1.0, -2, 0, 1]), np.array([-1.0, 2, 0, -1])),
            "zero": (np.array([1.0, -2, 0, 1]), np.zeros(4)), "tiny": (np.full(4, 1e-80),
                np.array([1.0, 2, 3, 4]))}
    out["hand"] = {k: {"a": record.full64(a), "b": record.full64(b), "result": record.full64(pair(a, b))}
                   for k, (a, b) in hand.items()}
    return out
