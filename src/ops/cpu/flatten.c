/* (N, C, H, W) in any layout -> (N, C*H*W) in the order of torch, and back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/cpu.h"

typedef struct flatten {
    kolo_view map;
    int threads;
    bool copy;
} flatten;

/* Moves one sample between `map` (blocked) and `row` (plain); elements of `bytes`. */
static void move_sample(const kolo_view *v, char *map, char *row, size_t bytes, bool to_row)
{
    for (int64_t c = 0; c < v->channels; c++) {
        char *lane = map + (size_t)(c / v->block * kolo_view_plane(v) + c % v->block) * bytes,
             *plane = row + (size_t)(c * v->pixels) * bytes;
        for (int64_t i = 0; i < v->pixels; i++) {
            char *at = lane + (size_t)(i * v->block) * bytes;
            if (bytes == 4) memcpy(to_row ? plane + 4 * i : at, to_row ? at : plane + 4 * i, 4);
            else memcpy(to_row ? plane + 2 * i : at, to_row ? at : plane + 2 * i, 2);
        }
    }
}

static int move_all(const flatten *f, char *map, char *row, bool to_row)
{
    const kolo_view *v = &f->map;
    size_t bytes = v->bf16 ? 2 : 4, in_map = (size_t)(v->blocks * kolo_view_plane(v)) * bytes,
           in_row = (size_t)(v->channels * v->pixels) * bytes;
#pragma omp parallel for schedule(static) num_threads(f->threads)
    for (int64_t n = 0; n < v->rows; n++) {
        char *a = map + (size_t)n * in_map, *b = row + (size_t)n * in_row;
        if (!to_row && v->channels % v->block) memset(a, 0, in_map); /* padding */
        if (f->copy) memcpy(to_row ? b : a, to_row ? a : b, in_row);
        else move_sample(v, a, b, bytes, to_row);
    }
    return 0;
}

static int flatten_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                       int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    return move_all(k->state, args[0], args[1], true);
}

static int flatten_run_grad(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                            int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    return move_all(k->state, args[1], args[0], false);
}

static int flatten_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    bool backward = r->node->op == KOLO_OP_flatten_grad;
    flatten *f = kolo_alloc(sizeof *f);
    if (!f) return KOLO_ENOMEM;
    f->map = backward ? kolo_cpu_view_out(r, 0) : kolo_cpu_view_in(r, 0);
    f->threads = kolo_cpu_threads(r->backend, kolo_view_count(&f->map) / 4);
    f->copy = f->map.block == 1 || (f->map.pixels == 1 && f->map.channels % f->map.block == 0);
    k->state = f;
    k->release = free;
    k->run = backward ? flatten_run_grad : flatten_run;
    snprintf(k->name, sizeof k->name, "own %s", f->copy ? "copy" : "transpose");
    return 0;
}

const kolo_op_row kolo_cpu_flatten = {NULL, flatten_prepare};
const kolo_op_row kolo_cpu_flatten_grad = {NULL, flatten_prepare};
