#!/usr/bin/env bash
# Files as files: they end with a newline, hold no blanks at line ends, no tabs in C, no private place.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/lint/tap.sh
mapfile -t FILES < <(sources . | while IFS= read -r file; do
    [[ -f $file && -s $file && ! -L $file ]] && grep -Iq . "$file" && echo "$file"
done)
((${#FILES[@]} > 50))
ok $? "the text files are found (${#FILES[@]})"
mapfile -t CODE < <(printf '%s\n' "${FILES[@]}" | grep -E '\.([ch]|cuh?|def)$')
none "each ends with a newline" \
    "$(for file in "${FILES[@]}"; do [[ -z $(tail -c 1 "$file") ]] || echo "$file"; done)"
none "no line ends with a blank" "$(grep -nE '[[:blank:]]+$' "${FILES[@]}" | cut -c 1-120)"
none "no carriage returns" "$(grep -lU $'\r$' "${FILES[@]}")"
none "no tabs in C" "$(grep -nP '\t' "${CODE[@]}" | cut -c 1-120)"
# a home, a mount or a name of one machine has no place in sources
none "no private paths" \
    "$(grep -nE '(^|[^A-Za-z0-9_.])/(work|home/[a-z]|root|Users)/' "${FILES[@]}" | grep -v '^tests/lint/text.t:' | cut -c 1-160)"
none "no merge marks" "$(grep -nE '^(<<<<<<<|>>>>>>>) ' "${FILES[@]}")"
# a header can be included twice
none "every header has its guard" "$(for file in "${CODE[@]}"; do
    [[ $file != *.h && $file != *.cuh ]] || grep -qE '^#ifndef [A-Z_0-9]+_(CU)?H$' "$file" || echo "$file"
done)"
done_testing
