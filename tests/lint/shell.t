#!/usr/bin/env bash
# Every shell script passes shellcheck.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/lint/tap.sh
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
for script in "${SCRIPTS[@]}"; do
    case $script in
    tests/*) strict=(-S warning -e SC2034) ;; # variables of sourced files are used elsewhere
    *) strict=() ;;
    esac
    none "$script" "$(shellcheck -x -e SC1091 "${strict[@]}" "$script" 2>&1)"
done
done_testing
