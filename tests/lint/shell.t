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
# one by one and not with -x: lib.sh would be read again for each. Variables of sourced files are
# used, and set, elsewhere
none "tests (${#TESTS[@]})" "$(printf '%s\0' "${TESTS[@]}" |
    xargs -0 -n 1 shellcheck -S warning -e SC1091,SC2034,SC2154 2>&1)"
done_testing
