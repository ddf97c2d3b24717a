#!/usr/bin/env bash
# The golden program: whole networks against another program's figures, and what it does with a folder, a
# file, a wrong figure.
. "$(dirname "$0")/../lib.sh"
golden() { "$BUILD/tests/golden" "$@" >"$ROOM/out" 2>&1; }
[ -x "$BUILD/tests/golden" ] || skip_all "build/tests/golden is not built"
models=tests/golden/models

for case in inventory lenet5 mlp resnet20_cifar_a_16 resnet20_cifar_b_16 resnet18_64 resnet50_64_bias \
    convnext_tiny_96 swin_t_160 vit_s_16_64 mobilenet_v3_small_96 yolox_nano_128; do
    golden "$models/$case.json"
    status=$?
    ok $status "$case: $(grep -c '^ok' "$ROOM/out") checks pass"
    [ $status = 0 ] || sed 's/^/# /' "$ROOM/out"
    is "$(grep -c SKIP "$ROOM/out")" 0 "$case: all of it"
done

golden tests/golden/detect
status=$?
ok $status "detection: $(grep -c '^ok' "$ROOM/out") checks pass"
[ $status = 0 ] || grep -A1 '^not ok' "$ROOM/out" | sed 's/^/# /'

mkdir -p "$ROOM/case/sub"
cp "$models/lenet5.json" "$ROOM/case"
sed 's/"model":"mlp"/"model":"unheard_of"/' "$models/mlp.json" >"$ROOM/case/unheard_of.json"
cp tests/golden/ops/relu.json "$ROOM/case/sub"
golden "$ROOM/case"
ok $? "a folder of cases and folders passes"
like "$ROOM/out" '^ok .*models/lenet5 gradients' "a folder of cases: a known case passes"
like "$ROOM/out" '^ok .* SKIP .*this build lacks the network unheard_of' \
    "a folder of cases: an unknown network is skipped"
like "$ROOM/out" '^ok .*ops/relu' "those of inner folders too"

sed '/"loss":/s/"f64":2\./"f64":3./' "$models/lenet5.json" >"$ROOM/case/lenet5.json"
golden "$ROOM/case/lenet5.json"
is $? 1 "a wrong figure fails"
like "$ROOM/out" '^not ok .*models/lenet5 loss:' "a wrong figure fails: the message names it"
# the seed is the file's, of a network's weights as of the numbers that its heads are multiplied with
for case in lenet5 yolox_nano_128; do
    sed 's/^ *"seed":1,/"seed":2,/' "$models/$case.json" >"$ROOM/case/lenet5.json"
    golden "$ROOM/case/lenet5.json"
    is $? 1 "$case with another seed than its figures are of fails"
    sed '/^ *"seed":1,/d' "$models/$case.json" >"$ROOM/case/lenet5.json"
    golden "$ROOM/case/lenet5.json"
    like "$ROOM/out" '^not ok .*states its seed' "$case without a seed fails"
done
sed 's/"resnet50":/"resnet50_1000_classes":/' "$models/inventory.json" >"$ROOM/case/inventory.json"
golden "$ROOM/case/inventory.json"
ok $? "an inventory with other numbers of classes in names passes" "$ROOM/out"
like "$ROOM/out" '^ok .*models/inventory resnet50_1000_classes: 25557032 parameters' \
    "names with _classes suffixes: the case passes"
golden "$ROOM/nothing"
is $? 1 "a path that is not there: exit 1"
done_testing
