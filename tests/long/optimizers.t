#!/bin/sh
# Every optimizer through `kolo train`, on two ranks and on the stand-in for a GPU, too. Half a minute.
cd "$(dirname "$0")/../.." || exit 1
ALL=1 exec tests/cmd/optimizers.t
