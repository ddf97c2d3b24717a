#!/usr/bin/env bash
# The private cluster: it comes up, runs jobs, keeps others out, and leaves nothing behind.
# shellcheck disable=SC2016 # commands for other shells expand there
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need slurmctld slurmd munged srun
MINISLURM=$TOP/share/minislurm
chmod 755 "$ROOM"
at_end 'KOLO_MINISLURM_DIR=$ROOM/c "$MINISLURM" down 2> /dev/null'
unset KOLO_MINISLURM_DIR
USERS=0 # whether processes of another user can be tried
if ((UID == 0)) && command -v setpriv >/dev/null && getent passwd nobody >/dev/null; then USERS=1; fi
as_nobody() { # "exec" first: in place of this shell
    local -a how=(command)
    if [[ $1 == exec ]]; then how=(exec) && shift; fi
    "${how[@]}" setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/ SHELL=/bin/sh "$@"
}
left() { grep -lszF -e "=$1/" /proc/[0-9]*/environ 2>/dev/null | wc -l; } # processes that know folder $1
gone() { # folder $1 and its processes, within 10 s
    local try
    for ((try = 0; try < 50; try++)); do
        [[ ! -e $1 ]] && (($(left "$1") == 0)) && return 0
        sleep 0.2
    done
    return 1
}

# --- run: up, command, down; by an ordinary user, as in real life
mkdir "$ROOM/user"
cp "$MINISLURM" "$ROOM/minislurm"
who=()
if ((USERS)); then chown 65534:65534 "$ROOM/user" && who=(as_nobody); fi
began=$(now)
(cd "$ROOM/user" && TMPDIR=$ROOM/user "${who[@]}" "$ROOM/minislurm" run --nodes 2 --cpus 2 -- bash -c '
    echo "$KOLO_MINISLURM_DIR" > "$1/folder" && id -u > "$1/id"
    srun -N2 -n4 bash -c "echo \$SLURMD_NODENAME \$SLURM_PROCID" | sort > "$1/tasks"
    exit 7' - "$ROOM/user") >"$ROOM/run.log" 2>&1 </dev/null
is $? 7 "run ends with the command's exit code"
echo "# run with a step: $(($(now) - began)) ms"
is "$(tr '\n' ' ' <"$ROOM/user/tasks")" "n1 0 n1 1 n2 2 n2 3 " "a step of four tasks lands on two nodes"
gone "$(cat "$ROOM/user/folder")"; ok $? "after run nothing is left" "$ROOM/run.log"
if ((USERS || UID != 0)); then
    [[ $(cat "$ROOM/user/id") != 0 ]]; ok $? "all of it by an ordinary user"
else
    skip "root cannot become another user here"
fi

timeout 60 "$MINISLURM" run --nodes 1 --cpus 1 -- sbatch --wait --nodes=2 --wrap true >"$ROOM/run.log" 2>&1 \
    </dev/null
is $? 1 "run: a job that can never start ends it"
like "$ROOM/run.log" "no job was taken: there are 1 nodes, each with 1 cpus, 0 GPUs and [0-9]+ MiB" \
    "run of a job that can never start: nodes, CPUs and GPUs are printed"

# --- up, status, env, down; two clusters at once
export KOLO_MINISLURM_DIR=$ROOM/c
began=$(now)
"$MINISLURM" up --nodes 2 --cpus 1 2>"$ROOM/up.log" >&2
ok $? "up"
echo "# up: $(($(now) - began)) ms"
[[ $(stat -c %a "$ROOM/c") == 700 ]]; ok $? "the folder is closed to others"
"$MINISLURM" status >"$ROOM/status"
ok $? "status"
masks=$(sed -n 's/^n[12] .*processors //p' "$ROOM/status" | sort -u | wc -l)
if (($(nproc) >= 2)); then
    [[ $masks == 2 ]] && grep -q 'masks *disjoint' "$ROOM/status"; ok $? "nodes have processors of their own"
else
    skip "one processor only"
fi
eval "$("$MINISLURM" env)"
srun -N2 grep Cpus_allowed_list /proc/self/status | sort -u | wc -l |
    grep -qx "$masks"; ok $? "tasks stay on the processors of their node"
"$MINISLURM" up 2>&1 | grep -q "already up"; ok $? "a second up in the same folder is refused"

# --- another cluster beside it, whose run is killed
(unset KOLO_MINISLURM_DIR && exec "$MINISLURM" run --nodes 1 -- bash -c \
    'echo "$KOLO_MINISLURM_DIR" > "$1/folder.new"; mv "$1/folder.new" "$1/folder2"
    srun sleep 300' - "$ROOM") >/dev/null 2>&1 </dev/null &
victim=$!
for ((i = 0; i < 100; i++)); do [[ -s $ROOM/folder2 ]] && break; sleep 0.1; done
[[ -s $ROOM/folder2 ]]; ok $? "another cluster runs beside it"
sleep 0.5
kill -KILL "$victim"
wait "$victim" 2>/dev/null
gone "$(cat "$ROOM/folder2")"; ok $? "a killed run leaves nothing behind, its job included"

# --- ports
foreign=0
while read -r pid; do
    inodes=$(find "/proc/$pid/fd" -lname 'socket:*' -printf '%l\n' | tr -dc '0-9\n')
    for inode in $inodes; do
        awk -v inode="$inode" '$10 == inode && $4 == "0A" && $2 !~ /^0100007F:/ { exit 1 }' /proc/net/tcp ||
            foreign=1
        awk -v inode="$inode" '$10 == inode && $4 == "0A" { exit 1 }' /proc/net/tcp6 2>/dev/null || foreign=1
    done
done < <(awk '$1 ~ /^slurm|^munged/ { print $2 }' "$ROOM/c/processes")
ok $foreign "the daemons listen on 127.0.0.1 only"

# --- another user
if ((USERS)); then
    other=$ROOM/other
    mkdir "$other" && chmod 700 "$other" && chown 65534:65534 "$other"
    ! as_nobody cat "$SLURM_CONF" >/dev/null 2>&1 &&
        ! as_nobody timeout 3 srun true >/dev/null 2>&1; ok $? "another user cannot read the configuration"
    # with a copy of the configuration, and a key and a munged of his own
    sed "s|socket=[^,]*|socket=$other/munge.sock|" "$SLURM_CONF" >"$other/slurm.conf"
    (umask 077 && head -c 128 /dev/urandom >"$other/key")
    chown 65534:65534 "$other/key"
    (unset SLURM_CONF && as_nobody exec munged --foreground --force --key-file="$other/key" \
        --socket="$other/munge.sock" --pid-file="$other/pid" \
        --log-file="$other/log" --seed-file="$other/seed") >/dev/null 2>&1 &
    munged=$!
    for ((i = 0; i < 50; i++)); do [[ -S $other/munge.sock ]] && break; sleep 0.1; done
    SLURM_CONF=$other/slurm.conf as_nobody timeout 20 srun --immediate=5 id >"$other/out" 2>&1
    code=$?
    [[ $code != 0 ]] && ! grep -q uid= "$other/out"; ok $? "another user's own key is refused"
    grep -qi 'invalid.*credential\|credential.*invalid' "$ROOM/c/slurmctld.log"; ok $? \
        "and the reason is the credential"
    kill "$munged"
    wait "$munged" 2>/dev/null
else
    skip "not root: cannot become another user"
    skip "not root: cannot become another user"
    skip "not root: cannot become another user"
fi

# --- batch: requeue starts at once, appends, counts
cat >"$ROOM/job.sh" <<'END'
#!/bin/bash
#SBATCH --nodes=1 --ntasks=1 --requeue --open-mode=append
echo "restart ${SLURM_RESTART_COUNT:-0} psec $PMIX_MCA_psec"
if [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then scontrol requeue "$SLURM_JOB_ID"; sleep 60; fi
END
began=$(now)
sbatch --output="$ROOM/job.out" "$ROOM/job.sh" >/dev/null
for ((i = 0; i < 120; i++)); do grep -q 'Name=job.sh JobState=COMPLETED' "$ROOM/c/jobcomp.txt" &&
    break; sleep 0.5; done
grep -q 'Name=job.sh JobState=COMPLETED' "$ROOM/c/jobcomp.txt"; ok $? \
    "a requeued job ends well, and is recorded"
echo "# requeue: $(($(now) - began)) ms"
[[ $(grep -c '^restart [01] psec native' "$ROOM/job.out") == 2 ]]; ok $? "both starts are in the log"

# --- what can never run is refused, not kept waiting
for words in --nodes=3 --ntasks=9 --cpus-per-task=2 --mem=900T --gpus-per-node=1 --nodelist=n7 \
    "--nodes=2 --ntasks-per-node=2"; do
    # shellcheck disable=SC2086 # a list of words
    timeout 20 sbatch $words --output=/dev/null --wrap true >"$ROOM/impossible" 2>&1
    is $? 1 "sbatch $words on 2 nodes of 1 CPU: refused ($(tail -n 1 "$ROOM/impossible"))"
done

# --- a job that is still running when the cluster goes
sbatch --output=/dev/null --wrap 'setsid sleep 301' >/dev/null
sleep 1.5
folder=$KOLO_MINISLURM_DIR
unset SLURM_CONF # else this shell would count as a process that knows the folder
"$MINISLURM" down; ok $? "down"
unset KOLO_MINISLURM_DIR
gone "$folder"; ok $? "after down nothing is left, a task in a session of its own included"
export KOLO_MINISLURM_DIR=$folder
! "$MINISLURM" status >/dev/null 2>&1; ok $? "status says that there is no cluster"

# --- a dead cluster's folder is taken over, a stranger's is not
"$MINISLURM" up --nodes 1 >/dev/null 2>&1
awk '{ print $2 }' "$ROOM/c/processes" | xargs kill -KILL
sleep 300 &
owner=$!
"$MINISLURM" up --nodes 1 --owner "$owner" >/dev/null 2>&1
ok $? "up takes the place of a dead cluster"
kill "$owner"
wait "$owner" 2>/dev/null
unset KOLO_MINISLURM_DIR
gone "$folder"; ok $? "the cluster ends with its owner"
export KOLO_MINISLURM_DIR=$folder
mkdir "$folder" && chmod 700 "$folder" && touch "$folder/precious"
"$MINISLURM" up >/dev/null 2>&1
code=$?
[[ $code != 0 && -e $folder/precious ]]; ok $? "a folder with other things in it is left alone"
rm -rf "$folder"
done_testing
