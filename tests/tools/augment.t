#!/usr/bin/env bash
# The options augment, interpolation, repeat, mixup: from the command line or a recipe into
# a run and its record.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
export KOLO_CACHE=$ROOM/cache # no other test's choices between two of its runs
shapes_data 128 32
LIST='randaugment(2,9),erase(0.25),jitter(0.4,0.4,0.4,0.1)'
train() { # RUN OPTION...
    local run=$1
    shift
    kolo train shapes data="$ROOM/data/train" val="$ROOM/data/val" run="$ROOM/$run" batch=32 epochs=1 \
        threads=1 "$@" > "$ROOM/log" 2>&1
}
losses() { grep -o '"loss":[0-9.e+-]*' "$ROOM/$1/events.jsonl"; }

train one augment="$LIST" interpolation=bicubic repeat=2 readers=1
is $? 0 "a run with parameters, bicubic resizing and two views of an image"
like "$ROOM/one/recipe.yaml" "^augment: .*randaugment\(2,9\),erase\(0.25\),jitter\(0.4,0.4,0.4,0.1\)" \
    "its record holds the text"
train two augment="$LIST" interpolation=bicubic repeat=2 readers=3
is "$(losses two)" "$(losses one)" "three readers: the losses of one"
train three augment="randaugment(2,10),erase(0.25),jitter(0.4,0.4,0.4,0.1)" interpolation=bicubic repeat=2
[ "$(losses three)" != "$(losses one)" ]
ok $? "another magnitude: other losses"
train one augment="$LIST,cutout" interpolation=bicubic repeat=2 epochs=2
is $? 78 "going on with other augmentations is refused"
like "$ROOM/log" "augment" "going on with other augmentations is refused: the difference is named"

printf 'model: resnet20\nsize: 32\ncrop: resized\naugment: [randaugment(2,9), erase(0.25)]\n' > \
    "$ROOM/recipe.yaml"
kolo train "$ROOM/recipe.yaml" data="$ROOM/data/train" run="$ROOM/four" batch=32 steps=1 threads=1 > \
    "$ROOM/log" 2>&1
is $? 0 "a list in a recipe"
like "$ROOM/four/recipe.yaml" "randaugment\(2,9\),erase\(0.25\)" "a list in a recipe: one text in recipe.yaml"

train five augment="randaugmnet(2,9)"
is $? 78 "an unknown name: exit 78"
like "$ROOM/log" "did you mean .randaugment." "an unknown name: the nearest one is offered"
train five augment="erase(1.5)"
is $? 78 "a number out of its range: exit 78"
like "$ROOM/log" "probability=1.5 lies outside 0 to 1" "named with its range"
train plain
for key in mixup cutmix; do
    train "$key" $key=0.8
    is $? 0 "$key trains"
    [ "$(losses "$key")" != "$(losses plain)" ]
    ok $? "$key: other losses than without it"
done
kolo help augmentations > "$ROOM/help"
like "$ROOM/help" \
    "erase\(probability=0.5, area_min=0.02, area_max=0.33, aspect_min=0.3, aspect_max=3.3, noise=0\)" \
    "help shows parameters and their standard values"
done_testing
