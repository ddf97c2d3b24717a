#!/usr/bin/env bash
# Words of a command line: options of other commands, names of other programs, recipes and topics that are
# near; what help lists; who may say what where.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo
cd "$ROOM" || exit 1
refused() { # PATTERN WORDS...
    local pattern=$1
    shift
    kolo "$@" > log 2>&1
    is "$? $(grep -cE -- "$pattern" log)" "78 1" "kolo $*: $pattern" || sed 's/^/# /' log
}
refused 'ranks= would be ignored here; it is an option of kolo plan$' train shapes ranks=4 data=x run=y
refused 'top= would be ignored here; it is an option of kolo predict$' train shapes --top 3 data=x run=y
refused 'lr= would be ignored here; .* kolo new, train, plan, .*bench train, serve-data$' eval run=x lr=1
refused 'flip= would be ignored' eval run=x --no-flip
refused 'serve_jobs= .* serve-data$' plan shapes serve_jobs=2
refused 'device= .* bench gradients, serve-data, doctor$' bench allreduce device=cpu
refused 'optimizer= ' bench gradients optimizer=lamb
refused 'comm_table= .* bench gradients, bench allreduce, serve-data$' bench --tune comm_table=x
refused 'batch= ' models resnet50 batch=3
refused 'model= ' models model=resnet50
refused 'run= ' export run=x file.safetensors
printf 'ranks: 4\ntop: 3\nlr: 1\n' > all.yaml
KOLO_SITE=all.yaml KOLO_RANKS=2 kolo models lenet5 > log 2>&1
is $? 0 "a site file and the environment may say it to anybody"
printf 'model: lenet5\nranks: 4\nbatch: 8\ndeterministic: true\n' > recipe.yaml
kolo plan recipe.yaml top=3 > log 2>&1
is $? 78 "a word may not"
kolo plan recipe.yaml data=synthetic val=none run=x lr=0.1 epochs=2 > log 2>&1
is $? 0 "kolo plan takes a training's whole line, and a recipe may say what it likes"

refused 'it is batch= here' train batch_size=4
refused 'it is lr= here' train --learning-rate 4
refused 'it is run= here: .*resumes' train resume=x
refused 'it is readers= here' plan num_workers=4
refused 'it is comm_algorithm= here' bench allreduce algorithm=ring
refused 'it is schedule= here' help lr_scheduler
refused 'resnet50 is a network, not a recipe: model=resnet50, or one of the recipes .*resnet50_imagenet' \
    train resnet50 data=x run=y
refused 'did you mean resnet50_imagenet\?' train resnet50_imagnet data=x run=y
refused 'no recipe xyzzy' plan xyzzy
refused 'topic `trian`; did you mean `train`\?' help trian
refused 'topic `optimisers`; did you mean `optimizers`\?' help optimisers
refused '`allreduc` is not a benchmark; one of ' bench allreduc
refused 'dtype=f99 is not a choice; one of f32, bf16, .*bool' bench allreduce dtype=f99
refused 'op=summ is not a choice; one of sum, average, min, max, product' bench allreduce op=summ

kolo help --momentum > log 2>&1
is "$? $(head -c 11 log)" "0   momentum=" "kolo help --KEY is kolo help KEY"
kolo train --help > log
like log '^Optimizer$' "kolo train --help has headings"
is "$(grep -cE '^  (lr|momentum|val|staging|comm_timeout)=' log) $(grep -cE '^  (ranks|top|roc|serve_jobs)=' \
    log)" "5 0" "over its own options"
kolo help models > log
is "$(grep -c '^kolo models' log) $(grep -cE '^  (resnet50|lenet5) ' log)" "1 2" \
    "kolo help models: the command, and the networks"
kolo help recipes > log
is "$(grep -c '^  [a-z]' log)" "$(find "$TOP/share/recipes" -name '*.yaml' |
    wc -l)" "kolo help recipes lists all of them"
grep -A4 '^  resnet50_imagenet$' log | grep -q '^      reaches 0.761 top-1'
ok $? "kolo help recipes prints what a recipe reaches"
! kolo help shortcut | grep -q 'Default: none' && kolo help val | grep -q 'Default: none'
ok $? "an empty default is not called none"
like log 'half of it for a quarter of the images; warm-up grows with the batch\.$' \
    "kolo help recipes prints whole sentences"
kolo help shapes | cmp -s - "$TOP/share/recipes/shapes.yaml"
ok $? "kolo help RECIPE shows it"
mkdir shapes
kolo plan shapes data=synthetic val=none ranks=2 deterministic=true > log 2>&1
ok $? "a folder that is called as a recipe does not hide it" log
mkdir -p alone/bin && cp "$BUILD/bin/kolo" alone/bin && alone/bin/kolo plan shapes.yaml > log 2>&1
is "$? $(grep -c 'no share/kolo/recipes beside' log)" "78 1" "a program that was copied alone says so"
offered() { kolo help --completion | cut -f 1,2 | grep -c "^$1	$2=$"; }
is "$(offered plan ranks)|$(offered train ranks)|$(offered eval optimizer)" "1|0|0" \
    "completion offers what the command reads"

kolo bench allreduce max=64 iterations=2 comm_timeout=20 > log 2>&1
is "$? $(head -n 1 log | grep -cE '^# kolo bench allreduce: libkolo_comm, 1 rank .*algorithm auto')" "0 1" \
    "kolo bench allreduce says that it measures the library"
kolo bench gradients max=64 iterations=2 device=cpu > log 2>&1
is "$? $(head -n 1 log | grep -c '^# kolo bench gradients: buckets of training, 1 rank')" "0 1" \
    "kolo bench gradients, that it measures training's buckets"
kolo bench allreduce comm_table=nowhere max=64 > log 2>&1
is $? 2 "kolo bench allreduce comm_table=nowhere: exit 2"
done_testing
