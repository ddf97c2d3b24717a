#!/usr/bin/env bash
# The Apptainer definition, section by section, as `apptainer build` and `apptainer run` carry it out, in a
# bare root of Debian 12 that is made from packages: Apptainer itself is not needed. Its header names that
# image, %files takes the source tree, %post builds and installs, %test passes, %runscript trains. Ten
# minutes.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need mmdebstrap unshare chroot git tar
[ "$(id -u)" = 0 ] || skip_all "a root to change to is made by root here"
definition=share/apptainer/kolo.def
section() { awk -v name="%$1" '/^%/{in_it = ($1 == name); next} in_it' "$definition" | sed 's/^    //'; }
header() { sed -n "s/^$1: *//p" "$definition"; }
is "$(header Bootstrap) $(header From)" "docker debian:12" "the definition begins at Debian 12's image"
none "every section is one of Apptainer's" \
    "$(grep -oE '^%[a-z]+' "$definition" | grep -vE '^%(files|post|test|runscript|labels|environment|help)$')"
unshare --mount --pid --fork mount -t tmpfs none "$ROOM" 2> "$ROOM/log" || skip_all "no name spaces here"

root=$ROOM/root
timeout 1200 mmdebstrap --variant=minbase --include=apt bookworm "$ROOM/root.tar" > "$ROOM/log" 2>&1 ||
    skip_all "no root of Debian 12: $(grep -m 1 '^[EW]:' "$ROOM/log")"
mkdir "$root" && tar -xf "$ROOM/root.tar" -C "$root" --exclude='./dev/*' && rm "$ROOM/root.tar"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"

read -r from to <<< "$(section files)"
is "$from" . "%files takes the source tree"
git clone -q --no-hardlinks . "$root$to"

inside() { # COMMAND: in the root, with nothing of this one's environment
    # shellcheck disable=SC2016 # the other shell's
    unshare --mount --pid --fork --kill-child bash -c 'root=$1
        mount --make-rprivate / && mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" &&
            mount -t tmpfs -o size=1g shm "$root/dev/shm" || exit 99
        exec env -i HOME=/root USER=root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            chroot "$root" sh -c "$2" sh "${@:3}"' _ "$root" "$@" < /dev/null
}
inside "$(section post)" > "$ROOM/log" 2>&1
ok $? "%post: exit 0" || tail -n 20 "$ROOM/log" | diag
none "  nothing is left out of the build" "$(grep 'left out of this build' "$ROOM/log")"
none "  no source and no build folder stays" "$(cd "$root" && ls -d opt/src tmp/build 2> /dev/null)"
inside "$(section test)" > "$ROOM/log" 2>&1
ok $? "%test: exit 0" "$ROOM/log"
like "$ROOM/log" '^resnet50_imagenet ' "  which lists the recipes"
inside "$(section runscript)" train --help > "$ROOM/log" 2>&1
like "$ROOM/log" 'kolo train' "%runscript gives its arguments to kolo"
inside 'kolo-pack --source shapes --count 256 --size 32 --out /srv/shards' > "$ROOM/log" 2>&1
inside "$(section runscript)" train shapes data=/srv/shards val=none run=/srv/run steps=3 batch=64 threads=1 \
    > "$ROOM/log" 2>&1
ok $? "  apptainer run kolo.sif train shapes ...: trains" "$ROOM/log"
done_testing
