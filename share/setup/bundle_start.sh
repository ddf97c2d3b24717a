#!/bin/sh
# bin/NAME of a bundle: starts the program NAME with the libraries that came along. bin/with COMMAND...
# gives those libraries, and the test programs on its PATH, to any command; its variable BUNDLE_TREE is the
# folder where they are.
# They are packed in lib/tree.tar.xz; the first start unpacks them beside it or, where that cannot be
# written, into a folder of TMPDIR.
set -eu
here=$(dirname "$(dirname "$(readlink -f "$0")")")
name=$(basename "$0")

required() { sed -n "s/^$1 //p" "$here/lib/requires"; }
suits() { # is this machine one for these programs?
    machine=$(required machine) glibc=$(required glibc)
    if [ "$(uname -m)" != "$machine" ]; then
        echo "$name: this machine is of the kind $(uname \
            -m), and the bundle was built for $machine; build one there" >&2 && exit 69
    fi
    have=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc //p')
    [ -n "$have" ] || have=$(ldd --version 2>/dev/null | sed -n '1s/.* \([0-9]*\.[0-9]*\)$/\1/p')
    if [ -z "$have" ]; then
        set -- /lib*/ld-linux-* /lib/*/libc.so.6
        [ -e "$1" ] || [ -e "${2:-}" ] ||
            { echo "$name: no GNU C library is here, and the bundle needs glibc $glibc or newer" >&2 &&
            exit 69; }
    elif [ $((1000 * ${have%%.*} + ${have#*.})) -lt $((1000 * ${glibc%%.*} + ${glibc#*.})) ]; then
        echo \
            "$name: glibc $have is here, and the bundle needs $glibc or newer; build it on this system, or take a newer one" \
            >&2 &&
            exit 69
    fi
}

unpack() { # FOLDER: whole or not at all, also while another process does the same
    part=$1.part-$$
    mkdir -p "$part"
    if command -v xz >/dev/null 2>&1; then
        tar -xJf "$here/lib/tree.tar.xz" -C "$part"
    elif command -v python3 >/dev/null 2>&1; then
        python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' \
            "$here/lib/tree.tar.xz" "$part"
    else
        echo "$name: neither xz nor python3 is here to unpack $here/lib/tree.tar.xz" >&2
        exit 69
    fi
    mv -T "$part" "$1" 2>/dev/null || rm -rf "$part"
}

BUNDLE_TREE=$here/lib/tree
if [ ! -d "$BUNDLE_TREE" ] && [ ! -w "$here/lib" ]; then
    room=${TMPDIR:-/tmp}/kolo-bundle-$(id -u)
    [ -d "$room" ] || mkdir -m 700 "$room" 2>/dev/null || true
    { [ -O "$room" ] && [ -d "$room" ] && [ ! -L "$room" ]; } ||
        { echo "$name: $room belongs to somebody else; set TMPDIR" >&2 && exit 3; }
    BUNDLE_TREE=$room/$(cksum <"$here/lib/tree.tar.xz" | tr ' ' -)
fi
[ -d "$BUNDLE_TREE" ] || { suits && unpack "$BUNDLE_TREE"; }
LD_LIBRARY_PATH=$BUNDLE_TREE/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
PATH=$BUNDLE_TREE/bin:$PATH
export BUNDLE_TREE LD_LIBRARY_PATH PATH
[ "$name" = with ] && exec "$@"
exec "$BUNDLE_TREE/bin/$name" "$@"
