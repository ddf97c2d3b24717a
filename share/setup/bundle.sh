#!/usr/bin/env bash
# bundle.sh BUILD VERSION FOLDER [FILE...]: writes FOLDER/kolo-bundle-VERSION-MACHINE and a .tar.gz of it:
# the programs of BUILD/bundle (bundle.mk), every library that they need but glibc and NVIDIA's, recipes, a
# little data, PyTorch's figures, and tests/gpu. It runs on another Linux of this machine's kind with this
# glibc or a newer one; with a GPU there, tests/gpu/run does all that needs one. FILE: the CUDA library and
# programs for a GPU alone, if any. KOLO_SHARED: folder of real images; without it the data are drawn.
# XZ_OPT: how the programs are packed.
set -euo pipefail
shopt -s nullglob
[ $# -ge 3 ] || { echo "usage: $0 BUILD VERSION FOLDER [FILE...]" >&2 && exit 2; }
build=$1 version=$2 folder=$3
shift 3
LIMIT=$((45 << 20))
shared=${KOLO_SHARED:-../shared}
name=kolo-bundle-$version-$(uname -m)
out=$folder/$name
work=$(mktemp -d)
tree=$work/tree # an installation: bin, lib, share
trap 'rm -rf "$work"' EXIT
say() { printf '  %-12s %s\n' "$1" "$2"; }
stop() { echo "bundle: $*" >&2; exit 1; }

# of the system that it will run on: the C library, the driver, the CUDA libraries
SYSTEM='^(ld-linux.*|libc|libm|libmvec|libdl|librt|libpthread|libresolv|libutil|libanl|libnsl|libnss_.*)\.so'
NVIDIA='^lib(cuda|cudart|cublas|cublasLt|cudnn.*|nccl|nvrtc.*|nvJitLink|nvidia-ml)\.so'

rm -rf "$out" "$out.tar.gz"
mkdir -p "$out"/{bin,lib,share,tests/peers} "$tree"/{bin,lib,share/kolo}

# ---- programs ----------------------------------------------------------------------------------------------
program() { # FILE
    strip -s -o "$tree/bin/$(basename "$1" .hydra)" "$1"
    chmod 755 "$tree/bin/$(basename "$1" .hydra)"
}
library() { # FILE NAME
    strip --strip-unneeded -o "$tree/lib/$2" "$1"
}
for file in "$build"/bundle/bin/*; do program "$file"; done
library "$build/bundle/lib/libkolo_rooms.so" libkolo_rooms.so
hydra=$(command -v mpiexec.hydra || true) # MPICH's launcher, and what it starts on a node
if [ -n "$hydra" ] && [ -x "$(dirname "$hydra")/hydra_pmi_proxy" ]; then
    program "$hydra"
    program "$(dirname "$hydra")/hydra_pmi_proxy"
fi
for file; do
    case $file in *.so) library "$file" "$(basename "$file")" ;; *) program "$file" ;; esac
done
for name_of in with kolo kolo-pack kolo-shards mpiexec; do
    if [ "$name_of" = with ] || [ -e "$tree/bin/$name_of" ]; then install -m 755 share/setup/bundle_start.sh \
        "$out/bin/$name_of"; fi
done
cp -r share/recipes share/gpus "$tree/share/kolo/"

# ---- libraries ---------------------------------------------------------------------------------------------
elf=("$tree"/bin/* "$tree"/lib/*)
found() { LD_LIBRARY_PATH=$tree/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} ldd "${elf[@]}" 2>/dev/null; }
missing=$(found | awk '/not found/ {print $1}' | grep -vE "$NVIDIA" | sort -u || true)
[ -z "$missing" ] || stop "libraries not found here: $missing"
# "name file" of every library that they lead to, whatever the place where it is found by itself
found | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | sort -u | grep -vE "$SYSTEM|$NVIDIA" |
    grep -v " $tree/" >"$work/libraries"
while read -r soname file; do library "$(readlink -f "$file")" "$soname"; done <"$work/libraries"
needs=$(objdump -T "$tree"/bin/* "$tree"/lib/* 2>/dev/null | grep -oE 'GLIBC_[0-9]+\.[0-9]+' | sort -uV |
    tail -n 1)
{
    echo "machine $(uname -m)"
    echo "glibc ${needs#GLIBC_}"
    readelf -d "$tree"/lib/libkolo_cuda*.so 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        grep -E "$NVIDIA" | sort -u | sed 's/^/library /' || true
} >"$out/lib/requires"
# code of this machine packs better with its addresses made absolute
[ "$(uname -m)" = x86_64 ] && branches=--x86 || branches=''
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$tree" -cf - . |
    XZ_OPT=${XZ_OPT:-$branches --lzma2=preset=6} xz -T0 >"$out/lib/tree.tar.xz"

# ---- data, figures, scripts --------------------------------------------------------------------------------
pack() { "$build/bin/kolo-pack" "$@" >>"$work/pack.log" 2>&1 ||
    { cat "$work/pack.log" >&2; stop "packing failed"; }; }
data=$out/share/data
if [ -d "$shared/data/imagenette224/train" ]; then # some photos of every class, as links
    for class in "$shared"/data/imagenette224/train/*/; do
        mkdir -p "$work/photos/train/$(basename "$class")"
        find "$(readlink -f "$class")" -name '*.JPEG' | sort | awk 'NR <= 26' |
            xargs -r ln -st "$work/photos/train/$(basename "$class")"
    done
    pack --source imagefolder --in "$work/photos" --split train --name imagenette224 --encoding jpeg --out \
        "$data/photos/train"
else
    pack --source shapes --split train --count 260 --out "$data/photos/train"
fi
if [ -f "$shared/data/cifar10/data_batch_1_first4000.bin" ]; then
    head -c $((3073 * 512)) "$shared/data/cifar10/data_batch_1_first4000.bin" >"$work/data_batch_1.bin"
    pack --source cifar-bin --in "$work/data_batch_1.bin" --split train --name cifar10 --out \
        "$data/small/train"
else
    pack --source shapes --split train --count 512 --size 32 --encoding raw --out "$data/small/train"
fi
mkdir -p "$out"/tests/golden/{models,train,ops}
cp tests/golden/models/*.json "$out/tests/golden/models/"
cp tests/golden/train/{resnet20,lenet5}_*.json "$out/tests/golden/train/"
cp tests/golden/ops/*.json "$out/tests/golden/ops/"
cp -r tests/gpu "$out/tests/"
rm -rf "$out"/tests/gpu/__pycache__
cp tests/peers/networks.py "$out/tests/peers/"
cp LICENSE NOTICE VERSION "$out/"

# ---- size --------------------------------------------------------------------------------------------------
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$folder" -czf "$out.tar.gz" "$name"
size() { awk -v b="$1" 'BEGIN {printf "%.1f MiB", b / 1048576}'; }
bytes=$(du -sb "$out" | cut -f 1)
say programs "$(find "$tree/bin" -type f |
    wc -l), and $(wc -l <"$work/libraries") libraries of the system: $(size "$(stat -c %s \
    "$out/lib/tree.tar.xz")") packed, $(size "$(du -sb "$tree" | cut -f 1)") unpacked"
say requires "$(sed 's/^library //' "$out/lib/requires" | paste -sd ' ')"
if [ -f "$tree/lib/libkolo_cuda.so" ]; then
    say CUDA "$(size "$(stat -c %s "$tree/lib/libkolo_cuda.so")") of code for GPUs"
else
    say CUDA "none: this build is for CPUs (make CUDA=1 bundle)"
fi
if [ "$bytes" -gt $LIMIT ]; then
    find "$out" -type f -printf '%s %P\n' | sort -rn | sed -n 1,12p >&2
    stop "$out has $bytes bytes, more than $LIMIT"
fi
say bundle "$out, $(size "$bytes")"
say bundle "$out.tar.gz, $(size "$(stat -c %s "$out.tar.gz")")"
