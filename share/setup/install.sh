#!/bin/sh
# install.sh install|uninstall ROOT BUILD VERSION [PREFIX]: the one list of what is installed where. ROOT is
# DESTDIR and PREFIX; with PREFIX templates of jobs, and copies of the modulefile, find the installation from
# wherever they are copied to.
set -eu
case $# in 4 | 5) ;; *) echo "usage: $0 install|uninstall ROOT BUILD VERSION [PREFIX]" >&2 && exit 2 ;; esac
action=$1 root=$2 build=$3 version=$4 prefix=${5:-}

put() { # MODE SOURCE TARGET
    if [ "$action" = uninstall ]; then
        rm -f "$root/$3"
        return
    fi
    [ -f "$2" ] || { echo "$2 is missing; build it first" >&2; exit 1; }
    mkdir -p "$(dirname "$root/$3")"
    # aside and renamed: a running program keeps its old file, a node that starts now sees a whole one
    cp "$2" "$root/$3.new-$$"
    chmod "$1" "$root/$3.new-$$"
    mv -f "$root/$3.new-$$" "$root/$3"
}

put_all() { # MODE SOURCE-FOLDER TARGET-FOLDER PATTERN...
    mode=$1 from=$2 to=$3
    shift 3
    for pattern; do
        for file in "$from"/$pattern; do
            [ ! -f "$file" ] || put "$mode" "$file" "$to/${file##*/}"
        done
    done
}

pkg_config_file() {
    cat <<END
prefix=\${pcfiledir}/../..
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: kolo-comm
Description: collectives between the ranks of a job, named or matched by order
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -lkolo_comm
END
}

for program in kolo kolo-pack kolo-shards; do put 755 "$build/bin/$program" "bin/$program"; done
# only of a build with CUDA=1, or with MPI; of another one an older library is not left behind, which no
# program there would open
for library in lib/libkolo_cuda.so lib/libkolo_comm_cuda.so lib/libkolo_pmpi.so; do
    if [ -f "$build/$library" ]; then put 755 "$build/$library" "$library"; else rm -f "$root/$library"; fi
done
put_all 644 include/kolo include/kolo '*.h'
put 755 "$build/lib/libkolo_comm.so.1" lib/libkolo_comm.so.1
if [ "$action" = install ]; then ln -sf libkolo_comm.so.1 "$root/lib/libkolo_comm.so"; else rm -f \
    "$root/lib/libkolo_comm.so"; fi
put_all 644 share/examples share/kolo/examples '*.c' Makefile
put_all 644 share/recipes share/kolo/recipes '*.yaml'
put_all 644 share/gpus share/kolo/gpus '*.yaml' '*.json'
put_all 644 share/clusters share/kolo/clusters '*.yaml'
put 755 share/minislurm share/kolo/minislurm
put_all 644 share/site share/kolo/site '*'
put_all 644 "$build/share/man/man1" share/man/man1 '*.1'
put_all 644 share/man share/man/man1 '*.1'
put_all 644 "$build/share/man/man3" share/man/man3 '*.3'
for program in kolo kolo-pack kolo-shards; do
    for path in "bash-completion/completions/$program" "zsh/site-functions/_$program" \
        "fish/vendor_completions.d/$program.fish"; do
        put 644 "$build/share/$path" "share/$path"
    done
done
put_all 644 . share/doc/kolo LICENSE NOTICE README.md CHANGELOG.md
put_all 644 docs share/doc/kolo/docs '*.md'
put_all 644 docs/reference share/doc/kolo/docs/reference '*.md'
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
for template in jobs/*.sh; do
    sed "s|@ROOT@|\"$prefix\"|" "$template" >"$made/${template##*/}"
done
put_all 755 "$made" share/kolo/jobs '*.sh'
sed "s|@VERSION@|$version|g; s|@ROOT@|$prefix|" modulefiles/kolo.in >"$made/module"
put 644 "$made/module" "share/modulefiles/kolo/$version"
pkg_config_file >"$made/pc"
put 644 "$made/pc" lib/pkgconfig/kolo-comm.pc

if [ "$action" = install ]; then
    echo "installed in $root"
else
    # folders of this program alone, where nothing else lies in them
    for folder in share/kolo/examples share/kolo/recipes share/kolo/gpus share/kolo/clusters share/kolo/jobs \
        share/kolo/site share/kolo share/modulefiles/kolo \
        share/doc/kolo/docs/reference share/doc/kolo/docs share/doc/kolo include/kolo; do
        rmdir "$root/$folder" 2>/dev/null || true
    done
    echo "removed from $root"
fi
