#!/usr/bin/env bash
# Files as files: they end with a newline, hold no blanks at line ends, no tabs in C, no private place.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
mapfile -t FILES < <(sources . | perl -lne 'print if -f && -s && !-l' | tr '\n' '\0' | xargs -0 grep -lI .)
((${#FILES[@]} > 50))
ok $? "the text files are found (${#FILES[@]})"
mapfile -t CODE < <(printf '%s\n' "${FILES[@]}" | grep -E '\.([ch]|cuh?|def)$')
none "each ends with a newline" \
    "$(perl -0777 -ne 'print "$ARGV\n" unless /\n\z/' "${FILES[@]}")"
none "no line ends with a blank" "$(grep -nE '[[:blank:]]+$' "${FILES[@]}" | cut -c 1-120)"
none "no carriage returns" "$(grep -lU $'\r$' "${FILES[@]}")"
none "no tabs in C" "$(grep -nP '\t' "${CODE[@]}" | cut -c 1-120)"
# Longer ones: rows of tables in Markdown; a string that has its line for itself, so that a message or a
# pattern can be searched for; bytes of files that are written out in seeds.sh; figures
# and their formulas in tests/golden
none "lines end at column 110" "$(printf '%s\n' "${FILES[@]}" | grep -vE "^tests/(fuzz/seeds.sh$|golden/)" |
    tr '\n' '\0' | xargs -0 perl -CSD -we '
    for my $file (@ARGV) {
        open my $lines, "<", $file or die "$file: $!\n";
        while (<$lines>) {
            chomp;
            next if length() <= 110 || $file =~ /\.md$/ && /^\|/;
            next if /^\s* (?: [\w\[\]]+ \+? = \(? | printf\s )?
                (?: "(?:[^"\\]|\\.)*" | \047(?:[^\047\\]|\\.)*\047 ) ["\s\\)|;,]* (?: >.* )? $/x;
            print "$file:$.: ", length(), " columns\n";
        }
    }')"
# a home, a mount or a name of one machine has no place in sources
none "no private paths" \
    "$(grep -nE '(^|[^A-Za-z0-9_.])/(work|home/[a-z]|root|Users)/' "${FILES[@]}" |
    grep -v '^tests/lint/text.t:' | cut -c 1-160)"
# what a redirection left lying about
none "the top folder holds what it should" \
    "$(git ls-files 2> /dev/null | grep -v / |
    grep -vxE '\.clang-format|\.git(attributes|ignore)|CHANGELOG\.md|CITATION\.cff|GNUmakefile|VERSION' |
    grep -vxE 'LICENSE|NOTICE|README\.md')"
none "no file is empty" "$(sources . | perl -lne 'print if -f && -z')"
none "no merge marks" "$(grep -nE '^(<<<<<<<|>>>>>>>) ' "${FILES[@]}")"
# a header can be included twice
mapfile -t HEADERS < <(printf '%s\n' "${CODE[@]}" | grep -E '\.(h|cuh)$')
none "every header has its guard" "$(grep -LE '^#ifndef [A-Z_0-9]+_(CU)?H$' "${HEADERS[@]}")"
done_testing
