#include "train/async.h"

#include <math.h>

#include "base/thread.h"
#include "kolo/error.h"

/* Blocks that this rank holds, in the order in which they were given, which is that of the loader. */
typedef struct work {
    kolo_blocks blocks;
    int64_t block[KOLO_MOST_BLOCKS];
} work;

static int assign(trainer *t, work *w)
{
    const kolo_session *s = &t->session;
    const int workers = kolo_session_workers(s);
    for (int i = 0; i < w->blocks.given; i++) {
        const int64_t block = w->blocks.block[i];
        int64_t epoch, within;
        kolo_session_at(s, block / workers, &epoch, &within);
        KOLO_TRY(kolo_loader_assign(s->loader, epoch, within, (int)(block % workers)));
        w->block[w->blocks.held - w->blocks.given + i] = block;
    }
    return 0;
}

/* An average of the weights that remembers as many images as with one update a step. */
static kolo_step block_step(const trainer *t, int64_t step, int64_t epoch)
{
    kolo_step s = trainer_step(t, step, epoch);
    s.ema_decay = powf(s.ema_decay, 1.0f / (float)kolo_session_workers(&t->session));
    return s;
}

static int one_block(trainer *t, work *w)
{
    const int64_t block = w->block[0], step = block / kolo_session_workers(&t->session);
    kolo_session *s = &t->session;
    kolo_batch batch;
    kolo_metrics m;
    KOLO_TRY(kolo_loader_next(s->loader, &batch));
    const kolo_step parameters = block_step(t, step, batch.epoch);
    int rc = trainer_board_images(t, &batch, step + 1);
    if (rc == 0) rc = kolo_exec_step(s->exec, &batch, &parameters, &m);
    kolo_loader_release(s->loader, &batch);
    KOLO_TRY(rc);
    KOLO_TRY(kolo_exec_push(s->exec, block, &m, &w->blocks));
    w->block[0] = w->block[1];
    return assign(t, w);
}

/* Rank 0: steps of which all gradients are applied, in their order. */
static int report(trainer *t)
{
    kolo_session *s = &t->session;
    kolo_loader_stats stats;
    kolo_metrics m;
    while (kolo_exec_pushed(s->exec, &m, &t->stale)) {
        int64_t epoch, within;
        kolo_session_at(s, m.step, &epoch, &within);
        kolo_loader_get_stats(s->loader, &stats);
        const double waited = t->waited_before + stats.wait_seconds, comm = kolo_exec_comm_seconds(s->exec);
        *record_of(t, m.step) = (step_record){.step = m.step,
                                              .epoch = epoch,
                                              .lr = (double)trainer_step(t, m.step, epoch).lr,
                                              .wait = waited - t->waited,
                                              .comm = comm - t->comm};
        t->waited = waited;
        t->comm = comm;
        t->images += kolo_session_batch(s);
        t->unreported++;
        KOLO_TRY(trainer_report(t, &m));
    }
    return 0;
}

int trainer_async_steps(trainer *t, int64_t end)
{
    kolo_session *s = &t->session;
    const int64_t first = t->position.step, workers = kolo_session_workers(s);
    work w = {0};
    t->reported_at = kolo_time();
    KOLO_TRY(kolo_exec_open_blocks(s->exec, first * workers, end * workers, &w.blocks));
    KOLO_TRY(assign(t, &w));
    while (w.blocks.held > 0) {
        KOLO_TRY(one_block(t, &w));
        KOLO_TRY(report(t));
    }
    KOLO_TRY(kolo_exec_close_blocks(s->exec));
    KOLO_TRY(report(t));
    t->position.step = end;
    return 0;
}
