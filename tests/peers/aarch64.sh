# shellcheck shell=bash
# To be sourced: Debian's packages for aarch64 in a folder, a compiler for it and qemu, with nothing
# installed: an apt of its own whose lists, cache and status are in that folder, and dpkg-deb -x. Needs apt,
# and what apt takes its packages from.
aarch64_libraries="libc6-dev libgcc-12-dev libgomp1 libdnnl-dev libhdf5-dev libhwloc-dev libjpeg-dev
libpng-dev
    libyaml-dev libcjson-dev zlib1g-dev libtiff-dev libwebp-dev liblmdb-dev libxml2-dev libprotobuf-c-dev
    libmpich-dev libpmix-dev"

# aarch64_packages FOLDER ARCHITECTURE PACKAGE...: they and what they depend on, as files
aarch64_packages() {
    local state=$1/apt-$2 arch=$2
    mkdir -p "$state/lists/partial" "$state/archives/partial"
    : > "$state/status"
    shift 2
    local -a apt=(apt-get -qq -o Dir::State="$state" -o Dir::State::status="$state/status"
        -o Dir::Cache="$state" -o Dir::Cache::archives="$state/archives" -o APT::Architecture="$arch"
        -o APT::Architectures="$arch" -o APT::Install-Recommends=0 -o Debug::NoLocking=1)
    "${apt[@]}" update && "${apt[@]}" -y --download-only install "$@"
}

# aarch64_root FOLDER LOG: FOLDER/root the libraries, FOLDER/tools the compiler and qemu, FOLDER/cc, FOLDER/ar
# and FOLDER/run, which runs a program of that machine; 1: they cannot be had, LOG says why.
aarch64_root() {
    local folder=$1 deb
    [ ! -x "$folder/run" ] || return 0
    if ! command -v apt-get > /dev/null || ! command -v dpkg-deb > /dev/null; then
        echo "no apt-get and dpkg-deb" > "$2"
        return 1
    fi
    # shellcheck disable=SC2086 # a list
    aarch64_packages "$folder" arm64 $aarch64_libraries > "$2" 2>&1 || return 1
    aarch64_packages "$folder" amd64 gcc-aarch64-linux-gnu qemu-user-static >> "$2" 2>&1 || return 1
    mkdir -p "$folder/root" "$folder/tools"
    for deb in "$folder"/apt-arm64/archives/*.deb; do dpkg-deb -x "$deb" "$folder/root"; done >> "$2" 2>&1
    for deb in "$folder"/apt-amd64/archives/*.deb; do
        case ${deb##*/} in libc6_* | libgcc-s1_*) ;; *) dpkg-deb -x "$deb" "$folder/tools" ;; esac
    done >> "$2" 2>&1
    local tool
    for tool in gcc ar; do
        printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s%s "$@"\n' "$folder/tools/usr/lib/x86_64-linux-gnu" \
            "$folder/tools/usr/bin/aarch64-linux-gnu-$tool" \
            "$([ $tool = ar ] || echo " --sysroot=$folder/root")" > "$folder/$tool"
        chmod +x "$folder/$tool"
    done
    printf '#!/bin/sh\nexec %s -L %s "$@"\n' "$folder/tools/usr/bin/qemu-aarch64-static" "$folder/root" \
        > "$folder/run"
    chmod +x "$folder/run"
}

# aarch64_build FOLDER BUILD LOG TARGET...: targets below BUILD; without MPI's headers of this machine
aarch64_build() {
    local folder=$1 build=$2 log=$3 triple=aarch64-linux-gnu
    shift 3
    env -u MAKEFLAGS -u MAKELEVEL PKG_CONFIG_SYSROOT_DIR="$folder/root" \
        PKG_CONFIG_LIBDIR="$folder/root/usr/lib/$triple/pkgconfig:$folder/root/usr/share/pkgconfig" \
        make -j"$(nproc)" BUILD="$build" CC="$folder/gcc" CXX=false AR="$folder/ar" CUDA=0 \
        MPI_CFLAGS="-I$folder/root/usr/include/$triple/mpich" MPI_LIBS=-lmpich "$@" > "$log" 2>&1
}
