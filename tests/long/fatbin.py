"""fatbin.py FILE: what code for GPUs a library holds, a line a kind: "KIND ARCHITECTURE PIECES". KIND: elf
(machine code) or ptx."""
import collections
import struct
import sys

data = open(sys.argv[1], "rb").read()
found = collections.Counter()
at = data.find(b"\x50\xed\x55\xba")
while at >= 0:
    header, size = struct.unpack_from("<HQ", data, at + 6)
    entry, end = at + header, at + header + size
    while header == 16 and entry + 32 <= end <= len(data):
        kind, _, length, body = struct.unpack_from("<HHIQ", data, entry)
        if kind not in (1, 2) or length < 32:
            break
        found["ptx" if kind == 1 else "elf", struct.unpack_from("<I", data, entry + 28)[0]] += 1
        entry += length + body
    at = data.find(b"\x50\xed\x55\xba", at + 4)
for (kind, arch), count in sorted(found.items()):
    print(kind, arch, count)
