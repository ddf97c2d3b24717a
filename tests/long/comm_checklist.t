#!/bin/sh
# The checklist at 2, 3, 4 and 7 ranks with 10,000 random requests a world, also with every rank on a node of
# its own.
cd "$(dirname "$0")/../.." || exit 1
RANKS='2 3 4 7' ROUNDS=250 LIMIT=900 exec tests/mpi/comm_checklist.t
