#!/usr/bin/env bash
# A newcomer who knows README.md and docs/train.md alone: from a folder of own photos to a report in
# at most six commands. They are those of the page, as they stand there; only the photos are small and
# the training short.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need kolo kolo-pack kolo-shards
export OMP_NUM_THREADS=1
like README.md '\]\(docs/train\.md' "README.md leads to docs/train.md"
mapfile -t commands < <(awk '/^## /{in_part = 0} /^## Your own images/{in_part = 1}
    in_part && /^```$/{exit} in_part && in_block{print} in_part && /^```console/{in_block = 1}' docs/train.md)
[ ${#commands[@]} -ge 2 ] && [ ${#commands[@]} -le 6 ]
ok $? "from photos to a report in at most six commands (${#commands[@]})"

# photos: a folder for each class
shapes_data 96 1
kolo-shards extract "$ROOM/data/train" --out "$ROOM/files" > "$ROOM/log" 2>&1 || diag < "$ROOM/log"
mkdir -p "$ROOM/home/photos"
folder=$(find "$ROOM/files" -type f -name '*.jpg' -printf '%h\n' | sort | head -n 1)
cp -r "$(dirname "$folder")/." "$ROOM/home/photos/"
[ "$(find "$ROOM/home/photos" -name '*.jpg' | wc -l)" -ge 90 ]
ok $? "a folder of photos, one folder a class" "$ROOM/log"

# the options of a short run, which a newcomer who has time leaves out
export KOLO_EPOCHS=1 KOLO_SIZE=32 KOLO_MODEL=resnet20 KOLO_WARMUP=0 KOLO_THREADS=1
for command in "${commands[@]}"; do
    (cd "$ROOM/home" && eval "timeout 100 $command") > "$ROOM/log" 2>&1
    ok $? "$command: exit 0" "$ROOM/log"
done
report=$(find "$ROOM/home" -name '*.html')
is "$(grep -c '<svg' "$report" | sed 's/^[1-9].*/plots/')" plots "the report is a page with plots"
like "$report" 'top-1' "  and says what was reached"
done_testing
