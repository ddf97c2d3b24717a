#!/usr/bin/env bash
# The commands of README.md and of every guide run as they stand (tests/docs/commands.t).
cd "$(dirname "$0")/../.." || exit 1
PAGES=$(echo README.md docs/*.md) exec bash tests/docs/commands.t
