# shellcheck shell=bash
# To be sourced: another version of oneDNN beside the system's, and a build of Kolo on it.
# The C library 3.2 and its headers on GNU OpenMP are the packages onednn-cpu-gomp and onednn-devel-cpu-gomp
# of PyPI; they are taken apart, nothing is installed. Needs python3 with pip.

# onednn3_home FOLDER LOG: FOLDER/include and FOLDER/lib; 1: the packages cannot be had, LOG says why.
onednn3_home() {
    [ ! -e "$1/lib/libdnnl.so" ] || return 0
    mkdir -p "$1/wheels" || return 1
    [ "$(uname -m)" = x86_64 ] || { echo "the packages are for x86_64" > "$2" && return 1; }
    timeout "${LIMIT:-300}" python3 -m pip download --no-deps -d "$1/wheels" \
        'onednn-cpu-gomp==2023.2.*' 'onednn-devel-cpu-gomp==2023.2.*' > "$2" 2>&1 || return 1
    local wheel
    for wheel in "$1"/wheels/*.whl; do
        python3 -m zipfile -e "$wheel" "$1/apart" >> "$2" 2>&1 || return 1
    done
    cp -r "$1"/apart/*.data/data/include "$1"/apart/*.data/data/lib "$1" 2>> "$2" &&
        rm -rf "$1/apart" "$1/wheels"
}

# onednn3_build HOME BUILD LOG [TARGET...]: targets below BUILD, default the programs; without GPUs
onednn3_build() {
    local home=$1 build=$2 log=$3
    shift 3
    env -u MAKEFLAGS -u MAKELEVEL make -j"$(nproc)" BUILD="$build" DNNL_HOME="$home" CUDA=0 \
        "${@-programs}" > "$log" 2>&1
}
