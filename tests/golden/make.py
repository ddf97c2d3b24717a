#!/usr/bin/env python3
"""Makes the golden files: make.py --seed S --out DIR [case...].

A case is GROUP or GROUP/NAME (models/resnet18_96, ops, ...); without one, all are made.
--list prints them, --check compares with the files in DIR instead of writing.
"""
import argparse
import os
import pathlib
import sys
import tempfile
import time

import cases


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("--data", type=pathlib.Path,
                        default=pathlib.Path(os.environ.get("KOLO_SHARED", "../shared")) / "data",
                        help="folder of photos and COCO JSON (groups images and detect)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true", help="compare byte for byte with the files in --out")
    parser.add_argument("case", nargs="*")
    args = parser.parse_args()
    if not args.list:
        import torch
        torch.set_num_threads(args.threads)
    from gen import groups, record
    failed = False
    for stem, maker in groups.jobs(cases, args.data):
        if args.case and not any(stem == c or stem.startswith(c + "/") for c in args.case):
            continue
        if args.list:
            print(stem)
            continue
        start = time.time()
        target = args.out / (stem + ".json")
        entry = {"case": stem, "seed": args.seed, **maker(args.seed)}
        if args.check:
            with tempfile.TemporaryDirectory() as folder:
                other = pathlib.Path(folder) / "x.json"
                record.save(other, entry)
                same = other.read_bytes() == target.read_bytes()
            failed |= not same
            print(f"{'same' if same else 'DIFFERS'} {stem} {time.time() - start:.1f}s", flush=True)
        else:
            print(f"{stem} {record.save(target, entry)} bytes {time.time() - start:.1f}s", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
