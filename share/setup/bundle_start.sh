#!/bin/sh
# bin/NAME of a bundle: starts libexec/NAME with the libraries that came along. bin/with COMMAND... gives those libraries, and the test
# programs on its PATH, to any command.
# They are packed in lib/system.tar.xz; the first start unpacks them beside it or, where that cannot be written, into a folder of TMPDIR.
set -eu
here=$(dirname "$(dirname "$(readlink -f "$0")")")
name=$(basename "$0")

unpack() { # FOLDER: whole or not at all, whoever else does the same
    part=$1.part-$$
    mkdir -p "$part"
    if command -v xz >/dev/null 2>&1; then
        tar -xJf "$here/lib/system.tar.xz" -C "$part"
    elif command -v python3 >/dev/null 2>&1; then
        python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$here/lib/system.tar.xz" "$part"
    else
        echo "$name: neither xz nor python3 is here to unpack $here/lib/system.tar.xz" >&2
        exit 69
    fi
    mv -T "$part" "$1" 2>/dev/null || rm -rf "$part"
}

libraries=$here/lib/system
if [ ! -d "$libraries" ] && [ ! -w "$here/lib" ]; then
    room=${TMPDIR:-/tmp}/kolo-bundle-$(id -u)
    [ -d "$room" ] || mkdir -m 700 "$room" 2>/dev/null || true
    [ -O "$room" ] || { echo "$name: $room belongs to somebody else; set TMPDIR" >&2 && exit 3; }
    libraries=$room/$(cksum <"$here/lib/system.tar.xz" | tr ' ' -)
fi
[ -d "$libraries" ] || unpack "$libraries"
LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
PATH=$libraries/tests:$here/libexec:$PATH
export LD_LIBRARY_PATH PATH
[ "$name" = with ] && exec "$@"
exec "$here/libexec/$name" "$@"
