#!/usr/bin/env bash
# README.md and the guides: each block marked `sh` runs as it stands, in the order of its page, in one folder
# of the page. What needs a cluster, a GPU or data of its own is marked `console`: names.t checks it. Here
# those of the first pages that one follows; tests/long/docs.t follows all (PAGES).
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need kolo kolo-pack kolo-shards perl
ALL=(README.md docs/*.md)
read -r -a PAGES <<< "${PAGES:-README.md docs/pack.md docs/train.md docs/memory.md docs/pipelines.md}"
none "blocks are marked sh, console, text or diff" "$(perl -ne '
    if (/^```(.*)/) { $open = !$open; print "$ARGV:$.: ```$1\n" if $open && $1 !~ /^(sh|console|text|diff)$/ }
    close ARGV if eof' "${ALL[@]}")"

# the script of a page: a line `@@ NUMBER` before each block
script() { # PAGE
    perl -ne '
        if ($in && /^```$/) { $in = 0; next }
        if (!$in && /^```sh$/) { $in = 1; print "echo \"@@ $.\"\n"; next }
        print if $in' "$1"
    echo 'echo "@@ end"'
}
blocks=0
for page in "${PAGES[@]}"; do
    mapfile -t lines < <(grep -n '^```sh$' "$page" | cut -d : -f 1)
    [ ${#lines[@]} -gt 0 ] || continue
    if grep -q '^mpiexec' <(script "$page") && ! { ranks_start && hydra; }; then
        skip "$page: no mpiexec that starts more ranks than cores"
        blocks=$((blocks + ${#lines[@]}))
        continue
    fi
    place=$ROOM/${page//\//-}
    mkdir "$place" && ln -s "$TOP/jobs" "$TOP/share" "$place/"
    script "$page" > "$place.sh"
    (cd "$place" && timeout 600 bash -eu "$place.sh") > "$place.log" 2>&1
    status=$?
    for line in "${lines[@]}"; do
        blocks=$((blocks + 1))
        next=$(sed -n "/^@@ $line\$/,\$s/^@@ //p" "$place.log" | sed -n 2p)
        [ -n "$next" ]
        ok $? "$page:$line runs: exit 0" && continue
        echo "#   exit status $status"
        sed "1,/^@@ $line\$/d" "$place.log" | tail -n 15 | diag
        break
    done
done
[ "$blocks" -ge $((${#PAGES[@]} < ${#ALL[@]} ? 12 : 30)) ]
ok $? "blocks are found ($blocks)"
done_testing
