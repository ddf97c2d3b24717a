/* What a program sends, to comm: every rank declares the buckets and transfers of all, in one order. */
#include <stdlib.h>

#include "base/memory.h"
#include "exec/parts.h"
#include "kolo/error.h"

/* One stage: all ranks have the same buckets. */
static int declare_alone(kolo_exec *e)
{
    const kolo_plan *p = e->plan;
    int64_t *count = kolo_alloc((size_t)(p->graph->tensors + 1) * sizeof *count);
    int rc = count ? 0 : KOLO_ENOMEM;
    for (int b = 0; b < p->buckets && rc >= 0; b++) {
        const kolo_bucket *k = &p->bucket[b];
        e->bucket_number[b] = b;
        if (p->config.adasum && k->params > 0)
            rc = kolo_comm_bucket_adasum(e->comm, k->offset, count, kolo_plan_bucket_tensors(p, b, count),
                                         p->config.average);
        else rc = kolo_comm_bucket(e->comm, k->offset, k->count);
    }
    free(count);
    return rc;
}

static int declare_buckets(kolo_exec *e, int stage)
{
    const kolo_program *program = e->plan->program;
    const kolo_grid *grid = program->grid;
    const kolo_plan *p = program->plan[stage];
    const int group = kolo_comm_group(e->comm, &grid->rank[stage * grid->replicas], grid->replicas);
    KOLO_TRY(group);
    for (int b = 0; b < p->buckets && p->config.optimizer; b++) {
        const int number =
            kolo_comm_bucket_of(e->comm, group, KOLO_ALLREDUCE, p->bucket[b].offset, p->bucket[b].count);
        KOLO_TRY(number);
        if (stage == grid->stage) e->bucket_number[b] = number;
    }
    return 0;
}

/* What a stage sends in one of the plans, of every replica. */
static int declare_transfers(kolo_exec *e, plan_variant *variant, int stage)
{
    const kolo_program *program = variant->plan->program;
    const kolo_grid *grid = program->grid;
    const kolo_plan *p = program->plan[stage];
    for (int i = 0; i < p->transfers; i++) {
        const kolo_transfer *from = &p->transfer[i];
        if (!from->sends) continue;
        const int other = kolo_program_match(program, stage, i);
        const kolo_transfer *to = &program->plan[from->peer]->transfer[other];
        for (int r = 0; r < grid->replicas; r++) {
            const int number = kolo_comm_transfer(e->comm, kolo_grid_rank(grid, stage, r),
                                                  kolo_grid_rank(grid, from->peer, r), from->offset,
                                                  to->offset, from->bytes);
            KOLO_TRY(number);
            if (r != grid->replica) continue;
            if (stage == grid->stage) variant->transfer_number[i] = number;
            if (from->peer == grid->stage) variant->transfer_number[other] = number;
        }
    }
    return 0;
}

int exec_declare(kolo_exec *e)
{
    const kolo_program *program = e->plan->program;
    e->bucket_number = kolo_alloc((size_t)(e->plan->buckets + 1) * sizeof *e->bucket_number);
    if (!e->bucket_number) return KOLO_ENOMEM;
    if (!program) return declare_alone(e);
    for (int s = 0; s < program->grid->stages; s++) KOLO_TRY(declare_buckets(e, s));
    for (int i = 0; i < e->forms; i++)
        for (int s = 0; s < program->grid->stages; s++) KOLO_TRY(declare_transfers(e, &e->form[i], s));
    return 0;
}
