#!/usr/bin/env bash
# Functions that this program does not use, and why not.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/lint/tap.sh
mapfile -t FILES < <(sources src include hdf5_tools | grep -E '\.(c|h|cu|def)$')

# code only: comments, strings and characters blanked, lines kept
code() {
    perl -0777 -pe 's{/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\x27(?:\\.|[^\x27\\\n])*\x27}{(my $t = $&) =~ s/[^\n]/ /g; $t}gse' "$1"
}
calls() { # WORDS FILES...: file:line of calls of these functions
    local words=$1 file
    shift
    for file; do code "$file" | grep -nE "(^|[^A-Za-z0-9_.>])($words)[[:space:]]*\(" | sed "s|^|$file:|"; done
}
outside_main() { printf '%s\n' "${FILES[@]}" | grep -vE '^src/cmd/|^hdf5_tools/kolo-'; }

sample=$(mktemp)
trap 'rm -f "$sample"' EXIT
printf '/* rand() */ const char *s = "exit(1)";\nint x = my_rand(1) + p->exit(2);\nvoid f(void) { exit (1); }\n' >"$sample"
[[ $(calls 'rand|exit' "$sample") == "$sample:3:"* && $(calls 'rand|exit' "$sample" | wc -l) == 1 ]]
ok $? "calls are told from comments, texts and longer names"

none "no strcpy, strcat, sprintf, vsprintf, gets, strtok: they know no lengths or no threads" \
    "$(calls 'strcpy|stpcpy|strcat|sprintf|vsprintf|gets|strtok' "${FILES[@]}")"
none "no rand, drand48, random: numbers come from Philox" \
    "$(calls 's?rand|rand_r|[delmnj]rand48|s?random' "${FILES[@]}")"
mapfile -t ROOMS < <(outside_main)
none "no exit, abort, assert outside main: errors go up" \
    "$(calls 'exit|abort|assert|err|errx' "${ROOMS[@]}")"
mapfile -t ROOMS < <(outside_main | grep -vE '^src/launch/')
none "no _exit outside main and the launcher's abort" "$(calls '_exit|_Exit|quick_exit' "${ROOMS[@]}")"
none "no setlocale: numbers are read and written with a point" "$(calls setlocale "${FILES[@]}")"
none "no alloca: sizes on the stack are known" "$(calls alloca "${FILES[@]}")"
none "nothing is promised for later" "$(grep -nE '\b(TODO|FIXME|XXX|HACK)\b' "${FILES[@]}" tests/*/*.[ct] 2>/dev/null | grep -v '^tests/lint/')"
done_testing
