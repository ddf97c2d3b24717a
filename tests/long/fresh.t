#!/usr/bin/env bash
# README's two commands, and an installation by module, on machines that nobody prepared: bare roots made
# from packages, with git and make, where the last commit is cloned. Debian 12, and Ubuntu 24.04 where its
# packages can be had. Some GB in TMPDIR, many minutes.
#   SYSTEMS='debian': only that; UBUNTU_KEYS=FILE: what Ubuntu's archive signs with, where package
#   ubuntu-keyring has not put it
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need mmdebstrap unshare chroot git tar
git rev-parse -q --verify HEAD > /dev/null 2>&1 || skip_all "not a git repository, so nothing can be cloned"
# a user maps a range of ids to live in
spaces=(unshare --mount --pid --fork --kill-child)
[ "$(id -u)" = 0 ] || spaces+=(--map-root-user --map-auto)
"${spaces[@]}" mount -t tmpfs none "$ROOM" 2> "$ROOM/log" ||
    skip_all "no name spaces to live in: $(head -n 1 "$ROOM/log")"
# what was unpacked may belong to ids of that range
at_end "$(printf '%q ' "${spaces[@]}" find "$ROOM" -mindepth 1 -maxdepth 1 -exec rm -rf {} +)"
git diff --quiet HEAD 2> /dev/null ||
    echo "# what is tested is the last commit, not what has been changed since"

inside() { # SYSTEM COMMAND: in its root, with nothing of this one's environment
    # shellcheck disable=SC2016 # the other shell's
    "${spaces[@]}" bash -c 'root=$1
        mount --make-rprivate / && mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" &&
            mount -t tmpfs -o size=2g shm "$root/dev/shm" || exit 99
        mount -t sysfs -o ro sys "$root/sys" 2> /dev/null || mount --rbind /sys "$root/sys" || exit 99
        exec env -i HOME=/root USER=root LANG=C.UTF-8 \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            chroot "$root" bash -c "cd /srv/kolo && $2"' _ "$ROOM/$1" "$2" < /dev/null
}

# NAME SUITE: 1: none can be made. Packages come from where mmdebstrap finds them. A machine that was
# installed knows its own name.
root() {
    local root=$ROOM/$1
    timeout 2400 mmdebstrap --variant=minbase --include=apt,git,make "${@:3}" "$2" "$ROOM/$1.tar" > \
        "$ROOM/$1.log" 2>&1 || return 1
    mkdir "$root" && "${spaces[@]}" tar -xf "$ROOM/$1.tar" -C "$root" --exclude='./dev/*' &&
        rm "$ROOM/$1.tar" || return 1
    git clone -q --no-hardlinks . "$ROOM/$1.git" && cp -L /etc/resolv.conf "$ROOM/resolv" || return 1
    # shellcheck disable=SC2016
    "${spaces[@]}" bash -c \
        'cp -r "$1.git" "$1/srv/kolo" && cp "$2" "$1/etc/resolv.conf" && echo "127.0.0.1 localhost $(hostname)" > "$1/etc/hosts"' \
        _ \
        "$root" "$ROOM/resolv"
}

commands() { # NAME: those of README, and of the support staff
    local name=$1 log=$ROOM/$1
    inside "$name" 'make run' > "$log.run" 2>&1
    is $? 0 "$name: make run: exit 0" || tail -n 20 "$log.run" | diag
    awk '/^top-1 on/ { if ($NF > 0.9) good = 1 } END { exit !good }' "$log.run"
    ok $? "$name: which shows a trained network: $(grep '^top-1 on' "$log.run")"
    none "$name: nothing is left out of the build" "$(grep 'left out of this build' "$log.run")"
    inside "$name" 'make check' > "$log.check" 2>&1
    is $? 0 "$name: make check: exit 0" || sed -n '/^Test Summary/,$p' "$log.check" | diag
    like "$log.check" '^All tests successful' "$name: all tests: $(grep '^Files=' "$log.check" |
        cut -d, -f1,2)"
    none "$name: no test is skipped for want of a program, CUDA's apart" \
        "$(grep 'skipped: ' "$log.check" | grep -vw nvcc |
            grep -E 'skipped: (no [a-z0-9_-]+$|.*built without)')"
    grep 'skipped: ' "$log.check" | diag
    # shellcheck disable=SC2016
    inside "$name" \
        'make install PREFIX=/opt/kolo && cd / &&
        for init in /usr/share/modules/init/bash /usr/share/lmod/lmod/init/bash; do
            [ ! -e $init ] || . $init; done
        module use /opt/kolo/share/modulefiles && module load kolo && command -v kolo && kolo version &&
        kolo help recipes | grep -q shapes && echo "root $KOLO_ROOT"' > "$log.install" 2>&1
    is $? 0 "$name: make install, module load kolo, kolo version: exit 0" || tail -n 20 "$log.install" | diag
    like "$log.install" '^/opt/kolo/bin/kolo$' "$name: kolo of that tree is found"
    like "$log.install" '^root /opt/kolo$' "$name: KOLO_ROOT"
    none "$name: kolo version leaves nothing out but what has no packages" "$(grep '^without' "$log.install" |
        grep -v CUDA)"
}

SYSTEMS=${SYSTEMS:-debian ubuntu}
case $SYSTEMS in *debian*)
    if root debian12 bookworm; then commands debian12; else skip "Debian 12: no root can be made: $(grep -m \
        1 '^[EW]:' "$ROOM/debian12.log")"; fi
    ;;
esac
case $SYSTEMS in *ubuntu*)
    UBUNTU_KEYS=${UBUNTU_KEYS:-/usr/share/keyrings/ubuntu-archive-keyring.gpg}
    if [ ! -r "$UBUNTU_KEYS" ]; then
        skip "Ubuntu 24.04: no $UBUNTU_KEYS (package ubuntu-keyring)"
    elif root ubuntu24 noble --components=main,universe --keyring="$UBUNTU_KEYS"; then
        commands ubuntu24
    else
        skip "Ubuntu 24.04: no root can be made: $(grep -m 1 '^[EW]:' "$ROOM/ubuntu24.log")"
    fi
    ;;
esac
done_testing
