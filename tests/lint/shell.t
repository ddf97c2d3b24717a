#!/usr/bin/env bash
# Every shell script passes shellcheck.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
command -v shellcheck >/dev/null || skip_all "no shellcheck here"
mapfile -t SCRIPTS < <(sources . | grep -v '^shared/' | while IFS= read -r file; do
    [[ -f $file ]] || continue
    case $file in
    *.sh | *.bash) echo "$file" ;;
    *) head -c 64 "$file" | head -n 1 | tr -d '\0' | grep -qE '^#!.*[/ ](ba|da)?sh\b' && echo "$file" ;;
    esac
done)
((${#SCRIPTS[@]} > 5))
ok $? "the scripts are found (${#SCRIPTS[@]})"
OWN=() TESTS=()
for script in "${SCRIPTS[@]}"; do
    case $script in
    tests/*) TESTS+=("$script") ;;
    *) OWN+=("$script") ;;
    esac
done
none "programs and templates (${#OWN[@]})" "$(shellcheck -x -e SC1091 "${OWN[@]}" 2>&1)"
# not with -x: lib.sh would be read again for each. Variables of sourced files are used, and set, elsewhere
check_tests() { shellcheck -S warning -e SC1091,SC2034,SC2154 "$@"; }
# each result depends on the file alone: what passed once, by this shellcheck, is not read again
passed=$KOLO_CACHE/shellcheck-$(shellcheck --version | sed -n 's/^version: //p')
mkdir -p "$KOLO_CACHE" && touch "$passed"
mapfile -t TESTS < <(sha256sum "${TESTS[@]}" | grep -vxFf "$passed" | sed 's/^[^ ]*  //')
# many at a time, and one by one where they do not pass
all=$(for ((i = 0; i < ${#TESTS[@]}; i += 8)); do
    some=("${TESTS[@]:i:8}")
    if check_tests "${some[@]}" > /dev/null 2>&1; then
        sha256sum "${some[@]}" >> "$passed"
        continue
    fi
    for script in "${some[@]}"; do
        if check_tests "$script" 2>&1; then sha256sum "$script" >> "$passed"; fi
    done
done)
none "tests (${#TESTS[@]} since the last time)" "$all"
done_testing
