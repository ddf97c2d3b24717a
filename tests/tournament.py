"""A tournament counted once more: who meets whom, who wins, what losers go on with.

    tournament.py meetings EVENTS GROUP SEED VARY LR,...: the meetings of EVENTS, against rules and draws
    tournament.py ranks CARRIED: ranks of a checkpoint that have the same weights and state: the first of them
"""
import json
import struct
import sys

MASK = 2**32 - 1


def philox(key, high, low):
    k = [key & MASK, key >> 32 & MASK]
    c = [low & MASK, low >> 32, high & MASK, high >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & MASK, (a >> 32) ^ c[3] ^ k[1], a & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def draws(seed, meeting, low):
    key = (seed * 0x9E3779B97F4A7C15 & 2**64 - 1) ^ 12 << 56
    block = 0
    while True:
        yield from philox(key, meeting, low + (block << 48))
        block += 1


def below(stream, n):
    return next(stream) * n >> 32


def order(seed, meeting, members):
    stream, all_of = draws(seed, meeting, 0), list(range(members))
    for i in range(members - 1, 0, -1):
        k = below(stream, i + 1)
        all_of[i], all_of[k] = all_of[k], all_of[i]
    return all_of


def meetings(path, group, seed, vary, rates):
    events = [json.loads(line) for line in open(path)]
    met = [e for e in events if e["event"] == "tournament"]
    members = len(met[0]["losses"])
    rate = [rates[m % len(rates)] for m in range(members)]
    for number, m in enumerate(met, 1):
        assert m["group"] == group and m["losses"][m["best"]] == min(m["losses"]) == m["best_loss"]
        if number == len(met):
            assert "pairs" not in m
            continue
        drawn = order(seed, number, members)
        for i, (winner, loser) in enumerate(m["pairs"]):
            a, b = sorted(drawn[2 * i:2 * i + 2])
            assert (winner, loser) == ((b, a) if m["losses"][b] < m["losses"][a] else (a, b)), m["pairs"]
            up = below(draws(seed, number, loser + 1), 2)
            rate[loser] = rate[winner] * (vary if up else 1 / vary)
        assert all(abs(x - y) < 1e-7 * x for x, y in zip(rate, m["lr"])), (rate, m["lr"])
    return f"{len(met)} meetings of {members}"


def ranks(path):
    data = open(path, "rb").read()
    size, n = struct.unpack("<QQ", data[8:24])
    own = 32  # behind weights and state: a member's values, and who was best
    part = [data[24 + i * size:24 + (i + 1) * size - own] for i in range(n)]
    return " ".join(str(part.index(p)) for p in part)


if sys.argv[1] == "ranks":
    print(ranks(sys.argv[2]))
else:
    print(meetings(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]),
                   [float(r) for r in sys.argv[6].split(",")]))
