#!/bin/sh
# Several simulated nodes, on more maps of ranks to nodes than the check has.
cd "$(dirname "$0")/../.." || exit 1
MORE='more' exec tests/mpi/comm_nodes.t
