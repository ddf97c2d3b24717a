# shellcheck shell=bash
# Where the CUDA libraries of this machine are: what the program was built for must be found, in one of these
# places, in this order: LD_LIBRARY_PATH, CUDA_HOME, the nvidia-* Python packages (beside PyTorch), the
# linker's own list, /usr/local/cuda.

# "folder" lines of the packages nvidia-* that python3 knows, without importing anything of them
python_folders() {
    local python=${PYTHON:-python3}
    command -v "$python" > /dev/null 2>&1 || return 0
    "$python" - 2> /dev/null << 'END'
import glob, importlib.util, os
roots = []
for name in ("nvidia", "torch"):
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    for place in (spec and spec.submodule_search_locations) or []:
        roots.append(place if name == "nvidia" else os.path.join(os.path.dirname(place), "nvidia"))
for root in dict.fromkeys(map(os.path.realpath, roots)):
    for folder in sorted(glob.glob(os.path.join(root, "*", "lib"))):
        print(folder)
END
}

# The file that the linker's list has for a name.
listed() { { ldconfig -p || /sbin/ldconfig -p; } 2> /dev/null |
    sed -n "s|^[[:space:]]*$1 (.*x86-64.*) => ||p; s|^[[:space:]]*$1 (.*AArch64.*) => ||p" | head -n 1; }

# find_one NAME FOLDER...: prints the first of them that has it; "system" where the linker finds it by itself
find_one() {
    local name=$1 folder
    shift
    for folder; do
        [ -e "$folder/$name" ] && echo "$folder" && return 0
    done
    folder=$(listed "$name")
    [ -n "$folder" ] && [ -e "$folder" ] && echo system
}

# Sets CUDA_PATHS (for LD_LIBRARY_PATH), says what was found; false if something is missing.
find_cuda() {
    local needed name folder at missing='' folders=() paths=()
    add_optional() { # NAME FOLDER...: it is opened when it is wanted, if it is there
        local there
        there=$(find_one "$@" "${folders[@]}")
        echo "library: $1 ${there:+in }${there:-is not here}"
        [ -z "$there" ] || [ "$there" = system ] || paths+=("$there")
    }
    CUDA_PATHS=''
    [ -f "$LIBRARY" ] || { echo "$LIBRARY is not here: build with make CUDA=1$([ -z "$DRY" ] ||
        echo ', or make tests for the rehearsal')" >&2 && return 1; }
    [ -z "$DRY" ] || return 0
    if [ -r "$TOP/lib/requires" ]; then needed=$(sed -n 's/^library //p' "$TOP/lib/requires")
    else needed=$(readelf -d "$LIBRARY" |
        sed -n 's/.*(NEEDED).*\[\(lib\(cudart\|cublasLt\|cublas\|cudnn\|nccl\)\.so.*\)\]/\1/p'); fi
    IFS=: read -r -a folders <<< "${LD_LIBRARY_PATH:-}"
    for folder in "${CUDA_HOME:-}" "${CUDA_PATH:-}"; do
        [ -z "$folder" ] || folders+=("$folder/lib64" "$folder/lib" "$folder/targets/x86_64-linux/lib")
    done
    mapfile -t -O ${#folders[@]} folders < <(python_folders)
    folders+=(/usr/local/cuda/lib64 /usr/local/cuda/lib /opt/cuda/lib64)
    for name in $needed; do
        at=$(find_one "$name" "${folders[@]}")
        if [ -z "$at" ]; then
            missing+=" $name"
            continue
        fi
        [ "$at" = system ] && at=$(dirname "$(listed "$name")") || paths+=("$at")
        echo "library: $name in $at"
        record library "name=$name" "folder=$at"
        # cuDNN compiles some kernels at run time
        case $name in libcudart.so.*) add_optional "libnvrtc.so.${name##*.}" "$at" ;; esac
    done
    add_optional libnccl.so.2
    if [ -n "$missing" ]; then
        {
            echo "missing:$missing"
            for name in $missing; do
                for folder in "${folders[@]}"; do ls -d "$folder/${name%%.so*}".so.* 2> /dev/null; done |
                    sort -u | sed 's/^/  there is only /'
            done
            echo \
                "give CUDA_HOME, or a python3 (PYTHON=) whose PyTorch was built for the CUDA of ${missing##* }, or add a folder to LD_LIBRARY_PATH"
        } >&2
        return 1
    fi
    [ ${#paths[@]} = 0 ] || CUDA_PATHS=$(printf '%s\n' "${paths[@]}" | awk '!seen[$0]++' | paste -sd :)
}

# Is there a GPU that the program can use? Otherwise what it says of that.
find_gpu() {
    limited 90 kolo doctor device=cuda > "$LOGS/doctor" 2>&1
    doctor=$?
    grep '^FAIL gpu' "$LOGS/doctor" >&2 && return 1
    return 0
}
