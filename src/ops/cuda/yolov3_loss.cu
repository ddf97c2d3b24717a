/* YOLOv3's loss. Each true box belongs to the anchor that is most like it, in the cell that holds its centre;
 * other anchors are background unless they lie over a box. The arithmetic is ops/yolov3.h, what counts how as
 * in ops/cpu/yolov3_loss.c. First a block places the boxes of a row; then blocks take rows for the loss, or
 * warps cells for the gradients. */
#include "ops/cuda/heads.cuh"
#include "ops/yolov3.h"

extern "C" {
#include "base/memory.h"
}

enum { THREADS = 256, WARPS = THREADS / 32 };
enum { BOX, OBJECT, CLASS };

typedef struct yolov3 {
    kolo_heads heads;
    float anchor[9][2];
    int32_t mask[KOLO_MAX_HEADS][3];
    int boxes;                    /* most of a row */
    size_t counts_at, targets_at; /* in the workspace */
} yolov3;

typedef kolo_yolov3_target target;

/* A row's targets. */
typedef struct truth {
    const target *at;
    int count;            /* objects */
    const int32_t *label; /* of the row: they, then regions of crowds */
    int all;
} truth;

KOLO_INLINE truth truth_of(const yolov3 &y, const target *targets, const int32_t *counts,
                           const int32_t *labels, int n)
{
    const truth t = {targets + (int64_t)n * y.boxes, counts[2 * n], labels + (int64_t)n * y.heads.words,
                     counts[2 * n + 1]};
    return t;
}

/* Block n: row n. counts: its objects, and all boxes, none where the labels are wrong. */
static __global__ void __launch_bounds__(THREADS)
    place_kernel(int32_t *counts, target *targets, const int32_t *labels, yolov3 y, const kolo_step *step,
                 int slot)
{
    const int n = (int)blockIdx.x;
    const int32_t *label = labels + (int64_t)n * y.heads.words;
    target *own = targets + (int64_t)n * y.boxes;
    kolo_bad_label bad;
    const int all = n < kolo_heads_valid(y.heads, step, slot) ? kolo_label_boxes(y.heads, label, &bad) : 0,
              boxes = all ? kolo_label_objects(label) : 0;
    for (int g = (int)threadIdx.x; g < boxes; g += THREADS) {
        target *t = &own[g];
        t->cls = kolo_label_box(label, g, t->box);
        kolo_box_corners(t->box, t->corner);
        for (int i = 0; i < y.heads.count; i++) {
            const kolo_head &h = y.heads.head[i];
            t->place[i] = kolo_yolov3_place(t->box, y.anchor, y.mask[i], h.stride, h.height, h.width);
        }
    }
    __syncthreads();
    for (int g = (int)threadIdx.x; g < boxes; g += THREADS)
        kolo_yolov3_find_last(own, boxes, g, y.heads.count);
    if (threadIdx.x == 0) counts[2 * n] = boxes, counts[2 * n + 1] = all;
}

/* The channels of an anchor of a cell. */
template <typename T>
KOLO_INLINE const T *channels_of(const yolov3 &y, const kolo_maps &maps, int n, int head, int slot, int cell)
{
    return (const T *)maps.at[head] + kolo_head_at(y.heads.head[head], n, cell) +
           slot * (5 + y.heads.classes);
}
template <typename T> KOLO_INLINE void get_raw(const T *at, double *raw)
{
    for (int k = 0; k < 4; k++) raw[k] = (double)kolo_widen(at[k]);
}
KOLO_INLINE const float *anchor_of(const yolov3 &y, int head, int slot)
{
    return y.anchor[y.mask[head][slot]];
}

/* What targets first, first + step, ... say of an anchor: the last that belongs there or -1; the most
 * that one lies over it. */
template <typename T>
static __device__ void cuda_yolov3_loss_match(const yolov3 &y, const truth &t, const T *at, int head,
                                              int slot, int cell, int first, int step, int *owner,
                                              double *most)
{
    double raw[4], corner[4];
    const kolo_head &h = y.heads.head[head];
    get_raw(at, raw);
    kolo_yolov3_decode(raw, cell % h.width, cell / h.width, h.stride, anchor_of(y, head, slot), corner);
    *owner = -1;
    *most = 0;
    for (int g = first; g < t.count; g += step) {
        if (t.at[g].place[head] == 3 * cell + slot) *owner = g;
        *most = kolo_max(*most, kolo_box_iou(corner, t.at[g].corner));
    }
    if (kolo_box_in_crowd(corner, t.label, t.count + first, t.all, step)) *most = 1;
}
static __device__ bool has_class(const truth &t, int head, int32_t place, int cls)
{
    return kolo_yolov3_has_class(t.at, t.count, head, place, cls);
}

/* The loss of a box in a head, and (d: may be NULL) its derivative by x, y, w, h. */
template <typename T>
static __device__ double box_loss(const yolov3 &y, int head, const target &t, const T *at, double *d)
{
    const kolo_head &h = y.heads.head[head];
    const int slot = t.place[head] % 3, cell = t.place[head] / 3;
    double raw[4];
    get_raw(at, raw);
    return kolo_yolov3_box_loss(raw, cell % h.width, cell / h.width, h.stride, anchor_of(y, head, slot),
                                t.box, (double)y.heads.height * (double)y.heads.width, d);
}

/* Block n: row n. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    yolov3_kernel(kolo_head_sums *sums, const int32_t *counts, const target *targets, kolo_maps maps,
                  const int32_t *labels, yolov3 y, const kolo_step *step, int slot)
{
    const int n = (int)blockIdx.x;
    if (n >= kolo_heads_valid(y.heads, step, slot)) return;
    const truth t = truth_of(y, targets, counts, labels, n);
    double part[KOLO_HEAD_PARTS] = {};
    int foreground = 0;
    for (int i = (int)threadIdx.x; i < 3 * y.heads.cells; i += THREADS) {
        int cell = i / 3, owner;
        const int anchor = i - cell * 3, head = kolo_heads_find(y.heads, &cell);
        const T *at = channels_of<T>(y, maps, n, head, anchor, cell);
        double most;
        cuda_yolov3_loss_match(y, t, at, head, anchor, cell, 0, 1, &owner, &most);
        const int kind = kolo_yolov3_kind(owner >= 0, most);
        if (kind >= 0) part[OBJECT] += kolo_bce1((double)kolo_widen(at[4]), kind);
    }
    for (int i = (int)threadIdx.x; i < t.count * y.heads.count; i += THREADS) {
        const int head = i / t.count;
        const target &own = t.at[i - head * t.count];
        const int32_t place = own.place[head];
        if (!own.last[head]) continue;
        const T *at = channels_of<T>(y, maps, n, head, place % 3, place / 3);
        foreground++;
        part[BOX] += box_loss(y, head, own, at, NULL);
        for (int k = 0; k < y.heads.classes; k++)
            part[CLASS] += kolo_bce1((double)kolo_widen(at[5 + k]), has_class(t, head, place, k));
    }
    kolo_bad_label bad = {};
    kolo_label_boxes(y.heads, labels + (int64_t)n * y.heads.words, &bad);
    kolo_head_sums_write(&sums[n], part, foreground, t.count, &bad);
}

/* A warp takes a cell of a row. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    yolov3_grad_kernel(kolo_maps to, const int32_t *counts, const target *targets, kolo_maps maps,
                       const int32_t *labels, yolov3 y, const kolo_step *step, int slot)
{
    const int lane = (int)threadIdx.x % 32, each = 5 + y.heads.classes;
    const int64_t item = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int n = (int)(item / y.heads.cells);
    int cell = (int)(item - (int64_t)n * y.heads.cells);
    if (n >= y.heads.rows) return;
    const int head = kolo_heads_find(y.heads, &cell), stored = y.heads.head[head].stored;
    if (!to.at[head]) return;
    const bool valid = n < kolo_heads_valid(y.heads, step, slot);
    const truth t = truth_of(y, targets, counts, labels, n);
    const double scale = step->valid_global > 0 ? (double)step->scaler.scale / (double)step->valid_global : 0;
    T *out = (T *)to.at[head] + kolo_head_at(y.heads.head[head], n, cell);
    for (int c = 3 * each + lane; c < stored; c += 32) kolo_round(0.0f, out + c);
    for (int anchor = 0; anchor < 3; anchor++, out += each) {
        const T *at = channels_of<T>(y, maps, n, head, anchor, cell);
        int owner;
        double most, d[4] = {};
        cuda_yolov3_loss_match(y, t, at, head, anchor, cell, lane, 32, &owner, &most);
        for (int k = 16; k; k /= 2) {
            const int other = __shfl_xor_sync(KOLO_FULL_WARP, owner, k);
            const double more = __shfl_xor_sync(KOLO_FULL_WARP, most, k);
            owner = other > owner ? other : owner;
            most = more > most ? more : most;
        }
        const int kind = kolo_yolov3_kind(owner >= 0, most), place = 3 * cell + anchor;
        if (owner >= 0) box_loss(y, head, t.at[owner], at, d);
        for (int c = lane; c < each; c += 32) {
            double v = 0;
            if (c < 4) v = c == 0 ? d[0] : c == 1 ? d[1] : c == 2 ? d[2] : d[3];
            else if (c == 4) v = kind < 0 ? 0 : kolo_sigmoid((double)kolo_widen(at[4])) - kind;
            else if (owner >= 0)
                v = kolo_sigmoid((double)kolo_widen(at[c])) - has_class(t, head, place, c - 5);
            kolo_round(valid ? (float)(v * scale) : 0.0f, out + c);
        }
    }
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

typedef struct places {
    kolo_head_sums *sums;
    int32_t *counts;
    target *targets;
} places;

static int place_boxes(const kolo_kernel *k, const yolov3 *y, places *p, const void *labels, void *workspace,
                       const kolo_step *step, int slot)
{
    char *base = (char *)workspace;
    *p = {(kolo_head_sums *)base, (int32_t *)(base + y->counts_at), (target *)(base + y->targets_at)};
    return KOLO_LAUNCH(place_kernel, y->heads.rows, THREADS, 0, kolo_cuda_stream(k), p->counts, p->targets,
                       (const int32_t *)labels, *y, step, slot);
}

/* in: heads, labels; out: metrics */
static int cuda_yolov3_loss_run(const kolo_kernel *k, void *const *args, void *workspace,
                                const kolo_step *step, int slot)
{
    const yolov3 *y = (const yolov3 *)k->state;
    const int count = y->heads.count;
    const kolo_maps maps = kolo_maps_of(&y->heads, args);
    places p;
    KOLO_TRY(place_boxes(k, y, &p, args[count], workspace, step, slot));
    KOLO_FOR_DTYPE(y->heads.dtype, T,
                   KOLO_TRY(KOLO_LAUNCH(yolov3_kernel<T>, y->heads.rows, THREADS, 0, kolo_cuda_stream(k),
                                        p.sums, (const int32_t *)p.counts, (const target *)p.targets, maps,
                                        (const int32_t *)args[count], *y, step, slot)));
    return KOLO_LAUNCH(kolo_heads_finish_kernel, 1, KOLO_HEAD_FINISH, 0, kolo_cuda_stream(k),
                       (float *)args[count + 1], (const kolo_head_sums *)p.sums, y->heads, false, step, slot);
}

/* in: heads, labels; out: dheads */
static int cuda_yolov3_loss_run_grad(const kolo_kernel *k, void *const *args, void *workspace,
                                     const kolo_step *step, int slot)
{
    const yolov3 *y = (const yolov3 *)k->state;
    const int count = y->heads.count;
    const kolo_maps maps = kolo_maps_of(&y->heads, args), to = kolo_maps_of(&y->heads, args + count + 1);
    const int64_t blocks = ((int64_t)y->heads.rows * y->heads.cells + WARPS - 1) / WARPS;
    places p;
    KOLO_TRY(place_boxes(k, y, &p, args[count], workspace, step, slot));
    KOLO_FOR_DTYPE(y->heads.dtype, T,
                   return KOLO_LAUNCH(yolov3_grad_kernel<T>, blocks, THREADS, 0, kolo_cuda_stream(k), to,
                                      (const int32_t *)p.counts, (const target *)p.targets, maps,
                                      (const int32_t *)args[count], *y, step, slot));
}

int kolo_cuda_yolov3_loss(const kolo_kernel_request *r, kolo_kernel *k)
{
    yolov3 *y = (yolov3 *)kolo_alloc(sizeof *y);
    if (!y) return KOLO_ENOMEM;
    k->state = y;
    k->release = free;
    k->run = r->node->op == KOLO_OP_detect_loss_grad ? cuda_yolov3_loss_run_grad : cuda_yolov3_loss_run;
    KOLO_TRY(kolo_heads_fill(&y->heads, r, r->node->n_in - 1, 3));
    memcpy(y->anchor, r->node->a.anchor, sizeof y->anchor);
    memcpy(y->mask, r->node->a.mask, sizeof y->mask);
    y->boxes = (y->heads.words - 1) / 5;
    y->counts_at = kolo_round_up((size_t)y->heads.rows * sizeof(kolo_head_sums), 256);
    y->targets_at = y->counts_at + kolo_round_up((size_t)y->heads.rows * 2 * sizeof(int32_t), 256);
    k->workspace = y->targets_at + (size_t)y->heads.rows * (size_t)y->boxes * sizeof(target);
    snprintf(k->name, sizeof k->name, "own %s", kolo_dtype_name(y->heads.dtype));
    return 0;
}
