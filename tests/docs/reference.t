#!/usr/bin/env bash
# docs/reference is what share/setup/reference.sh makes of these programs, word by word.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need kolo kolo-pack kolo-shards fmt fold
share/setup/reference.sh "$BUILD" "$ROOM/reference" > "$ROOM/log" 2>&1
is $? 0 "reference.sh writes the reference: exit 0" || diag < "$ROOM/log"
none "docs/reference is up to date (make docs writes it again)" \
    "$(diff -r "$ROOM/reference" docs/reference 2>&1 | cut -c 1-120)"
for page in "$ROOM"/reference/*.md; do
    name=${page##*/}
    [ "$(wc -l < "$page")" -ge 14 ]
    ok $? "$name: it is not empty"
    [ "$name" = README.md ] || like docs/reference/README.md "\\($name\\)" "$name: the list of pages has it"
done
options=$(grep -cE '^(INT|AUTO|REAL|BOOL|TEXT|PATH|CHOICE)\($|^(INT|AUTO|REAL|BOOL|TEXT|PATH|CHOICE)\([a-z]' \
    src/base/options.def)
is "$(grep -cE '^\| `[a-z]' "$ROOM/reference/options.md")" "$options" "options.md: a row for each option"
is "$(grep -cE '^- `[a-z_]+` is `[a-z_]+`$' "$ROOM/reference/options.md")" \
    "$(grep -c '^RENAMED(' src/base/renamed.def)" "options.md: a line for each old name"
is "$(grep -c '^## ' "$ROOM/reference/recipes.md")" "$(find share/recipes -name '*.yaml' | wc -l)" \
    "recipes.md: a section for each recipe"
is "$(grep -cE '^\| [a-z]' "$ROOM/reference/networks.md")" "$(($(kolo models | wc -l)))" \
    "networks.md: a row for each network, and the heads"
done_testing
