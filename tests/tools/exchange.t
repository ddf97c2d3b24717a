#!/usr/bin/env bash
# Weights from one form to another, what does not fit, and kolo predict. (Beside other programs:
# tests/peers/exchange.py.)
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cd "$ROOM" || exit 1
convert() { kolo export "$@" > log 2>&1; }

# --- forms
convert model=resnet20 seed=3 a.safetensors && convert model=resnet20 weights=a.safetensors a.weights
is $? 0 "darknet's form"
is "$(stat -c %s a.weights)" $((20 + 4 * (269722 + 2 * 688))) "20 bytes, then every number once"
convert model=resnet20 weights=a.weights b.safetensors && cmp -s a.safetensors b.safetensors
ok $? "safetensors to .weights and back: the same file"
head -c $((20 + 4 * (4 * 16 + 16 * 27))) a.weights > part.weights
convert model=resnet20 weights=part.weights seed=3 c.safetensors && cmp -s a.safetensors c.safetensors
ok $? "a file may end between two layers"
like log "ends before the network does: .* stay as initialised: layer1.0.conv1.weight" "what it lacks is said"
head -c 1000 a.weights > cut.weights
convert model=resnet20 weights=cut.weights c.safetensors
is $? 2 "cut within a layer: exit 2"
convert model=resnet20 weights=a.safetensors export_dtype=bf16 half.safetensors
is $(($(stat -c %s half.safetensors) * 10 / $(stat -c %s a.safetensors))) 5 "bf16: half of the numbers' bytes"
convert model=resnet20 weights=half.safetensors export_dtype=bf16 half2.safetensors &&
    cmp -s half.safetensors half2.safetensors
ok $? "bf16 written and read back: the same file"

for name in x.pth x.pt plain x.safetensors.gz; do
    convert model=lenet5 seed=1 "$name"
    is "$? $([ -e "$name" ] && echo written)" "78 " "$name: exit 78, and nothing is written"
    like log "$name: .*end it in .safetensors, .weights or .onnx" "$name: the message lists the endings"
done

# --- names
convert model=swin_t seed=1 names=paper paper.safetensors && convert model=swin_t seed=1 own.safetensors
grep -aq '"layers.2.downsample.reduction.weight"' paper.safetensors
ok $? "the paper's names"
convert model=swin_t weights=paper.safetensors seed=2 again.safetensors &&
    cmp -s own.safetensors again.safetensors
ok $? "the paper's names: read back to the same file"
like log "paper.safetensors: .* under the paper's names" "the paper's names: the log names them"
convert model=lenet5 names=timm x.safetensors
is $? 78 "names that nobody knows: exit 78"

# --- what does not fit
convert model=resnet20 classes=7 weights=a.safetensors x.safetensors
is $? 78 "another number of classes: exit 78"
like log "2 of another shape: linear.weight .F32 10x64, the model has 7x64., linear.bias" \
    "another number of classes: the message has both shapes"
convert model=resnet32 weights=a.safetensors x.safetensors
like log "layer1.3.conv1.weight, .* and [0-9]+ more" "missing tensors: ten, then how many more"

header='{"linear.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}' long=$(printf 'x%.0s' {1..200})
for i in {10..59}; do \
    header+=",\"$long$i\":{\"dtype\":\"F32\",\"shape\":[1],"
    header+="\"data_offsets\":[$((4 * i - 36)),$((4 * i - 32))]}"; done
framed() { # HEADER BYTES: a file of safetensors
    # shellcheck disable=SC2059
    printf "\\x$(printf %x $((${#1} % 256)))\\x$(printf %x $((${#1} / 256)))\\0\\0\\0\\0\\0\\0" &&
        printf '%s' "$1" && head -c "$2" /dev/zero
}
framed "$header}" 204 > long.safetensors
convert model=resnet20 weights=long.safetensors x.safetensors
is $? 78 "fifty long names: exit 78"
like log \
    'error: kolo export: .*missing: .*; 50 unknown: .*; 1 of another shape: linear.weight .F32 1, the model has 10x64.$' \
    "no kind pushes another out"
first_names() {
    is "$(sed -n 's/.* missing: \([^;]*\) and [0-9]* more;.*/\1/p' log | tr , '\n' | wc -l)" 10 "$1"
}
first_names "ten of a kind are named"
like log '[0-9]+ missing: .* and [0-9]+ more; 50 unknown: .* and 4[0-9] more; ' "  and how many more"
kolo train model=resnet20 data=synthetic size=32 batch=8 steps=1 threads=1 deterministic=true \
    init=long.safetensors init_head=load run=long > log 2>&1
first_names "by kolo train too, whose run ends before it says so"

# --- predict
kolo-pack --source shapes --count 3 --size 28 --color gray --encoding raw --out data > log 2>&1
kolo-shards extract data --out images >> log 2>&1
mapfile -t images < <(find images -type f -name '*.png' | sort)
convert model=lenet5 seed=1 l.safetensors
kolo predict model=lenet5 weights=l.safetensors "${images[@]}" --logits all.json top=2 deterministic=true \
    > out 2> log
is $? 0 "predict"
is "$(grep -c '%' out)" $((2 * ${#images[@]})) "two classes for each image"
kolo predict model=lenet5 weights=l.safetensors "${images[1]}" --logits one.json deterministic=true > \
    /dev/null 2>> log
rounded() { grep -o ':\[[^]]*' | tr -d ':[' | tr , '\n' | awk '{printf "%.5f ", $1}'; }
is "$(rounded < one.json)" "$(sed -n 2p all.json |
    rounded)" "an image alone gives what it gives among others"
kolo predict model=lenet5 weights=l.safetensors "${images[0]}" out=drawn > /dev/null 2> log
is "$? $(grep -c 'out= is for networks that find boxes' log)" "78 1" "classes are not drawn: exit 78"
seq 0 9 | sed 's/^/name /' > names
kolo predict model=lenet5 weights=l.safetensors "${images[0]}" labels=names top=10 2>> log |
    grep -q '  7  name 7$'
ok $? "names of classes"
kolo predict model=lenet5 weights=l.safetensors names > /dev/null 2> log
is $? 2 "a file that is no image: exit 2"
like log "names: " "a file that is no image: the message names it"
mkdir -p mixed/below mixed/none && cp "${images[0]}" mixed/a.png && cp "${images[1]}" mixed/below/c.png &&
    cp names mixed/below/names
head -c 60 "${images[2]}" > mixed/b.png
some() { # WORDS...: status, what was shown, how many are in the list
    kolo predict model=lenet5 weights=l.safetensors "$@" top=1 logits=some.json deterministic=true > out 2> \
        log
    echo "$? $(grep -v % out | tr '\n' ' ')$(grep -c logits some.json)"
}
is "$(some mixed/b.png mixed/a.png mixed/below/c.png)" "2 mixed/a.png mixed/below/c.png 2" \
    "one bad image of three: the others are shown, exit 2"
like log 'mixed/b.png: .*; it is left out' \
    "one bad image of three: the others are shown: the message names it"
like log '1 of 3 images could not be read' "one bad image of three: the message counts it"
is "$(rounded < some.json)" "$(sed -n '1p;2p' all.json |
    rounded)" "the others' logits are theirs, and a list of JSON"
rm mixed/b.png
is "$(some mixed/)" "0 mixed/a.png mixed/below/c.png 2" "a folder: the images in it and below, by name"
is "$(some mixed/none | cut -c 1)" 2 "a folder without an image: exit 2"
kolo predict model=lenet5 "${images[0]}" > /dev/null 2> log
is $? 78 "no weights: exit 78"
for missing in "${images[0]} nowhere.png" "nowhere.png weights=l.safetensors" \
    "${images[0]} weights=nowhere.png" "${images[0]} labels=nowhere.png"; do
    # shellcheck disable=SC2086
    KOLO_CACHE=$ROOM/untimed kolo predict model=lenet5 weights=l.safetensors $missing > /dev/null 2> log
    is "$? $([ -e untimed/choices ] &&
        echo timed)" "2 " "what is not there is said before anything is timed: exit 2"
    like log 'nowhere.png: No such file' "an image that is missing: the message names it"
done
printf 'model: lenet5\nmean: 0.5\nstd: 0.25\nlr: 3\n' > other.yaml
logits() { # WORDS...
    kolo predict "$@" weights=l.safetensors "${images[0]}" --logits words.json deterministic=true > \
        /dev/null 2> log && rounded < words.json
}
plain=$(logits model=lenet5) stated=$(logits model=lenet5 mean=0.5 std=0.25)
[ -n "$stated" ] && [ "$plain" != "$stated" ]
ok $? "another mean gives other numbers"
is "$(logits other.yaml)" "$stated" "a recipe as first word: its transform"
is "$(logits lenet5_mnist)" "$plain" "the name of a recipe as first word: its transform"
like log 'lenet5_mnist uses its data set.s mean and deviation, .* MNIST' \
    "a recipe without a mean: the log names the one used"
kolo predict other.yaml run=nowhere "${images[0]}" > /dev/null 2> log
is $? 78 "a recipe and a run: exit 78"

{ head -c -4 l.safetensors && printf '\0\0\300\177'; } > nan.safetensors
kolo predict model=lenet5 weights=nan.safetensors "${images[0]}" --logits nan.json > out 2> log
is "$? $(wc -c < out) $([ -e nan.json ] &&
    echo written)" "2 0 " "weights that are not numbers: exit 2, and no classes"
like log \
    'nan.safetensors: tensor "[a-z0-9.]*" holds what is not a number .element [0-9]*.: .*take an earlier one' \
    "weights that are not numbers: the message names the tensor"
{ head -c -4 l.safetensors && printf '\0\0\200\177'; } > infinite.safetensors
convert model=lenet5 weights=infinite.safetensors x.weights
is "$? $([ -e x.weights ] && echo written)" "2 " "infinite weights: exit 2, nothing is written"
{ head -c -3360 l.safetensors && head -c 3360 /dev/zero | tr '\0' '\177'; } > large.safetensors
kolo predict model=lenet5 weights=large.safetensors "${images[0]}" --logits nan.json > out 2> log
is "$? $(wc -c < out) $([ -e nan.json ] && echo written)" "2 0 " \
    "logits that overflow: exit 2, nothing is printed or written"
like log 'not a number: these weights' "logits that overflow: the message says so"
for wrong in "lenet5 2" "lenet5 4" "yolox_nano 1"; do
    convert model="${wrong% *}" channels="${wrong#* }" x.safetensors
    is $? 78 "${wrong% *} of ${wrong#* } channels, which no image is read as: exit 78"
done
convert model=lenet5 weights=l.safetensors nowhere/x.safetensors
is $? 3 "a folder that is not there: exit 3"
like log 'nowhere/x.safetensors: cannot create: .*; make its folder' \
    "a missing folder: the message has the path that was given"

# --- where it is written, and what only looks like weights
mkdir a.onnx && ln -s l2.safetensors link.safetensors && echo old > l2.safetensors
convert model=lenet5 weights=l.safetensors link.safetensors && [ -L link.safetensors ] &&
    cmp -s l.safetensors l2.safetensors
ok $? "a link stays one: the file that it leads to is replaced"
if built_without ONNX; then
    skip "a folder is none to be replaced: ONNX is not in this build"
else
    convert model=lenet5 weights=l.safetensors a.onnx
    is "$? $(grep -c 'a.onnx: a folder; name a file in it' log)" "2 1" "a folder is none to be replaced"
fi
for end in safetensors weights; do
    ln -s /dev/full "full.$end" && convert model=lenet5 weights=l.safetensors "full.$end"
    is "$? $([ -L "full.$end" ] && ls)" "3 $(ls)" "full.$end: no space: exit 3, and nothing is left aside"
    like log "full.$end: cannot write: No space left on device; free space" \
        "full.$end: no space: the message says so"
done
ln -s /dev/stdout out.json && kolo predict model=lenet5 weights=l.safetensors "${images[0]}" --logits \
    out.json deterministic=true 2> log | grep -q '"logits":\['
ok $? "a device is written to, and stays one"
mkfifo pipe.pth && timeout 20 kolo export model=lenet5 weights=pipe.pth x.safetensors > log 2>&1
is "$? $(grep -c 'pipe.pth: not a file' log)" "2 1" "a pipe is no file of weights, and nobody waits for it"
printf 'version https://git-lfs.github.com/spec/v1\n' > pointer.pth &&
    convert model=lenet5 weights=pointer.pth x.safetensors
like log 'pointer.pth: it starts with "version https://git-lfs.*download it again' \
    "what is no weights: how it begins"
framed '{"a\nb\u001b[31m":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}' 4 > control.safetensors
convert model=lenet5 weights=control.safetensors x.safetensors
like log '1 unknown: a b.\[31m$' "names with control characters make no lines of their own"

# --- ONNX
convert model=lenet5 weights=l.safetensors l.onnx
status=$?
if built_without ONNX; then
    is $status 78 "ONNX: refused where it was not built in"
    like log "built without ONNX" "ONNX: refused where it was not built in: the message says why"
else
    [ "$(stat -c %s l.onnx)" -gt $((4 * 61706)) ] && grep -aq Gemm l.onnx && grep -aq fc3.weight l.onnx
    ok $? "ONNX: operations and weights" && is $status 0 "ONNX: exit 0"
fi
done_testing
