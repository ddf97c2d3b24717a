#!/usr/bin/env bash
# The starts of tests/cmd/early.t, many more of them.
STARTS=300 exec bash "${BASH_SOURCE[0]%/*}/../cmd/early.t"
