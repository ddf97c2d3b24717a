#!/usr/bin/env bash
# local_steps= and swap=: ranks with weights of their own. A run that stops goes on with the bits of one that
# never did, looking changes nothing, and what does not go together is refused by name.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack mpiexec python3
cd "$ROOM" || exit 1
shapes_data 96 32
export OMP_NUM_THREADS=1
T=(kolo train shapes data=data/train val=data/val model=resnet20 size=16 batch=32 threads=1 lr=0.05
    deterministic=true epochs=4 checkpoint_steps=12)
ranks() { # NUMBER RUN WORDS...
    timeout 100 mpiexec -n "$1" "${T[@]}" run="$2" "${@:3}" > log 2>&1
}
newest() { find "$1/checkpoints" -maxdepth 1 -name 'step-*' | sort | tail -n 1; }
alike() { # RUN RUN TEXT: all that the newest checkpoints hold
    local a b
    a=$(newest "$1") b=$(newest "$2")
    cmp -s "$a/tensors.safetensors" "$b/tensors.safetensors" && cmp -s "$a/carried" "$b/carried"
    ok $? "$3"
}
tensors() { # FILE EXPRESSION of w(NAME), the numbers of a tensor, and names
    python3 - "$@" << 'PY'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + n])
names = [k for k in head if k != "__metadata__"]
def w(name):
    a, b = head[name]["data_offsets"]
    return struct.unpack(f"<{(b - a) // 4}f", data[8 + n + a:8 + n + b])
print(eval(sys.argv[2]))
PY
}

ranks 2 whole local_steps=5
ok $? "local_steps=5 on two ranks" log
ranks 2 parts local_steps=5 stop_step=7
is $? 75 "the same, stopped after step 7"
ranks 2 parts local_steps=5
ok $? "  and taken up again" log
alike parts whole "  all bits of the weights, momenta and averages of both ranks are the same"
ranks 2 blind local_steps=5 eval_epochs=4
alike blind whole "a run with fewer validations: the same bits"
is "$(tensors "$(newest whole)/tensors.safetensors" \
    'all(w("ema:" + k) == w(k) for k in names if ":" not in k)')" True \
    "the last step averages: rank 0's weights are the mean of all"
is "$(tensors "$(newest parts)/../$(ls parts/checkpoints | sort | head -n 1)/tensors.safetensors" \
    'any(w("ema:" + k) != w(k) for k in names if ":" not in k)')" True "in between they are its own"
ranks 2 grid local_steps=5 stop_step=7
ranks 1 grid local_steps=5 stop_step=8
like log 'another rank layout: every rank continues with the mean of the weights' \
    "on another number of ranks it goes on from the mean, and says so"
top1() { sed -n 's/.*"event":"eval","step":12,.*"top1":\([0-9.]*\),.*/\1/p' "$1/events.jsonl"; }
kolo eval run=whole val=data/val threads=1 > log 2>&1
like log "$(printf 'top-1 %.4f' "$(top1 whole)")" "kolo eval of the run evaluates the mean"

ranks 2 swap swap=2
ok $? "swap=2 on two ranks" log
ranks 2 swapped swap=2 stop_step=6
ranks 2 swapped swap=2
alike swapped swap "stopped where the ranks part, and taken up again: the same bits"
is "$(tensors "$(newest swap)/tensors.safetensors" \
    'all((w("ema:" + k) != w(k)) == ("running" in k) for k in names if ":" not in k)')" True \
    "the mean has the weights, and statistics that were formed anew for it"

E=(local_steps=4 local_start=1 local_outer=easgd)
ranks 2 elastic "${E[@]}" steps=9
ranks 2 elastics "${E[@]}" steps=9 stop_step=5
ranks 2 elastics "${E[@]}" steps=9
alike elastics elastic "elastic averaging, stopped and taken up again: the same bits, its centre with them"
is "$(tensors "$(newest elastic)/tensors.safetensors" \
    'all(w("ema:" + k) == w("anchor:" + k) for k in names if k.endswith("weight") and ":" not in k)')" True \
    "what it evaluates and saves is the centre"

# of frozen layers the optimizer has no state: its vectors are shorter than the parameters
F=(local_steps=4 freeze=layer2 steps=9 epochs=0)
ranks 2 few "${F[@]}"
ranks 2 fewer "${F[@]}" local_outer=slowmo local_outer_rate=1 local_outer_momentum=0
is $? 0 "an outer optimizer with frozen layers" || diag < log
is "$(tensors "$(newest few)/tensors.safetensors" '[w(k) for k in names if ":" not in k]' | cksum)" \
    "$(tensors "$(newest fewer)/tensors.safetensors" '[w(k) for k in names if ":" not in k]' | cksum)" \
    "  with rate 1 and no momentum the mean, to the bit"
A=(local_steps=8 freeze=layer2 steps=8 epochs=0 optimizer=adamw nesterov=false)
squares() { # RUN: of each tensor a line
    tensors "$(newest "$1")/tensors.safetensors" '"\n".join(k + str(w(k)) for k in names if k[:2] == "v:")'
}
ranks 2 own "${A[@]}"
ranks 2 mean "${A[@]}" local_momentum=averaged
is "$? $(comm -12 <(squares own | sort) <(squares mean | sort) | wc -l)" "0 0" \
    "  the second of AdamW's vectors is averaged, too, of every tensor" || diag < log

kolo plan shapes model=resnet20 data=data/train batch=32 ranks=4 epochs=4 local_steps=3 local_start=1 > log
is $? 0 "kolo plan of local steps"
like log 'weights of their own from step 4 of 12' "  says when they start"
like log 'nothing is exchanged in 6 steps, 0 bytes' "  in how many steps nothing is sent"
like log 'averaged over all ranks in 3 steps' "  and in how many weights are"

refused() { # PATTERN WORDS...
    kolo plan shapes data=data/train batch=32 ranks=2 epochs=2 "${@:2}" > log 2>&1
    is "$? $(grep -cE -- "$1" log)" "78 1" "${*:2}: refused, $1" || sed 's/^/# /' log
}
refused 'local_steps= does not go with reduce=canonical: .*number decides' local_steps=4 reduce=canonical
refused 'local_steps= does not go with reduce=adasum' local_steps=4 reduce=adasum
refused 'local_steps= does not go with bn=sync' local_steps=4 bn=sync
refused 'swap= does not go with compression=' swap=1 compression=bf16
refused 'swap= does not go with shard=: every rank has weights' swap=1 shard=optimizer
refused 'local_steps= does not go with stages=' local_steps=4 stages=2
refused 'local_steps= does not go with ema=: the average that is kept' local_steps=4 ema=0.9
refused 'swap= does not go with swa=' swap=1 swa=1
refused 'local_steps= does not go with noise_scale' local_steps=4 noise_scale=true
refused 'local_steps=4 averages every so many steps, swap=1' local_steps=4 swap=1
refused 'local_nodes=6: .* a multiple' local_steps=4 local_nodes=6
refused 'local_start= says how local steps are averaged, and there are none' local_start=1
refused 'local_momentum= says how' local_momentum=averaged
refused 'local_outer= says how' local_outer=slowmo
refused 'local_outer_rate= is not read with local_outer=none' local_steps=4 local_outer_rate=1
refused 'local_outer_momentum= is not read with local_outer=easgd' local_steps=4 local_outer=easgd \
    local_outer_momentum=.5
refused 'local_momentum=global is local_outer=slowmo' local_steps=4 local_momentum=global local_outer=easgd
refused 'the centre would go 1.2 times' local_steps=4 local_outer=easgd local_outer_rate=.6
done_testing
