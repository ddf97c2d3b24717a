/* How a run begins or goes on: rank 0 holds the folder and finds the checkpoint, all ranks
 * begin from the same. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "ckpt/carried.h"
#include "ckpt/manifest.h"
#include "ckpt/store.h"
#include "ckpt/weights.h"
#include "train/rank_state.h"
#include "train/late.h"
#include "train/tournament.h"
#include "train/trainer.h"

/* What rank 0 broadcasts. */
typedef struct finding {
    int64_t found; /* 1, 0, or the error */
    kolo_position position;
    char path[PATH_MAX];
} finding;

/* -1 where it cannot be read */
static int64_t file_crc(const char *folder, const char *name)
{
    char *path = kolo_format("%s/%s", folder, name), *text = NULL;
    size_t bytes = 0;
    const bool read = path && kolo_file_read(path, &text, &bytes) == 0;
    const int64_t crc = read ? (int64_t)kolo_crc32c(0, text, bytes) : -1;
    free(text);
    free(path);
    return crc;
}

static int same_on_all(kolo_comm *comm, int64_t value, bool *same)
{
    int64_t word[2] = {value, -value};
    KOLO_TRY(kolo_comm_allreduce(comm, word, 2, KOLO_I64, KOLO_MAX));
    *same = word[0] == -word[1];
    return 0;
}

/* A folder of the same name on another node is another folder: there the checkpoint is another one or none,
 * or there are some where rank 0 has none. */
static int check_folder(kolo_session *s, const char *folder, const finding *f)
{
    int64_t *steps = NULL, here = 0;
    bool same;
    if (f->found) here = file_crc(f->path, "manifest.json");
    else {
        char *checkpoints = kolo_format("%s/checkpoints", folder);
        const int rc = checkpoints ? kolo_store_list(checkpoints, &steps, &here) : KOLO_ENOMEM;
        free(steps);
        free(checkpoints);
        KOLO_TRY(rc);
    }
    KOLO_TRY(same_on_all(s->comm, here, &same));
    return same ? 0
                : kolo_fail(
                      KOLO_ECONFIG,
                      "the ranks do not see the same %s: run= must be on a file system that all nodes share",
                      folder);
}

int kolo_train_find(kolo_session *s, const char *folder, const char *which, kolo_position *position,
                    char *path, size_t size)
{
    finding *f = kolo_alloc(sizeof *f);
    const bool looks = s->launch->rank == 0;
    int rc = f ? 0 : KOLO_ENOMEM;
    if (rc == 0 && looks)
        f->found = kolo_checkpoint_pick(folder, which, &f->position, f->path, sizeof f->path);
    if (rc == 0 && s->ranks > 1) {
        kolo_failure own;
        kolo_error_keep(&own);
        rc = kolo_comm_broadcast(s->comm, f, sizeof *f, 0);
        if (rc == 0 && f->found < 0)
            rc = looks ? kolo_error_restore(&own, (int)f->found)
                       : kolo_fail((int)f->found, "rank 0 found no checkpoint to start from");
        if (rc == 0) rc = check_folder(s, folder, f);
    } else if (rc == 0 && f->found < 0) {
        rc = (int)f->found;
    }
    if (rc == 0) {
        *position = f->position;
        snprintf(path, size, "%s", f->path);
        rc = (int)f->found;
    }
    free(f);
    return rc;
}

/* What decides, beside what decides the numbers, when ranks meet (to validate, to save, to stop) and
 * what they tell together. */
static const char *const common[] = {"eval_epochs", "early_stop", "checkpoint_steps",
                                     "stop_step",   "val_flip",   "val_size",
                                     "val_resize",  "conf",       "nms"};
enum { MATH, TRAIN_SET, VAL_SET, COMMON, WORDS = COMMON + sizeof common / sizeof *common };

static int64_t text_crc(const char *text) { return (int64_t)kolo_crc32c(0, text, strlen(text)); }

static int sum_up(const trainer *t, int64_t crc[WORDS])
{
    const kolo_session *s = &t->session;
    char *math = kolo_record_options(t->options, true);
    if (!math) return KOLO_ENOMEM;
    crc[MATH] = text_crc(math);
    free(math);
    crc[TRAIN_SET] = text_crc(s->data_uuid);
    crc[VAL_SET] = text_crc(s->val_set ? kolo_dataset_get_info(s->val_set)->uuid : "");
    for (int i = COMMON; i < WORDS; i++) {
        char *text = kolo_option_text(t->options, kolo_option_find(common[i - COMMON]));
        if (!text) return KOLO_ENOMEM;
        crc[i] = text_crc(text);
        free(text);
    }
    return 0;
}

/* A run whose ranks were given different things would go on for days, or stand still where some of them
 * meet. */
static int check_ranks(trainer *t)
{
    int64_t crc[2 * WORDS];
    int odd = 0;
    KOLO_TRY(sum_up(t, crc));
    for (int i = 0; i < WORDS; i++) crc[WORDS + i] = -crc[i];
    KOLO_TRY(kolo_comm_allreduce(t->session.comm, crc, 2 * WORDS, KOLO_I64, KOLO_MAX));
    while (odd < WORDS && crc[odd] == -crc[WORDS + odd]) odd++;
    if (odd == WORDS) return 0;
    if (odd == MATH)
        return kolo_fail(KOLO_ECONFIG, "the ranks were started with different options that change the "
                                       "numbers: give all the same recipe, environment and words");
    if (odd >= COMMON)
        return kolo_fail(
            KOLO_ECONFIG,
            "the ranks were started with different %s: give all the same recipe, environment and words",
            common[odd - COMMON]);
    return kolo_fail(KOLO_ECONFIG,
                     "%s=%s is another data set on some of the nodes: give a folder that all nodes share, or "
                     "copies of one",
                     odd == TRAIN_SET ? "data" : "val",
                     odd == TRAIN_SET ? t->options->data : t->options->val);
}

/* What is every rank's own. It is of one grid: on another the run goes on without it. */
static int load_carried(trainer *t, const char *path)
{
    enum { LOADED, LOST, FAILED };
    kolo_session *s = &t->session;
    const size_t bytes = kolo_rank_state_bytes(s);
    kolo_failure why;
    if (!bytes) return 0;
    void *mine = kolo_alloc(bytes);
    if (!mine) return KOLO_ENOMEM;
    int part;
    const int parts = kolo_rank_state_parts(s, &part);
    const int found = kolo_checkpoint_read_rank_state(path, part, parts, mine, bytes),
              rc = found <= 0              ? found
                   : kolo_late(t->options) ? trainer_resume_late(t, mine)
                                           : kolo_rank_state_load(s, mine);
    free(mine);
    int64_t outcome = found == 0 || (found > 0 && rc == KOLO_EINPUT) ? LOST : rc < 0 ? FAILED : LOADED;
    const bool own = outcome != LOADED, failed = outcome == FAILED;
    kolo_error_keep(&why);
    KOLO_TRY(kolo_comm_allreduce(s->comm, &outcome, 1, KOLO_I64, KOLO_MAX));
    if (outcome == FAILED)
        return kolo_fail(failed ? rc : KOLO_EIO, "%s: rank-local state: %s", path,
                         failed ? why.text : "another rank could not load its part");
    if (outcome == LOST && !own)
        return kolo_fail(KOLO_EINPUT,
                         "%s: another rank found no rank-local state of its own in this checkpoint", path);
    if (outcome == LOST && is_root(t))
        kolo_warn("%s was written by another rank layout: %s", path,
                  s->tournament
                      ? "every rank continues with the best network of the last meeting, the optimizer state "
                        "of rank 0 and the values of tournament_lr= and the like"
                  : kolo_is_local(t->options)
                      ? "every rank continues with the mean of the weights and the optimizer state of rank 0"
                  : kolo_late(t->options)      ? "gradients that were under way are lost"
                  : kolo_is_adasum(t->options) ? "every rank continues with the optimizer state of rank 0"
                                               : "the residuals of compression are lost");
    if (outcome == LOADED) return kolo_tournament_exchange(s);
    return kolo_is_local(t->options) ? kolo_exec_adopt_average(s->exec) : 0;
}

/* Which weights a batch is computed with does not change in a run. */
static int check_late(const trainer *t)
{
    char here[sizeof t->position.late];
    kolo_plan_late_text(t->session.plan, here, sizeof here);
    if (!strcmp(here, t->position.late)) return 0;
    return kolo_fail(
        KOLO_ECONFIG,
        "%s was trained with %s%s, this start has %s%s: which weights a batch is computed with is "
        "of the run; give the same pipeline=, stages= and cut=, or another run folder",
        t->options->run, *t->position.late ? "late weights: " : "no late weights", t->position.late,
        *here ? "late weights: " : "none", here);
}

static int resume(trainer *t, const char *path)
{
    kolo_session *s = &t->session;
    int64_t epoch, within;
    if (strcmp(t->position.data_uuid, s->data_uuid))
        return kolo_fail(
            KOLO_ECONFIG,
            "%s was trained on data set %s, data=%s is %s: give the same data, or another run folder",
            t->options->run, t->position.data_uuid, t->options->data, s->data_uuid);
    if (t->position.seed != (uint64_t)t->options->seed)
        return kolo_fail(
            KOLO_ECONFIG,
            "%s was trained with seed=%llu, this run has seed=%lld: it is of another run; move it away", path,
            (unsigned long long)t->position.seed, (long long)t->options->seed);
    KOLO_TRY(check_late(t));
    KOLO_TRY(kolo_session_enter(s, kolo_session_at(s, t->position.step, &epoch, &within)));
    const double begin = kolo_time();
    KOLO_TRY(kolo_checkpoint_load(path, s->exec, s->plan));
    KOLO_TRY(load_carried(t, path));
    t->load_seconds = kolo_time() - begin;
    t->position.restarts++;
    return 0;
}

/* Length and checksum of the file that init= names, as one number; 0: it cannot be read. */
static int64_t init_sum(const char *word)
{
    enum { PIECE = 1 << 20 };
    const char *key;
    char *path = kolo_weights_file(word, &key), *piece = kolo_alloc(PIECE);
    const int fd = path && piece ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    uint32_t crc = 0;
    int64_t bytes = 0;
    ssize_t n = -1;
    while (fd >= 0 && (n = read(fd, piece, PIECE)) > 0) {
        crc = kolo_crc32c(crc, piece, (size_t)n);
        bytes += n;
    }
    if (fd >= 0) close(fd);
    free(piece);
    free(path);
    return n < 0 ? 0 : (bytes & INT32_MAX) << 32 | crc;
}

/* Every rank reads it for itself, and a node may have another under the same name. */
static int check_init(trainer *t)
{
    const int ranks = t->session.ranks;
    char odd[128] = "";
    if (ranks == 1) return 0;
    int64_t *sum = kolo_alloc((size_t)ranks * sizeof *sum);
    if (!sum) return KOLO_ENOMEM;
    sum[t->launch->rank] = init_sum(t->options->init);
    const int rc = kolo_comm_allreduce(t->session.comm, sum, ranks, KOLO_I64, KOLO_MAX);
    for (int r = 1; r < ranks && rc == 0; r++) {
        const size_t used = strlen(odd);
        if (sum[r] == sum[0]) continue;
        if (used > 100) {
            snprintf(odd + used, sizeof odd - used, " ...");
            break;
        }
        snprintf(odd + used, sizeof odd - used, "%s%d%s", used ? ", " : "", r, sum[r] ? "" : " (unreadable)");
    }
    free(sum);
    if (rc < 0 || !*odd) return rc;
    return kolo_fail(KOLO_ECONFIG,
                     "init=%s is not the same file on all ranks; it differs from rank 0's on: %s. Put it "
                     "where all nodes see it",
                     t->options->init, odd);
}

static int train_resume_begin(trainer *t)
{
    const kolo_options *o = t->options;
    kolo_session *s = &t->session;
    bool shared;
    KOLO_TRY(kolo_exec_initialise(s->exec, (uint64_t)o->seed));
    if (*o->init) KOLO_TRY(check_init(t));
    if (*o->init) KOLO_TRY(kolo_weights_import(o->init, s->exec, s->plan, o->init_head));
    /* after all that may be refused: a start that is writes nothing */
    if (is_root(t)) KOLO_TRY(kolo_run_record(t->run, o));
    KOLO_TRY(kolo_comm_barrier(s->comm)); /* it is written */
    KOLO_TRY(same_on_all(s->comm, file_crc(o->run, "recipe.yaml"), &shared));
    if (!shared && is_root(t))
        kolo_warn("run=%s is not on a file system that all nodes share: this run cannot be resumed", o->run);
    t->position =
        (kolo_position){.batch = o->batch, .samples = s->samples, .seed = (uint64_t)o->seed, .best = -1};
    snprintf(t->position.data_uuid, sizeof t->position.data_uuid, "%s", s->data_uuid);
    snprintf(t->position.model, sizeof t->position.model, "%s", o->model);
    return 0;
}

/* RUN/classes.txt: the names of the data set's classes, a line each, which `kolo predict run=` tells. What
 * lies there before a run begins is of a start that came to nothing, and may be of other data. */
static int record_classes(const trainer *t, bool begins)
{
    const kolo_dataset *set = t->session.train_set;
    char *path = set ? kolo_format("%s/classes.txt", t->options->run) : NULL, *text = NULL;
    size_t length = 0;
    int rc = set && !path ? KOLO_ENOMEM : 0;
    const bool wanted = path && (begins || !kolo_file_exists(path));
    FILE *file = wanted ? open_memstream(&text, &length) : NULL;
    if (wanted && !file) rc = kolo_no_memory(sizeof *file);
    if (file) {
        for (int c = 0; c < kolo_dataset_get_info(set)->classes; c++)
            fprintf(file, "%s\n", kolo_dataset_class_name(set, c));
        rc = fclose(file) == 0 ? kolo_file_write_atomic(path, text, length)
                               : kolo_fail(KOLO_ENOMEM, "out of memory for %s", path);
    }
    free(text);
    free(path);
    return rc;
}

int trainer_begin(trainer *t)
{
    const char *folder = t->options->run;
    char path[PATH_MAX];
    KOLO_TRY(check_ranks(t));
    if (is_root(t)) KOLO_TRY(kolo_run_open(&t->run, folder));
    const int found = kolo_train_find(&t->session, folder, "newest", &t->position, path, sizeof path);
    KOLO_TRY(found);
    if (found && is_root(t)) KOLO_TRY(kolo_run_record(t->run, t->options));
    if (found) KOLO_TRY(resume(t, path));
    else KOLO_TRY(train_resume_begin(t));
    if (is_root(t)) KOLO_TRY(record_classes(t, !found));
    if (is_root(t)) KOLO_TRY(kolo_run_identify(t->run, !found, &t->position));
    t->position.plan_hash = t->session.plan->hash;
    kolo_plan_late_text(t->session.plan, t->position.late, sizeof t->position.late);
    snprintf(t->position.metric, sizeof t->position.metric, "%s", kolo_session_metric(&t->session));
    t->first_step = t->position.step;
    t->saved = found ? t->position.step : -1;
    kolo_session_settle(&t->session);
    kolo_session_report_copy(&t->session);
    /* now that what brought tensors here is free again */
    return is_root(t) ? kolo_checkpoint_prepare(t->run, t->session.plan, t->session.backend) : 0;
}
