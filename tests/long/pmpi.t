#!/bin/sh
# MPICH's test suite with libkolo_pmpi.so, where it is: MPICH_TESTS=
cd "$(dirname "$0")/../.." || exit 1
exec tests/peers/pmpi.sh
