/* Checkpoints are what they say: of this run, with every file as it was written. What is not is passed over
 * for the one before, by name, and a flipped bit never changes what is loaded. */
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/philox.h"
#include "ckpt/carried.h"
#include "ckpt/manifest.h"
#include "ckpt_rig.h"
#include "flip.h"
#include "tap.h"

enum { PARTS = 3, PART = 1000 }; /* of what ranks carry: bytes */

static char top[] = "/tmp/kolo_trust_XXXXXX";
static const rig_config lenet = {"lenet5", 28, 1, 1, true, true, false};

static const char *in(const char *name)
{
    static char path[8][512];
    static int next;
    char *to = path[next++ % 8];
    snprintf(to, sizeof path[0], "%s/%s", top, name);
    return to;
}

/* ---- runs ---- */

static void fill_part(char *to, int64_t step, int part)
{
    kolo_random random = kolo_random_at((uint64_t)step, (uint64_t)part, 5);
    for (int i = 0; i < PART; i++) to[i] = (char)kolo_random_u32(&random);
}

static int save(rig *r, kolo_run *run, kolo_position p, int64_t step)
{
    char *all = kolo_checkpoint_prepare(run, r->plan, r->backend) == 0
                    ? kolo_checkpoint_rank_state(run, PART, PARTS)
                    : NULL;
    for (int i = 0; all && i < PARTS; i++) fill_part(all + (size_t)i * PART, step, i);
    p.step = step;
    const int rc = kolo_checkpoint_save(run, r->exec, r->plan, r->backend, &r->options, &p);
    return rc < 0 ? rc : kolo_checkpoint_wait(run);
}

/* Two checkpoints, of steps 1 and 2, the first of which is the best. */
static void make_run(const char *name, rig *r)
{
    kolo_run *run = NULL;
    kolo_position p = {.batch = 4,
                       .samples = 12,
                       .seed = 3,
                       .best = .5,
                       .best_step = 1,
                       .metric = "top1",
                       .model = "lenet5"};
    int bad = kolo_run_open(&run, in(name)) < 0 || kolo_run_identify(run, true, &p) < 0;
    for (int step = 1; !bad && step <= 2; step++) bad = rig_step(r, step) < 0 || save(r, run, p, step) < 0;
    kolo_run_close(&run);
    ok(!bad, "a run with two checkpoints: %s (%s)", name, bad ? kolo_error_text() : "made");
}

static char *copy_run(const char *from, const char *to)
{
    char command[1200];
    snprintf(command, sizeof command, "rm -rf '%s'; cp -r '%s' '%s'", in(to), in(from), in(to));
    if (system(command) != 0) diag("cannot copy %s", from);
    return kolo_format("%s/%s", top, to);
}

static int64_t find(const char *run)
{
    kolo_position p = {.step = -1};
    char path[512];
    const int rc = kolo_checkpoint_find(in(run), &p, path, sizeof path);
    return rc == 1 ? p.step : rc;
}

/* Bytes of everything that a checkpoint gives an executor, and one rank of what it carries. */
typedef struct contents {
    uint32_t crc;
    int rc;
} contents;

static contents load(const char *path, rig *r)
{
    char part[PART];
    contents c = {.rc = kolo_checkpoint_load(path, r->exec, r->plan)};
    for (int i = 0; c.rc == 0 && i < PARTS; i++) {
        const int found = kolo_checkpoint_read_rank_state(path, i, PARTS, part, PART);
        c.rc = found == 1 ? 0 : found < 0 ? found : KOLO_EINTERNAL;
        if (c.rc == 0) c.crc = kolo_crc32c(c.crc, part, PART);
    }
    static const enum kolo_arena arena[] = {KOLO_ARENA_PARAM, KOLO_ARENA_BUFFER, KOLO_ARENA_STATE,
                                            KOLO_ARENA_EMA};
    for (size_t i = 0; c.rc == 0 && i < sizeof arena / sizeof *arena; i++) {
        char *copy = kolo_alloc(r->plan->arena_bytes[arena[i]] + 1);
        c.rc = copy ? kolo_exec_read_arena(r->exec, arena[i], copy) : KOLO_ENOMEM;
        if (c.rc == 0) c.crc = kolo_crc32c(c.crc, copy, r->plan->arena_bytes[arena[i]]);
        free(copy);
    }
    return c;
}

/* ---- one behaviour each ---- */

static void check_manifest(void)
{
    manifest m;
    char id[RUN_ID];
    is_int(kolo_record_read(in("a/checkpoints/step-0000000002/manifest.json"), &m), 0, "a manifest is read");
    is_int(kolo_identity_read(in("a"), id), 0, "so is the folder's run_id");
    is_int(strlen(id), 32, "which has 32 digits");
    is_text(m.position.run, id, "the manifest names the same run");
    ok(m.listed && m.carried_bytes == (uint64_t)kolo_file_size(in("a/checkpoints/step-0000000002/carried")),
       "and what ranks carry, with its size");
    kolo_identity_read(in("b"), m.position.run);
    ok(strcmp(m.position.run, id) != 0, "another run has another");
}

static void check_other_run(rig *r)
{
    kolo_position p;
    char path[512], *mixed = copy_run("a", "mixed");
    kolo_run *run = NULL;
    is_int(rename(in("b/checkpoints/step-0000000002"), in("mixed/checkpoints/step-0000000007")), 0,
           "a later checkpoint of another run is put in");
    char *list = kolo_format("%s/checkpoints/step-0000000007", mixed);
    is_int(find("mixed"), 2, "it is passed over");
    /* its step would give it away too */
    rename(list, in("mixed/checkpoints/step-0000000002x"));
    kolo_folder_remove(in("mixed/checkpoints/step-0000000002"));
    rename(in("mixed/checkpoints/step-0000000002x"), in("mixed/checkpoints/step-0000000002"));
    is_int(find("mixed"), 1, "so it is under the number of its own step");
    is_int(kolo_checkpoint_pick(in("mixed"), "2", &p, path, sizeof path), KOLO_EINPUT,
           "asked for by its step it is refused");
    ok(strstr(kolo_error_text(), "another run"), "by name: %s", kolo_error_text());
    p = (kolo_position){.best = -1};
    is_int(kolo_run_open(&run, in("mixed")), 0, "the run goes on");
    is_int(kolo_run_identify(run, false, &p), 0, "as itself");
    for (int step = 3; step <= 5; step++) is_int(save(r, run, p, step), 0, "to step %d", step);
    kolo_run_close(&run);
    ok(kolo_folder_exists(in("mixed/checkpoints/step-0000000002")) &&
           !kolo_folder_exists(in("mixed/checkpoints/step-0000000001")),
       "its own old ones are removed, the other run's is left to its owner");
    kolo_folder_remove(in("mixed/checkpoints/step-0000000004"));
    kolo_folder_remove(in("mixed/checkpoints/step-0000000005"));
    is_int(find("mixed"), KOLO_EINPUT, "where none other is left it is an error");
    ok(strstr(kolo_error_text(), "restore one, or move this folder away"), "that says what to do: %s",
       kolo_error_text());
    free(list);
    free(mixed);
}

static void damage(const char *what, const char *command)
{
    char line[1200], *run = copy_run("a", "hurt");
    snprintf(line, sizeof line, "cd '%s/checkpoints/step-0000000002' && %s", run, command);
    const int status = system(line);
    is_int(status == 0 ? find("hurt") : -1, 1, "%s: the checkpoint before is taken", what);
    free(run);
}

static void check_damages(void)
{
    damage("what ranks carry is removed", "rm carried");
    damage("it is torn", "truncate -s -5 carried");
    damage("it is longer", "echo x >> carried");
    damage("it is another step's", "cp ../step-0000000001/carried .");
    damage("the tensors are removed", "rm tensors.safetensors");
    damage("they are torn", "truncate -s -4 tensors.safetensors");
    damage("they are another step's", "cp ../step-0000000001/tensors.safetensors .");
    damage("the manifest is removed", "rm manifest.json");
    damage("it is torn", "truncate -s -9 manifest.json");
    damage("its own checksum is cut off", "sed -i '/^  \"crc32c\"/d' manifest.json");
    damage("something stands behind it", "echo >> manifest.json");
}

static void check_version(void)
{
    manifest m;
    char line[1200], *run = copy_run("a", "newer");
    char *list = kolo_format("%s/checkpoints/step-0000000002/manifest.json", run);
    snprintf(line, sizeof line, "sed -i 's/\"format_version\": 1/\"format_version\": 7/' '%s'", list);
    is_int(system(line) == 0 ? kolo_record_read(list, &m) : -1, KOLO_EINPUT,
           "another format version is refused");
    ok(strstr(kolo_error_text(), "format version 7, this Kolo") && strstr(kolo_error_text(), "reads 1"),
       "by both versions: %s", kolo_error_text());
    is_int(find("newer"), 1, "the checkpoint before is taken");
    free(list);
    free(run);
}

static void check_weights(void)
{
    kolo_weights *w = NULL;
    char *file = kolo_format("%s/a/checkpoints/step-0000000002/tensors.safetensors", top);
    char *list = kolo_format("%s/a/checkpoints/step-0000000002/manifest.json", top);
    is_int(kolo_weights_open(&w, file, NULL), 0,
           "a checkpoint's tensors may be named as a file of weights (%s)", kolo_error_text());
    kolo_weights_close(&w);
    flip_bit(file, 8 * 200000);
    is_int(kolo_weights_open(&w, file, NULL), KOLO_EINPUT, "with a flipped bit they are refused: %s",
           kolo_error_text());
    is_int(symlink(file, in("tensors.safetensors")), 0, "by a link");
    is_int(kolo_weights_open(&w, in("tensors.safetensors"), NULL), KOLO_EINPUT, "as well");
    is_int(kolo_weights_open(&w, in("a/checkpoints/step-0000000002"), NULL), KOLO_EINPUT,
           "and by their folder");
    is_int(kolo_weights_open(&w, in("a:2"), NULL), KOLO_EINPUT, "and by their run and step");
    is_int(kolo_weights_open(&w, in("a"), NULL), 0, "by their run alone the checkpoint before is read (%s)",
           kolo_error_text());
    kolo_weights_close(&w);
    flip_bit(file, 8 * 200000);
    is_int(rename(list, in("list")), 0, "whole again, but without a manifest");
    is_int(kolo_weights_open(&w, file, NULL), KOLO_EINPUT, "they are refused: %s", kolo_error_text());
    rename(in("list"), list);
    free(file);
    free(list);
}

static void check_older(void)
{
    kolo_position p;
    kolo_run *run = NULL;
    char path[512], id[RUN_ID], *old = copy_run("a", "old");
    const char *cut = "cd '%s' && rm run_id && for f in checkpoints/*/manifest.json; do "
                      "sed -i '/^  \"run\"/,$d' $f && sed -i '$s/,$//' $f && echo '}' >> $f; done";
    char command[1200];
    snprintf(command, sizeof command, cut, old);
    is_int(system(command), 0, "a run of a version that noted neither run nor files");
    is_int(kolo_checkpoint_find(old, &p, path, sizeof path), 1, "is found (%s)", kolo_error_text());
    ok(p.step == 2 && !*p.run, "its newest checkpoint, of no run that is known");
    is_int(kolo_run_open(&run, old), 0, "it goes on");
    is_int(kolo_run_identify(run, false, &p), 0, "and gets an identity");
    kolo_run_close(&run);
    kolo_identity_read(old, id);
    is_text(p.run, id, "which its folder has from then on");
    is_int(find("old"), 2, "the old checkpoints are still its own");
    free(old);
}

static void check_identity(void)
{
    kolo_position p;
    kolo_run *run = NULL;
    char path[512], id[RUN_ID], before[RUN_ID], *lost = copy_run("a", "lost");
    kolo_identity_read(lost, before);
    flip_bit(in("lost/run_id"), 19);
    is_int(kolo_checkpoint_find(lost, &p, path, sizeof path), 1, "a damaged run_id hides no checkpoint");
    is_int(kolo_run_open(&run, lost), 0, "the run goes on");
    is_int(kolo_run_identify(run, false, &p), 0, "by the identity of its checkpoint");
    kolo_run_close(&run);
    kolo_identity_read(lost, id);
    is_text(id, before, "which the folder has again");
    free(lost);
}

static void check_best(void)
{
    kolo_position p = {.step = -1};
    char path[512], *best = copy_run("a", "best");
    FILE *f = fopen(in("best/best"), "w");
    if (f) fputs("step-0000000002\n", f), fclose(f);
    is_int(kolo_checkpoint_pick(best, "best", &p, path, sizeof path), 1,
           "checkpoint=best where the file RUN/best names another");
    is_int(p.step, 1, "takes that of the newest manifest");
    free(best);
}

/* ---- flipped bits ---- */

/* One bit of a file of a whole run; what is then found and loaded is what one of its checkpoints holds, or
 * nothing is. */
static bool flip(const char *file, uint64_t seed, int64_t number, const contents wanted[3], rig *r,
                 int64_t taken[4])
{
    kolo_position p = {.step = -1};
    char path[512], *name = kolo_format("%s/flips/%s", top, file);
    const int64_t bits = flip_bits(name), bit = flip_choose(seed, number, bits);
    if (flip_bit(name, bit) < 0) return diag("cannot flip a bit of %s", name), false;
    const int found = kolo_checkpoint_find(in("flips"), &p, path, sizeof path);
    const int64_t step = found == 1 ? p.step : 0;
    const contents c = found == 1 ? load(path, r) : (contents){.rc = found};
    /* straight to the newest one, as init= and others may */
    const contents straight = load(in("flips/checkpoints/step-0000000002"), r);
    const bool good = step > 0 && c.rc == 0 && c.crc == wanted[step].crc;
    const bool refused = straight.rc == KOLO_EINPUT || (straight.rc == 0 && straight.crc == wanted[2].crc);
    if (!good || !refused)
        diag("bit %lld of %s: found %d step %lld, loaded %d; straight %d", (long long)bit, file, found,
             (long long)step, c.rc, straight.rc);
    taken[step]++;
    if (flip_bit(name, bit) < 0) diag("cannot flip it back");
    free(name);
    return good && refused;
}

static void campaign(rig *r)
{
    static const char *const file[] = {"checkpoints/step-0000000002/tensors.safetensors",
                                       "checkpoints/step-0000000002/carried",
                                       "checkpoints/step-0000000002/manifest.json", "run_id", "best"};
    enum { FILES = sizeof file / sizeof *file };
    const uint64_t seed = flip_seed();
    const int64_t flips = flip_count(400);
    int64_t good = 0, taken[FILES][4] = {{0}};
    char *flipped = copy_run("a", "flips");
    contents wanted[3] = {{0}};
    for (int step = 1; step <= 2; step++) {
        char path[512];
        snprintf(path, sizeof path, "%s/checkpoints/step-000000000%d", flipped, step);
        wanted[step] = load(path, r);
    }
    ok(wanted[1].rc == 0 && wanted[2].rc == 0 && wanted[1].crc != wanted[2].crc,
       "two checkpoints that hold different things");
    for (int64_t i = 0; i < flips; i++) good += flip(file[i % FILES], seed, i, wanted, r, taken[i % FILES]);
    is_int(good, flips,
           "flipped bits, one at a time: all are passed over or never read, and what is loaded is whole");
    for (int f = 0; f < FILES; f++)
        diag("%s: %lld times the one before, %lld times itself", file[f], (long long)taken[f][1],
             (long long)taken[f][2]);
    for (int f = 0; f < 2; f++) is_int(taken[f][2], 0, "%s: no flip goes unseen", file[f]);
    is_int(taken[3][1] + taken[4][1], 0, "what is no part of a checkpoint costs none");
    free(flipped);
}

int main(void)
{
    rig r;
    kolo_log_set_level(KOLO_LOG_ERROR);
    if (!mkdtemp(top)) return 1;
    if (rig_open(&r, &lenet) < 0) skip_all("%s", kolo_error_text());
    make_run("a", &r);
    make_run("b", &r);
    check_manifest();
    check_damages();
    check_version();
    check_weights();
    check_older();
    check_identity();
    check_best();
    campaign(&r);
    check_other_run(&r);
    rig_close(&r);
    kolo_folder_remove(top);
    return done_testing();
}
