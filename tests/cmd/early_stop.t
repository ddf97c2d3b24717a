#!/usr/bin/env bash
# early_stop=: a run ends so many epochs behind its best validation, and says so.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack
export OMP_NUM_THREADS=1
shapes_data 64 32
T=(kolo train shapes data="$ROOM/data/train" val="$ROOM/data/val" model=mlp size=16 batch=32 threads=1
    epochs=40)
figures() { # RUN: EPOCH TOP-1, of each validation (two steps an epoch)
    sed -n 's/.*"event":"eval","step":\([0-9]*\),.*"top1":\([0-9.]*\),.*/\1 \2/p' "$1/events.jsonl" |
        awk '{ print $1 / 2, $2 }'
}
# the rule itself, over the validations of a run that was not stopped
expected() { # RUN PATIENCE
    figures "$1" | awk -v patience="$2" 'NR == 1 || $2 > best { best = $2; at = $1 }
        $1 - at >= patience { print $1; exit }'
}
steps() { sed -n 's/.*"steps": *\([0-9]*\).*/\1/p' "$1/summary.json" | head -n 1; }

# a rate of 0: nothing is ever better than the first validation
"${T[@]}" lr=0 run="$ROOM/flat" early_stop=3 > "$ROOM/log" 2>&1
ok $? "a run that learns nothing, early_stop=3: exit 0" "$ROOM/log"
is "$(steps "$ROOM/flat")" 8 "  it ends three epochs behind the first validation: 4 of 40"
like "$ROOM/log" 'early_stop=3 ends the run after step 8 of 80: top1 .* after step 2 is still the best' \
    "  and says which was the best"
like "$ROOM/flat/summary.json" '"state": *"done"' "  it is done"
"${T[@]}" lr=0 run="$ROOM/flat" early_stop=3 > "$ROOM/log" 2>&1
ok $? "the same command again: exit 0" "$ROOM/log"
like "$ROOM/log" 'is complete: 8 steps, where early_stop' "  it is complete"
is "$(steps "$ROOM/flat")" 8 "  and no step more is done"
"${T[@]}" lr=0 run="$ROOM/flat" early_stop=5 > "$ROOM/log" 2>&1
is "$(steps "$ROOM/flat")" 12 "early_stop=5: it goes on from there, for two epochs"

"${T[@]}" lr=0.05 run="$ROOM/whole" > "$ROOM/log" 2>&1 || diag < "$ROOM/log"
"${T[@]}" lr=0.05 run="$ROOM/early" early_stop=2 > "$ROOM/log" 2>&1 || diag < "$ROOM/log"
want=$(expected "$ROOM/whole" 2)
is "$(($(steps "$ROOM/early") / 2))" "$want" \
    "a run that learns, early_stop=2: by its own validations epoch $want"
is "$(figures "$ROOM/early")" "$(figures "$ROOM/whole" | head -n "$want")" \
    "  until then its validations are those of a run that is not stopped"

"${T[@]}" lr=0 run="$ROOM/every" eval_epochs=2 early_stop=3 stop_step=10 > "$ROOM/log" 2>&1
"${T[@]}" lr=0 run="$ROOM/every" eval_epochs=2 early_stop=3 > "$ROOM/log" 2>&1
is "$?$(steps "$ROOM/every")" 012 \
    "eval_epochs=2, stopped after epoch 5, where no validation is: it goes on to that of epoch 6"
"${T[@]}" val=none run="$ROOM/none" early_stop=3 > "$ROOM/log" 2>&1
is $? 78 "early_stop= and no validation data: 78"
"${T[@]}" swa=2 run="$ROOM/none" early_stop=3 > "$ROOM/log" 2>&1
is $? 78 "early_stop= and swa=: 78"
done_testing
