#!/usr/bin/env bash
# The GNUmakefile itself, on a copy that holds only the first room.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL SANITIZE WERROR
mkdir -p "$ROOM/kolo/src" "$ROOM/kolo/tests/unit" "$ROOM/kolo/share"
cp -r GNUmakefile VERSION include "$ROOM/kolo"
cp -r src/base "$ROOM/kolo/src"
cp -r share/setup "$ROOM/kolo/share"
cp tests/tap.h "$ROOM/kolo/tests"
cp tests/unit/base_crc32c.c "$ROOM/kolo/tests/unit"
cd "$ROOM/kolo" || exit 1
# what the build that is tested found; with other knobs it is looked for anew
mkdir out && cp "$BUILD/probe.mk" out 2>/dev/null
OWN=$BUILD
unset BUILD
before=$(find . -path ./out -prune -o -type f -print | sort | cksum)
build() { OUT=$(make CFLAGS=-O0 -j2 "$@" 2>&1); }
BASE=out/lib/room/base.a TEST=out/tests/unit/base_crc32c

build BUILD=out $TEST
ok $? "a unit test is built with its room"
[[ $OUT != *" LD "*" LD "* && -e $BASE && ! -e out/lib/room/data.a ]]
ok $? "a unit test of base: nothing is linked twice, data.a is not built"
$TEST >/dev/null
ok $? "the program of this build: exit 0"
[[ $(find . -path ./out -prune -o -type f -print | sort | cksum) == "$before" ]]
ok $? "make BUILD=out: nothing else changes in the tree"

build BUILD=out $TEST
[[ $OUT != *" CC "* && $OUT != *" LD "* ]]
ok $? "a second make builds nothing"

touch src/base/cgroup.h
build BUILD=out $TEST
[[ $OUT == *src/base/cgroup.c* && $OUT == *src/base/memory.c* && $OUT != *src/base/file.c* ]]
ok $? "a changed header rebuilds who includes it and nobody else"
build BUILD=out V=1 CPPFLAGS_ALL=-DOTHER=1 $BASE
[[ $OUT == *"-DOTHER=1"*"-c src/base/file.c"* ]]
ok $? "other flags rebuild all, and V=1 shows the commands"
echo 'int broken' >src/base/zz.c
build BUILD=out CPPFLAGS_ALL=-DOTHER=1 $BASE
[[ $? != 0 && ! -e out/src/base/zz.o ]]
ok $? "a broken file ends make with an error"
echo 'static int idle(void) { return 1; }' >src/base/zz.c
build BUILD=out CPPFLAGS_ALL=-DOTHER=1 $BASE
[[ $? == 0 && $OUT == *"warning: "*idle* ]]
ok $? "a warning ends no build"
build BUILD=out CPPFLAGS_ALL=-DOTHER=1 WERROR=1 $BASE
[[ $? != 0 && $OUT == *"error: "*idle* ]]
ok $? "a compiler warning with WERROR=1: make fails"
rm src/base/zz.c
build BUILD=out CPPFLAGS_ALL=-DOTHER=1 $BASE
[[ $? == 0 && $(ar t $BASE) != *zz.o* ]]
ok $? "a removed file leaves the archive"

build BUILD=out YAML_HOME=/nonexistent CUDA=1 CUDA_HOME=/nonexistent $BASE
[[ $? != 0 && $OUT == *YAML*libyaml-dev*libyaml-devel*libyaml* && $OUT == *YAML_HOME* ]]
ok $? "a missing library is named with its packages"
[[ $OUT == *"CUDA "*"NVCC "*CUDA_HOME* ]]
ok $? "CUDA=1 without CUDA is refused, and what is missing is named"
build BUILD=out $BASE
ok $? "all is found again when it is there"
build BUILD=out CC=/nonexistent/cc $BASE
[[ $? != 0 && $OUT == *build-essential* ]]
ok $? "a missing compiler is named, too"
mkdir -p home/include home/lib
echo 'int yaml_is_here;' >home/include/yaml.h
own=()
if [[ -e /usr/include/yaml.h ]]; then
    cat /usr/include/yaml.h >>home/include/yaml.h
    own=(YAML_HOME="$PWD/home")
fi
build BUILD=home-out "${own[@]}" MPI=0 PMIX=0 V=1 home-out/src/base/error.o
[[ $OUT != *KOLO_MPI* && $OUT != *KOLO_PMIX* && $OUT != *mpich* ]]
ok $? "MPI=0 PMIX=0 builds without them"
if ((${#own[@]})); then
    [[ $OUT == *"-I$PWD/home/include"* ]]
    ok $? "YAML_HOME is looked at first"
else
    skip "no /usr/include/yaml.h to copy"
fi
build help
[[ $OUT == *check-long*BUILD* ]]
ok $? "help lists targets and knobs"
build BUILD=out clean
[[ $? == 0 && ! -e out ]]
ok $? "clean removes BUILD"
cd "$TOP" || exit 1
# what a build lacks: its last line, and `kolo version`
lacks() { make -n "$@" left-out 2>/dev/null | sed -n "s/^echo '  left out of this build: \(.*\);.*/\1/p"; }
without=$(lacks BUILD="$ROOM/bare" TIFF=0 WEBP=0 LMDB=0 ONNX=0)
is "$without" "TIFF (TIFF=0) WEBP (WEBP=0) LMDB (LMDB=0) ONNX (ONNX=0)" \
    "knobs that leave libraries out are named at the end of the build"
if [[ -x $OWN/bin/kolo && -e $OWN/probe.mk ]]; then
    is "$("$OWN/bin/kolo" version | sed -nE 's/^without ((TIFF|WEBP|LMDB|ONNX).*)/\1/p')" \
        "$(lacks BUILD="$OWN" | sed 's/ ([^)]*)//g')" "kolo version names what this build lacks"
else
    skip "kolo is not built"
fi
done_testing
