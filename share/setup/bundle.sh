#!/usr/bin/env bash
# bundle.sh BUILD VERSION FOLDER [TEST...]: writes FOLDER/kolo-bundle-VERSION-MACHINE and a .tar.gz of it: the programs, the CUDA library,
# every library that they need but glibc and NVIDIA's, recipes, a little data, PyTorch's figures, tests/gpu, and the test programs named.
# It runs on another Linux of this machine's kind with this glibc or a newer one; with a GPU there, tests/gpu/run does all that needs one.
# KOLO_SHARED: folder of real pictures and of golden figures; without it the data are drawn and the figures left out.
set -euo pipefail
shopt -s nullglob
[ $# -ge 3 ] || { echo "usage: $0 BUILD VERSION FOLDER [TEST...]" >&2 && exit 2; }
build=$1 version=$2 folder=$3
shift 3
LIMIT=$((60 << 20))
shared=${KOLO_SHARED:-../shared}
name=kolo-bundle-$version-$(uname -m)
out=$folder/$name
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { printf '  %-12s %s\n' "$1" "$2"; }
stop() { echo "bundle: $*" >&2; exit 1; }

# of the system that it will run on: the C library, the driver, the CUDA libraries
SYSTEM='^(ld-linux.*|libc|libm|libmvec|libdl|librt|libpthread|libresolv|libutil|libanl|libnsl|libnss_.*)\.so'
NVIDIA='^lib(cuda|cudart|cublas|cublasLt|cudnn.*|nccl|nvrtc.*|nvJitLink|nvidia-ml)\.so'

rm -rf "$out" "$out.tar.gz"
mkdir -p "$out"/{bin,libexec,lib,share/kolo,tests/gpu}

# ---- programs ----------------------------------------------------------------------------------------------------------
program() { # FILE TARGET
    strip -s -o "$2" "$1"
    chmod 755 "$2"
}
for file in kolo kolo-pack kolo-shards; do program "$build/bin/$file" "$out/libexec/$file"; done
hydra=$(command -v mpiexec.hydra || true) # MPICH's launcher, and what it starts on a node
if [ -n "$hydra" ] && [ -x "$(dirname "$hydra")/hydra_pmi_proxy" ]; then
    program "$hydra" "$out/libexec/mpiexec"
    program "$(dirname "$hydra")/hydra_pmi_proxy" "$out/libexec/hydra_pmi_proxy"
fi
mkdir -p "$work/system/tests" # much alike, so they take little room beside one another in the archive of libraries
for file; do program "$file" "$work/system/tests/$(basename "$file")"; done
for file in "$out"/libexec/*; do
    [ "$(basename "$file")" = hydra_pmi_proxy ] || install -m 755 share/setup/bundle_start.sh "$out/bin/$(basename "$file")"
done
install -m 755 share/setup/bundle_start.sh "$out/bin/with"
cuda=$build/lib/libkolo_cuda.so
if [ -f "$cuda" ]; then
    strip --strip-unneeded -o "$out/lib/libkolo_cuda.so" "$cuda"
    readelf -d "$cuda" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -E "$NVIDIA" >"$out/lib/nvidia.needed"
fi

# ---- libraries ---------------------------------------------------------------------------------------------------------
# "name file" of every library that the ELF files given lead to
closure() { ldd "$@" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | sort -u | grep -vE "$SYSTEM|$NVIDIA"; }
elf=("$out"/libexec/* "$work"/system/tests/*)
[ ! -f "$out/lib/libkolo_cuda.so" ] || elf+=("$out/lib/libkolo_cuda.so")
missing=$(ldd "${elf[@]}" 2>/dev/null | awk '/not found/ {print $1}' | grep -vE "$NVIDIA" | sort -u || true)
[ -z "$missing" ] || stop "libraries not found here: $missing"
closure "${elf[@]}" | while read -r soname file; do
    strip --strip-unneeded -o "$work/system/$soname" "$(readlink -f "$file")"
    say library "$soname $(stat -c %s "$work/system/$soname")"
done >"$work/libraries"
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$work/system" -cf - . | xz -T0 >"$out/lib/system.tar.xz"
needs=$(objdump -T "${elf[@]}" "$work/system"/*.so* 2>/dev/null | grep -oE 'GLIBC_[0-9]+\.[0-9]+' | sort -uV | tail -n 1)

# ---- data, figures, scripts --------------------------------------------------------------------------------------------
pack() { "$build/bin/kolo-pack" "$@" >>"$work/pack.log" 2>&1 || { cat "$work/pack.log" >&2; stop "packing failed"; }; }
folder_of() { # SPLIT PICTURES-A-CLASS: some photos of every class, as links
    local class
    for class in "$shared/data/imagenette224/$1"/*/; do
        mkdir -p "$work/photos/$1/$(basename "$class")"
        find "$(readlink -f "$class")" -name '*.JPEG' | sort | awk -v n="$2" "NR <= n" | xargs -r ln -st "$work/photos/$1/$(basename "$class")"
    done
}
data=$out/share/data
if [ -d "$shared/data/imagenette224/train" ]; then
    folder_of train 40
    folder_of val 10
    pack --source imagefolder --in "$work/photos" --split train --name imagenette224 --encoding jpeg --out "$data/photos/train"
    pack --source imagefolder --in "$work/photos" --split val --name imagenette224 --encoding jpeg --out "$data/photos/val" --stats-from "$data/photos/train"
else
    pack --source shapes --split train --count 400 --out "$data/photos/train"
    pack --source shapes --split val --count 100 --out "$data/photos/val" --stats-from "$data/photos/train"
fi
if [ -f "$shared/data/cifar10/data_batch_1_first4000.bin" ]; then
    head -c $((3073 * 1024)) "$shared/data/cifar10/data_batch_1_first4000.bin" >"$work/data_batch_1.bin"
    pack --source cifar-bin --in "$work/data_batch_1.bin" --split train --name cifar10 --out "$data/small/train"
else
    pack --source shapes --split train --count 1024 --size 32 --encoding raw --out "$data/small/train"
fi
if [ -d "$shared/golden/models" ]; then
    mkdir -p "$out"/share/golden/{models,train,ops}
    for case in resnet18_64 resnet18_64_bias resnet18_224 resnet20_cifar_a resnet20_cifar_a_16 resnet20_cifar_b resnet20_cifar_b_16 \
        resnet50_64_bias resnet50_96 resnet50_224 resnext50_32x4d_64_bias convnext_tiny_96 swin_t_160 lenet5 mlp; do
        cp "$shared/golden/models/$case.json" "$out/share/golden/models/"
    done
    cp "$shared"/golden/train/{resnet20,lenet5}_*.json "$out/share/golden/train/"
    cp "$shared"/golden/ops/*.json "$out/share/golden/ops/"
fi
cp -r share/recipes share/gpus "$out/share/kolo/"
cp -r tests/gpu/. "$out/tests/gpu/"
cp LICENSE NOTICE VERSION "$out/"

# ---- size ----------------------------------------------------------------------------------------------------------------
bytes=$(du -sb "$out" | cut -f 1)
say libraries "$(wc -l <"$work/libraries"), $(($(stat -c %s "$out/lib/system.tar.xz") >> 20)) MiB packed, $(du -sm "$work/system" | cut -f 1) MiB"
say glibc "${needs#GLIBC_} or newer"
if [ -f "$out/lib/libkolo_cuda.so" ]; then
    say CUDA "$(stat -c %s "$out/lib/libkolo_cuda.so") bytes; taken from the target: $(paste -sd ' ' "$out/lib/nvidia.needed")"
else
    say CUDA "none: this build is for CPUs (make CUDA=1 bundle)"
fi
if [ "$bytes" -gt $LIMIT ]; then
    find "$out" -type f -printf '%s %P\n' | sort -rn | sed -n 1,12p >&2
    stop "$out has $bytes bytes, more than $LIMIT"
fi
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$folder" -czf "$out.tar.gz" "$name"
say bundle "$out, $((bytes >> 20)) MiB"
say bundle "$out.tar.gz"
