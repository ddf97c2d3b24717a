#!/bin/sh
# Networks of layer norms, attention and squeezes through `kolo train` on the stand-in for a GPU, too. Two
# minutes.
cd "$(dirname "$0")/../.." || exit 1
ALL=1 exec tests/cuda/networks.t
