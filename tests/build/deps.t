#!/usr/bin/env bash
# share/setup/deps.sh: what it installs, when it installs nothing, what it says. apt-get, sudo, id and
# scontrol are stand-ins here that write down how they were called.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
unset YES MPI

# PATH holds the stand-ins and nothing else than these
for tool in sh awk sed tr cat env timeout grep bash; do
    ln -s "$(command -v $tool)" "$ROOM/$tool"
done
stand_in() { printf '#!/bin/sh\n%s\n' "$2" >"$ROOM/$1" && chmod +x "$ROOM/$1"; }
machine() { # USER-ID
    rm -f "$ROOM"/{apt-get,sudo,scontrol,id,called,pkg-config}
    stand_in id "echo $1"
    stand_in pkg-config 'exit 0'
    stand_in apt-get "echo \"\$*\" >>$ROOM/called; exit \${APT_FAILS:-0}"
}
deps() { # sets OUT, RC; PATH tricks: /usr/sbin is looked at too, so the goals here need no tools
    OUT=$(PATH=$ROOM share/setup/deps.sh "$@" 2>&1 </dev/null)
    RC=$?
}
called() { [[ -e $ROOM/called ]] && cat "$ROOM/called"; }

machine 0
deps install build
[[ $RC == 0 && -z $OUT && -z $(called) ]]
ok $? "nothing missing: exit 0, no output, no command called"

deps install build HDF5 JPEG
[[ $RC == 0 && $(called) == "install -y -q --no-install-recommends libhdf5-dev libjpeg-dev" ]]
ok $? "root installs what is missing"
[[ $OUT == *HDF5* && $OUT == *"Installing: libhdf5-dev libjpeg-dev"* ]]
ok $? "missing headers: their packages are named"

machine 0
rm "$ROOM/pkg-config"
if command -v /usr/sbin/pkg-config >/dev/null; then
    skip "pkg-config cannot be hidden here"
else
    deps install build PNG
    [[ $(called) == *" pkg-config libpng-dev" ]]
    ok $? "pkg-config comes along where it is missing"
fi

machine 1000
deps install build PNG
[[ $RC != 0 && -z $(called) ]]
ok $? "a user without sudo installs nothing and fails"
[[ $OUT == *"apt-get install libpng-dev"* && $OUT == *"dnf install libpng-devel"* &&
    $OUT == *"spack install libpng"* &&
    $OUT == *"module load libpng"* ]]
ok $? "not root: prints the commands for apt, dnf, Spack and modules"

stand_in sudo "echo \"sudo \$*\" >>$ROOM/called"
deps install build PNG
[[ $RC != 0 && -z $(called) ]]
ok $? "sudo is not used unasked where there is no terminal"

YES=1 deps install build PNG
[[ $RC == 0 && $(called) == "sudo env DEBIAN_FRONTEND=noninteractive apt-get install "*" libpng-dev" ]]
ok $? "YES=1 is a yes"

if command -v script >/dev/null; then
    answer() { # what the user types
        rm -f "$ROOM/called"
        script -qec "env PATH=$ROOM share/setup/deps.sh install build PNG" /dev/null <<<"$1" >"$ROOM/out" 2>&1
    }
    answer y
    [[ $(called) == "sudo "*libpng-dev ]]
    ok $? "answer yes at a terminal: apt-get is called"
    answer n
    [[ -z $(called) ]]
    ok $? "answer no at a terminal: nothing is called"
else
    skip "no script(1) to make a terminal" && skip "no script(1) to make a terminal"
fi

machine 0
stand_in scontrol 'echo "Slurmctld(primary) at login1 is UP"'
YES=1 deps install build PNG
[[ $RC != 0 && -z $(called) && $OUT == *"nothing is installed"* && $OUT == *"module load"* ]]
ok $? "where a Slurm cluster answers, not even root installs"
stand_in scontrol 'echo "Slurmctld(primary) at login1 is DOWN"'
deps install build PNG
[[ $RC == 0 && $(called) == *libpng-dev ]]
ok $? "a cluster that is down does not count"

machine 0
APT_FAILS=1 deps install build PNG
[[ $RC != 0 && $(called) == *update* && $OUT == *"could not be installed"* && $OUT == *"dnf install"* ]]
ok $? "a failing apt-get is tried after an update, then told"

machine 0
deps install build TIFF HDF5
[[ $RC == 0 && $(called) == *" libhdf5-dev libtiff-dev"* ]]
ok $? "what one can do without is installed along with the rest"
machine 0
stand_in apt-get "echo \"\$*\" >>$ROOM/called; case \"\$*\" in *libtiff-dev*) exit 100 ;; esac"
deps install build HDF5 TIFF WEBP
[[ $RC == 0 && $(called) == *"recommends libhdf5-dev"$'\n'*"recommends libwebp-dev" &&
    $OUT == *"Going on without TIFF."* ]]
ok $? "where no package of libtiff is to be had, all else is installed" || diag <<<"$OUT"
machine 0
stand_in apt-get "echo \"\$*\" >>$ROOM/called; case \"\$*\" in *libhdf5-dev*) exit 100 ;; esac"
deps install build HDF5 TIFF
[[ $RC != 0 && $(tail -n 1 "$ROOM/called") != *libtiff* ]]
ok $? "where none of HDF5 is, that is the end"
machine 1000
deps install build TIFF ONNX
[[ $RC == 0 && $OUT == *"Going on without them"* ]]
ok $? "optional packages missing, no right to install: exit 0 without them"

known=$(sed -n "s/^find_library \([A-Z0-9]*\) .*/\1/p; s/^ *[a-z]*_library \([A-Z0-9]*\) .*/\1/p" \
    share/setup/probe.sh | sort -u)
for name in $known CC CUDA; do
    deps report "$name"
    [[ $OUT == *"$name "*"(apt: "[a-z]*"; dnf: "[a-z]*"; Spack: "[a-z]*")"* ]] ||
        echo "# no packages for $name"
    [[ $OUT == *"$name "*"(apt: "[a-z]*"; dnf: "[a-z]*"; Spack: "[a-z]*")"* ]]
    ok $? "the packages that bring $name are named"
done
done_testing
