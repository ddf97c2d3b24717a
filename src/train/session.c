/* A session is opened part after part, in the order of the data flow. */
#include "train/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "train/auto_plan.h"
#include "train/compression.h"
#include "train/late.h"
#include "train/local.h"
#include "train/parts.h"
#include "train/pipeline.h"
#include "train/plan_file.h"
#include "train/shard.h"
#include "train/strategy.h"
#include "train/tournament.h"

static int choose_threads(kolo_session *s)
{
    kolo_options *o = s->options;
    if (s->elsewhere && o->threads) return 0;
    /* A sum over threads would make the bits depend on their number. */
    int64_t threads = o->threads ? o->threads : o->reduce == KOLO_reduce_canonical ? 1 : 0;
    int chosen = kolo_launch_bind(s->launch, (int)threads, o->bind != KOLO_bind_none);
    if (chosen < 0) return chosen;
    /* as many ranks will divide a node like this one */
    if (!threads && s->elsewhere && !s->gpu) chosen = chosen / s->ranks > 1 ? chosen / s->ranks : 1;
    o->threads = chosen;
    return 0;
}

static int open_steps(kolo_session *s)
{
    KOLO_TRY(session_fit_plans(s));
    KOLO_TRY(kolo_strategy_check(s->plan_file->strategy, s->plan_file->path, s));
    kolo_plan_file_check_choices(s->plan_file, s);
    if (s->parts & KOLO_SESSION_PLAN_ONLY) return 0;
    s->shared_bytes = kolo_memory_shared();
    s->held_bytes = kolo_memory_resident();
    s->highest_bytes = kolo_memory_peak();
    /* readers fill while memory is touched */
    if (!(s->parts & KOLO_SESSION_NO_DATA)) KOLO_TRY(session_make_loaders(s));
    KOLO_TRY(session_make_executors(s));
    kolo_session_settle(s);
    return 0;
}

static int open_plan_file(kolo_session *s)
{
    s->plan_file = kolo_alloc(sizeof *s->plan_file);
    if (!s->plan_file) return KOLO_ENOMEM;
    if (!(s->parts & KOLO_SESSION_TRAIN) || (s->parts & KOLO_SESSION_DATA_ONLY)) return 0;
    return kolo_plan_file_read(s->plan_file, s->options, s->ranks);
}

/* What is wrong may be the file's fault. */
static int in_plan_file(const kolo_session *s, int rc)
{
    const char *path = s->plan_file->path;
    if (rc != KOLO_ECONFIG || !path || strstr(kolo_error_text(), path)) return rc;
    return kolo_fail_in(rc, "%s: ", kolo_plan_file_where(s->plan_file, kolo_error_text()));
}

static int open_parts(kolo_session *s, int parts)
{
    kolo_options *o = s->options;
    const kolo_model *model = kolo_model_find(o->model);
    if (!model) return kolo_error_status();
    s->detector = model->detector;
    KOLO_TRY(session_check_options(o));
    KOLO_TRY(session_auto_plan(s));
    KOLO_TRY(session_check_task(o, s->detector));
    s->elsewhere = (parts & KOLO_SESSION_PLAN_ONLY) && o->ranks;
    s->ranks = s->elsewhere ? (int)o->ranks : s->launch->size;
    KOLO_TRY(open_plan_file(s));
    KOLO_TRY(in_plan_file(s, session_parse_spatial(s)));
    KOLO_TRY(in_plan_file(s, session_open_grid(s)));
    KOLO_TRY(session_check_tournament(s));
    KOLO_TRY(session_check_local(s));
    KOLO_TRY(session_check_late(s));
    KOLO_TRY(in_plan_file(s, session_open_shards(s)));
    KOLO_TRY(session_open_data(s, parts));
    KOLO_TRY(session_open_tournament(s));
    KOLO_TRY(session_resolve_shape(s, model));
    KOLO_TRY(in_plan_file(s, session_lay_phases(s)));
    if (parts & KOLO_SESSION_DATA_ONLY)
        return o->batch ? session_resolve_batch(s)
                        : kolo_fail(KOLO_ECONFIG, "batch=auto: a server of batches measures no memory; give "
                                                  "the number of the training");
    KOLO_TRY(choose_threads(s));
    KOLO_TRY(session_choose_device(s)); /* near the cores that were just taken */
    KOLO_TRY(session_check_late_device(s));
    KOLO_TRY(session_check_offload(s));
    session_weigh_process(s, false);
    KOLO_TRY(session_choose_batch(s));
    return in_plan_file(s, open_steps(s));
}

int kolo_session_answer_stage(const kolo_session *s, int tensor)
{
    const kolo_graph *g = kolo_session_eval_graph(s);
    const kolo_placement *p = s->eval_graph ? s->eval_placement : s->placement;
    if (!p) return 0;
    for (int i = 0; i < g->heads; i++)
        if (g->head[i] == tensor) return kolo_placement_stage(p, p->stages * p->chunks - 1);
    return kolo_placement_stage(p, p->owner[tensor]);
}

int kolo_session_open(kolo_session *s, kolo_options *options, kolo_launch *launch, int parts)
{
    return kolo_session_open_for(s, options, launch, parts, NULL);
}

int kolo_session_open_for(kolo_session *s, kolo_options *options, kolo_launch *launch, int parts,
                          const kolo_gpu *gpu)
{
    *s = (kolo_session){.options = options, .launch = launch, .parts = parts, .gpu = gpu};
    int rc = open_parts(s, parts);
    if (rc < 0) kolo_session_close(s);
    return rc;
}

void kolo_session_close(kolo_session *s)
{
    session_close_loaders(s);
    kolo_exec_destroy(&s->eval_exec);
    kolo_exec_destroy(&s->exec);
    kolo_comm_destroy(&s->comm);
    kolo_compression_flat_free(&s->flat);
    kolo_comm_destroy(&s->eval_comm);
    session_free_plans(s);
    session_close_tournament(s);
    session_close_data(s);
    kolo_grid_free(&s->grid);
    if (s->plan_file) kolo_plan_file_close(s->plan_file);
    free(s->plan_file);
    s->plan_file = NULL;
    free(s->phase);
    s->phase = NULL;
}
