#!/bin/sh
# deb.sh BUILD VERSION OUT: OUT/kolo_VERSION_ARCH.deb of what is built in BUILD, for this release of Debian or
# Ubuntu: it depends on the packages whose libraries the programs load. The same build gives the same bytes.
set -eu
[ $# = 3 ] || { sed -n '2,3s/^# //p' "$0" >&2 && exit 2; }
build=$1 version=$2 out=$3
for tool in dpkg-deb dpkg-shlibdeps strip gzip; do
    command -v "$tool" >/dev/null && continue
    echo "make deb needs $tool: apt-get install dpkg-dev binutils" >&2
    exit 1
done
umask 022
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/root
# of the last change, so that the archive does not depend on when it is made
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date -r CHANGELOG.md +%s)}
export SOURCE_DATE_EPOCH LC_ALL=C
share/setup/install.sh install "$root/usr" "$build" "$version" /usr >/dev/null
find "$root/usr/bin" "$root/usr/lib" -type f \( -perm -100 -o -name '*.so*' \) | while read -r file; do
    strip --strip-unneeded "$file"
done
chmod 644 "$root"/usr/lib/*.so* 2>/dev/null || true
find "$root/usr/share/man" -type f -exec gzip -9n {} +
find "$root/usr/share/man" -type l | while read -r link; do
    ln -s "$(readlink "$link").gz" "$link.gz" && rm "$link"
done
doc=$root/usr/share/doc/kolo
{
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n'
    printf 'Upstream-Name: kolo\n\nFiles: *\nCopyright: 2026 The Kolo authors\nLicense: BSD-3-clause\n'
    sed -n '/^Redistribution/,$p' LICENSE | sed 's/^$/./; s/^/ /'
} >"$doc/copyright"
rm -f "$doc/LICENSE"
author='The Kolo authors <kolo@example.org>'
printf 'kolo (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- %s  %s\n' "$version" "$author" \
    "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.gz"
mkdir -p "$root/DEBIAN" "$stage/debian"
# dpkg-shlibdeps wants a source package around it
printf 'Source: kolo\n\nPackage: kolo\nArchitecture: any\n' >"$stage/debian/control"
depends=$(cd "$stage" && find root/usr/bin root/usr/lib -type f -exec sh -c \
    'for f; do case $(head -c 4 "$f" | tr -d "\177") in ELF) echo "$f" ;; esac; done' sh {} + | sort |
    xargs dpkg-shlibdeps -O --ignore-missing-info -lroot/usr/lib 2>/dev/null | sed 's/^shlibs:Depends=//')
cat >"$root/DEBIAN/control" <<END
Package: kolo
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: $author
Section: science
Priority: optional
Depends: $depends
Suggests: slurm-client
Installed-Size: $(du -sk "$root/usr" | cut -f 1)
Description: training of vision networks on Slurm supercomputers
 Kolo trains vision networks (ResNet, ConvNeXt, Swin, YOLO and more) on one
 machine or on many nodes under Slurm, from one C program without Python.
 .
 It packs images into HDF5 shards, plans memory and communication before a
 job is queued, trains, evaluates and exports, and brings its collectives as
 a library for other MPI programs.
END
printf 'libkolo_comm 1 kolo (>= %s)\n' "$version" >"$root/DEBIAN/shlibs"
mkdir -p "$root/usr/share/lintian/overrides"
cat >"$root/usr/share/lintian/overrides/kolo" <<'END'
# Debian keeps PMIx in a folder of its own, beside the versions of other MPIs
kolo: custom-library-search-path *pmix*
# preloaded by its path, never linked against
kolo: sharedobject-in-library-directory-missing-soname *libkolo_pmpi.so*
END
[ ! -e "$root/usr/lib/libkolo_cuda.so" ] || cat >>"$root/usr/share/lintian/overrides/kolo" <<'END'
# opened by its path, never linked against; finds CUDA where NVIDIA's own packages put it
kolo: sharedobject-in-library-directory-missing-soname *libkolo_cuda.so*
kolo: custom-library-search-path *cuda*
END
printf 'activate-noawait ldconfig\n' >"$root/DEBIAN/triggers"
(cd "$root" && find usr -type f | sort | xargs md5sum) >"$root/DEBIAN/md5sums"
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
mkdir -p "$out"
deb=$out/kolo_${version}_$(dpkg --print-architecture).deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$deb" >/dev/null
echo "$deb"
