/* YOLOX's loss: which anchors are to find which box (SimOTA), and what they and all others are off. The
 * arithmetic is ops/yolox.h, what is divided by what as in ops/cpu/yolox_loss.c. A block takes a row. Its
 * candidates are listed in the order of cells, and a warp takes a box: its lanes' best are merged by (value,
 * number), so that the same candidates are taken as one after another. */
#include "ops/cuda/heads.cuh"
#include "ops/yolox.h"

extern "C" {
#include "base/memory.h"
}

enum { THREADS = 256, WARPS = THREADS / 32, MOST = KOLO_SIMOTA_MOST };
enum { BOX, OBJECT, CLASS, L1 };

typedef struct yolox {
    kolo_heads heads;
    bool centre, l1;
    enum kolo_overlap overlap;
    size_t sums; /* bytes of the workspace before the candidates */
} yolox;

/* A cell that may get an object. */
typedef struct candidate {
    double corner[4], object, others; /* p(object); cross entropies as if it had no object */
    int32_t cell, owner, claims, unused;
} candidate;

/* A cell of a row: its head, its channels. */
template <typename T> struct cell_of {
    const T *at;
    int head, column, line, stride;
};
template <typename T> KOLO_INLINE cell_of<T> find(const kolo_heads &h, const kolo_maps &maps, int n, int cell)
{
    const int i = kolo_heads_find(h, &cell), line = cell / h.head[i].width;
    cell_of<T> c = {(const T *)maps.at[i] + kolo_head_at(h.head[i], n, cell), i,
                    cell - line * h.head[i].width, line, h.head[i].stride};
    return c;
}
template <typename T> KOLO_INLINE double get(const cell_of<T> &c, int channel)
{
    return (double)kolo_widen(c.at[channel]);
}
template <typename T> KOLO_INLINE void get_raw(const cell_of<T> &c, double *raw)
{
    for (int k = 0; k < 4; k++) raw[k] = get(c, k);
}

template <typename T>
KOLO_INLINE void place(const yolox &y, const cell_of<T> &c, const double *box, bool *candidate, bool *inside)
{
    const double s = (double)c.stride;
    kolo_simota_place(y.centre, box, ((double)c.column + 0.5) * s, ((double)c.line + 0.5) * s, c.stride,
                      candidate, inside);
}

template <typename T>
static __device__ bool may_have_object(const yolox &y, const cell_of<T> &c, const int32_t *label, int boxes)
{
    for (int g = 0; g < boxes; g++) {
        double box[4];
        bool yes, inside;
        kolo_label_box(label, g, box);
        place(y, c, box, &yes, &inside);
        if (yes) return true;
    }
    return false;
}

/* Numbers of the cells that may have an object, in their order; how many. By all threads. */
template <typename T>
static __device__ int list_candidates(candidate *list, const yolox &y, const kolo_maps &maps,
                                      const int32_t *label, int boxes, int n)
{
    __shared__ int found[WARPS];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int all = 0;
    for (int first = 0; first < y.heads.cells; first += THREADS) {
        const int a = first + (int)threadIdx.x;
        const bool yes = a < y.heads.cells && may_have_object(y, find<T>(y.heads, maps, n, a), label, boxes);
        const unsigned bits = __ballot_sync(KOLO_FULL_WARP, yes);
        __syncthreads(); /* the counts before have been read */
        if (lane == 0) found[warp] = __popc(bits);
        __syncthreads();
        int at = all + __popc(bits & ((1u << lane) - 1));
        for (int w = 0; w < WARPS; w++) {
            if (w < warp) at += found[w];
            all += found[w];
        }
        if (yes) list[at].cell = a;
    }
    return all;
}

template <typename T> static __device__ void fill(candidate *c, const yolox &y, const kolo_maps &maps, int n)
{
    const cell_of<T> at = find<T>(y.heads, maps, n, c->cell);
    double raw[4], others = 0;
    get_raw(at, raw);
    kolo_yolox_decode(raw, at.column, at.line, at.stride, c->corner);
    c->object = kolo_sigmoid(get(at, 4));
    for (int k = 0; k < y.heads.classes; k++)
        others -= kolo_log_bounded(1 - sqrt(kolo_sigmoid(get(at, 5 + k)) * c->object));
    c->others = others;
    c->owner = -1;
    c->claims = 0;
}

static __device__ double overlap(const candidate *c, const double *box)
{
    double goal[4];
    kolo_box_corners(box, goal);
    return kolo_box_iou(c->corner, goal);
}

template <typename T>
static __device__ double cost(const yolox &y, const kolo_maps &maps, int n, const candidate *c, int cls,
                              const double *box)
{
    const cell_of<T> at = find<T>(y.heads, maps, n, c->cell);
    bool yes, inside;
    place(y, at, box, &yes, &inside);
    const double p = sqrt(kolo_sigmoid(get(at, 5 + cls)) * c->object);
    return kolo_simota_cost(y.centre, c->others, p, overlap(c, box), inside);
}

/* The smallest values that a lane, and then a warp, has seen, with whose they are. */
typedef struct best {
    double value[MOST];
    int which[MOST], count;
} best;
KOLO_INLINE void best_add(best *b, int most, double v, int w)
{
    int i = b->count < most ? b->count : most - 1;
    if (b->count == most && !(v < b->value[i])) return;
    for (; i > 0 && v < b->value[i - 1]; i--) b->value[i] = b->value[i - 1], b->which[i] = b->which[i - 1];
    b->value[i] = v;
    b->which[i] = w;
    if (b->count < most) b->count++;
}
/* All lanes get the warp's. */
static __device__ best best_merge(const best &own, int most)
{
    best all;
    int next = 0;
    all.count = 0;
    for (int k = 0; k < most; k++) {
        double v = next < own.count ? own.value[next] : HUGE_VAL;
        int w = next < own.count ? own.which[next] : INT32_MAX;
        const int mine = w;
        for (int d = 16; d; d /= 2) {
            const double other = __shfl_xor_sync(KOLO_FULL_WARP, v, d);
            const int whose = __shfl_xor_sync(KOLO_FULL_WARP, w, d);
            if (other < v || (other == v && whose < w)) v = other, w = whose;
        }
        if (w == mine && mine != INT32_MAX) next++;
        if (w == INT32_MAX) continue;
        all.value[all.count] = v;
        all.which[all.count++] = w;
    }
    return all;
}

/* A truth gets so many candidates as its ten largest overlaps add up to: those that cost least. By a warp. */
template <typename T>
static __device__ void cuda_yolox_loss_claim(candidate *list, int candidates, const yolox &y,
                                             const kolo_maps &maps, const int32_t *label, int n, int g)
{
    const int lane = (int)threadIdx.x % 32;
    double box[4], sum = 0;
    const int cls = kolo_label_box(label, g, box);
    best b;
    b.count = 0;
    for (int i = lane; i < candidates; i += 32) best_add(&b, MOST, -overlap(&list[i], box), i);
    b = best_merge(b, MOST);
    for (int i = 0; i < b.count; i++) sum -= b.value[i];
    const int wanted = sum >= 2 ? (sum < MOST ? (int)sum : (int)MOST) : 1;
    b.count = 0;
    for (int i = lane; i < candidates; i += 32)
        best_add(&b, wanted, cost<T>(y, maps, n, &list[i], cls, box), i);
    b = best_merge(b, wanted);
    if (lane < b.count) { /* of several truths the last; more than one claim is settled below */
        atomicMax(&list[b.which[lane]].owner, g);
        atomicAdd(&list[b.which[lane]].claims, 1);
    }
}

/* Several want it: whom it costs least, of all. */
template <typename T>
static __device__ int cuda_yolox_loss_settle(const candidate *c, const yolox &y, const kolo_maps &maps,
                                             const int32_t *label, int boxes, int n)
{
    double least = HUGE_VAL;
    int owner = c->owner;
    for (int g = 0; g < boxes; g++) {
        double box[4];
        const int cls = kolo_label_box(label, g, box);
        const double is = cost<T>(y, maps, n, c, cls, box);
        if (!(is < least)) continue;
        least = is;
        owner = g;
    }
    return owner;
}

template <typename T>
static __device__ void add_cell(double (&part)[KOLO_HEAD_PARTS], const yolox &y, const cell_of<T> &c,
                                const int32_t *label, int owner, double share, bool l1)
{
    double raw[4], box[4], goal[4];
    const int cls = kolo_label_box(label, owner, box);
    get_raw(c, raw);
    part[BOX] += kolo_yolox_box_loss(y.overlap, raw, c.column, c.line, c.stride, box, NULL);
    for (int k = 0; k < y.heads.classes; k++) part[CLASS] += kolo_bce1(get(c, 5 + k), k == cls ? share : 0);
    if (!l1) return;
    kolo_yolox_encode(box, c.column, c.line, c.stride, goal);
    for (int k = 0; k < 4; k++) part[L1] += fabs(raw[k] - goal[k]);
}

template <typename T>
static __device__ bool in_crowd(const cell_of<T> &c, const int32_t *label, int objects, int all)
{
    double raw[4], corner[4];
    if (objects == all) return false;
    get_raw(c, raw);
    kolo_yolox_decode(raw, c.column, c.line, c.stride, corner);
    return kolo_box_in_crowd(corner, label, objects, all, 1);
}

/* Block n: row n. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    yolox_kernel(kolo_head_sums *sums, candidate *lists, int32_t *matches, float *shares, kolo_maps maps,
                 const int32_t *labels, yolox y, const kolo_step *step, int slot)
{
    const int n = (int)blockIdx.x, cells = y.heads.cells;
    const int32_t *label = labels + (int64_t)n * y.heads.words;
    int32_t *match = matches + (int64_t)n * cells;
    kolo_bad_label bad = {};
    float *share = shares + (int64_t)n * cells;
    candidate *list = lists + (int64_t)n * cells;
    for (int a = (int)threadIdx.x; a < cells; a += THREADS) match[a] = -1, share[a] = 0;
    if (n >= kolo_heads_valid(y.heads, step, slot)) return;
    const int all = kolo_label_boxes(y.heads, label, &bad), boxes = all ? kolo_label_objects(label) : 0;
    const int candidates = list_candidates<T>(list, y, maps, label, boxes, n);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < candidates; i += THREADS) fill<T>(&list[i], y, maps, n);
    __syncthreads();
    for (int g = (int)threadIdx.x / 32; g < boxes; g += WARPS)
        cuda_yolox_loss_claim<T>(list, candidates, y, maps, label, n, g);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < candidates; i += THREADS) {
        const candidate *c = &list[i];
        const int owner = c->claims > 1 ? cuda_yolox_loss_settle<T>(c, y, maps, label, boxes, n) : c->owner;
        if (owner < 0) continue;
        double box[4];
        kolo_label_box(label, owner, box);
        match[c->cell] = owner;
        share[c->cell] = (float)overlap(c, box);
    }
    __syncthreads();
    const bool l1 = y.l1 || step->l1;
    double part[KOLO_HEAD_PARTS] = {};
    int foreground = 0;
    for (int a = (int)threadIdx.x; a < cells; a += THREADS) {
        const cell_of<T> c = find<T>(y.heads, maps, n, a);
        if (match[a] < 0 && in_crowd(c, label, boxes, all)) { /* neither object nor background */
            match[a] = -2;
            continue;
        }
        part[OBJECT] += kolo_bce1(get(c, 4), match[a] >= 0);
        if (match[a] < 0) continue;
        foreground++;
        add_cell(part, y, c, label, match[a], (double)share[a], l1);
    }
    kolo_head_sums_write(&sums[n], part, foreground, boxes, &bad);
}

/* ---- backward ------------------------------------------------------------------------------------------ */

/* Block n: anchors of row n that have a box. */
static __global__ void __launch_bounds__(THREADS)
    count_kernel(int32_t *count, const int32_t *match, int cells)
{
    int found = 0;
    for (int a = (int)threadIdx.x; a < cells; a += THREADS)
        found += match[(int64_t)blockIdx.x * cells + a] >= 0;
    found = kolo_row_sum(found);
    if (threadIdx.x == 0) count[blockIdx.x] = found;
}

/* The gradient of channel `channel` of a cell that has a box, unscaled. */
template <typename T>
static __device__ double slope(const yolox &y, const cell_of<T> &c, int channel, const int32_t *label,
                               int owner, double share, bool l1)
{
    double raw[4], box[4], goal[4], d[4];
    const int cls = kolo_label_box(label, owner, box);
    if (channel > 4) return kolo_sigmoid(get(c, channel)) - (channel - 5 == cls ? share : 0);
    get_raw(c, raw);
    kolo_yolox_box_loss(y.overlap, raw, c.column, c.line, c.stride, box, d);
    kolo_yolox_encode(box, c.column, c.line, c.stride, goal);
    for (int k = 0; k < 4; k++)
        if (k == channel) return d[k] + (l1 ? (raw[k] > goal[k]) - (raw[k] < goal[k]) : 0);
    return 0;
}

/* A warp takes a cell of a row. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    yolox_grad_kernel(kolo_maps to, kolo_maps maps, const int32_t *labels, const int32_t *matches,
                      const float *shares, const int32_t *counts, yolox y, const kolo_step *step, int slot)
{
    const int lane = (int)threadIdx.x % 32, rows = kolo_heads_valid(y.heads, step, slot);
    int foreground = 0;
    for (int i = lane; i < rows; i += 32) foreground += counts[i];
    for (int d = 16; d; d /= 2) foreground += __shfl_xor_sync(KOLO_FULL_WARP, foreground, d);
    const int64_t at = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int n = (int)(at / y.heads.cells), a = (int)(at - (int64_t)n * y.heads.cells);
    if (n >= y.heads.rows) return;
    const cell_of<T> c = find<T>(y.heads, maps, n, a);
    if (!to.at[c.head]) return;
    T *out = (T *)to.at[c.head] + (c.at - (const T *)maps.at[c.head]);
    const int32_t *label = labels + (int64_t)n * y.heads.words, owner = n < rows ? matches[at] : -1;
    double scale = step->valid_global > 0 ? (double)rows / (double)step->valid_global : 0;
    scale *= (double)step->scaler.scale / (double)(foreground > 1 ? foreground : 1);
    for (int channel = lane; channel < y.heads.head[c.head].stored; channel += 32) {
        double d = 0;
        if (n < rows && channel == 4 && owner >= -1) d = kolo_sigmoid(get(c, 4)) - (owner >= 0);
        else if (owner >= 0 && channel < 5 + y.heads.classes)
            d = slope(y, c, channel, label, owner, (double)shares[at], y.l1 || step->l1);
        kolo_round((float)(d * scale), out + channel);
    }
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

/* in: heads, labels; out: metrics, match, overlap */
static int cuda_yolox_loss_run(const kolo_kernel *k, void *const *args, void *workspace,
                               const kolo_step *step, int slot)
{
    const yolox *y = (const yolox *)k->state;
    void *const *rest = args + y->heads.count;
    kolo_head_sums *sums = (kolo_head_sums *)workspace;
    candidate *lists = (candidate *)((char *)workspace + y->sums);
    const kolo_maps maps = kolo_maps_of(&y->heads, args);
    KOLO_FOR_DTYPE(y->heads.dtype, T,
                   KOLO_TRY(KOLO_LAUNCH(yolox_kernel<T>, y->heads.rows, THREADS, 0, kolo_cuda_stream(k), sums,
                                        lists, (int32_t *)rest[2], (float *)rest[3], maps,
                                        (const int32_t *)rest[0], *y, step, slot)));
    return KOLO_LAUNCH(kolo_heads_finish_kernel, 1, KOLO_HEAD_FINISH, 0, kolo_cuda_stream(k),
                       (float *)rest[1], (const kolo_head_sums *)sums, y->heads, true, step, slot);
}

/* in: heads, labels, match, overlap; out: dheads */
static int cuda_yolox_loss_run_grad(const kolo_kernel *k, void *const *args, void *workspace,
                                    const kolo_step *step, int slot)
{
    const yolox *y = (const yolox *)k->state;
    void *const *rest = args + y->heads.count;
    const kolo_maps maps = kolo_maps_of(&y->heads, args), to = kolo_maps_of(&y->heads, rest + 3);
    const int64_t blocks = ((int64_t)y->heads.rows * y->heads.cells + WARPS - 1) / WARPS;
    int32_t *counts = (int32_t *)workspace;
    KOLO_TRY(KOLO_LAUNCH(count_kernel, y->heads.rows, THREADS, 0, kolo_cuda_stream(k), counts,
                         (const int32_t *)rest[1], y->heads.cells));
    KOLO_FOR_DTYPE(y->heads.dtype, T,
                   return KOLO_LAUNCH(yolox_grad_kernel<T>, blocks, THREADS, 0, kolo_cuda_stream(k), to, maps,
                                      (const int32_t *)rest[0], (const int32_t *)rest[1],
                                      (const float *)rest[2], (const int32_t *)counts, *y, step, slot));
}

int kolo_cuda_yolox_loss(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool backward = r->node->op == KOLO_OP_detect_loss_grad;
    yolox *y = (yolox *)kolo_alloc(sizeof *y);
    if (!y) return KOLO_ENOMEM;
    k->state = y;
    k->release = free;
    k->run = backward ? cuda_yolox_loss_run_grad : cuda_yolox_loss_run;
    KOLO_TRY(kolo_heads_fill(&y->heads, r, r->node->n_in - (backward ? 3 : 1), 1));
    y->centre = r->node->a.centre;
    y->overlap = r->node->a.overlap;
    y->l1 = r->node->a.l1;
    y->sums = kolo_round_up((size_t)y->heads.rows * sizeof(kolo_head_sums), 256);
    k->workspace = backward ? (size_t)y->heads.rows * sizeof(int32_t)
                            : y->sums + (size_t)y->heads.rows * (size_t)y->heads.cells * sizeof(candidate);
    snprintf(k->name, sizeof k->name, "own %s", kolo_dtype_name(y->heads.dtype));
    return 0;
}
