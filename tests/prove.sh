#!/usr/bin/env bash
# Runs prove and where tests fail, what their failed checks said, before the summary: prove alone names their
# numbers. prove.sh FOLDER ARGUMENTS OF PROVE...: the lines of the tests are kept in FOLDER, a file for each.
set -u -o pipefail
folder=$1
shift
rm -rf "$folder"
mkdir -p "$folder" || exit 1
export PERL_TEST_HARNESS_DUMP_TAP=$folder
if [ -t 1 ]; then
    prove "$@"
else
    prove "$@" | tee "$folder/output"
fi
status=$?
[ $status != 0 ] || exit 0
echo
find "$folder" -type f ! -path "$folder/output" | sort | while read -r file; do
    awk -v name="${file#"$folder"/}" '
        /^not ok/ && !/# (TODO|SKIP)/ { failed = 1; print name ": " $0; next }
        /^#/ { if (failed) print; next }
        { failed = 0 }' "$file"
done
[ ! -e "$folder/output" ] || sed -n '/^Test Summary Report/,$p' "$folder/output"
exit $status
