/* Saving: the arenas are copied at once, the rest is the affair of a thread that the step never waits for. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "ckpt/safetensors.h"
#include "ckpt/saver.h"
#include "ckpt/store.h"
#include "ckpt/stream.h"
#include "comm/buckets/trainer.h"

static const enum kolo_arena saved_arena[] = {KOLO_ARENA_PARAM, KOLO_ARENA_BUFFER, KOLO_ARENA_STATE,
                                              KOLO_ARENA_EMA};
enum { SAVED_ARENAS = sizeof saved_arena / sizeof *saved_arena };

static int describe_items(struct saver *s)
{
    KOLO_TRY(kolo_items_make(s->plan, true, true, &s->item, &s->items));
    s->weight = kolo_alloc(sizeof *s->weight * (size_t)(s->items + 1));
    if (!s->weight) return KOLO_ENOMEM;
    for (int i = 0; i < s->items; i++) {
        const kolo_tensor *t = kolo_item_tensor(&s->item[i]);
        kolo_weight *w = &s->weight[i];
        *w = (kolo_weight){.name = s->item[i].name, .type = KOLO_F32, .rank = t->rank};
        memcpy(w->dim, t->dim, sizeof w->dim);
        w->bytes = (size_t)kolo_tensor_count(t) * sizeof(float);
        if (w->bytes > s->canonical_bytes && s->item[i].stage == s->plan->config.stage)
            s->canonical_bytes = w->bytes;
    }
    static const char *const metadata[] = {"format", "pt", "program", "kolo", NULL};
    return kolo_weights_header(s->weight, s->items, metadata, &s->header, &s->header_bytes);
}

static int reserve_memory(struct saver *s)
{
    for (int i = 0; i < SAVED_ARENAS && !kolo_checkpoint_in_place(s->plan); i++) {
        s->base[saved_arena[i]] = s->snapshot_bytes;
        s->snapshot_bytes += kolo_round_up(s->plan->arena_bytes[saved_arena[i]], KOLO_ALIGN);
    }
    s->snapshot = kolo_pages_alloc(s->snapshot_bytes);
    s->canonical_bytes = kolo_checkpoint_scratch(s->canonical_bytes, true);
    s->canonical = kolo_pages_alloc(s->canonical_bytes);
    return s->snapshot && s->canonical ? 0 : KOLO_ENOMEM;
}

size_t kolo_checkpoint_scratch(size_t largest, bool in_place)
{
    return (largest < SAVER_PIECE ? SAVER_PIECE : largest) + (in_place ? 0 : KOLO_STREAM_BUFFER);
}

bool kolo_checkpoint_in_place(const kolo_plan *plan)
{
    return plan->program || plan->config.shards > 1 || plan->config.offload || plan->config.in_place;
}

/* run: NULL on ranks that hold none. */
static int saver_create(struct saver **saver, const kolo_run *run, const kolo_plan *plan,
                        kolo_backend *backend)
{
    struct saver *s = *saver = kolo_alloc(sizeof *s);
    if (!s) return KOLO_ENOMEM;
    s->run = run;
    s->plan = plan;
    s->backend = backend;
    int rc = describe_items(s);
    if (rc == 0) rc = reserve_memory(s);
    if (rc < 0) kolo_saver_destroy(saver);
    return rc;
}

static void forget_options(struct saver *s)
{
    free(s->math);
    free(s->runtime);
    s->math = s->runtime = NULL;
}

static int saver_wait(struct saver *s)
{
    if (!s || !s->started) return 0;
    pthread_join(s->thread, NULL);
    s->started = false;
    forget_options(s);
    return kolo_error_restore(&s->failure, s->rc);
}

int kolo_saver_destroy(struct saver **saver)
{
    struct saver *s = *saver;
    if (!s) return 0;
    int rc = saver_wait(s);
    kolo_items_free(&s->item, s->items);
    free(s->weight);
    free(s->header);
    kolo_pages_free(&s->snapshot, s->snapshot_bytes);
    kolo_pages_free(&s->canonical, s->canonical_bytes);
    free(s->carried.data);
    free(s);
    *saver = NULL;
    return rc;
}

/* The slabs of an item into `canonical`, their places. from: the first one's. */
static int put_slabs(struct saver *s, const item *it, const char *from)
{
    const kolo_plan *p = s->plan;
    float *values = kolo_alloc((size_t)kolo_graph_largest_slab(p->graph, it->tensor) * sizeof *values);
    int rc = values ? 0 : KOLO_ENOMEM;
    for (int t = it->tensor; rc == 0 && t >= 0; t = kolo_graph_next_slab(p->graph, t)) {
        const char *at = from - p->fixed[it->tensor].offset + p->fixed[t].offset;
        rc = kolo_backend_to_canonical(s->backend, &p->graph->tensor[t], &p->layout[t], at, values);
        if (rc == 0) kolo_slab_put(&p->graph->tensor[t], values, s->canonical);
    }
    free(values);
    return rc;
}

static int write_tensors(struct saver *s, stream *out)
{
    KOLO_TRY(kolo_stream_put(out, s->header, s->header_bytes));
    for (int i = 0; i < s->items; i++) { /* all F32: the order of the data is the order given */
        const item *it = &s->item[i];
        const char *from = s->snapshot + s->base[it->arena] + it->offset;
        if (it->slabs) KOLO_TRY(put_slabs(s, it, from));
        else if (it->scalar) memcpy(s->canonical, from, s->weight[i].bytes);
        else
            KOLO_TRY(kolo_backend_to_canonical(s->backend, &s->plan->graph->tensor[it->tensor],
                                               &s->plan->layout[it->tensor], from, s->canonical));
        KOLO_TRY(kolo_stream_put(out, s->canonical, s->weight[i].bytes));
    }
    return kolo_stream_sync(out);
}

/* m: with what is known of the other files. */
static int write_manifest(struct saver *s, int folder, const char *path, manifest *m)
{
    stream out;
    m->position = s->position;
    m->scaler = s->scaler;
    m->tensors = s->items;
    m->ranks = s->plan->config.ranks;
    char *text = kolo_record_text(m, s->math, s->runtime);
    int rc = text ? kolo_stream_open(&out, folder, path, "manifest.json") : KOLO_ENOMEM;
    if (rc == 0) {
        rc = kolo_stream_put(&out, text, strlen(text));
        if (rc == 0) rc = kolo_stream_sync(&out);
        rc = kolo_stream_close(&out, rc);
    }
    free(text);
    return rc;
}

/* Each is on the disk before the next, the manifest last. */
int saver_finish(struct saver *s, int folder, const char *path, manifest *m)
{
    if (s->carried.parts) /* else it is there, or there is nothing */
        KOLO_TRY(kolo_rank_state_write(folder, path, &s->carried, &m->carried_bytes, &m->carried_crc));
    KOLO_TRY(write_manifest(s, folder, path, m));
    return kolo_folder_sync_held(folder, path);
}

static int write_files(struct saver *s, int folder, const char *path)
{
    stream out;
    KOLO_TRY(kolo_stream_open(&out, folder, path, "tensors.safetensors"));
    int rc = write_tensors(s, &out);
    manifest m = {.bytes = out.bytes, .crc = out.crc};
    rc = kolo_stream_close(&out, rc);
    return rc == 0 ? saver_finish(s, folder, path, &m) : rc;
}

/* A checkpoint of another run is the user's to move away; so is what cannot be checked for lack of
 * memory. */
static bool is_ours(const char *path, void *context)
{
    const struct saver *s = context;
    manifest m;
    char *list = kolo_format("%s/manifest.json", path);
    const int rc = list ? kolo_record_read(list, &m) : KOLO_ENOMEM;
    const bool other = rc == KOLO_ENOMEM || (rc == 0 && *m.position.run && *s->position.run &&
                                             strcmp(m.position.run, s->position.run) != 0);
    free(list);
    return !other;
}

/* After it has its name. */
static int checkpoint_settle(struct saver *s)
{
    const kolo_position *p = &s->position;
    KOLO_TRY(kolo_store_mark_best(s->run->folder, p->best_step));
    if (kolo_store_prune(s->run->checkpoints, p->step, p->best_step, is_ours, s) < 0)
        kolo_warn("an old checkpoint could not be removed: %s", kolo_error_text()); /* the new one stands */
    return 0;
}

int saver_commit(struct saver *s, kolo_temp_file *a, char **path, int rc)
{
    KOLO_TRY(kolo_store_commit(a, path, rc));
    return checkpoint_settle(s);
}

static int write_checkpoint(struct saver *s)
{
    kolo_temp_file a;
    char *path;
    const double begin = kolo_time();
    KOLO_TRY(kolo_store_begin(s->run->checkpoints, s->position.step, &a, &path));
    const int rc = write_files(s, a.fd, path);
    KOLO_TRY(saver_commit(s, &a, &path, rc));
    kolo_debug("checkpoint of step %lld: written in %.3f s", (long long)s->position.step,
               kolo_time() - begin);
    return 0;
}

static void *writer_main(void *context)
{
    struct saver *s = context;
    omp_set_num_threads(1); /* of this thread's own regions: the compute threads belong to the step */
    s->rc = write_checkpoint(s);
    if (s->rc < 0) kolo_error_keep(&s->failure);
    return NULL;
}

/* All signals stay with the threads that wait for them; SIGXFSZ, which a file-size limit would send,
 * becomes an error code. */
static int start_writer(struct saver *s)
{
    s->rc = 0;
    KOLO_TRY(kolo_thread_start(&s->thread, writer_main, s, "checkpoint"));
    s->started = true;
    return 0;
}

static int take_snapshot(struct saver *s, kolo_exec *exec)
{
    for (int i = 0; i < SAVED_ARENAS; i++)
        KOLO_TRY(kolo_exec_read_arena(exec, saved_arena[i], s->snapshot + s->base[saved_arena[i]]));
    return 0;
}

int kolo_checkpoint_take_part(kolo_exec *exec, const kolo_plan *plan, kolo_backend *backend,
                              const kolo_rank_parts *parts)
{
    struct saver *s;
    if (!kolo_checkpoint_in_place(plan)) return 0;
    int rc = kolo_comm_agree(kolo_exec_comm(exec), saver_create(&s, NULL, plan, backend));
    if (rc == 0) s->rank_parts = *parts;
    if (rc == 0) rc = saver_write_together(s, exec);
    kolo_saver_destroy(&s);
    return rc;
}

int kolo_checkpoint_prepare(kolo_run *run, const kolo_plan *plan, kolo_backend *backend)
{
    struct saver *s = run->saver;
    KOLO_TRY(saver_wait(s));
    if (s && (s->plan != plan || s->backend != backend)) KOLO_TRY(kolo_saver_destroy(&run->saver));
    return run->saver ? 0 : saver_create(&run->saver, run, plan, backend);
}

int kolo_checkpoint_save(kolo_run *run, kolo_exec *exec, const kolo_plan *plan, kolo_backend *backend,
                         const kolo_options *options, const kolo_position *position)
{
    const int ready = kolo_checkpoint_prepare(run, plan, backend);
    KOLO_TRY(kolo_checkpoint_in_place(plan) ? kolo_comm_agree(kolo_exec_comm(exec), ready) : ready);
    struct saver *s = run->saver;
    if (!kolo_checkpoint_in_place(plan)) KOLO_TRY(take_snapshot(s, exec));
    KOLO_TRY(kolo_exec_get_scaler(exec, &s->scaler));
    s->position = *position;
    s->math = kolo_record_options(options, true);
    s->runtime = kolo_record_options(options, false);
    int rc = !s->math || !s->runtime          ? KOLO_ENOMEM
             : kolo_checkpoint_in_place(plan) ? saver_write_together(s, exec)
                                              : start_writer(s);
    if (rc < 0 || kolo_checkpoint_in_place(plan)) forget_options(s);
    return rc;
}

void *kolo_checkpoint_rank_state(kolo_run *run, size_t bytes, int parts)
{
    struct saver *s = run->saver;
    if (!s)
        kolo_fail(KOLO_EINTERNAL,
                  "checkpoint: rank-local state must be added before kolo_checkpoint_prepare");
    if (!s || saver_wait(s) < 0) return NULL;
    if (s->carried.bytes != bytes || s->carried.parts != parts) {
        free(s->carried.data);
        s->carried = (carried){kolo_alloc(bytes * (size_t)parts), bytes, parts};
        if (!s->carried.data) s->carried.parts = 0;
    }
    return s->carried.data;
}

int kolo_checkpoint_rank_parts(kolo_run *run, const kolo_rank_parts *parts)
{
    if (!run->saver)
        return kolo_fail(KOLO_EINTERNAL, "checkpoint: rank-local state before kolo_checkpoint_prepare");
    run->saver->rank_parts = *parts;
    return 0;
}

int kolo_checkpoint_wait(kolo_run *run) { return saver_wait(run->saver); }
