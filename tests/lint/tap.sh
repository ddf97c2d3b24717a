# shellcheck shell=bash
# TAP for the shell tests of this folder: ok STATUS TEXT, then done_testing.
COUNT=0 FAILED=0
ok() {
    COUNT=$((COUNT + 1))
    if (($1 == 0)); then echo "ok $COUNT - $2"; else FAILED=1 && echo "not ok $COUNT - $2"; fi
}
skip() { COUNT=$((COUNT + 1)) && echo "ok $COUNT # SKIP $1"; }
skip_all() { echo "1..0 # SKIP $1" && exit 0; }
diag() { while IFS= read -r row; do echo "# $row"; done; }
done_testing() { echo "1..$COUNT" && exit $FAILED; }
# none TEXT ROWS: passes when ROWS is empty, shows them otherwise
none() {
    [[ -z $2 ]]
    ok $? "$1"
    [[ -z $2 ]] || head -n 40 <<<"$2" | diag
}
sources() { # PATH...: files that git knows or would know; without git, all that make did not make
    git ls-files -co --exclude-standard -- "$@" 2>/dev/null ||
        find "$@" \( -name .git -o -path ./build \) -prune -o -type f -print 2>/dev/null | sed 's|^\./||'
}
