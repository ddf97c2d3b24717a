#!/usr/bin/env bash
# The modulefile: found and described, finds its own tree, by a link too, and load + unload leave the
# environment as it was (apart from what the module system keeps for itself).
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
version=$(cat VERSION)
root=$ROOM/prefix
mkdir -p "$root/share/modulefiles/kolo" "$root/bin"
sed "s|@VERSION@|$version|g; s|@ROOT@||" modulefiles/kolo.in > "$root/share/modulefiles/kolo/$version"
printf '#!/bin/sh\necho from the tree\n' > "$root/bin/kolo" && chmod +x "$root/bin/kolo"
is "$(head -n 1 "$root/share/modulefiles/kolo/$version")" "#%Module1.0" "the first line that Lmod asks for"

# $1: the command that prints shell code for `module ARGS`; the rest as root of the session
round_trip() { # NAME COMMAND
    local name=$1 command=$2
    cat > "$ROOM/session" << END
export MODULEPATH=$root/share/modulefiles
module() { eval "\$($command bash "\$@" 2> $ROOM/messages)"; }
module avail
env | grep -vE '^(_|__LMOD_|__MODULES_|_ModuleTable)[A-Za-z0-9_]*=' | sort > $ROOM/before
module load kolo
echo "\$KOLO_ROOT" > $ROOM/root
command -v kolo > $ROOM/which
env | sort > $ROOM/during
module unload kolo
env | grep -vE '^(_|__LMOD_|__MODULES_|_ModuleTable)[A-Za-z0-9_]*=' | sort > $ROOM/after
module load kolo
module help kolo
cat $ROOM/messages > $ROOM/help
module whatis kolo
cat $ROOM/messages > $ROOM/whatis
END
    env -i HOME="$ROOM" PATH=/usr/bin:/bin MANPATH=/usr/share/man bash --norc "$ROOM/session" > "$ROOM/out" \
        2>&1
    is "$(cat "$ROOM/root")" "$root" "$name: KOLO_ROOT is the tree that holds the modulefile"
    is "$(cat "$ROOM/which")" "$root/bin/kolo" "$name: kolo of that tree is found"
    is "$(cat "$ROOM/after")" "$(cat "$ROOM/before")" "$name: load and unload leave the environment as it was"
    like "$ROOM/during" "^MANPATH=$root/share/man" "$name: manual pages are found"
    like "$ROOM/help" "sbatch templates" "$name: help names the templates"
    like "$ROOM/whatis" "vision networks" "$name: whatis says what it is"
}

# What MODULEPATH holds, to what `module load kolo` then does: KOLO_ROOT, what XDG_DATA_DIRS and MANPATH are
# to programs, and after unload
loaded() { # COMMAND MODULEPATH [NAME=VALUE...]
    cat > "$ROOM/session" << END
module() { eval "\$($1 bash "\$@" 2> $ROOM/messages)"; }
module load kolo
cp $ROOM/messages $ROOM/said
echo "\${KOLO_ROOT-none} \$(command -v kolo)"
echo "\${XDG_DATA_DIRS-unset}"
man -w ls 2>&1
module unload kolo
echo "\${XDG_DATA_DIRS-unset} \${MANPATH-unset}"
END
    env -i HOME="$ROOM" PATH=/usr/bin:/bin MODULEPATH="$2" "${@:3}" bash --norc "$ROOM/session" 2>&1
}
elsewhere() { # NAME COMMAND
    local name=$1 command=$2 ls defaults=/usr/local/share:/usr/share
    ls=$(env -u MANPATH man -w ls 2>&1)
    is "$(loaded "$command" "$root/share/modulefiles")" \
        "$root $root/bin/kolo"$'\n'"$root/share:$defaults"$'\n'"$ls"$'\n'"unset unset" \
        "$name: MANPATH and XDG_DATA_DIRS, unset, keep their defaults, and are unset again"
    is "$(loaded "$command" "$root/share/modulefiles" XDG_DATA_DIRS=/a:/b)" \
        "$root $root/bin/kolo"$'\n'"$root/share:/a:/b"$'\n'"$ls"$'\n'"/a:/b unset" \
        "$name: XDG_DATA_DIRS that is set gets a folder more"
    is "$(loaded "$command" "$ROOM/link" |
        head -n 1)" "$root $root/bin/kolo" "$name: a link in a site's tree leads to the tree"
    is "$(loaded "$command" "$ROOM/linked" |
        head -n 1)" "$root $root/bin/kolo" "$name: so does a link to the folder"
    is "$(loaded "$command" "$ROOM/copy" | head -n 1)" "none " "$name: a copy without a tree does not load"
    echo "$(tr -s ' \n' ' ' < "$ROOM/said")" > "$ROOM/line"
    like "$ROOM/line" "there is no /.*bin/kolo.*copied away from its tree.*use a link" \
        "$name: and says what to do"
    is "$(loaded "$command" "$ROOM/installed" |
        head -n 1)" "$root $root/bin/kolo" "$name: a copy finds the tree where it was installed"
}
for place in link copy installed; do mkdir -p "$ROOM/$place/kolo"; done
mkdir "$ROOM/linked" && ln -s "$root/share/modulefiles/kolo" "$ROOM/linked/kolo"
ln -s "$root/share/modulefiles/kolo/$version" "$ROOM/link/kolo/$version"
cp "$root/share/modulefiles/kolo/$version" "$ROOM/copy/kolo"
sed "s|@VERSION@|$version|g; s|@ROOT@|$root|" modulefiles/kolo.in > "$ROOM/installed/kolo/$version"

tmod=$(command -v modulecmd || find /usr/lib -maxdepth 2 -name modulecmd | head -n 1)
lmod=${LMOD_CMD:-$(find /usr/share/lmod -name lmod -type f -path "*libexec*" 2> /dev/null | head -n 1)}
[ -n "$tmod$lmod" ] || skip_all "neither environment-modules nor Lmod"
if [ -n "$tmod" ]; then round_trip Tmod "$tmod" &&
    elsewhere Tmod "$tmod"; else skip "no environment-modules"; fi
if [ -n "$lmod" ]; then round_trip Lmod "$lmod" && elsewhere Lmod "$lmod"; else skip "no Lmod"; fi
done_testing
