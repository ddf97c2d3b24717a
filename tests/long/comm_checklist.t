#!/bin/sh
# The checklist with 10,000 random requests a world, also with every rank on a node of its own.
cd "$(dirname "$0")/../.." || exit 1
ROUNDS=250 LIMIT=900 exec tests/mpi/comm_checklist.t
