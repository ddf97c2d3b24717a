# shellcheck shell=bash
# What channels in parts (tensor=2) send, as a plan says and by the formula: source it behind lib.sh. Networks
# have 2 images of 64 pixels and 2 ranks.
sent_by() { # MODEL: "messages bytes" that both ranks send
    local rank
    for rank in 0 1; do
        kolo plan model="$1" data=synthetic classes=10 size=64 batch=2 micro_batch=2 threads=1 tensor=2 \
            ranks=2 rank=$rank 2> "$ROOM/log"
    done | sed -nE 's/.* transfers of ([0-9]+) bytes to other stages/\1/p; s/^ *[0-9]+ send .*/send/p' |
        awk '/send/ { n++; next } { sum += $1 } END { print n + 0, sum + 0 }'
}
# a message there and one back for each pair, both ways; of a head of 768 features the features, and their
# gradient back, the labels, two peaks of each row there and back, five sums likewise; the metrics
formula() { # PAIRS ELEMENTS: of pairs of layers whose maps have so many in all, of 2 images
    echo "$((4 * $1 + 7 + 1)) $((2 * (4 * $2 * 4 + 2 * 768 * 4 + 4 + 2 * 2 * 4 + 2 * 5 * 8) + 16))"
}
