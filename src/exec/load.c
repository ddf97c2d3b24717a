/* A batch on its way into a step: it is offered from outside of what is recorded, and LOAD brings each
 * micro-batch of it to its slot. */
#include "exec/parts.h"

/* ---- before a step ---- */

static int convert(kolo_exec *e, const kolo_batch *batch)
{
    const plan_variant *f = e->current;
    const kolo_graph *g = f->plan->graph;
    const kolo_tensor *x = &g->tensor[g->input];
    const float *from = (const float *)(const void *)batch->pixels;
    for (int s = 0; s < f->plan->config.slots; s++)
        KOLO_TRY(kolo_backend_from_canonical(e->backend, x, &f->plan->layout[g->input],
                                             from + s * kolo_tensor_count(x),
                                             f->converted + (size_t)s * f->input_bytes));
    return 0;
}

/* Says where LOAD finds the batch; on a device it is sent to STAGE as soon as the step before has read
 * that. */
int exec_offer(kolo_exec *e, const kolo_batch *batch)
{
    plan_variant *f = e->current;
    const char *pixels = f->converted ? f->converted : (const char *)batch->pixels;
    if (!kolo_plan_loads(f->plan)) return 0;
    if (f->converted) KOLO_TRY(convert(e, batch));
    if (!e->full) {
        f->pixels = pixels;
        f->labels = batch->labels;
        return 0;
    }
    const kolo_plan *p = f->plan;
    KOLO_TRY(kolo_event_after(e->emptied, KOLO_LANE_UPLOAD)); /* at first there is nothing to wait for */
    if (f->input_bytes > 0)
        KOLO_TRY(kolo_backend_copy(e->backend, KOLO_LANE_UPLOAD, (void *)(uintptr_t)f->pixels, pixels,
                                   f->input_bytes * (size_t)p->config.slots));
    if (f->label_bytes > 0)
        KOLO_TRY(kolo_backend_copy(e->backend, KOLO_LANE_UPLOAD, (void *)(uintptr_t)f->labels, batch->labels,
                                   f->label_bytes * (size_t)p->config.slots));
    KOLO_TRY(kolo_event_record(e->full, KOLO_LANE_UPLOAD));
    return kolo_event_after(e->full, KOLO_LANE_COMPUTE);
}

int exec_taken(kolo_exec *e)
{
    return e->full && kolo_plan_loads(e->current->plan) ? exec_await(e, e->full) : 0;
}

/* ---- in it ---- */

static bool is_last_load(const kolo_exec *e, const kolo_action *a)
{
    return a->slot == e->current->plan->config.slots - 1;
}

/* from: of the first row, where several parts of an image lie one behind the other in a row. */
static int load_image(kolo_exec *e, int tensor, char *to, const char *from)
{
    const plan_variant *f = e->current;
    const size_t bytes = f->plan->layout[tensor].bytes;
    if (bytes == f->input_bytes) return kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, to, from, bytes);
    const size_t rows = (size_t)f->plan->graph->rows, row = bytes / rows, stride = f->input_bytes / rows;
    for (size_t r = 0; r < rows; r++)
        KOLO_TRY(kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, to + r * row, from + r * stride, row));
    return 0;
}

int exec_load(kolo_exec *e, const kolo_action *a)
{
    const plan_variant *f = e->current;
    const kolo_plan *p = f->plan;
    int loaded[KOLO_MAX_LOADED];
    const int n = kolo_plan_loaded(p, loaded);
    const char *from = f->pixels + (size_t)a->slot * f->input_bytes;
    void *const *to = &e->view->args[a->binding];
    for (int i = 0; i < n; i++) {
        const size_t bytes = p->layout[loaded[i]].bytes;
        if (loaded[i] == p->graph->label)
            KOLO_TRY(kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, to[i],
                                       (const char *)f->labels + bytes * (size_t)a->slot, bytes));
        else KOLO_TRY(load_image(e, loaded[i], to[i], from));
        from += p->graph->input_grid[0] ? bytes / (size_t)p->graph->rows : 0;
    }
    return e->emptied && is_last_load(e, a) ? kolo_event_record(e->emptied, KOLO_LANE_COMPUTE) : 0;
}
