#!/bin/sh
# completion.sh bash|zsh|fish PROGRAM: that shell's completion of build/bin/kolo, kolo-pack or kolo-shards,
# made from what the program says of itself: the option table of kolo, --help of the others.
set -eu
if [ $# -ne 2 ] || [ ! -x "$2" ]; then
    sed -n "2,3s/^# \{0,1\}//p" "$0" >&2
    exit 2
fi
shell=$1 program=$2
name=${program##*/}
here=$(dirname "$0")

# Rows COMMAND TAB WORD TAB VALUES TAB HELP of a page of --help: its options, with VALUES
# from `a|b`, FILE or DIR
options() { # COMMAND < --help
    awk -v command="$1" '
        /^sources:/ { sources = 1 }
        /^$/ && sources > 1 { sources = 0 }
        sources && /^  [a-z]/ { sources++; kinds = kinds (kinds ? " " : "") $1 }
        /^  --[a-z]/ {
            value = $2 ~ /^[A-Z]/ || $2 ~ /^[a-z0-9]+(\|[a-zA-Z0-9=]+)+$/ ? $2 : ""
            rest = $0
            sub(/^  --[a-z-]+/, "", rest)
            if (rest !~ /^ [^ ]/) value = "" # two spaces: the help begins
            else if (value != "") rest = substr(rest, length(value) + 2)
            sub(/^ +/, "", rest)
            n++; word[n] = $1; values[n] = value; help[n] = rest
        }
        END {
            for (i = 1; i <= n; i++) {
                v = values[i]
                if (v == "KIND") v = kinds
                else if (v ~ /^(FILE|PATH|DIR|FOLDER|SRC)/) v = "FILE"
                else if (v ~ /\|/ && v !~ /[A-Z=]/) gsub(/\|/, " ", v)
                else v = v == "" ? "" : "ANY"
                printf "%s\t%s\t%s\t%s\n", command, word[i], v, help[i]
            }
        }'
}

table() {
    case $name in
    kolo)
        "$program" help --completion | while IFS= read -r row; do
            case $row in
            *"	RECIPE	"*) for file in "$here"/../recipes/*.yaml; do basename "$file" .yaml; done |
                sed "s/.*/${row%%	*}	&		a recipe/" ;;
            *) printf '%s\n' "$row" ;;
            esac
        done
        ;;
    kolo-shards)
        commands=$("$program" --help | sed -n 's/^  \([a-z][a-z]*\) .*   *\([^ ].*\)$/\1	\2/p')
        printf '%s\n' "$commands" | sed 's/^\([^	]*\)	/	\1		/'
        for command in $(printf '%s\n' "$commands" | cut -f 1); do "$program" "$command" --help |
            options "$command"; done
        ;;
    *) "$program" --help | options '' ;;
    esac
}

# From the rows: a case of words for every command, and of values for every word.
table | awk -F '\t' -v shell="$shell" -v name="$name" '
    function quoted(text) { gsub(/\047/, "", text); gsub(/[\\:\[\]$`"]/, " ", text); return text }
    { command = $1; word = $2
      if (!(command in words)) order[++commands] = command
      words[command] = words[command] (words[command] == "" ? "" : " ") word
      if ($4 != "" && !(word in help)) help[word] = quoted($4)
      if ($3 == "") next
      if (!(word in values)) { values[word] = $3; with_values[++n] = word }
      else if (values[word] != $3) own[command "," word] = $3 }
    END {
        for (i = 1; i <= commands; i++) printf "W\t%s\t%s\n", order[i], words[order[i]]
        for (key in own) { split(key, part, ","); printf "V\t%s %s\t%s\n", part[1], part[2], own[key] }
        for (i = 1; i <= n; i++) printf "V\t* %s\t%s\n", with_values[i], values[with_values[i]]
        for (word in help) printf "H\t%s\t%s\n", word, help[word] | "sort"
    }' | awk -F '\t' -v shell="$shell" -v name="$name" -v engine="$here/completion.$shell.in" '
    # @WORDS@, @VALUES@, @HELP@ and @NAME@ of the file for this shell
    $1 == "W" { w = w entry("\047" $2 "\047", $3) }
    $1 == "V" {
        star = $2 ~ /^\*/ && shell != "fish"
        v = v entry((star ? "*" : "") "\047" (star ? substr($2, 2) : $2) "\047", $3)
    }
    $1 == "H" { h = h entry("\047" $2 "\047", $3) }
    function entry(pattern, text) {
        if (shell == "fish") return sprintf("        case %s\n            echo \047%s\047\n", pattern, text)
        return sprintf("    %s) reply=\047%s\047 ;;\n", pattern, text)
    }
    END {
        f = name; gsub(/-/, "_", f)
        while ((getline line < engine) > 0) {
            if (line == "@WORDS@") printf "%s", w
            else if (line == "@VALUES@") printf "%s", v
            else if (line == "@HELP@") printf "%s", h
            else { gsub(/@NAME@/, name, line); gsub(/@FUNCTION@/, "_" f, line); print line }
        }
    }'
