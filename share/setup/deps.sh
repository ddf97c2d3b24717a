#!/bin/sh
# What this program needs from the system: prints it, or installs it.
#   deps.sh report NAME...         says which packages bring the libraries NAME... (of probe.sh: MPI HDF5
#                                  CC ...)
#   deps.sh install GOAL NAME...   installs them and what GOAL (build, run, check) needs besides; exit 0: GOAL
#                                  can be reached, though perhaps without something that one can do
#                                  without
# Installs only on Debian and Ubuntu, and only as root, or by sudo after a yes at a terminal (YES=1 is a
# yes). Where a Slurm cluster answers (a login node) it installs nothing. Otherwise it prints the commands
# for apt, dnf, Spack, modules.
set -u

# name | apt | dnf | Spack | what for, and how to do without
# shellcheck disable=SC2016 # the quotes inside are words of the table
packages='
CC      | build-essential  | gcc make         | gcc           | C compiler
PKG     | pkg-config       | pkgconf          | pkgconf       | finds libraries
MPI     | mpich libmpich-dev | mpich-devel    | mpich | \
        messages between nodes; `make MPI=0` does without
PMIX    | libpmix-dev      | pmix-devel       | pmix | \
        launch by srun --mpi=pmix; `make PMIX=0` does without
HDF5    | libhdf5-dev      | hdf5-devel       | hdf5~mpi      | data shards
DNNL    | libdnnl-dev      | onednn-devel     | onednn        | convolutions on CPUs (oneDNN 2 or 3)
HWLOC   | libhwloc-dev     | hwloc-devel      | hwloc         | binding to cores
JPEG    | libjpeg-dev      | libjpeg-turbo-devel | libjpeg-turbo | images
PNG     | libpng-dev       | libpng-devel     | libpng        | images
TIFF    | libtiff-dev      | libtiff-devel    | libtiff       | TIFF images; `make TIFF=0` does without
WEBP    | libwebp-dev      | libwebp-devel    | libwebp       | WebP images; `make WEBP=0` does without
LMDB    | liblmdb-dev      | lmdb-devel       | lmdb | \
        writes LMDB in tests; `make LMDB=0` does without
ONNX    | libprotobuf-c-dev protobuf-c-compiler | protobuf-c-devel protobuf-c-compiler | protobuf-c | \
        networks as ONNX; `make ONNX=0` does without
XML     | libxml2-dev      | libxml2-devel    | libxml2 | \
        annotations of Pascal VOC; `make XML=0` does without
ZLIB    | zlib1g-dev       | zlib-devel       | zlib          | compressed data sets
YAML    | libyaml-dev      | libyaml-devel    | libyaml       | recipes
CJSON   | libcjson-dev     | cjson-devel      | cjson         | annotations, checkpoints
CUDA    | cuda-toolkit     | cuda-toolkit     | cuda | \
        GPUs, CUDA 12 or later (packages: in NVIDIA'"'"'s own repository); `make CUDA=0` does without
NVCC    | cuda-toolkit     | cuda-toolkit     | cuda | \
        the compiler of CUDA; NVCC=path, or CUDA_HOME, says where it is
CUDNN   | cudnn            | cudnn            | cudnn         | GPUs: convolutions (cuDNN 9)
NCCL    | libnccl-dev      | libnccl-devel    | nccl | \
        GPUs: messages between them; `make NCCL=0` does without
CXX     | g++              | gcc-c++          | gcc           | C++ compiler: the host half of CUDA sources
mpiexec | mpich            | mpich            | mpich         | starts ranks without Slurm
slurmctld | slurmctld      | slurm-slurmctld  | slurm         | a private Slurm for demonstration and tests
slurmd  | slurmd           | slurm-slurmd     | slurm         | the same
sbatch  | slurm-client     | slurm            | slurm         | the same
munged  | munge            | munge            | munge         | the same
prove   | perl             | perl-Test-Harness | perl         | runs the tests
h5dump  | hdf5-tools       | hdf5             | hdf5          | reads shards back in tests
h5py    | python3-h5py     | python3-h5py     | py-h5py       | the same
xz      | xz-utils         | xz               | xz            | unpacks and packs archives in tests
pgrep   | procps           | procps-ng        | procps        | finds the processes of a job in tests
shellcheck | shellcheck    | ShellCheck       | shellcheck    | checks the shell scripts
mandoc  | mandoc           | mandoc           | mandoc        | checks the manual pages
man     | man-db           | man-db           | man-db        | the same
zsh     | zsh              | zsh              | zsh           | tests what the TAB key completes
fish    | fish             | fish             | fish          | the same
smpicc  | libsimgrid-dev   | simgrid          | simgrid       | simulated clusters, for `make check-scale`
bash-completion | bash-completion | bash-completion | bash-completion | the same
modulecmd | environment-modules | environment-modules | environment-modules | tests the module file
'
packages=$(printf '%s\n' "$packages" | sed -e :join -e '/\\$/N; s/\\\n *//; t join')
# Ubuntu 24.04's MPICH (4.2.0) speaks PMIx alone: its own mpiexec starts so many programs of one rank, srun's
# PMIx never answers it. Open MPI there works with both.
# shellcheck disable=SC1091 # the system's own file
if (. /etc/os-release && [ "$ID $VERSION_ID" = 'ubuntu 24.04' ]) 2>/dev/null; then
    packages=$(printf '%s\n' "$packages" |
        sed '/^MPI /s/mpich libmpich-dev/openmpi-bin libopenmpi-dev/; /^mpiexec /s/ mpich / openmpi-bin /')
fi

column() { # NAME NUMBER: a field of the table
    printf '%s\n' "$packages" | awk -F'|' -v name="$1" -v n="$2" \
        '{ k = $1; gsub(/ /, "", k) } k == name { gsub(/^ +| +$/, "", $n); print $n; exit }'
}

columns() { # NUMBER NAME...: that field of all, each word once
    number=$1
    shift
    for name; do column "$name" "$number"; done | tr ' ' '\n' | awk 'NF && !seen[$0]++' | tr '\n' ' ' |
        sed 's/ $//'
}

has() {
    case $1 in
    modulecmd)
        [ -e /usr/share/modules/init/sh ] || [ -e /usr/share/lmod/lmod/init/sh ] ||
            [ -n "${LMOD_CMD:-}${MODULESHOME:-}" ]
        ;;
    bash-completion) [ -e /usr/share/bash-completion/bash_completion ] ;;
    h5py) python3 -c 'import h5py' 2>/dev/null ;;
    *) PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin command -v "$1" >/dev/null 2>&1 ;;
    esac
}

without() { # GOAL: commands it needs that are not here
    cluster_tools='mpiexec slurmctld slurmd sbatch munged'
    case $1 in
    run) tools=$cluster_tools ;;
    check)
        tools="$cluster_tools prove h5dump h5py xz pgrep shellcheck mandoc man zsh fish"
        tools="$tools bash-completion modulecmd"
        ;;
    check-scale) tools=smpicc ;;
    *) tools='' ;;
    esac
    [ "${MPI:-1}" = 0 ] && tools=$(echo "$tools" | sed 's/mpiexec//')
    for tool in $tools; do has "$tool" || printf '%s ' "$tool"; done
}

# A cluster's controller answers: this is a login node, where nobody installs packages.
on_cluster() { has scontrol && timeout 5 scontrol ping 2>/dev/null | grep -q ' is UP'; }

report() {
    printf 'Missing on this machine:\n' >&2
    for name; do
        printf '  %-10s %s (apt: %s; dnf: %s; Spack: %s)\n' "$name" "$(column "$name" 5)" "$(column "$name" \
            2)" \
            "$(column "$name" 3)" "$(column "$name" 4)" >&2
    done
}

homes() {
    for name; do
        case $name in CC | CXX | NVCC | PKG | [a-z]*) ;; *) printf '%s_HOME=/opt/%s ' "$name" "$name" ;; esac
    done
}

commands() {
    homes=$(homes "$@")
    cat >&2 <<END
Install what is missing with one of
  apt-get install $(columns 2 "$@")
  dnf install $(columns 3 "$@")
  spack install $(columns 4 "$@") && spack load $(columns 4 "$@")
  module load $(columns 4 "$@" | sed 's/~[a-z]*//g')      # names differ from site to site: module avail
END
    [ -z "$homes" ] || printf 'or tell make where they are: make %s\n' "$homes" >&2
}

may_install() { # sets $as
    as=''
    [ "$(id -u)" = 0 ] && return 0
    has sudo || return 1
    as=sudo
    [ "${YES:-0}" = 1 ] && return 0
    [ -t 0 ] && [ -t 2 ] || return 1
    printf 'Install them with sudo apt-get install? [y/N] ' >&2
    read -r answer
    case $answer in y | Y | yes | Yes) return 0 ;; *) return 1 ;; esac
}

apt_install() { # NAME...: their packages
    # shellcheck disable=SC2046 # words
    set -- $(columns 2 "$@")
    printf 'Installing: %s\n' "$*" >&2
    $as env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

# All at once, which is quick. Where that fails, even with new package lists, what the goal needs, and then
# one by one what it does not.
install_apt() { # with $needed and $spare set
    # shellcheck disable=SC2086 # words
    apt_install $needed $spare && return 0
    printf 'Fetching the package lists first\n' >&2
    $as apt-get update -q
    # shellcheck disable=SC2086
    apt_install $needed $spare && return 0
    [ -n "$spare" ] || return 1
    # shellcheck disable=SC2086
    [ -z "$needed" ] || apt_install $needed || return 1
    left=''
    for name in $spare; do apt_install "$name" || left="$left $name"; done
    [ -z "$left" ] || printf 'Going on without%s.\n' "$left" >&2
}

# Can GOAL be reached without NAME? Images of some kinds, ONNX and XML are then left out of the build; tests
# that need a tool are skipped; and on a cluster make run only says what it would do.
can_do_without() { # GOAL NAME
    case $1-$2 in
    *-TIFF | *-WEBP | *-LMDB | *-ONNX | *-XML) return 0 ;;
    check-prove) return 1 ;;
    check-[a-z]*) return 0 ;;
    run-[a-z]*) [ "$cluster" = yes ] ;;
    *) return 1 ;;
    esac
}

install_missing() { # GOAL NAME...
    goal=$1 cluster=no needed='' spare=''
    shift
    # pkg-config too, as the libraries of some distributions are found by nothing else
    [ $# -gt 0 ] && ! has pkg-config && set -- PKG "$@"
    # shellcheck disable=SC2046 # words
    set -- "$@" $(without "$goal")
    [ $# -eq 0 ] && return 0
    on_cluster && cluster=yes
    for name; do if can_do_without "$goal" "$name"; then spare="$spare $name"; else needed="$needed $name";
        fi; done
    report "$@"
    if [ "$cluster" = yes ]; then
        printf 'A Slurm cluster answers here, so nothing is installed.\n' >&2
    elif has apt-get && may_install; then
        install_apt && return 0
        printf 'The packages could not be installed.\n' >&2
    fi
    commands "$@"
    [ -z "$needed" ] || return 1
    printf 'Going on without them.\n' >&2
}

case ${1:-} in
report)
    shift
    report "$@"
    commands "$@"
    exit 1
    ;;
install)
    shift
    install_missing "$@"
    ;;
*)
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
