#!/usr/bin/env bash
# Images and maps that are cut into parts (spatial=): ranks that compute a part each train to the bytes of one
# rank that computes them all; what they send is what the formula says; what cannot be is refused.
# tests/long/spatial.t has networks and grids, and what ranks hold.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/pipeline.sh
. tests/pipeline.sh
# shellcheck source=tests/tools/sources.sh
. tests/tools/sources.sh
# shellcheck source=tests/parts.sh
. tests/parts.sh

# --- four parts, and fewer of the last layers: on four ranks, and on one
cut=spatial=2x2,layer2:1x2,layer3.1:1x1
alone parts "$cut" swa=0.5
like "$first/summary.json" '"top1": 0\.[0-9]' "and a validation"
same 4 "$cut" swa=0.5
small_images 9
for ranks in 1 4; do
    mpiexec -n $ranks kolo eval run="$first" threads=1 deterministic=true > "$ROOM/eval.$ranks" 2> "$ROOM/log"
    is "$? $(cut -d'(' -f1 "$ROOM/eval.$ranks")" "0 $(cut -d'(' -f1 "$ROOM/eval.1")" \
        "kolo eval by $ranks" "$ROOM/log"
    mpiexec -n $ranks kolo predict run="$first" threads=1 deterministic=true "$ROOM/images" > \
        "$ROOM/predict.$ranks" 2> "$ROOM/log"
    is $? 0 "kolo predict by $ranks" "$ROOM/log"
done
like "$ROOM/eval.1" '^loss [0-9.]+  top-1 [0-9.]+' "says loss and rates"
is "$(grep -c '^/' "$ROOM/predict.1")" 9 "prints every image"
cmp "$ROOM/predict.1" "$ROOM/predict.4" > "$ROOM/log" 2>&1
ok $? "the same text" "$ROOM/log"

# --- maps early, channels late, on the same ranks, of one module in two parts, of the next in four
late="spatial=2x2,layer2:tensor=2,layer3:tensor"
alone late "$late" epochs=0 steps=3 val=none
same 4 "$late" epochs=0 steps=3 val=none
same 2 "$late" epochs=0 steps=3 val=none

# --- wide halos: fewer messages, on any number of ranks the same bytes; what is sent is what the plan says
wide=("spatial=2x2,layer3:1x2" halo=wide size=32 batch=16 epochs=0 steps=3 val=none)
alone wide "${wide[@]}"
same 4 "${wide[@]}"
same 2 "${wide[@]}"
halos() { # OPTIONS...: messages of maps that four ranks send, and receive; what `kolo plan` says of them
    local rank
    for rank in 0 1 2 3; do
        kolo plan model=resnet20 data=synthetic classes=10 size=32 batch=8 spatial=2x2 ranks=4 rank=$rank \
            threads=1 "$@" 2> "$ROOM/log"
    done > "$ROOM/plan"
    awk '/^  activations and halos/ { sent += $4; got += $6 } END { print sent, got }' "$ROOM/plan"
}
narrow=$(halos)
less=$(halos halo=wide)
is "${less#* }" "${less% *}" "with wide ones what is sent is received"
said=$(sed -nE 's/^halo=wide: .* ([0-9]+) messages a micro-batch instead of ([0-9]+),.*/\2 \1/p' \
    "$ROOM/plan" | sort -u)
is "$((${narrow% *} - ${less% *}))" "$((${said% *} - ${said#* }))" "as many fewer as kolo plan says: $said"
ok $((${less% *} < ${narrow% *} ? 0 : 1)) "and they are fewer: ${less% *}"
# what the first rank sends in a run of 3 steps, as comm counts it, is what its plan says of a step
counted() { # OPTIONS...: transfers and bytes, of the run and of three such plans
    local run=$ROOM/counted
    local small=(model=resnet20 data=synthetic classes=10 size=32 batch=8 spatial=2x2 threads=1)
    rm -rf "$run"
    mpiexec -n 4 kolo train "${small[@]}" val=none steps=3 run="$run" "$@" > "$ROOM/log" 2>&1
    sed -nE 's/.*"event":"done".*"transfers":([0-9]+),"transfer_bytes":([0-9]+).*/\1 \2/p' \
        "$run/events.jsonl"
    kolo plan "${small[@]}" ranks=4 rank=0 "$@" 2> /dev/null |
        sed -nE 's/.*; ([0-9]+) transfers of ([0-9]+) bytes to other stages.*/\1 \2/p' |
        awk '{ print 3 * $1, 3 * $2 }'
}
for halo in narrow wide; do
    counted halo=$halo > "$ROOM/counts"
    is "$(sed -n 1p "$ROOM/counts")" "$(sed -n 2p "$ROOM/counts")" \
        "halo=$halo: sent in three steps, as planned"
done
kolo train "${args[@]}" "${wide[@]}" halo=narrow steps=4 run="$first" > "$ROOM/log" 2>&1
is $? 78 "other halos than a run began with: 78" "$ROOM/log"
counted spatial=2x2,layer2:tensor=2,layer3:tensor > "$ROOM/counts"
is "$(sed -n 1p "$ROOM/counts")" "$(sed -n 2p "$ROOM/counts")" "maps, then channels: sent as planned, too"

# --- where maps become channels: part i of a map of 512 channels and 4 x 4 pixels sends part j its pixels of
# their channels, and they send as much back; nobody sends or receives the whole
for rank in 0 1 2 3; do
    kolo plan model=vgg11 data=synthetic classes=10 size=64 batch=2 micro_batch=2 threads=1 ranks=4 \
        rank=$rank spatial=2x2,features.18:tensor 2> "$ROOM/log"
done > "$ROOM/plan"
switch() { # PREFIX: messages and KiB of what is sliced for the channels' parts
    sed -nE "s/^ *[0-9]+ send $1features.17:channels[^ ]* \(([0-9.]+) KiB\).*/\1/p" "$ROOM/plan" |
        awk '{ n++; sum += $1 } END { print n + 0, sum + 0 }'
}
all_to_all="12 $((2 * 512 * 4 * 4 * 4 * 3 / 4 / 1024))"
is "$(switch '')" "$all_to_all" "each to each: messages, and three quarters of the map"
is "$(switch grad:)" "$all_to_all" "and of its gradient"
is "$(grep -cE 'send features.17:part' "$ROOM/plan")" 0 "and nobody sends its pixels of all channels"

# --- what crosses, of resnet20 on 2 x 1 parts of 16 x 16 pixels, 8 images, both ranks together, in bytes:
# halos of a row, forward and back (the image's forward alone; of a convolution with stride 2 in one
# direction), the lower half of the images and of the last map, f64 sums of norms, each parameter there and
# its gradient back
plan=(plan model=resnet20 data=synthetic classes=10 size=16 batch=8 micro_batch=8 spatial=2x1 ranks=2
    threads=1)
for rank in 0 1; do kolo "${plan[@]}" rank=$rank > "$ROOM/plan.$rank" 2> "$ROOM/log"; done
sent=$(sed -n 's/.* transfers of \([0-9]*\) bytes to other stages/\1/p' "$ROOM"/plan.[01] |
    awk '{ sum += $1 } END { print sum }')
formula=$(awk 'BEGIN {
    n = 8; f = 4
    bytes = n * 8 * 16 * 3 + 2 * n * 3 * 16 * f + 2 * n * 64 * 2 * 4 * f + 4 * f
    bytes += 2 * 2 * n * f * (6 * 16 * 16 + 5 * 32 * 8 + 5 * 64 * 4) + 2 * n * f * (16 * 16 + 32 * 8)
    for (s = 0; s < 3; s++) {
        c = 16 * 2 ^ s; norms = s ? 6 : 7
        bytes += norms * (2 * (2 * c + 1) * 8 + 2 * 2 * c * 8 + 2 * 2 * c * f)
        bytes += 2 * f * 9 * (s ? 5.5 : 6) * c * c
    }
    print bytes + 2 * f * 9 * 3 * 16
}')
is "$sent" "$formula" "what is sent in a step is the formula"
moved() { # RANK: transfers of its plan, as a list
    sed -nE "s/^ *[0-9]+ $1 ([^ ]+) \(.*/\1/p" "$ROOM/plan.$2" | sort
}
is "$(moved send 0)" "$(moved receive 1)" "what one sends the other receives"

recounted 2x2 160 3

# --- files: every rank makes its own part of the images, and none is sent; where they are changed as a whole
# the first makes them
kolo-pack --source shapes --split train --count 40 --encoding jpeg --out "$ROOM/files" > "$ROOM/log" 2>&1
files=(data="$ROOM/files" val=none epochs=0 steps=2 size=29 batch=8 crop=resized flip=true spatial=2x2)
for way in augment= augment=erase; do
    alone "$way" "${files[@]}" $way
    same 4 "${files[@]}" $way
    [ $way != augment= ] || same 2 "${files[@]}"
    kolo plan "${args[@]}" "${files[@]}" $way ranks=4 rank=3 > "$ROOM/plan" 2> "$ROOM/log"
    is "$(grep -c ' load micro-batch 0' "$ROOM/plan")" "$([ $way = augment= ]; echo $((1 - $?)))" \
        "the last of 4 ranks loads its part, unless images are augmented: $way"
done

# --- refused
refused() { # PATTERN TEXT OPTIONS...
    kolo plan model=resnet20 data=synthetic classes=10 size=16 batch=4 "${@:3}" > "$ROOM/log" 2>&1
    is $? 78 "$2: 78" "$ROOM/log"
    like "$ROOM/log" "$1" "  and why"
}
refused '3 ranks cannot be divided evenly among 4 parts; start 1 times a divisor of 4, or a multiple of 4' \
    "ranks that parts cannot be divided among" spatial=2x2 ranks=3
refused 'up to 16 are possible' "too many parts" spatial=8x8
refused 'spatial=2: no rows and columns; give the rows and the columns' "no rows and columns" spatial=2
refused 'too small for so many parts of conv1; rows: 1, 2, 3, 4, 5, 6, 7, 8; columns: 1, 2, 3' \
    "more parts than rows, with the numbers that are possible" spatial=16x1 size=8
refused 'begins with no operation that works on parts' "a network that takes images whole" spatial=2x2 \
    model=mlp
refused 'features.7:2x2: .* in 1 x 1 windows cannot be cut so; rows: 1; columns: 1' \
    "attention in one window, cut" spatial=2x2,features.7:2x2 model=swin_t size=224
refused 'resnet20 has no module layer4; did you mean layer' "an unknown module" spatial=2x2,layer4:1x1
refused 'halo=wide: spatial=1x1 cuts no images' "wide halos of images that are whole" halo=wide
refused 'layer3:tensor=3: no layers of resnet20 from there on can be cut into 3 parts.*possible: 1, 2, 4, 5' \
    "channels late in parts that divide nothing" spatial=3x1,layer3:tensor
refused 'channels from layer3 on, and tensor=2: channels of all layers' "channels twice" \
    spatial=2x2,layer3:tensor tensor=2
refused 'say how many, tensor=PARTS' "channels of an image in one part" spatial=1x1,layer3:tensor
refused 'layer2:tensor=32: up to 16 parts are possible' "channels in too many parts" \
    spatial=2x2,layer2:tensor=32
refused 'neither rows and columns nor tensor=PARTS' "parts that are no number" spatial=2x2,layer3:tensor=two
refused 'layer2:tensor=3: no layers of resnet20 from there to layer3 can be cut .*possible: 1, 2, 4' \
    "channels of a range in parts that divide nothing" spatial=2x2,layer2:tensor=3,layer3:tensor=4
refused 'layer2 is not behind the module in front of it' "channels in another order than the network's" \
    spatial=2x2,layer3:tensor=2,layer2:tensor=4
refused 'where channels are cut maps are whole' "maps behind channels" spatial=2x2,layer2:tensor,layer3:1x2
refused 'layer3:4x1 is finer than the image' "more rows than the image's" spatial=2x2,layer3:4x1
kolo train "${args[@]}" epochs=3 run="$first" spatial=1x2 > "$ROOM/log" 2>&1
is $? 78 "other parts than a run began with: 78" "$ROOM/log"
like "$ROOM/log" 'spatial' "  by the name of the key"
done_testing
