# shellcheck shell=bash
# Networks in parts (spatial=, tensor=) on one rank and on several: source it behind pipeline.sh.
common=(val=none classes=10 channels=3 steps=10 lr=0.01 warmup=0 reduce=canonical bn=ghost conv=direct
    deterministic=true threads=1)
network() { # "MODEL OPTIONS ..." "PARTS ..." RANKS...: ten steps, the bytes of one rank
    local ranks words parts
    read -ra words <<< "$1"
    read -ra parts <<< "$2"
    words=("${common[@]}" data=synthetic model="${words[0]}" "${words[@]:1}" "${parts[@]}")
    rm -rf "$ROOM/one"
    kolo train "${words[@]}" run="$ROOM/one" > "$ROOM/log" 2>&1
    is $? 0 "$1, $2 on one rank" "$ROOM/log"
    for ranks in "${@:3}"; do
        rm -rf "$ROOM/several"
        timeout 300 mpiexec -n "$ranks" kolo train "${words[@]}" run="$ROOM/several" > "$ROOM/log" 2>&1
        is $? 0 "  on $ranks ranks" "$ROOM/log"
        cmp "$(tensors_of "$ROOM/one")" "$(tensors_of "$ROOM/several")" > "$ROOM/log" 2>&1
        ok $? "  the same bytes after ten steps" "$ROOM/log"
    done
}
recounted() { # PARTS SIDE RANK: by the plan, and recounted from shapes and kernels
    local got want
    got=$(kolo plan model=resnet50 data=synthetic classes=10 size="$2" batch=1 micro_batch=1 threads=1 \
        conv=direct deterministic=true memory_limit=100 spatial="$1" ranks=$((${1%x*} * ${1#*x})) \
        rank="$3" 2> "$ROOM/log" |
        awk '/^  activations  / { a = $2 } /^  activations and halos / { print a, $NF }')
    want=$(awk -v rows="${1%x*}" -v columns="${1#*x}" -v size="$2" -v part="$3" -f tests/recount.awk)
    is "$got" "$want" "part $3 of $1 of $2 x $2 pixels: activations, and halos received, are the formula"
}
odd_images() { # $ROOM/odd: 13 images of 45 x 61 pixels, so that batches of 4 end with one of 1
    local class i
    for class in a b; do
        mkdir -p "$ROOM/noise/$class"
        for ((i = 0; i < 7; i++)); do
            printf 'P6\n61 45\n255\n'
            head -c $((61 * 45 * 3)) /dev/urandom
        done > "$ROOM/noise/all"
        split -b $((61 * 45 * 3 + 13)) -a 1 "$ROOM/noise/all" "$ROOM/noise/$class/"
        for i in "$ROOM/noise/$class"/?; do mv "$i" "$i.ppm"; done
    done
    rm "$ROOM/noise/all" "$ROOM/noise/a/a.ppm"
    kolo-pack --source imagefolder --in "$ROOM/noise" --encoding raw --out "$ROOM/odd" > "$ROOM/log" 2>&1
    is $? 0 "images of 45 x 61 pixels" "$ROOM/log"
}
# shellcheck disable=SC2034 # for the tests
noise="data=$ROOM/odd classes=0 channels=0 crop=none flip=false"
