#!/usr/bin/env bash
# What README.md and docs/ name is there: commands, options, templates, files, links, exit codes. What they
# show runs in commands.t.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need kolo kolo-pack kolo-shards perl
names() { env -u KOLO_CACHE -u KOLO_SHARED -u KOLO_BUILD perl tests/docs/names.pl "$BUILD" "$@" 2>&1; }
none "README.md and docs/: commands, options, recipes, files and links are there" \
    "$(names README.md docs/*.md)"
# the check itself: a page whose every name is wrong
cat > "$ROOM/page.md" <<'END'
Set `lrr=3`, `precision=f33` or `KOLO_NOTHING`, as `share/recipes/none.yaml` does. See [this](nowhere.md).

```console
kolo trane shapes
kolo train shapez lrr=3
kolo train shapes optimizer=sgd nesterov=perhaps --all
kolo-pack --source shapez --spit train
KOLO_RECIPE=none KOLO_SITE_ENV=carrier-pigeon sbatch --nodes=2 jobs/none.sh
make nothing
srun --mpi=pmix kolo plan resnet51
rm -rf /
```
END
names "$ROOM/page.md" | sed 's/.*page.md:[0-9]*: //' > "$ROOM/rows"
for row in 'no option lrr=' 'precision=f33: ' 'nobody reads KOLO_NOTHING' 'no file share/recipes/none.yaml' \
    'no file nowhere.md' 'kolo has no command trane' 'no recipe or network shapez' \
    'kolo train has no option lrr' 'nesterov=perhaps: ' 'kolo train has no --all' 'no source shapez' \
    'kolo-pack has no --spit' 'no recipe none' 'no share/site/carrier-pigeon.sh' 'sbatch: no template' \
    'make has no target nothing' 'no recipe or network resnet51' 'what is rm'; do
    grep -qF -- "$row" "$ROOM/rows"
    ok $? "a wrong name is found: $row" || diag < "$ROOM/rows"
done
# every guide is in the lists of guides, and every page of docs/ is a guide
for page in docs/*.md; do
    name=${page#docs/}
    [ "$name" != README.md ] || continue
    grep -qF "(docs/$name)" README.md && grep -qF "($name)" docs/README.md
    ok $? "$page: README.md and docs/README.md lead to it"
    like "$page" '^\*\*Task:\*\* ' "$page: it begins with a task"
done
for code in $(kolo --help | sed -n 's/^Exit codes: //p' | grep -oE '(^|, )[0-9]+' | grep -oE '[0-9]+'); do
    like docs/failures.md "^\\| $code \\| " "docs/failures.md: exit code $code has a row"
done
[ "$(wc -l < README.md)" -lt 120 ]
ok $? "README.md has less than 120 lines"
none "its lines end at column 100" "$(perl -CSD -lne 'print "$.: $_" if length > 100' README.md)"
done_testing
