#!/bin/sh
# Finds every library this program needs and writes what it found as makefile lines to stdout; the
# GNUmakefile keeps them in $(BUILD)/probe.mk. Each library is looked for in its *_HOME, then as its own tool
# or pkg-config tells it, then where the compiler looks anyway; a candidate counts only when a program that
# uses it compiles and links. Environment: CC, CXX, PROBE_KEY (recorded), MPI PMIX CUDA NCCL TIFF WEBP LMDB
# ONNX XML (0: without), *_HOME, and *_CFLAGS with *_LIBS to decide yourself.
set -u
CC=${CC:-cc}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
missing='' left_out='' mpi_cflags=''

# Of a tool's words, those that tell where headers, or libraries, are; its own
# optimisation flags are not ours.
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
        # cJSON's says .../include/cjson
        for include in '' "-I$(pkg-config --variable=prefix "$pkg")/include"; do
            candidate "$pkg_name" "$(pkg-config --cflags "$pkg")$include" "$(pkg-config --libs "$pkg")" &&
                return 0
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
        HDF5) command -v h5cc >/dev/null 2>&1 && ! h5cc -showconfig 2>/dev/null |
            grep -q 'Parallel HDF5: yes' &&
            wrapper_candidate HDF5 h5cc -show && return 0 ;;
        esac
        # shellcheck disable=SC2086
        pkg_candidate "$1" $3 && return 0
        candidate "$1" "" "$2" && return 0
    fi
    missing="$missing $1"
    return 1
}

# A library that the program does without where it is not found, and nobody said where it is.
optional_library() {
    before=$missing
    find_library "$@" || [ -n "$home$own_libs" ] || { missing=$before left_out="$left_out $1"; }
}

program() { printf '%s\n' "$@" >"$work/t.c"; }

# ---- CUDA --------------------------------------------------------------------------------------------------
# Its headers alone serve the tests, which run kernels on the host; the libraries and nvcc are only asked for
# with CUDA=1.

# cuda_part NAME LIBRARIES HOME...: NAME_CFLAGS and true when the headers of $work/t.c are found;
# NAME_LIBS when it links, too.
cuda_part() {
    part=$1 names=$2
    shift 2
    eval "own_cflags=\${${part}_CFLAGS:-} own_libs=\${${part}_LIBS:-} has_own=\${${part}_LIBS+yes}"
    # shellcheck disable=SC2154 # set by eval
    for home; do
        flags=$own_cflags
        if [ -z "$own_cflags$own_libs" ] && [ "$home" != system ]; then
            [ -d "$home/include" ] || continue
            flags="-isystem $home/include"
        fi
        # shellcheck disable=SC2086 # flags are words
        $CC $cuda_cflags $flags -fsyntax-only "$work/t.c" >>"$work/log" 2>&1 || continue
        echo "${part}_CFLAGS ?= $flags"
        cuda_cflags="$cuda_cflags $flags"
        for folder in "$home/lib64" "$home/lib" "$home/targets/$(uname -m)-linux/lib" ''; do
            [ -z "$folder" ] || [ -d "$folder" ] || continue
            # Python's packages hold libcudnn.so.9 and no libcudnn.so
            for words in "$names" "$(numbered "$names")"; do
                words="${folder:+-L$folder }$words"
                [ -z "$has_own" ] || words=$own_libs
                links "$cuda_cflags" "$words" || continue
                # shellcheck disable=SC2086
                echo "${part}_LIBS ?= $words$(run_paths $words)"
                return 0
            done
        done
        missing_cuda="$missing_cuda $part"
        return 0
    done
    missing_cuda="$missing_cuda $part"
    return 1
}
numbered() { printf '%s\n' "$1" | sed 's/-lcudnn/-l:libcudnn.so.9/; s/-lnccl/-l:libnccl.so.2/'; }

find_cuda() {
    missing_cuda='' cuda_cflags='' nvcc=${NVCC:-${CUDA_HOME:+$CUDA_HOME/bin/}nvcc}
    homes=${CUDA_HOME:-}
    if [ -z "$homes" ]; then
        path=$(command -v "$nvcc" 2>/dev/null) && homes=$(dirname "$(dirname "$(readlink -f "$path")")")
        homes="$homes /usr/local/cuda /opt/cuda system"
    fi
    program '#include <cuda_runtime_api.h>' '#include <cublasLt.h>' '#if CUDART_VERSION < 12000' \
        '#error CUDA 12 or later' '#endif' \
        'int main(void) { int n; return cudaGetDeviceCount(&n) + !cublasLtGetVersion(); }'
    # shellcheck disable=SC2086 # words
    if cuda_part CUDA '-lcudart -lcublasLt' $homes; then
        headers=yes
        program '#include <cudnn.h>' '#if CUDNN_MAJOR < 9' '#error cuDNN 9 or later' '#endif' \
            'int main(void) { return !cudnnGetVersion(); }'
        cuda_part CUDNN -lcudnn ${CUDNN_HOME:-$homes system} || headers=''
        program '#include <nccl.h>' '#if NCCL_VERSION_CODE < NCCL_VERSION(2,18,0)' \
            '#error NCCL 2.18 or later' '#endif' \
            'int main(void) { int n; return ncclGetVersion(&n); }'
        [ "${NCCL:-1}" = 0 ] || cuda_part NCCL -lnccl ${NCCL_HOME:-$homes system} || headers=''
        # C++ for the host
        printf '#include <cuda_runtime_api.h>\nint main() { return 0; }\n' >"$work/t.cc"
        # shellcheck disable=SC2086
        ${CXX:-g++} $cuda_cflags -fsyntax-only "$work/t.cc" >>"$work/log" 2>&1 ||
            { headers='' missing_cuda="$missing_cuda CXX"; }
        echo "CUDA_HEADERS := $headers"
    fi
    [ -n "${CUDA_HOME:-}${NVCC:-}" ] || command -v nvcc >/dev/null 2>&1 || nvcc=/usr/local/cuda/bin/nvcc
    if codes=$("$nvcc" --list-gpu-code 2>/dev/null); then
        echo "NVCC ?= $nvcc"
        printf 'NVCC_KNOWS := %s\n' "$(echo "$codes" | sed 's/sm_//' | tr '\n' ' ')"
    else
        missing_cuda="$missing_cuda NVCC"
    fi
    [ "${CUDA:-0}" = 0 ] || missing="$missing$missing_cuda"
}

echo "PROBED := ${PROBE_KEY:-}"
# that the compiler compiles for, not that it runs on
machine=$($CC -dumpmachine 2>/dev/null) || machine=$(uname -m)
echo "PROBE_MACHINE := ${machine%%-*}"
program 'int main(void) { return 0; }'
if ! links "" ""; then
    echo "PROBE_MISSING := CC"
    echo "PROBE_LEFT_OUT :="
    exit 0
fi

if [ "${MPI:-1}" != 0 ]; then
    program '#include <mpi.h>' 'int main(int n, char **a) { return MPI_Init(&n, &a); }'
    find_library MPI -lmpi 'mpich mpi ompi-c' >"$work/mpi" &&
        mpi_cflags=$(sed -n 's/^MPI_CFLAGS ?= //p' "$work/mpi")
    cat "$work/mpi"
fi
if [ "${PMIX:-1}" != 0 ]; then
    program '#include <pmix.h>' 'int main(void) { return PMIx_Initialized(); }'
    find_library PMIX -lpmix pmix
fi
program '#include <hdf5.h>' 'int main(void) { return H5open(); }'
plain_cc=$CC
# a parallel HDF5 includes mpi.h; its compiler wrapper is avoided where a serial one is there
CC="$CC $mpi_cflags"
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
if [ "${TIFF:-1}" != 0 ]; then
    program '#include <tiffio.h>' 'int main(void) { return TIFFGetVersion() == 0; }'
    optional_library TIFF -ltiff libtiff-4
fi
if [ "${WEBP:-1}" != 0 ]; then
    program '#include <webp/decode.h>' 'int main(void) { return WebPGetDecoderVersion() == 0; }'
    optional_library WEBP -lwebp libwebp
fi
if [ "${LMDB:-1}" != 0 ]; then
    program '#include <lmdb.h>' 'int main(void) { return mdb_version(0, 0, 0) == 0; }'
    optional_library LMDB -llmdb lmdb
fi
if [ "${ONNX:-1}" != 0 ]; then
    program '#include <protobuf-c/protobuf-c.h>' \
        'int main(void) { return protobuf_c_version_number() < 1003000; }'
    command -v protoc-c >/dev/null 2>&1 || program '#error no protoc-c, which writes the messages'
    optional_library ONNX -lprotobuf-c libprotobuf-c
fi
if [ "${XML:-1}" != 0 ]; then
    program '#include <libxml/xmlreader.h>' \
        'int main(void) { return xmlReaderForMemory("", 0, NULL, NULL, XML_PARSE_NONET) == NULL; }'
    optional_library XML -lxml2 libxml-2.0
fi
program '#include <zlib.h>' 'int main(void) { return zlibVersion() == 0; }'
find_library ZLIB -lz zlib
program '#include <yaml.h>' 'int main(void) { yaml_parser_t p; return yaml_parser_initialize(&p); }'
find_library YAML -lyaml yaml-0.1
program '#include <cjson/cJSON.h>' 'int main(void) { return cJSON_Version() == 0; }'
find_library CJSON -lcjson libcjson
find_cuda
echo "PROBE_MISSING :=$missing"
echo "PROBE_LEFT_OUT :=$left_out"
