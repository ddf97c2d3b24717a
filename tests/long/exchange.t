#!/usr/bin/env bash
# Weights and graphs beside PyTorch's packages: every row of tests/peers/exchange.py is a test. Some minutes.
#   YOLOX=folder with the package yolox: its own model on Darknet-53, too
#   PYTHON=python with torch, torchvision, timm, safetensors, and for graphs onnx and onnxruntime [that of
#   `make peers`]; NETWORKS="resnet50 swin_t": these alone, all: every one
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo
# shellcheck source=tests/peers/python.sh
. tests/peers/python.sh
peers_have torch torchvision timm safetensors ||
    skip_all "no torchvision and timm to compare with: make peers"
image=$(find "$KOLO_SHARED/data/imagenet-sample" -name '*.JPEG' 2> /dev/null | sort | head -n 1)
[ -n "$image" ] || skip_all "no photo here"
export KOLO_CACHE=$ROOM/cache
usual="resnet18 resnet50 resnext50_32x4d resnet50d vgg11 vgg16_bn efficientnet_b0 efficientnet_b3"
usual+=" convnext_tiny swin_t inception_v3 yolox_nano yolox_tiny yolox_s yolov3_tiny yolov3"
networks=${NETWORKS:-$usual}
[ "$networks" != all ] || networks=
# shellcheck disable=SC2086
"$PYTHON" tests/peers/exchange.py "$BUILD/bin/kolo" "$ROOM" "$image" $networks > "$ROOM/rows" 2> "$ROOM/log"
status=$?
rows() { # of $ROOM/rows, and the status of what wrote them
    local row
    while IFS= read -r row; do
        case $row in *" ok") ok 0 "${row% ok}" ;; *) ok 1 "$row" ;; esac
    done < "$ROOM/rows"
    [ -s "$ROOM/rows" ]
    ok $(($1 | $?)) "all of them"
    [ "$1" = 0 ] || sed 's/^/# /' "$ROOM/log" | tail -n 5
}
rows $status
if [ -n "${NETWORKS:-}" ] && [ "$NETWORKS" != all ]; then
    done_testing
    exit
fi
if peers_have cv2 && "$PYTHON" -c 'import cv2; cv2.dnn.readNetFromDarknet' 2> "$ROOM/log"; then
    "$PYTHON" tests/peers/darknet.py "$BUILD/bin/kolo" "$ROOM" "$image" ${YOLOX:+"$YOLOX"} > "$ROOM/rows" \
        2> "$ROOM/log"
    rows $?
else
    skip "no OpenCV that reads networks of darknet: make peers"
fi
[ -n "${YOLOX:-}" ] || skip "YOLOX on Darknet-53 beside YOLOX's own: say YOLOX=folder with its source"
done_testing
