#!/usr/bin/env bash
# Options under their old names (src/base/renamed.def), wherever one gives an option; a run that an older
# version has begun.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack kolo-shards
cd "$ROOM" || exit 1
export OMP_NUM_THREADS=1
warned() { grep -oE 'warning: .*' log | sort; }
plan=(kolo plan shapes data=synthetic val=none ranks=1 deterministic=true)

"${plan[@]}" stage="$ROOM" --no-stage-keep > log 2>&1
is "$? $(warned)" "0 warning: command line: stage= is an old name; write staging=
warning: command line: stage_keep= is an old name; write staging_keep=" \
    "stage= and --no-stage-keep on the command line: accepted, one warning each"
printf 'comm_patience: 5\nsteps: 3\n' > site.yaml
KOLO_SITE=site.yaml "${plan[@]}" > log 2>&1
is "$? $(warned)" "0 warning: site.yaml:1:1: comm_patience= is an old name; write heartbeat_timeout=" \
    "comm_patience: in a site file: accepted, the warning names file and line"
KOLO_SITE=site.yaml KOLO_COMM_PATIENCE=6 "${plan[@]}" comm_patience=7 > log 2>&1
is "$? $(warned | wc -l)" "0 1" "an old name in three sources: one warning"
KOLO_COMM_PATIENCE=6 "${plan[@]}" > log 2>&1
is "$? $(warned)" \
    "0 warning: environment, KOLO_COMM_PATIENCE: comm_patience= is an old name; write heartbeat_timeout=" \
    "KOLO_COMM_PATIENCE: accepted, with a warning"
"${plan[@]}" comm_patience=0 > log 2>&1
is "$? $(grep -c 'heartbeat_timeout: 0 is out of range' log)" "78 1" \
    "a wrong value under an old name: exit 78"
"${plan[@]}" stage=/a staging=/b > log 2>&1
is "$? $(grep -c 'stage= and staging= are the same option, given twice; keep staging= alone' log)" "78 1" \
    "stage= and staging= on the command line: exit 78, both are named"
printf 'hold: 1\ncooldown: 1\n' > both.yaml
kolo plan both.yaml data=synthetic val=none > log 2>&1
is "$? $(grep -c 'both.yaml:2:1: hold= and cooldown= are the same' log)" "78 1" \
    "hold: and cooldown: in a recipe: exit 78 with file and line"
KOLO_STAGE=/a KOLO_STAGING=/b kolo-shards verify . > log 2>&1
is "$? $(grep -cE 'stag(e|ing)= and stag(e|ing)= are the same option' log)" "78 1" \
    "KOLO_STAGE and KOLO_STAGING to kolo-shards: exit 78"
"${plan[@]}" stages=2 ranks=2 > log 2>&1
is "$? $(grep -c 'ranks = 2 stages' log) $(grep -cE 'old name|stag(e|ing)=' log)" "0 1 0" \
    "stages=2 is the pipeline's, never taken for stage="
kolo train shapes serve_jobs=2 show=1 data=x run=y > log 2>&1
is "$? $(grep -c 'serve_jobs= would be ignored here' log)" "78 1" "another command's option is still refused"
kolo train shapes show=1 data=x run=y > log 2>&1
is "$? $(grep -c 'box_threshold= would be ignored here; it is an option of kolo predict' log)" "78 1" \
    "another command's option under its old name: exit 78, the new one is named"

kolo help stage > log
is "$(head -n 2 log)" "stage= is the old name of
  staging=text" "kolo help OLD shows the option of today"
old='(comm_patience|stage|stage_full|stage_keep|hold|serve|show)='
listed="$(kolo help options | grep -cE "^  $old") $(kolo help --man | grep -cE "^\.BR ${old%=} =")"
is "$listed $(kolo help --completion | cut -f 2 | grep -cxE "$old")" "0 0 0" \
    "help, the man page and completion have no old name"

shapes_data 64 16
train=(kolo train shapes data="$ROOM/data/train" val="$ROOM/data/val" run="$ROOM/run" epochs=2 threads=1
    deterministic=true batch=32)
age() { # as an older version has written it; the record is guarded by a checksum
    sed -i 's/^heartbeat_timeout:/comm_patience:/; s/^staging/stage/; s/^cooldown:/hold:/' run/recipe.yaml
    rm run/run_id
}
"${train[@]}" stop_step=2 heartbeat_timeout=20 > log 2>&1
is $? 75 "a run is begun and stopped" log
grep -q '^heartbeat_timeout: 20$' run/recipe.yaml && ! grep -qE "^${old%=}:" run/recipe.yaml
ok $? "its record has the new names"
age
"${train[@]}" > log 2>&1
is "$? $(grep -c warning log)" "0 0" "a run whose record has old names goes on, without a warning" ||
    diag < log
age
kolo eval run=run threads=1 > log 2>&1
is "$? $(grep -c warning log)" "0 0" "kolo eval of a run whose record has old names" || diag < log
sed -i 's/^hold: .*/hold: 1/' run/recipe.yaml
rm -f run/run_id
"${train[@]}" > log 2>&1
is "$? $(grep -c 'cooldown: was 1, now 0' log)" "78 1" \
    "another value under an old name is a difference: exit 78" ||
    diag < log
done_testing
