#!/bin/sh
# man3.sh VERSION FOLDER HEADER...: the manual pages of section 3, a page kolo_NAME.3 for each public header
# include/kolo/NAME.h, and a page of one line for each of its functions that leads there.
#
# The page is the header: its first comment is the description, a comment /* ---- TITLE ---- */ begins a
# section, a comment explains the declarations below it, up to the next comment or blank line. Comments within
# a struct or behind a declaration stay where they are. Text that is indented by two blanks more is kept as
# it is. A header that only includes another gets a page that leads to the other's.
set -eu
if [ $# -lt 3 ]; then
    sed -n '2,3s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
version=$1 out=$2
shift 2
mkdir -p "$out"
rm -f "$out"/*.3
for header; do
    name=$(basename "$header" .h)
    if ! grep -q '^[a-z]' "$header"; then # another name of the header that it includes
        sed -n 's|^#include "kolo/\(.*\)\.h"$|.so man3/kolo_\1.3|p' "$header" > "$out/kolo_$name.3"
        continue
    fi
    awk -v name="$name" -v version="$version" -v out="$out" \
        -v date="$(date -u -r "$header" +%F)" '
        function roff(text) {
            gsub(/\\/, "\\e", text)
            gsub(/-/, "\\-", text)
            gsub(/`/, "\\(ga", text)
            gsub(/\047/, "\\(aq", text)
            gsub(/\^/, "\\(ha", text)
            gsub(/~/, "\\(ti", text)
            if (text ~ /^\./) text = "\\&" text
            return text
        }
        function put(line) { page = page line "\n" }
        function prose(text,   n, lines, i, line, literal, begun) { # lines of a comment
            n = split(text, lines, "\n")
            begun = literal = 0
            for (i = 1; i <= n; i++) {
                line = lines[i]
                if (line ~ /^ *$/) {
                    if (literal) { put(".fi"); put(".RE"); literal = 0 }
                    else if (begun) put(".PP")
                    continue
                }
                if (line ~ /^  / && !literal) { put(".RS"); put(".nf"); literal = 1 }
                else if (line !~ /^  / && literal) { put(".fi"); put(".RE"); literal = 0 }
                put(roff(line))
                begun = 1
            }
            if (literal) { put(".fi"); put(".RE") }
            sub(/\.PP\n$/, "", page)
        }
        function flush(   i, n, lines) { # a declaration and the comment above it
            if (code != "") {
                sub(/\n+$/, "", code)
                paragraph()
                put(".nf")
                n = split(code, lines, "\n")
                for (i = 1; i <= n; i++) put(lines[i] == "" ? "\\&" : roff(lines[i]))
                put(".fi")
                if (comment != "") { put(".RS 4"); prose(comment); put(".RE") }
            } else if (comment != "") {
                paragraph()
                prose(comment)
            }
            code = comment = ""
        }
        function declare(line,   word) { # keeps the names of functions
            if (!match(line, /kolo_[a-z0-9_]+\(/)) return
            word = substr(line, RSTART, RLENGTH - 1)
            if (!(word in known)) { known[word] = 1; function_name[++functions] = word }
        }
        function paragraph() { if (page !~ /\n\.SH [^\n]*\n$/ && page != "") put(".PP") }
        BEGIN { first = 1 }
        /^#ifdef __cplusplus/ { skip = 1 }
        skip { if (/^#endif/) skip = 0; next }
        /^#(ifndef|define) KOLO_[A-Z_]*_H$/ || /^#(include|endif)/ { next }

        depth == 0 && !within && /^\/\* ---- / { # a section
            flush()
            sub(/^\/\* -+ /, "")
            sub(/ -+ *(\*\/)?$/, "")
            put(".SH " toupper(roff($0)))
            next
        }
        depth == 0 && !within && /^\/\*/ && !/\*\/ *[^ ]/ { # a comment of its own
            flush()
            within = 1
            text = ""
            sub(/^\/\* ?/, "")
        }
        within {
            done = sub(/ *\*\/ *$/, "")
            sub(/^ \* ?/, "")
            text = text (text == "" ? "" : "\n") $0
            if (!done) next
            within = 0
            if (first) {
                first = 0
                description = text
            } else {
                comment = text
            }
            next
        }
        /^$/ && depth == 0 { if (!macro) flush(); next }
        {
            line = $0
            if (body) { # of an inline function: only its head is shown
                if (/^}/) { body = 0; flush() }
                next
            }
            if (/^static inline/) inline = 1
            if (inline && /^{/) { inline = 0; body = 1; sub(/\n$/, ";\n", code); next }
            if (depth == 0) declare(line)
            code = code line "\n"
            gsub(/\/\*.*\*\//, "", line)
            opened = gsub(/{/, "", line)
            depth += opened - gsub(/}/, "", line)
            if (inline && opened && depth == 0) inline = 0
        }
        END {
            flush()
            short = description
            gsub(/\n/, " ", short)
            title = toupper("kolo_" name)
            sub(/[.:;,] .*/, "", short)
            file = out "/kolo_" name ".3"
            printf ".TH %s 3 \"%s\" \"kolo %s\" \"Kolo\"\n", title, date, version > file
            printf ".SH NAME\nkolo_%s", name > file
            for (i = 1; i <= functions; i++)
                if (function_name[i] != "kolo_" name) printf ",\n%s", function_name[i] > file
            printf " \\- %s\n", tolower(substr(short, 1, 1)) roff(substr(short, 2)) > file
            printf ".SH SYNOPSIS\n.nf\n#include <kolo/%s.h>\n.PP\n", name > file
            print roff("cc ... $(pkg-config --cflags --libs kolo-comm)") "\n.fi" > file
            body_page = page
            page = ""
            prose(description)
            printf ".SH DESCRIPTION\n%s.SH DECLARATIONS\n%s", page, body_page > file
            print ".SH SEE ALSO\n.BR kolo (1),\n.BR kolo_world (3),\n.BR kolo_comm (3)," > file
            print ".BR kolo_dtype (3),\n.BR kolo_error (3)" > file
            close(file)
            for (i = 1; i <= functions; i++) {
                if (function_name[i] == "kolo_" name) continue
                file = out "/" function_name[i] ".3"
                printf ".so man3/kolo_%s.3\n", name > file
                close(file)
            }
        }' "$header"
done
