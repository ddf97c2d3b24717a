#!/usr/bin/env bash
# rooms.sh [ROOT]: every #include between rooms of ROOT/src goes from a later room to an earlier
# one, and neighbours that need not know each other do not. Prints each offence as file:line: words;
# exit 1 if there is one.
set -u
cd "${1:-.}" || exit 2
ROOMS=(base launch data graph ops models optim comm plan exec ckpt report metrics train cmd)
STRANGERS=' data:graph graph:data models:ops ops:models comm:graph graph:comm '
declare -A PLACE
for i in "${!ROOMS[@]}"; do PLACE[${ROOMS[i]}]=$i; done
bad=0
offence() { echo "$1" && bad=1; }

while IFS=: read -r file line text; do
    room=${file#src/} && room=${room%%/*}
    [[ $text =~ \"([^\"]+)\" ]] || continue
    path=${BASH_REMATCH[1]}
    to=${path%%/*}
    if [[ $file:$path == src/ops/cuda/launch.cuh:standin/emulate.h ]]; then
        continue # where there is no GPU, tests compile the kernels for the host
    elif [[ $path == ../* || $path == ./* ]]; then
        offence "$file:$line: includes by a relative path; write the path from src/"
    elif [[ $path != */* ]]; then
        offence "$file:$line: \"$path\" has no room; write the path from src/"
    elif [[ $to == kolo ]]; then
        [[ -e include/$path ]] || offence "$file:$line: there is no include/$path"
    elif [[ -z ${PLACE[$to]:-} ]]; then
        offence "$file:$line: $to is not a room"
    elif [[ -z ${PLACE[$room]:-} ]]; then
        offence "$file:$line: src/$room is not a room"
    elif ((PLACE[$to] > PLACE[$room])); then
        offence "$file:$line: $room includes $to, which stands after it"
    elif [[ $STRANGERS == *" $room:$to "* ]]; then
        offence "$file:$line: $room and $to do not know each other"
    fi
done < <(grep -rnE --include='*.[ch]' --include='*.cu' --include='*.cuh' --include='*.def' \
    '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' src)

# within comm, too, there is an order. core/, algorithm/ and compress/ know neither buckets/ nor library/ nor
# what stands on them, and those two do not know each other; only what is for the CUDA library's reducers is
# of buckets/ in cuda/
declare -A UNKNOWN=([core]='buckets library cuda pmpi' [algorithm]='buckets library cuda pmpi'
    [compress]='buckets library cuda pmpi' [buckets]='library cuda pmpi' [library]='buckets cuda pmpi'
    [cuda]='library pmpi' [pmpi]='buckets cuda')
for part in "${!UNKNOWN[@]}"; do
    while IFS=: read -r file line text; do
        [[ $text =~ \"comm/([a-z]+)/ ]] || continue
        [[ " ${UNKNOWN[$part]} " != *" ${BASH_REMATCH[1]} "* ]] ||
            offence "$file:$line: comm/$part does not know comm/${BASH_REMATCH[1]}"
    done < <(grep -rnE --include='*.[ch]' --include='*.cu' --include='*.def' \
        '^[[:space:]]*#[[:space:]]*include[[:space:]]*"comm/' "src/comm/$part" 2> /dev/null)
done

# what algorithm/ is built on (core/schedule.h: a list of actions) does not know the algorithms
known=' ' queue=$(echo src/comm/algorithm/*.[ch])
while [[ -n ${queue// /} ]]; do
    found=$(grep -ohsE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"comm/core/[a-z_0-9]+\.h"' $queue |
        sed 's/.*"\(.*\)\.h"/\1/' | sort -u)
    queue=''
    for path in $found; do
        [[ $known == *" $path "* ]] || known+="$path " queue+=" src/$path.h src/$path.c"
    done
done
for path in $known; do
    for file in "src/$path".[ch]; do
        line=$(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"comm/algorithm/' "$file" 2> \
            /dev/null) &&
            offence "$file:${line%%:*}: comm/algorithm is built on $path, which includes it"
    done
done

# the installed headers stand on their own; the packing tools use nothing after data, and their own folders
# in this order
TOOLS=(readers sources pack shards)
for i in "${!TOOLS[@]}"; do PLACE[tools/${TOOLS[i]}]=$i; done
while IFS=: read -r file line text; do
    [[ $text =~ \"([^\"]+)\" ]] || continue
    path=${BASH_REMATCH[1]}
    to=${path%%/*}
    from=${file#hdf5_tools/} && from=${from%%/*}
    case $file in
    include/*) [[ $to == kolo ]] || offence "$file:$line: an installed header includes $to" ;;
    hdf5_tools/*)
        if [[ -n ${PLACE[$to]:-} ]]; then
            ((PLACE[$to] <= PLACE[data])) ||
                offence "$file:$line: the packing tools include $to, which stands after data"
        elif [[ $path != kolo/* && ! -e hdf5_tools/$path ]]; then
            offence "$file:$line: there is no hdf5_tools/$path; write the path from hdf5_tools/"
        elif [[ -n ${PLACE[tools/$from]:-} ]] && ((${PLACE[tools/$to]:--1} > PLACE[tools/$from])); then
            offence "$file:$line: hdf5_tools/$from includes $to, which stands after it"
        fi
        ;;
    esac
done < <(find include hdf5_tools -name '*.[ch]' -exec grep -nHE \
    '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' {} + 2>/dev/null)
exit $bad
