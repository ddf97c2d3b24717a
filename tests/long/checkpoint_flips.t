#!/usr/bin/env bash
# The flipped bits of tests/unit/ckpt_trust.c, many more of them.
KOLO_FLIPS=5000 exec "${KOLO_BUILD:-${BASH_SOURCE[0]%/*}/../../build}/tests/unit/ckpt_trust"
