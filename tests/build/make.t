#!/usr/bin/env bash
# The GNUmakefile itself, on a copy that holds only the first room.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/lint/tap.sh
ROOM=$(mktemp -d)
trap 'rm -rf "$ROOM"' EXIT
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL BUILD SANITIZE
mkdir -p "$ROOM/kolo/src" "$ROOM/kolo/tests/unit" "$ROOM/kolo/share"
cp -r GNUmakefile VERSION include "$ROOM/kolo"
cp -r src/base "$ROOM/kolo/src"
cp -r share/setup "$ROOM/kolo/share"
cp tests/tap.h "$ROOM/kolo/tests"
cp tests/unit/base_crc32c.c "$ROOM/kolo/tests/unit"
cd "$ROOM/kolo" || exit 1
before=$(find . -type f | sort | cksum)
build() { OUT=$(make CFLAGS=-O0 -j2 "$@" 2>&1); }
BASE=out/lib/room/base.a TEST=out/tests/unit/base_crc32c

build BUILD=out $TEST
ok $? "a unit test is built with its room"
[[ $OUT != *" LD "*" LD "* && -e $BASE && ! -e out/lib/room/data.a ]]
ok $? "and with no room after it"
$TEST >/dev/null
ok $? "it runs"
[[ $(find . -path ./out -prune -o -type f -print | sort | cksum) == "$before" ]]
ok $? "nothing is written outside of BUILD"

start=$(date +%s%N)
build BUILD=out $TEST
took=$((($(date +%s%N) - start) / 1000000))
[[ $OUT != *" CC "* && $OUT != *" LD "* ]]
ok $? "a second make builds nothing"
((took < 500))
ok $? "within half a second ($took ms)"

touch src/base/cgroup.h
build BUILD=out $TEST
[[ $OUT == *src/base/cgroup.c* && $OUT == *src/base/memory.c* && $OUT != *src/base/file.c* ]]
ok $? "a changed header rebuilds who includes it and nobody else"
build BUILD=out CPPFLAGS_ALL=-DOTHER=1 $TEST
[[ $OUT == *src/base/file.c* ]]
ok $? "other flags rebuild all"
build BUILD=out V=1 CPPFLAGS_ALL=-DOTHER=2 $BASE
[[ $OUT == *"-DOTHER=2"*"-c src/base/file.c"* ]]
ok $? "V=1 shows the commands"
echo 'int broken' >src/base/zz.c
build BUILD=out $BASE
[[ $? != 0 && ! -e out/src/base/zz.o ]]
ok $? "a broken file ends make with an error"
rm src/base/zz.c
build BUILD=out $BASE
[[ $? == 0 && $(ar t $BASE) != *zz.o* ]]
ok $? "a removed file leaves the archive"

build BUILD=out YAML_HOME=/nonexistent $BASE
[[ $? != 0 && $OUT == *YAML*libyaml-dev*libyaml-devel*libyaml* && $OUT == *YAML_HOME* ]]
ok $? "a missing library is named with its packages"
build BUILD=out $BASE
ok $? "and is found again when it is there"
build BUILD=out CC=/nonexistent/cc $BASE
[[ $? != 0 && $OUT == *build-essential* ]]
ok $? "so is a missing compiler"
mkdir -p home/include home/lib
echo 'int yaml_is_here;' >home/include/yaml.h
cat /usr/include/yaml.h >>home/include/yaml.h 2>/dev/null
if [[ -e /usr/include/yaml.h ]]; then
    build BUILD=home-out YAML_HOME="$PWD/home" V=1 home-out/src/base/error.o
    [[ $OUT == *"-I$PWD/home/include"* ]]
    ok $? "YAML_HOME is looked at first"
else
    skip "no /usr/include/yaml.h to copy"
fi
build BUILD=out MPI=0 PMIX=0 V=1 out/src/base/error.o
[[ $OUT != *KOLO_MPI* && $OUT != *KOLO_PMIX* && $OUT != *mpich* ]]
ok $? "MPI=0 PMIX=0 builds without them"
build BUILD=out CUDA=1 CUDA_HOME=/nonexistent $BASE
[[ $? != 0 && $OUT == *"CUDA "*"NVCC "*CUDA_HOME* ]]
ok $? "CUDA=1 without CUDA is refused, and what is missing is named"
build help
[[ $OUT == *check-long*BUILD* ]]
ok $? "help lists targets and knobs"
build BUILD=out clean
[[ $? == 0 && ! -e out ]]
ok $? "clean removes BUILD"
done_testing
