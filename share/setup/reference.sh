#!/bin/sh
# reference.sh BUILD FOLDER: writes the reference of docs/ to FOLDER, from what the programs in BUILD/bin
# print about themselves, from share/recipes, and from the table of environment variables. `make docs` calls
# it.
# shellcheck disable=SC2016 # the quotes in quotes are Markdown
set -eu
if [ $# -ne 2 ] || [ ! -x "$1/bin/kolo" ]; then
    sed -n '2,3s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
bin=$1/bin out=$2
cd "$(dirname "$0")/../.."
mkdir -p "$out"
unset KOLO_SITE
made='<!-- made by share/setup/reference.sh; `make docs` writes it again -->'

page() { # FILE TITLE: starts it
    file=$out/$1.md
    printf '# %s\n\n%s\n' "$2" "$made" > "$file"
}
add() { cat >> "$file"; }
fenced() { # LANGUAGE: lines of at most 108 columns, without blanks at their ends
    printf '\n```%s\n' "$1"
    fold -s -w 108 | sed 's/ *$//'
    printf '```\n'
}

# Rows of a help page to tables. A section is a line that begins with a capital letter; a row begins with two
# blanks; what follows two more blanks, and lines that are indented further, is its meaning.
tables() { # HEADS, with | between them; with four of them the default and the values have their own columns
    awk -v heads="$1" '
        function cell(text) { gsub(/\|/, "\\|", text); return text }
        function code(text) { return text == "" ? "" : "`" cell(text) "`" }
        function head(   i, line) {
            if (open) return
            open = 1
            line = "|"
            for (i = 1; i <= columns; i++) line = line " " title[i] " |"
            print "\n" line
            line = "|"
            for (i = 1; i <= columns; i++) line = line "---|"
            print line
        }
        function flush(   values, standard, at) {
            if (name == "") return
            head()
            gsub(/  +/, " ", help)
            sub(/ $/, "", help)
            values = standard = ""
            if (columns == 4) {
                if (match(help, / \[[^][]*\]$/)) {
                    standard = substr(help, RSTART + 2, RLENGTH - 3)
                    help = substr(help, 1, RSTART - 1)
                }
                at = match(name, /[= ]/)
                if (at) { values = substr(name, at + 1); name = substr(name, 1, at - 1) }
                printf "| `%s` | %s | %s | %s |\n", name, code(values), code(standard), cell(help)
            } else {
                printf "| %s | %s |\n", code(name), cell(help)
            }
            name = help = ""
        }
        BEGIN { columns = split(heads, title, "|") }
        /^[A-Z]/ && heading { flush(); print "\n## " $0; open = 0; next }
        /^[^ ]/ { flush(); heading = 1; next }
        /^$/ { flush(); heading = 1; next }
        /^  [^ ]/ {
            flush()
            line = substr($0, 3)
            at = match(line, /  +/)
            name = at ? substr(line, 1, at - 1) : line
            help = at ? substr(line, at + RLENGTH) : ""
            next
        }
        { sub(/^ +/, ""); sub(/ +$/, ""); help = help (help == "" ? "" : " ") $0 }
        END { flush() }'
}
rows() { # kolo help optimizers and the like: a name, blanks, its meaning; or the meaning below
    sed 's/^\(  [^ ][^ ]*\) \([^ ]\)/\1  \2/' | tables "$1"
}

page README 'Reference'
add <<END

Made from the programs' own tables, so it has what this version has. \`make docs\` writes it again.

| page | what |
|---|---|
| [commands.md](commands.md) | the commands of \`kolo\` |
| [options.md](options.md) | every option: recipe, command line, \`KOLO_KEY\` in the environment |
| [recipes.md](recipes.md) | the recipes, and what each reaches |
| [networks.md](networks.md) | the networks: parameters, multiply-accumulates, papers |
| [rules.md](rules.md) | optimizers, schedules, augmentations |
| [kolo-pack.md](kolo-pack.md) | options and sources of \`kolo-pack\` |
| [kolo-shards.md](kolo-shards.md) | commands of \`kolo-shards\` |
| [environment.md](environment.md) | environment variables that are no options |
END

page commands 'Commands'
"$bin/kolo" --help | awk '
    function usages() { if (fence) print "```\n"; fence = 0 }
    /^  kolo / {
        split($0, word, " ")
        if (word[2] != last) printf "\n## kolo %s\n\n```text\n", word[2]
        last = word[2]
        fence = 1
        print substr($0, 3)
    }
    /^      / { usages(); sub(/^ +/, ""); print }
    /^Exit codes/ { sub(/^Exit codes: /, ""); print "\n## Exit codes\n\n" $0 }' |
    fold -s -w 108 | sed 's/ *$//' | add

page options 'Options'
add <<END

\`key: value\` in a recipe, \`key=value\` or \`--key value\` on the command line, \`KOLO_KEY\` in the
environment. The command line wins over the environment, the environment over the site file (\`KOLO_SITE\`),
the site file over the recipe. \`kolo help KEY\` explains one option, \`kolo COMMAND --help\` lists those of a
command.
END
"$bin/kolo" help options | tables 'option|values|default|meaning' | add
{
    printf '\n## Old names\n\nThey are still read, with a warning:\n\n'
    sed -n 's/^RENAMED(\([a-z_0-9]*\), \([a-z_0-9]*\))$/- `\1` is `\2`/p' src/base/renamed.def
} | add

page recipes 'Recipes'
add <<END

\`kolo train NAME data=… val=… run=…\` takes a recipe by its name, or a file of your own by its path. A line
\`# target:\` states what the recipe reaches, \`# took:\` what was measured of it and where, \`# small:\`
which recipe tries it on a desk.

| recipe | network | reaches | took | small |
|---|---|---|---|---|
END
for recipe in share/recipes/*.yaml; do
    name=$(basename "$recipe" .yaml)
    awk -v name="$name" '
        /^# target: / { at = "target"; said[at] = substr($0, 11); next }
        /^# took: / { at = "took"; said[at] = substr($0, 9); next }
        /^# small: / { small = substr($0, 10); at = ""; next }
        /^# / && at { said[at] = said[at] " " substr($0, 3); next }
        /^model:/ { model = $2 }
        END {
            gsub(/\|/, "\\|", said["target"])
            printf "| [%s](#%s) | %s | %s | %s | %s |\n", name, name, model, said["target"], said["took"],
                small == name ? "itself" : small
        }' "$recipe"
done | add
for recipe in share/recipes/*.yaml; do
    name=$(basename "$recipe" .yaml)
    { printf '\n## %s\n\n```yaml\n' "$name"; cat "$recipe"; printf '```\n'; } | add
done

page networks 'Networks'
add <<END

\`model=NAME\`. \`kolo models NAME\` lists one of them, map by map. \`model=FILE.cfg\` reads a network of
darknet.

| network | parameters | GMACs | entries | input | finds | source |
|---|---|---|---|---|---|---|
END
"$bin/kolo" models | sed 1d | awk '{
    rest = $0
    for (i = 1; i <= 5; i++) { cut = match(rest, /[^ ]+ */); word[i] = $i;
        rest = substr(rest, RLENGTH + cut) }
    at = match(rest, /  +/)
    finds = substr(rest, 1, at - 1)
    source = substr(rest, at + RLENGTH)
    printf "| %s | %s | %s | %s | %s | %s | %s |\n", word[1], word[2], word[3], word[4], word[5], finds,
        source
}' | add

page rules 'Optimizers, schedules, augmentations'
printf '\n## Optimizers\n\n`optimizer=NAME`\n' | add
"$bin/kolo" help optimizers | rows 'optimizer|meaning' | add
printf '\n## Schedules\n\n`schedule=NAME`\n' | add
"$bin/kolo" help schedules | rows 'schedule|meaning' | add
printf '\n## Augmentations\n\n`augment=NAME` or `augment=NAME(value, key=value),NAME`\n' | add
"$bin/kolo" help augmentations | tables 'augmentation|meaning' | add

page kolo-pack 'kolo-pack'
"$bin/kolo-pack" --help | sed -n '1p' | fenced text | add
"$bin/kolo-pack" --help | sed -n '/^Packs/,/^$/p' | sed '$d' | sed '1s/^/\n/' | add
"$bin/kolo-pack" --help | sed -n '/^  --/,/^$/p' | tables 'option|values|default|meaning' | add
printf '\n## Sources\n' | add
"$bin/kolo-pack" --help | sed -n '/^sources:/,/^$/p' | sed '1d; s/^\(  [^ ][^ ]*\) \([^ ]\)/\1  \2/' |
    tables 'source|what --in is' | add
"$bin/kolo-pack" --help | sed -n 's/^exit status: /\n## Exit codes\n\n/p' | fold -s -w 108 | sed 's/ *$//' |
    add

page kolo-shards 'kolo-shards'
for command in $("$bin/kolo-shards" --help | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p'); do
    printf '\n## kolo-shards %s\n' "$command" | add
    "$bin/kolo-shards" "$command" --help | sed -n '1s/^usage: //p' | fenced text | add
    "$bin/kolo-shards" "$command" --help | sed -n '2,/^  --/p' | grep -v '^  --' | sed '$d' | fmt -w 108 | add
    "$bin/kolo-shards" "$command" --help | sed -n '/^  --/,/^$/p' | tables 'option|values|default|meaning' |
        add
done

page environment 'Environment variables'
add <<END

Every option is also a variable: \`KOLO_LR=0.2\` is \`lr=0.2\`. These variables are no options. Any other
variable \`KOLO_…\` is refused as a misspelling.

| variable | who reads it, and for what |
|---|---|
END
sed -n 's/^VARIABLE(\([A-Z_0-9]*\), "\(.*\)")$/| `KOLO_\1` | \2 |/p' src/base/environment.def | add
