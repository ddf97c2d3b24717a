#!/usr/bin/env bash
# The Python whose packages Kolo is measured and compared with: PYTHON where that is set, else an environment
# in build/peers, some GB when it is full. Source it with BUILD set; by itself it installs what the tests and
# benchmarks want (make peers).
BUILD=${BUILD:-${KOLO_BUILD:-build}}
PYTHON=${PYTHON:-$BUILD/peers/bin/python}

peers_have() { # MODULE...
    "$PYTHON" -c "import $(IFS=, && echo "$*")" 2> /dev/null
}
peers_package() { # MODULE: what pip calls it
    case $1 in
    torchvision) echo torch torchvision ;;
    h5py) echo h5py numpy ;;
    PIL) echo pillow ;;
    yaml) echo pyyaml ;;
    cv2) echo "opencv-python-headless<5" ;; # 5 reads no networks of darknet
    nvidia.dali) echo nvidia-dali-cuda120 ;;
    *) echo "$1" ;;
    esac
}
# MODULE...: what is missing, once; what failed is not tried again, and a PYTHON of the user's is left as it
# is
peers_install() {
    local module packages log=$BUILD/peers/pip.log
    peers_have "$@" && return
    [ "$PYTHON" = "$BUILD/peers/bin/python" ] || return
    [ -x "$PYTHON" ] || python3 -m venv "$BUILD/peers" || return
    for module; do
        if peers_have "$module" || [ -e "$BUILD/peers/without-$module" ]; then continue; fi
        read -ra packages <<< "$(peers_package "$module")"
        echo "installing ${packages[*]} into $BUILD/peers (once) ..."
        "$BUILD/peers/bin/pip" install -q "${packages[@]}" > "$log" 2>&1 && peers_have "$module" && continue
        echo "  it cannot be installed here: $(grep -i error "$log" | head -n 1)"
        : > "$BUILD/peers/without-$module"
    done
    peers_have "$@"
}

[ "${BASH_SOURCE[0]}" = "$0" ] || return 0
cd "$(dirname "$0")/../.." || exit 1
rm -f "$BUILD"/peers/without-*
peers_install torch torchvision timm safetensors onnx onnxruntime pycocotools h5py PIL yaml cv2 tensorboard &&
    echo "$PYTHON has all that the long tests compare with"
