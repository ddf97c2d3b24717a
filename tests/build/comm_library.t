#!/usr/bin/env bash
# libkolo_comm.so as other programs see it: what it shows and needs; the examples, built against an
# installed tree and run.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL # the examples are made by a user, not by this make with its flags
LIBRARY=$BUILD/lib/libkolo_comm.so.1
[ -e "$LIBRARY" ] || skip_all "libkolo_comm.so is not built"
need nm readelf pkg-config mpiexec mpicc gcc make

nm -D --defined-only "$LIBRARY" | awk '$2 ~ /[TDB]/ { print $3 }' | sed 's/@.*//' | sort > "$ROOM/shown"
gcc -fpreprocessed -dD -E -P include/kolo/world.h include/kolo/comm.h include/kolo/error.h 2> /dev/null |
    tr '\n' ' ' | grep -oE 'kolo_[a-z0-9_]+\(' | tr -d '(' | sort -u > "$ROOM/declared"
is "$(comm -3 "$ROOM/shown" "$ROOM/declared")" "" \
    "it shows the functions of the public headers and nothing else"
is "$(readelf -d "$LIBRARY" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')" libkolo_comm.so.1 \
    "its name has a version"
readelf -d "$LIBRARY" | grep NEEDED > "$ROOM/needed"
! grep -qE 'hdf5|dnnl|cuda|cudnn|nccl|jpeg|yaml' "$ROOM/needed"
ok $? "it needs no HDF5, no oneDNN, no CUDA"
echo '#include <kolo/comm.h>' > "$ROOM/c++.cc"
g++ -Iinclude -Wall -Wextra -Werror -fsyntax-only "$ROOM/c++.cc"
ok $? "the headers are C++, too"

make -s BUILD="$BUILD" manuals > "$ROOM/log" 2>&1 &&
    share/setup/install.sh install "$ROOM/first" "$BUILD" 9.8.7 >> "$ROOM/log" 2>&1 &&
    mv "$ROOM/first" "$ROOM/tree"
ok $? "an installed tree, moved"
export PKG_CONFIG_PATH=$ROOM/tree/lib/pkgconfig
is "$(pkg-config --modversion kolo-comm)" 9.8.7 "pkg-config knows kolo-comm"
make -C "$ROOM/tree/share/kolo/examples" > "$ROOM/log" 2>&1
ok $? "make builds the examples there" || sed 's/^/# /' "$ROOM/log"
cd "$ROOM/tree/share/kolo/examples" || exit 1
is "$(timeout 60 mpiexec -n 3 ./named 2>&1)" "3 ranks: averages 1 2 3" "named: averages of named sums"
is "$(timeout 60 ./named 2>&1)" "1 ranks: averages 0 1 2" "and alone"
is "$(timeout 60 mpiexec -n 4 ./in_mpi 2>&1 | sort)" "even ranks: 2 of them, their numbers sum up to 2
odd ranks: 2 of them, their numbers sum up to 4" "in_mpi: groups of a program's communicators"
is "$(KOLO_COMM_TIMEOUT=soon timeout 60 ./named 2>&1)" \
    "kolo_world_open: comm: KOLO_COMM_TIMEOUT=soon is no number from 0.05 to 3e+07" \
    "the environment is read, and checked"
done_testing
