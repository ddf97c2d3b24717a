#!/bin/sh
# Finds every library this program needs and writes what it found as makefile lines to stdout; the GNUmakefile keeps
# them in $(BUILD)/probe.mk. Each library is looked for in its *_HOME, then as its own tool or pkg-config tells it, then
# where the compiler looks anyway; a candidate counts only when a program that uses it compiles and links.
# Environment: CC, PROBE_KEY (recorded), MPI PMIX CUDA (0: without), *_HOME, and *_CFLAGS with *_LIBS to decide yourself.
set -u
CC=${CC:-cc}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
missing='' mpi_cflags=''

# Of a tool's words, those that tell where headers, or libraries, are; its own optimisation flags are not ours.
header_words() {
    for word; do case $word in -I* | -D* | -isystem*) printf '%s ' "$word" ;; esac done
}
library_words() {
    for word; do case $word in -L* | -l* | -Wl,*) printf '%s ' "$word" ;; esac done
}

# links CFLAGS LIBS: does $work/t.c build with them?
links() {
    # shellcheck disable=SC2086 # flags are words
    $CC $1 "$work/t.c" -o "$work/t" $2 >>"$work/log" 2>&1
}

# A library outside the system's folders is found again at run time by its run path.
run_paths() {
    for word in "$@"; do
        case $word in -L/usr/lib* | -L/lib*) ;; -L/*) printf ' -Wl,-rpath,%s' "${word#-L}" ;; esac
    done
}

# candidate NAME CFLAGS LIBS: keeps them and succeeds if they work.
candidate() {
    links "$2" "$3" || return 1
    echo "$1_CFLAGS ?= $2"
    # shellcheck disable=SC2086
    echo "$1_LIBS ?= $3$(run_paths $3)"
}

home_candidate() { # NAME HOME LIBRARIES
    for lib in lib64 lib lib/x86_64-linux-gnu lib/aarch64-linux-gnu; do
        [ -d "$2/$lib" ] || continue
        candidate "$1" "-I$2/include" "-L$2/$lib $3" && return 0
    done
    return 1
}

pkg_candidate() { # NAME PACKAGES...
    pkg_name=$1
    shift
    command -v pkg-config >/dev/null 2>&1 || return 1
    for pkg; do
        pkg-config --exists "$pkg" 2>/dev/null || continue
        for include in '' "-I$(pkg-config --variable=prefix "$pkg")/include"; do # cJSON's says .../include/cjson
            candidate "$pkg_name" "$(pkg-config --cflags "$pkg")$include" "$(pkg-config --libs "$pkg")" && return 0
        done
    done
    return 1
}

wrapper_candidate() { # NAME COMMAND...: a compiler wrapper that prints its command line
    wrap_name=$1
    shift
    words=$("$@" 2>/dev/null) || return 1
    # shellcheck disable=SC2086
    candidate "$wrap_name" "$(header_words $words)" "$(library_words $words)"
}

# find NAME LIBRARIES PACKAGES: $work/t.c is the program to try. Words in the environment win.
find_library() {
    eval "home=\${$1_HOME:-} own_cflags=\${$1_CFLAGS:-} own_libs=\${$1_LIBS:-}"
    # shellcheck disable=SC2154 # set by eval
    if [ -n "$own_libs" ]; then
        candidate "$1" "$own_cflags" "$own_libs" && return 0
    elif [ -n "$home" ]; then
        home_candidate "$1" "$home" "$2" && return 0
    else
        case $1 in
        MPI) { wrapper_candidate MPI mpicc -show || wrapper_candidate MPI mpicc --showme; } && return 0 ;;
        HDF5) command -v h5cc >/dev/null 2>&1 && ! h5cc -showconfig 2>/dev/null | grep -q 'Parallel HDF5: yes' &&
            wrapper_candidate HDF5 h5cc -show && return 0 ;;
        esac
        # shellcheck disable=SC2086
        pkg_candidate "$1" $3 && return 0
        candidate "$1" "" "$2" && return 0
    fi
    missing="$missing $1"
    return 1
}

program() { printf '%s\n' "$@" >"$work/t.c"; }

echo "PROBED := ${PROBE_KEY:-}"
echo "PROBE_MACHINE := $(uname -m)"
program 'int main(void) { return 0; }'
if ! links "" ""; then
    echo "PROBE_MISSING := CC"
    exit 0
fi

if [ "${MPI:-1}" != 0 ]; then
    program '#include <mpi.h>' 'int main(int n, char **a) { return MPI_Init(&n, &a); }'
    find_library MPI -lmpi 'mpich mpi ompi-c' >"$work/mpi" && mpi_cflags=$(sed -n 's/^MPI_CFLAGS ?= //p' "$work/mpi")
    cat "$work/mpi"
fi
if [ "${PMIX:-1}" != 0 ]; then
    program '#include <pmix.h>' 'int main(void) { return PMIx_Initialized(); }'
    find_library PMIX -lpmix pmix
fi
program '#include <hdf5.h>' 'int main(void) { return H5open(); }'
plain_cc=$CC
CC="$CC $mpi_cflags" # a parallel HDF5 includes mpi.h; its compiler wrapper is avoided where a serial one is there
find_library HDF5 -lhdf5 'hdf5-serial hdf5'
CC=$plain_cc
program '#include <dnnl.h>' 'int main(void) { return dnnl_version()->major < 2; }'
find_library DNNL -ldnnl dnnl
program '#include <hwloc.h>' 'int main(void) { hwloc_topology_t t; return hwloc_topology_init(&t); }'
find_library HWLOC -lhwloc hwloc
program '#include <stdio.h>' '#include <jpeglib.h>' \
    'int main(void) { struct jpeg_decompress_struct d; jpeg_create_decompress(&d); return 0; }'
find_library JPEG -ljpeg libjpeg
program '#include <png.h>' 'int main(void) { return png_access_version_number() == 0; }'
find_library PNG '-lpng -lz' libpng
program '#include <zlib.h>' 'int main(void) { return zlibVersion() == 0; }'
find_library ZLIB -lz zlib
program '#include <yaml.h>' 'int main(void) { yaml_parser_t p; return yaml_parser_initialize(&p); }'
find_library YAML -lyaml yaml-0.1
program '#include <cjson/cJSON.h>' 'int main(void) { return cJSON_Version() == 0; }'
find_library CJSON -lcjson libcjson
if [ "${CUDA:-0}" != 0 ]; then
    nvcc=${CUDA_HOME:+$CUDA_HOME/bin/}nvcc
    if command -v "$nvcc" >/dev/null 2>&1; then echo "NVCC ?= $nvcc"; else missing="$missing CUDA"; fi
fi
echo "PROBE_MISSING :=$missing"
