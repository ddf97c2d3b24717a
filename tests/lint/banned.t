#!/usr/bin/env bash
# Functions that this program does not use, and why not.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
mapfile -t FILES < <(sources src include hdf5_tools | grep -E '\.(c|h|cuh?|def)$')

# code only, as file:line:text: comments, strings and characters blanked
code() {
    perl -0777 -ne \
        's{/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\x27(?:\\.|[^\x27\\\n])*\x27}
          {(my $t = $&) =~ s/[^\n]/ /g; $t}gse;
        my $n = 0; print map { $n++; "$ARGV:$n:$_\n" } split /\n/' "$@"
}
calls() { # WORDS CODE: the lines of calls of these functions
    grep -E "^[^:]+:[0-9]+:(.*[^A-Za-z0-9_.>])?($1)[[:space:]]*\(" <<<"$2"
}

sample=$ROOM/sample
printf \
    '/* rand() */ const char *s = "exit(1)";\nint x = my_rand(1) + p->exit(2);\nvoid f(void) { exit (1); }\n' \
    >"$sample"
[[ $(calls 'rand|exit' "$(code "$sample")") == "$sample:3:"* && $(calls 'rand|exit' "$(code "$sample")" |
    wc -l) == 1 ]]
ok $? "calls are told from comments, texts and longer names"

ALL=$(code "${FILES[@]}")
((${#FILES[@]} > 50 && ${#ALL} > 100000))
ok $? "the sources are found (${#FILES[@]} files)"
ROOMS=$(grep -vE '^(src/cmd/|hdf5_tools/kolo-)' <<<"$ALL")
none "no strcpy, strcat, sprintf, vsprintf, gets, strtok: they know no lengths or no threads" \
    "$(calls 'strcpy|stpcpy|strcat|sprintf|vsprintf|gets|strtok' "$ALL")"
none "no rand, drand48, random: numbers come from Philox" \
    "$(calls 's?rand|rand_r|[delmnj]rand48|s?random' "$ALL")"
none "no exit, abort, assert outside main: errors go up" "$(calls 'exit|abort|assert|err|errx' "$ROOMS")"
none "no _exit outside main and the launcher's abort" \
    "$(calls '_exit|_Exit|quick_exit' "$(grep -v '^src/launch/' <<<"$ROOMS")")"
none "no setlocale: numbers are read and written with a point" "$(calls setlocale "$ALL")"
none "no alloca: sizes on the stack are known" "$(calls alloca "$ALL")"
none "nothing is promised for later" "$(grep -nE '\b(TODO|FIXME|XXX|HACK)\b' "${FILES[@]}" tests/*/*.[ct] \
    2>/dev/null | grep -v '^tests/lint/')"
done_testing
