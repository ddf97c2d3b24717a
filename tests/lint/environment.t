#!/usr/bin/env bash
# KOLO_<KEY> is an option wherever <key> is one: nobody reads such a variable as something else.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
options=$(sed -nE 's/^(INT|AUTO|REAL|BOOL|TEXT|CHOICE)\(([a-z_0-9]+),.*/KOLO_\U\2/p' src/base/options.def |
    sort)
[ "$(wc -l <<< "$options")" -gt 100 ]
ok $? "the options are found"
old=$(sed -nE 's/^RENAMED\(([a-z_0-9]+), .*/KOLO_\U\1/p' src/base/renamed.def | sort)
both() { comm -12 <(sort -u) <(echo "$options"); }
variables=$(sed -nE 's/^VARIABLE\(([A-Z_0-9]+), .*/KOLO_\1/p' src/base/environment.def | sort)
none "variables that are no options have no option's name" "$(both <<< "$variables")"
none "nor an option's old name" "$(comm -12 <(echo "$variables") <(echo "$old"))"
# every variable that a program or a script reads is an option or stands in environment.def, and what
# stands there is read
read=$({
    sources src hdf5_tools include | grep -E '\.(c|h|cu|cuh)$' |
        xargs -d '\n' grep -ohE '"KOLO_[A-Z_0-9]*[A-Z0-9]"'
    sources jobs share tests | grep -E '(\.(sh|t)|/minislurm|/run)$' |
        xargs -d '\n' grep -ohE '\$\{?KOLO_[A-Z_0-9]*[A-Z0-9]'
    sources modulefiles | xargs -d '\n' grep -ohE 'setenv KOLO_[A-Z_0-9]+'
} | grep -oE 'KOLO_[A-Z_0-9]+' | sort -u)
none "every variable that is read is known" "$(comm -23 <(echo \
    "$read") <(sort <<< "$options"$'\n'"$variables"$'\n'"$old"))"
none "every known variable is read" \
    "$(comm -13 <(echo "$read") <(grep -v '^KOLO_\(BASE\|BIN\|DIR\|HOME\|INC\|LIB\|PREFIX\|VERSION\)$' <<< \
    "$variables"))"
none "no program reads one by itself" \
    "$(sources src hdf5_tools include tests | grep -E '\.(c|h|cu|cuh)$' |
    xargs -d '\n' grep -ohE 'getenv\("KOLO_[A-Z_0-9]+"\)' | grep -oE 'KOLO_[A-Z_0-9]+' |
    grep -v '^KOLO_COMM_' | both)"
# what the library asks its environment for, and what options of kolo are handed to it
none "every comm_ option is the library's variable" \
    "$(comm -13 <(grep -ohE 'KOLO_COMM_[A-Z]+' src/comm/library/config.c |
    sort -u) <(grep '^KOLO_COMM_' <<< "$options"))"
none "every variable of the library that is an option is a comm_ one" \
    "$(grep -rohE '"KOLO_[A-Z_]+"' src/comm/library src/comm/core src/comm/pmpi | tr -d '"' | both |
    grep -v '^KOLO_COMM_')"
is "$(sed -n '/known\[\] = {/,/};/p' src/comm/library/config.c | grep -oE '"[A-Z_]+"' |
    sed 's/"\(.*\)"/KOLO_COMM_\1/' | sort)" \
    "$(grep -rohE '"KOLO_COMM_[A-Z_]*[A-Z]"' src/comm | tr -d '"' |
    sort -u)" "the library knows the names of all that it reads, and no other"
# a template may read one in order to hand it on
wrong=""
for script in $(sources jobs share | grep '\.sh$'); do
    for name in $(grep -oE '\$\{?KOLO_[A-Z_0-9]+' "$script" | tr -d '${' | both); do
        key=$(tr '[:upper:]' '[:lower:]' <<< "${name#KOLO_}")
        # in the template itself, or in what all templates share
        grep -qE "[ (]$key=\"?\\\$$name\"?( |\$)" "$script" jobs/kolo_job.sh ||
            wrong="$wrong$script: $name is not what $key= means"$'\n'
    done
done
none "a job hands those that it reads on as what they are" "$wrong"
done_testing
