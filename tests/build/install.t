#!/usr/bin/env bash
# make install: the tree works where it was moved to, and uninstall takes back what it put there.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
for program in kolo kolo-pack kolo-shards; do
    [[ -x $BUILD/bin/$program ]] || skip_all "$program is not built"
done
make -s BUILD="$BUILD" manuals >"$ROOM/log" 2>&1 &&
    share/setup/install.sh install "$ROOM/stage/opt/kolo" "$BUILD" 9.8.7 >>"$ROOM/log" 2>&1
ok $? "the tree is installed" || diag <"$ROOM/log"
mv "$ROOM/stage/opt/kolo" "$ROOM/moved"
TREE=$ROOM/moved
cd / || exit 1
env -i PATH=/usr/bin:/bin HOME="$ROOM" "$TREE/bin/kolo" version >"$ROOM/version" 2>&1
ok $? "kolo version runs from the moved tree"
for path in bin/kolo-pack bin/kolo-shards share/kolo/recipes/shapes.yaml share/kolo/gpus/h200.yaml \
    share/kolo/clusters/eos.yaml \
    share/kolo/jobs/resnet_imagenet.sh share/kolo/jobs/resnet_pipeline.sh share/kolo/jobs/resnet_hybrid.sh \
    share/kolo/jobs/highres_spatial.sh \
    share/kolo/jobs/kolo_job.sh share/kolo/minislurm share/man/man1/kolo.1 share/man/man1/kolo-pack.1 \
    share/man/man1/kolo-shards.1 share/man/man3/kolo_comm.3 \
    share/man/man3/kolo_allreduce.3 share/doc/kolo/docs/train.md share/doc/kolo/docs/reference/options.md \
    share/bash-completion/completions/kolo \
    share/bash-completion/completions/kolo-pack share/bash-completion/completions/kolo-shards \
    share/zsh/site-functions/_kolo share/zsh/site-functions/_kolo-pack share/zsh/site-functions/_kolo-shards \
    share/fish/vendor_completions.d/kolo.fish share/fish/vendor_completions.d/kolo-pack.fish \
    share/fish/vendor_completions.d/kolo-shards.fish \
    share/modulefiles/kolo/9.8.7 share/doc/kolo/LICENSE share/doc/kolo/NOTICE include/kolo/error.h \
    lib/pkgconfig/kolo-comm.pc; do
    [[ -s $TREE/$path ]]
    ok $? "$path is there"
done
none "no file names the place where it was built or staged" \
    "$(grep -rlF -e "$ROOM/stage" -e "$OLDPWD" "$TREE" --exclude-dir=bin --exclude-dir=lib)"
[[ $(PKG_CONFIG_PATH=$TREE/lib/pkgconfig pkg-config --modversion kolo-comm 2>&1) == 9.8.7 ]]
ok $? "pkg-config knows the version"
[[ -d $(PKG_CONFIG_PATH=$TREE/lib/pkgconfig pkg-config --variable=includedir kolo-comm 2>/dev/null)/kolo ]]
ok $? "pkg-config after the move: includedir is the new folder"
if command -v man >/dev/null && command -v groff >/dev/null; then
    [[ $(MANWIDTH=100 man -l "$TREE/share/man/man1/kolo.1" 2>/dev/null) == *lr* ]]
    ok $? "the manual page can be read"
else
    skip "no man(1)"
fi
if bash -n "$TREE/share/bash-completion/completions/kolo"; then
    # shellcheck disable=SC1091
    words=$(. "$TREE/share/bash-completion/completions/kolo" && complete -p kolo)
    [[ $words == complete*kolo* ]]
    ok $? "the completion loads"
else
    ok 1 "the completion loads"
fi
init=
for file in /usr/share/lmod/lmod/init/bash /usr/share/modules/init/bash; do [[ ! -e $file ]] ||
    init=$file; done
if [[ -n $init ]]; then
    # shellcheck disable=SC2016 # expands in the other shell
    out=$(env -i PATH=/usr/bin:/bin HOME="$ROOM" TREE="$TREE" INIT="$init" bash -c \
        '. "$INIT"; module use "$TREE/share/modulefiles"
        before=$(env | grep -vE "^(_|LOADEDMODULES|_LMFILES_|__MODULES|__LMOD|_ModuleTable)" | sort)
        module load kolo
        echo "$KOLO_ROOT"; command -v kolo; module unload kolo
        after=$(env | grep -vE "^(_|LOADEDMODULES|_LMFILES_|__MODULES|__LMOD|_ModuleTable)" | sort)
        [ "$before" = "$after" ] && echo same' 2>&1)
    [[ $out == "$TREE"$'\n'"$TREE/bin/kolo"$'\n'same ]]
    ok $? "the module finds the moved tree, and unload leaves the environment as it was" || diag <<<"$out"
else
    skip "no environment modules here"
fi
# the TAB key of somebody who has loaded the module, where bash-completion and fish look for what
# they have not read yet
helper=/usr/share/bash-completion/bash_completion
if [[ -n $init && -e $helper ]] && command -v script >/dev/null; then
    cat >"$ROOM/rc" <<END
. $init; . $helper; module use $TREE/share/modulefiles; module load kolo
kolo-pack() { printf '<%s>' "\$@" >$ROOM/called; }
touch $ROOM/prompt
END
    {
        for ((i = 0; i < 400; i++)); do if [[ -e $ROOM/prompt ]]; then break; else sleep 0.05; fi; done
        sleep 0.3
        printf 'kolo-pack --sou\twebd\t\n'
        for ((i = 0; i < 400; i++)); do if [[ -e $ROOM/called ]]; then break; else sleep 0.05; fi; done
        echo exit
    } | env -i PATH=/usr/bin:/bin HOME="$ROOM" TERM=dumb timeout 60 script -qec "bash --rcfile $ROOM/rc -i" \
        /dev/null >"$ROOM/terminal" 2>&1
    is "$(cat "$ROOM/called")" '<--source><webdataset-tar>' \
        "bash with bash-completion completes when the module is loaded"
else
    skip "no environment modules, bash-completion or script(1)"
fi
if command -v fish >/dev/null; then
    is "$(env -i PATH="$TREE/bin:/usr/bin:/bin" HOME="$ROOM" XDG_DATA_DIRS="$TREE/share:/usr/share" fish -c \
        "complete -C 'kolo train precision=b'")" \
        precision=bf16 "fish finds completion by XDG_DATA_DIRS"
else
    skip "no fish"
fi
cd "$OLDPWD" || exit 1

# --- a template that was copied away, with nothing in its environment
mkdir "$ROOM/user"
dry() { # TEMPLATE [VARIABLE=VALUE...]: a dry run of it, outside of Slurm
    local template=$1
    shift
    (cd "$ROOM/user" && env -i PATH=/usr/bin:/bin HOME="$ROOM" KOLO_DRY_RUN=1 "$@" bash "$template" \
        >"$ROOM/dry" 2>&1)
}
cp "$TREE/share/kolo/jobs/comm_bench.sh" "$ROOM/user/"
! dry comm_bench.sh && grep -q 'No Kolo: sbatch --export=ALL,KOLO_ROOT=FOLDER' "$ROOM/dry"
ok $? "a copy of a template of a tree that was moved says what to set" "$ROOM/dry"
dry comm_bench.sh KOLO_ROOT="$TREE" && grep -q 'srun .* kolo bench gradients' "$ROOM/dry"
ok $? "with KOLO_ROOT it finds the tree" "$ROOM/dry"
share/setup/install.sh install "$TREE" "$BUILD" 9.8.7 "$TREE" >/dev/null
cp "$TREE/share/kolo/jobs/comm_bench.sh" "$ROOM/user/"
dry comm_bench.sh && grep -q 'srun .* kolo bench gradients' "$ROOM/dry"
ok $? "a copy of a template finds the tree that it was installed in" "$ROOM/dry"
dry comm_bench.sh KOLO_ROOT=/nowhere && grep -q 'srun .* kolo bench gradients' "$ROOM/dry"
ok $? "with a KOLO_ROOT that leads nowhere, too" "$ROOM/dry"
share/setup/install.sh uninstall "$TREE" "$BUILD" 9.8.7 >/dev/null
ok $? "uninstall"
none "takes back every file" "$(find "$TREE" -type f)"
done_testing
