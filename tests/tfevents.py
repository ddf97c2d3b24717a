"""Event files of TensorBoard without TensorBoard: records with their sums, and the wire format. A list of
(step, tag, kind, value): kind is the number of the field of Summary.Value."""
import struct, sys

table = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    table.append(n)

def masked(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

def records(path):
    data = open(path, "rb").read()
    at = 0
    while at < len(data):
        length, = struct.unpack_from("<Q", data, at)
        assert struct.unpack_from("<I", data, at + 8)[0] == masked(data[at:at + 8]), "sum of a length"
        body = data[at + 12:at + 12 + length]
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked(body), "sum of a record"
        yield body
        at += 16 + length

def fields(data):
    at = 0
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            at += 1
            shift += 7
            if data[at - 1] < 128:
                return value
    out = []
    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            value, at = data[at:at + size], at + size
            value = struct.unpack("<d" if kind == 1 else "<f", value)[0] if kind != 2 else value
        out.append((key >> 3, value))
    return out

def values(path):
    for body in records(path):
        event = dict(fields(body))
        for _, value in fields(event.get(5, b"")):
            one = dict(fields(value))
            kind = next(k for k in (2, 4, 5, 8) if k in one)
            yield event.get(2, 0), one[1].decode(), kind, one[kind]
