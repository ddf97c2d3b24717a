#!/usr/bin/env bash
# All published runs that Kolo plays (tests/cmd/plan_published.t), pipelines of many micro-batches too.
LONG=1 exec bash "${BASH_SOURCE[0]%/*}/../cmd/plan_published.t"
