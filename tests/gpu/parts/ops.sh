# every operation, updater and reducer by itself, against plain loops
# shellcheck shell=bash
# the tests that compare one thing at a time, here with the library for GPUs instead of the stand-in, which
# has them all in make check
for unit in $(if_dry "ops_move ops_order" "$UNITS"); do tap "$unit" 120 "$unit"; done
[ -n "$UNITS" ] || fail "the programs of tests/cuda are not here"
