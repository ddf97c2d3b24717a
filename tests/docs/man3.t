#!/usr/bin/env bash
# The manual pages of section 3: one for each public header, one for each of its functions, without a warning.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
PAGES=$ROOM/man/man3
share/setup/man3.sh 1.2.3 "$PAGES" include/kolo/*.h > "$ROOM/log" 2>&1
is $? 0 "the pages are made: exit 0" "$ROOM/log"
is "$(cat "$PAGES/kolo_buckets.3")" '.so man3/kolo_comm.3' "an earlier name of a header leads to its page"
for header in include/kolo/{world,comm,dtype,error}.h; do
    name=kolo_$(basename "$header" .h)
    page=$PAGES/$name.3
    like "$page" "^\\.TH ${name^^} 3 \"20..-..-..\" \"kolo 1\\.2\\.3\"" "$name(3): its head"
    grep -q '^\.SH DESCRIPTION' "$page" && [ "$(sed -n '/^\.SH DESCRIPTION/,/^\.SH DECL/p' "$page" |
        wc -l)" -ge 3 ]
    ok $? "$name(3): a description"
    # nothing of the header is lost: each word of it is in the page
    none "$name(3): every word of the header" "$(comm -23 \
        <(grep -vE '^#(if|endif|include|define KOLO_[A-Z_]+_H$)|^extern "C"' "$header" |
        sed '/^static inline/,/^}/{/^{/,/^}/d}' | grep -oE '[A-Za-z_0-9]{3,}' | tr '[:upper:]' '[:lower:]' |
            sort -u) \
        <(sed 's/\\-/-/g; s/\\(../ /g' "$page" | grep -oE '[A-Za-z_0-9]{3,}' | tr '[:upper:]' '[:lower:]' |
        sort -u))"
done
# what the library exports, as its linker script has it, is documented
if [ -e "$BUILD/lib/libkolo_comm.so.1" ] && command -v nm > /dev/null; then
    nm -D --defined-only "$BUILD/lib/libkolo_comm.so.1" |
        sed -n 's/.* T \(kolo_[a-z_0-9]*\)\(@.*\)*$/\1/p' > "$ROOM/exports"
    [ "$(wc -l < "$ROOM/exports")" -ge 40 ]
    ok $? "functions of libkolo_comm.so are found ($(wc -l < "$ROOM/exports"))"
    none "each function of libkolo_comm.so that a header declares has a page" "$(while IFS= read -r name; do
        grep -qE "\\b$name\\(" include/kolo/*.h && [ ! -s "$PAGES/$name.3" ] && echo "$name"
    done < "$ROOM/exports")"
else
    skip "no libkolo_comm.so"
fi
none "the page of a function leads to one that is there and names it" "$(for page in "$PAGES"/*.3; do
    name=$(basename "$page" .3)
    target=$(sed -n 's/^\.so man3\///p' "$page")
    [ -z "$target" ] || grep -qE "^(\\.SH NAME|$name),?( |$)" "$PAGES/$target" || echo "$name"
done)"
if command -v mandoc > /dev/null; then
    none "mandoc has no warning" "$(mandoc -T lint -W warning \
        "$PAGES"/kolo_{world,comm,dtype,error}.3 2>&1)"
else
    skip "no mandoc"
fi
if command -v groff > /dev/null; then
    none "groff has no warning" "$(for page in "$PAGES"/kolo_{world,comm,dtype,error}.3; do
        groff -ww -man -z -Tutf8 "$page" 2>&1
    done)"
else
    skip "no groff"
fi
if command -v man > /dev/null && command -v groff > /dev/null; then
    MANPATH=$ROOM/man MANWIDTH=100 man 3 kolo_allreduce > "$ROOM/text" 2>/dev/null
    like "$ROOM/text" 'int kolo_allreduce\(kolo_group \*group' "man 3 kolo_allreduce shows its declaration"
else
    skip "no man(1)"
fi
done_testing
