#!/usr/bin/env bash
# freeze=: what is named and all before it stays as it was, byte for byte, and takes no memory or time for
# gradients; init= from a run, and from weights under a prefix.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack python3
export OMP_NUM_THREADS=1
shapes_data 64 16
T=(kolo train shapes data="$ROOM/data/train" val=none model=resnet20 size=16 channels=3 batch=16 threads=1
    lr=0.05 momentum=0.9 conv=direct)
# FILE: NAME SHA of every tensor of a safetensors file; with a pattern, of those whose names match
sums() {
    python3 - "$@" << 'END'
import hashlib, json, re, struct, sys
data = open(sys.argv[1], "rb").read()
(length,) = struct.unpack("<Q", data[:8])
header = json.loads(data[8:8 + length])
for name in sorted(header):
    if name == "__metadata__" or "num_batches" in name:
        continue
    if len(sys.argv) < 3 or re.search(sys.argv[2], name):
        begin, end = header[name]["data_offsets"]
        print(name, hashlib.sha1(data[8 + length + begin:8 + length + end]).hexdigest())
END
}
checkpoint() { find "$1/checkpoints" -name tensors.safetensors | sort | tail -n 1; }
arena() { awk -v name="$1" '$1 == name { print $2; exit }' "$2"; } # of a printed plan: bytes

"${T[@]}" steps=2 run="$ROOM/start" > "$ROOM/log" 2>&1 || diag < "$ROOM/log"
kolo export "$ROOM/start" "$ROOM/start.safetensors" > "$ROOM/log" 2>&1 || diag < "$ROOM/log"

"${T[@]}" steps=3 run="$ROOM/frozen" init="$ROOM/start" freeze=layer1 > "$ROOM/log" 2>&1
ok $? "init=RUN freeze=layer1: exit 0" "$ROOM/log"
before='^(conv1|bn1|layer1)\.' after='^(layer2|layer3|linear)\.'
is "$(sums "$(checkpoint "$ROOM/frozen")" "$before" | sum)" \
    "$(sums "$ROOM/start.safetensors" "$before" | sum)" \
    "  stem and layer1 are as in that run, their statistics too"
is "$(comm -12 <(sums "$(checkpoint "$ROOM/frozen")" "$after") <(sums "$ROOM/start.safetensors" "$after") |
    grep -c .)" 0 "  all behind them is trained"
is "$(sums "$(checkpoint "$ROOM/frozen")" '^momentum:' | wc -l)" \
    "$(sums "$(checkpoint "$ROOM/start")" '^momentum:(layer2|layer3|linear)' | wc -l)" \
    "  what is frozen has no momentum"

kolo plan "${T[@]:2}" steps=3 > "$ROOM/all" 2>&1 || diag < "$ROOM/all"
kolo plan "${T[@]:2}" steps=3 freeze=layer2 > "$ROOM/less" 2>&1 || diag < "$ROOM/less"
for name in gradients optimizer activations peak; do
    [ "$(arena $name "$ROOM/less")" -lt "$(arena $name "$ROOM/all")" ]
    ok $? "kolo plan freeze=layer2: less for $name"
done
gradients() { awk '$3 == "conv_grad_weight" { n += $1 } END { print n + 0 }' "$1"; } # of weights, in a plan
is "$(gradients "$ROOM/less") of $(gradients "$ROOM/all")" "6 of 19" "  no gradient before layer3 is formed"

"${T[@]}" steps=6 run="$ROOM/frozen" init="$ROOM/start" freeze=layer2 > "$ROOM/log" 2>&1
is $? 78 "a resume with another freeze=: exit 78"
like "$ROOM/log" 'freeze' "  which is named"
"${T[@]}" steps=1 run="$ROOM/no" freeze=layre2 > "$ROOM/log" 2>&1
is $? 78 "a module that is not there: exit 78"
like "$ROOM/log" 'resnet20 has no module layre2; did you mean layer2' "  the nearest one is named"
"${T[@]}" steps=1 run="$ROOM/no" freeze=linear > "$ROOM/log" 2>&1
is $? 78 "all of it: exit 78"

# ranks, with and without parts instead of copies: the same bits
U=("${T[@]}" steps=3 init="$ROOM/start" freeze=layer1 ema=0.9 reduce=canonical micro_batch=8)
if ranks_start; then
    for shard in none optimizer parameters; do
        mpiexec -n 2 "${U[@]}" run="$ROOM/$shard" shard=$shard > "$ROOM/log" 2>&1 || diag < "$ROOM/log"
    done
    "${U[@]}" run="$ROOM/one" > "$ROOM/log" 2>&1 || diag < "$ROOM/log"
    for shard in none optimizer parameters; do
        is "$(sums "$(checkpoint "$ROOM/$shard")" | sum)" "$(sums "$(checkpoint "$ROOM/one")" | sum)" \
            "two ranks, shard=$shard: as one rank"
    done
    for parts in spatial=1x2 tensor=2 "spatial=1x2 halo=wide"; do # copies of what is frozen have no gradient
        read -r -a words <<< "$parts"
        for ranks in 1 2; do
            mpiexec -n $ranks "${U[@]}" run="$ROOM/${parts// /-}-$ranks" "${words[@]}" > "$ROOM/log" 2>&1 ||
                diag < "$ROOM/log"
        done
        is "$(sums "$(checkpoint "$ROOM/${parts// /-}-2")" | sum)" \
            "$(sums "$(checkpoint "$ROOM/${parts// /-}-1")" | sum)" "$parts on two ranks: as on one"
        [ -d "$ROOM/${parts// /-}-2/checkpoints" ]
        ok $? "  which have trained"
    done
else
    skip "two ranks: built without MPI"
fi

# a prefix before every name
python3 - "$ROOM/start.safetensors" "$ROOM/prefixed.safetensors" << 'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
(length,) = struct.unpack("<Q", data[:8])
header = {(name if name == "__metadata__" else "model.backbone." + name): value
          for name, value in json.loads(data[8:8 + length]).items()}
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data[8 + length:])
END
kolo export model=resnet20 classes=10 weights="$ROOM/prefixed.safetensors" "$ROOM/back.safetensors" \
    > "$ROOM/log" 2>&1
ok $? "weights under model.backbone.: exit 0" "$ROOM/log"
like "$ROOM/log" 'without "model.backbone."' "  the prefix is named"
is "$(sums "$ROOM/back.safetensors" | sum)" "$(sums "$ROOM/start.safetensors" | sum)" "  the same tensors"
done_testing
