# two ranks on one GPU, by way of host memory: data, stages, shards, parts of images, of layers
# shellcheck shell=bash
need_data
if ! with sh -c 'command -v mpiexec' > /dev/null; then
    skip "no mpiexec"
else
    args=("$RECIPES/resnet20_cifar.yaml" data="$DATA/small/train" val=none bn=ghost reduce=canonical \
        deterministic=true schedule=constant warmup=0 seed=4 device=cuda share_gpu=true)
    if [ -n "$DRY" ]; then args+=(size=8 batch=16 micro_batch=8 steps=3 precision=f32); else \
        args+=(batch=128 micro_batch=64 steps=20 precision=bf16); fi
    ranks() { # NAME RANKS ARGS
        local name=$1 n=$2
        shift 2
        shown mpiexec -n "$n" kolo train "$@" && return
        limited 40 mpiexec -n "$n" kolo train "$@" run="$ROOM/$name" > "$LOGS/share.$name" 2>&1
        status=$?
        [ $status = 0 ] || { fail "$name: $n ranks ended with status $status" &&
            tail_of "$LOGS/share.$name"; }
        return $status
    }
    export HYDRA_LAUNCHER=fork
    if ranks one 1 "${args[@]}" && ranks two 2 "${args[@]}" && [ -z "$SHOW" ]; then
        same_bits one two "one rank with two micro-batches, two ranks with one each"
        grep -qiE 'staged|host memory' "$LOGS/share.two"
        ok $? "and it is said that gradients go through host memory"
    fi
    # the same bits from ranks that hold layers, or shards of the parameters
    for plan in stages=2 shard=parameters; do
        ranks $plan 2 "${args[@]}" $plan && [ -z "$SHOW" ] && same_bits one $plan "one rank, two with $plan"
    done
    # parts of images and of layers are other sums: the same on one rank as on two
    for plan in spatial=2x1 tensor=2; do
        ranks $plan.one 1 "${args[@]}" $plan && ranks $plan.two 2 "${args[@]}" $plan && [ -z "$SHOW" ] &&
            same_bits $plan.one $plan.two "$plan, one rank and two"
    done
    # a pipeline that is not drained: twice the same
    late=(reduce=fast bn=local stages=2 cut=layer2.0 pipeline=pipedream)
    ranks late.one 2 "${args[@]}" "${late[@]}" && ranks late.two 2 "${args[@]}" "${late[@]}" &&
        [ -z "$SHOW" ] && same_bits late.one late.two "stages=2 pipeline=pipedream, twice"
    # one GPU given to two ranks by mistake is refused, by name
    if ! shown mpiexec -n 2 kolo train "${args[@]}" share_gpu=false run=refused; then
        limited 60 mpiexec -n 2 kolo train "${args[@]}" share_gpu=false run="$ROOM/refused" > \
            "$LOGS/share.refused" 2>&1
        status=$?
        [ $status != 0 ] && [ $status != 124 ] && grep -q share_gpu "$LOGS/share.refused"
        ok $? "without share_gpu=true two ranks of one GPU are refused (status $status): $(grep -m 1 \
            share_gpu "$LOGS/share.refused" | cut -c 1-160)"
    fi
fi
