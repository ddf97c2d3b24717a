/* Work on the columns of a tensor seen as lines of stored channels, a line being one pixel of one row (NHWC):
 * sums over all lines (norms, biases) and arithmetic with one value for each channel.
 *
 * The tensor is cut into rectangles, one for each block: `lines` lines of a tile of channels. Its threads
 * stand `across` side by side, each with a vector of channels that it keeps, and `down` lines below each
 * other; all of them walk down, KOLO_COLUMN_BATCH lines at a time, whose loads are under way together. A line
 * of a tile is 128 bytes, whole sectors and whole lines of the cache; where a tensor is narrower,
 * neighbouring lines adjoin. The cut follows from the shape alone, so sums have one order on every GPU.
 *
 * Sums: a thread adds at most KOLO_COLUMN_RUN lines in f32, then everything is f64: its block's threads in
 * shared memory, and the blocks' partial sums, in one order, by the last blocks of the same kernel
 * (kolo_columns_total) or by a second, small kernel (kolo_columns_finish). So the error is that of 128
 * additions in f32 whatever the size. Blocks of sums begin at the tensor's end and blocks that write at its
 * beginning: what the one leaves in the second-level cache the other finds there, and a sum finds the end of
 * what was written before it. */
#ifndef KOLO_OPS_CUDA_COLUMNS_CUH
#define KOLO_OPS_CUDA_COLUMNS_CUH

#include "ops/cuda/ticket.cuh"
#include "ops/cuda/vector.cuh"

enum {
    KOLO_COLUMN_THREADS = 256,
    KOLO_COLUMN_BATCH = 4, /* lines whose loads a thread starts together */
    KOLO_COLUMN_RUN = 128, /* most lines of a thread */
    /* wanted: a few waves on any GPU (132 multiprocessors hold 4 each), so that the last one costs little */
    KOLO_COLUMN_BLOCKS = 2048,
};

typedef struct kolo_columns {
    int channels, stored;
    /* channels of a vector: 16 bytes of them, or 1 where `stored` is no multiple of that ((N, F) only) */
    int width;
    int across, down, tiles;
    int lines;  /* of a block: a multiple of down * KOLO_COLUMN_BATCH */
    int chunks; /* blocks of a tile */
    int all;    /* lines */
    int pixels; /* lines of a row */
} kolo_columns;

static inline int64_t kolo_columns_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Fails for 2^31 lines or more. */
static inline int kolo_columns_cut(kolo_columns *c, int64_t rows, int64_t pixels, int64_t stored,
                                   int64_t channels, enum kolo_dtype dtype)
{
    int64_t full = dtype == KOLO_F32 ? 4 : 8, width = stored % full ? 1 : full, vectors = stored / width,
            all = rows * pixels;
    if (all > INT32_MAX - (1 << 20))
        return kolo_fail(KOLO_ECONFIG,
                         "a tensor of %ld rows of %ld pixels is too large for this GPU's kernels; use a "
                         "smaller micro_batch",
                         (long)rows, (long)pixels);
    int64_t tiles = kolo_columns_ceil(vectors, width == 1 ? 32 : 8),
            across = kolo_columns_ceil(vectors, tiles);
    int64_t down = KOLO_COLUMN_THREADS / across, unit = down * KOLO_COLUMN_BATCH;
    int64_t units = kolo_columns_ceil(kolo_columns_ceil(all * tiles, KOLO_COLUMN_BLOCKS), unit);
    /* two batches a thread at least, but rather more blocks where there are few */
    if (units < 2) units = tiles * kolo_columns_ceil(all, 2 * unit) < KOLO_COLUMN_BLOCKS / 4 ? 1 : 2;
    if (units > KOLO_COLUMN_RUN / KOLO_COLUMN_BATCH) units = KOLO_COLUMN_RUN / KOLO_COLUMN_BATCH;
    *c = {(int)channels, (int)stored, (int)width,          (int)across,
          (int)down,     (int)tiles,  (int)(units * unit), (int)kolo_columns_ceil(all, units * unit),
          (int)all,      (int)pixels};
    return 0;
}

static inline int kolo_columns_blocks(const kolo_columns *c) { return c->tiles * c->chunks; }
/* Partial sums: (chunks, kinds, stored) f64. */
static inline size_t kolo_columns_workspace(const kolo_columns *c, int kinds)
{
    return sizeof(double) * (size_t)c->chunks * (size_t)kinds * (size_t)c->stored;
}

/* Calls `body` with T = the storage type and W = the channels of a vector, both constants. */
#define KOLO_FOR_COLUMNS(dtype, columns, T, W, ...) \
    KOLO_FOR_DTYPE(                                 \
        dtype, T,                                   \
        if ((columns)->width == 1) {                \
            enum { W = 1 };                         \
            __VA_ARGS__;                            \
        } else {                                    \
            enum { W = 16 / sizeof(T) };            \
            __VA_ARGS__;                            \
        })

/* ---- in a kernel --------------------------------------------------------------------------------------- */

/* A vector as it was loaded; widened where it is used, so that many may be under way in few registers. */
template <typename T, int W> struct kolo_loaded {
    kolo_words words;
};
template <typename T> struct kolo_loaded<T, 1> {
    T one;
};

template <typename T, int W> KOLO_INLINE void kolo_columns_load(kolo_loaded<T, W> *to, const T *from)
{
    if constexpr (W == 1) to->one = *from;
    else to->words = kolo_read16(from);
}
template <typename T, int W>
KOLO_INLINE void kolo_columns_widen(float (&to)[W], const kolo_loaded<T, W> &from)
{
    if constexpr (W == 1) to[0] = kolo_widen(from.one);
    else kolo_widen16((const T *)NULL, from.words, to);
}
/* Starts the loads of lines l, l + down, ... below `end`, which `at` points at. */
template <typename T, int W, int BATCH>
KOLO_INLINE void kolo_columns_load_batch(kolo_loaded<T, W> (&to)[BATCH], const T *at, const kolo_columns &c,
                                         int l, int end)
{
    const int64_t line = (int64_t)c.down * c.stored;
#pragma unroll
    for (int u = 0; u < BATCH; u++)
        if (l + u * c.down < end) kolo_columns_load(&to[u], at + u * line);
}
template <typename T, int W> KOLO_INLINE void kolo_columns_store(T *to, const float (&from)[W])
{
    if constexpr (W == 1) kolo_round(from[0], to);
    else kolo_store16(to, from);
}

/* Where a thread stands. */
typedef struct kolo_place {
    int chunk, tile, x, channel; /* channel: its first; at or beyond columns.stored: this thread has none */
    int first, end;              /* its lines: first, first + down, ... below end (end of the block's) */
    int64_t at;                  /* element of its first line */
} kolo_place;

/* backwards: the first block has the last lines */
template <int W>
KOLO_INLINE kolo_place kolo_place_of(const kolo_columns &c, unsigned block, unsigned thread, bool backwards)
{
    kolo_place p;
    int chunk = (int)(block / (unsigned)c.tiles), y = (int)(thread / (unsigned)c.across);
    p.tile = (int)block - chunk * c.tiles;
    p.chunk = backwards ? c.chunks - 1 - chunk : chunk;
    p.x = (int)thread - y * c.across;
    p.channel = y < c.down ? (p.tile * c.across + p.x) * W : c.stored;
    p.first = p.chunk * c.lines + y;
    p.end = p.chunk * c.lines + c.lines;
    p.end = p.channel >= c.stored ? p.first : p.end < c.all ? p.end : c.all;
    p.at = (int64_t)p.first * c.stored + p.channel;
    return p;
}

/* The valid lines come first. Nothing is loaded depending on them, so that no load waits for theirs. */
KOLO_INLINE int kolo_columns_valid(const kolo_columns &c, int32_t rows)
{
    int64_t valid = (int64_t)rows * c.pixels;
    return valid < c.all ? (int)valid : c.all;
}

/* Valid ones among a thread's lines. */
KOLO_INLINE int kolo_columns_count(const kolo_columns &c, const kolo_place &p, int valid)
{
    int end = p.end < valid ? p.end : valid;
    return p.first < end ? (end - p.first + c.down - 1) / c.down : 0;
}

/* Values of the tile's channels, [across * W], that the block's first threads have put into shared memory. */
template <int W> KOLO_INLINE void kolo_columns_take(float (&to)[W], const float *shared, const kolo_place &p)
{
    for (int k = 0; k < W; k++) to[k] = shared[p.x * W + k];
}

enum { KOLO_COLUMN_TILE = 64 }; /* most channels of a tile */

/* Classes of partial sums: chunk i is of class i % DOWN. */
enum {
    KOLO_FINISH_ACROSS = 4, /* 32 bytes, a sector */
    KOLO_FINISH_DOWN = KOLO_COLUMN_THREADS / KOLO_FINISH_ACROSS
};

/* Shared memory of a block's sums: a value a row of the block's threads, the rows' distance keeping a warp's
 * reads apart in the banks; or half of the classes. */
template <int W, int KINDS> struct kolo_column_room {
    enum {
        ACROSS = W == 1 ? 32 : 8,
        THREADS = KINDS * W * (KOLO_COLUMN_THREADS + ACROSS),
        CLASSES = KINDS * W * ACROSS * KOLO_FINISH_DOWN / 2
    };
    double lane[THREADS > CLASSES ? THREADS : CLASSES];
    double part[KOLO_COLUMN_THREADS];
};

/* Adds the threads' sums of every channel, line below line, and writes this block's partial sums. All
 * threads call it once. */
template <int W, int KINDS>
static __device__ void kolo_columns_combine(const double (&sum)[KINDS][W], const kolo_columns &c,
                                            const kolo_place &p, double *partial,
                                            kolo_column_room<W, KINDS> &room)
{
    double(&lane)[sizeof room.lane / sizeof(double)] = room.lane;
    double(&part)[KOLO_COLUMN_THREADS] = room.part;
    const int row = KOLO_COLUMN_THREADS + c.across, thread = (int)threadIdx.x;
    for (int kind = 0; kind < KINDS; kind++)
        for (int k = 0; k < W; k++) lane[(kind * W + k) * row + thread] = sum[kind][k];
    __syncthreads();
    /* all threads add: `parts` of them every part-th line of one channel's value, then the
     * first of these the parts */
    const int columns = KINDS * W * c.across, parts = KOLO_COLUMN_THREADS / columns, mine = thread / columns,
              column = thread - mine * columns;
    const int value = column / c.across, x = column - value * c.across, kind = value / W,
              channel = (p.tile * c.across + x) * W + value % W;
    double s = 0;
    for (int y = mine; mine < parts && y < c.down; y += parts) s += lane[value * row + y * c.across + x];
    part[thread] = s;
    __syncthreads();
    if (mine > 0 || channel >= c.stored) return;
    for (int i = 1; i < parts; i++) s += part[i * columns + column];
    partial[((int64_t)p.chunk * KINDS + kind) * c.stored + channel] = s;
}

/* A column of the partial sums, and its sum over all chunks. */
typedef struct kolo_finish {
    bool mine; /* this thread is the one to write it; false for padding */
    int kind, channel;
    double sum;
} kolo_finish;

/* ---- a sum by one kernel ---- */

/* Where a tile has more chunks than classes, a class' last block adds that up, so that no block reads more
 * than a few dozen lines of partial sums and most of it is done while others still work; the tile's last
 * block adds the classes. */
static inline int64_t kolo_columns_tickets(const kolo_columns *c)
{
    return c->tiles * (int64_t)(c->chunks > KOLO_FINISH_DOWN ? 1 + KOLO_FINISH_DOWN : 1);
}

/* A thread's column of partial sums. */
typedef struct kolo_column {
    double *top; /* of chunk 0; NULL: padding of the tile */
    int64_t line;
} kolo_column;

enum { KOLO_FINISH_BATCH = 8 }; /* partial sums whose loads are under way together */

/* Chunks first, first + step, ...; 0 from `end`. Past the first-level cache: other blocks wrote them. */
static __device__ __forceinline__ void kolo_column_read(double (&to)[KOLO_FINISH_BATCH], const kolo_column &c,
                                                        int first, int step, int end)
{
    const double *at = c.top + first * c.line;
#pragma unroll
    for (int u = 0; u < KOLO_FINISH_BATCH; u++, at += step * c.line)
        to[u] = c.top && first + u * step < end ? __ldcg(at) : 0;
}

/* The sum of a class takes the place of its first chunk. */
static __device__ void kolo_column_add_class(const kolo_column &c, int which, int chunks)
{
    double s = 0, v[KOLO_FINISH_BATCH];
#pragma unroll 1
    for (int i = which; i < chunks; i += KOLO_FINISH_BATCH * KOLO_FINISH_DOWN) {
        kolo_column_read(v, c, i, KOLO_FINISH_DOWN, chunks);
        for (int u = 0; u < KOLO_FINISH_BATCH; u++) s += v[u];
    }
    if (c.top) c.top[which * c.line] = s;
}

/* The sum of all classes of column x of `columns`; thread (x, y) begins with classes y, y + parts, ... lane:
 * shared; for all threads of a block, whose result is for y = 0. */
static __device__ double kolo_column_add(const kolo_column &c, int x, int columns, int y, int parts,
                                         int classes, double *lane)
{
    enum { HALF = KOLO_FINISH_DOWN / 2 };
    double v[2][KOLO_FINISH_BATCH];
#pragma unroll 1
    for (int i = y; y < parts && i < HALF; i += KOLO_FINISH_BATCH * parts) {
        kolo_column_read(v[0], c, i, parts, classes < HALF ? classes : HALF);
        kolo_column_read(v[1], c, i + HALF, parts, classes);
        for (int u = 0; u < KOLO_FINISH_BATCH; u++)
            if (i + u * parts < HALF) lane[(i + u * parts) * columns + x] = v[0][u] + v[1][u];
    }
#pragma unroll 1
    for (int left = HALF / 2; left > 0; left /= 2) {
        __syncthreads();
        for (int i = y; y < parts && i < left; i += parts)
            lane[i * columns + x] += lane[(i + left) * columns + x];
    }
    return lane[x];
}

/* kolo_columns_combine; and in the last block of a tile the sum over all chunks of the column that each of
 * its first threads has (`mine`): kolo_columns_finish's order and bits. ticket: kolo_columns_tickets of
 * them. All threads of all blocks call it once. */
template <int W, int KINDS>
static __device__ kolo_finish kolo_columns_total(const double (&sum)[KINDS][W], const kolo_columns &c,
                                                 const kolo_place &p, double *partial, uint32_t *ticket)
{
    __shared__ kolo_column_room<W, KINDS> room;
    const int wide = c.across * W, columns = KINDS * wide, parts = KOLO_COLUMN_THREADS / columns;
    const int y = (int)threadIdx.x / columns, x = (int)threadIdx.x - y * columns;
    const int own = p.chunk % KOLO_FINISH_DOWN;
    kolo_finish f = {false, x / wide, p.tile * wide + x % wide, 0};
    const kolo_column column = {f.channel < c.stored ? partial + f.kind * c.stored + f.channel : NULL,
                                (int64_t)KINDS * c.stored};
    kolo_columns_combine(sum, c, p, partial, room);
    if (c.chunks > KOLO_FINISH_DOWN) {
        uint32_t *of_class = ticket + c.tiles + p.tile * KOLO_FINISH_DOWN + own;
        if (!kolo_last_block(of_class, (c.chunks - own - 1) / KOLO_FINISH_DOWN + 1)) return f;
        if (y == 0) kolo_column_add_class(column, own, c.chunks);
    }
    const int classes = c.chunks < KOLO_FINISH_DOWN ? c.chunks : KOLO_FINISH_DOWN;
    if (!kolo_last_block(ticket + p.tile, classes)) return f;
    f.sum = kolo_column_add(column, x, columns, y, parts, classes, room.lane);
    f.mine = y == 0 && f.channel < c.channels;
    return f;
}

/* ---- the second kernel of a sum ---- */

static inline int kolo_columns_finish_blocks(const kolo_columns *c, int kinds)
{
    return (int)kolo_columns_ceil((int64_t)kinds * c->stored, KOLO_FINISH_ACROSS);
}

/* Thread (x, y) of a block adds chunks y, y + DOWN, ... of the block's column x; a tree adds these. All
 * threads call it once. */
static __device__ kolo_finish kolo_columns_finish(const double *partial, const kolo_columns &c, int kinds)
{
    __shared__ double lane[KOLO_COLUMN_THREADS];
    const int x = (int)threadIdx.x % KOLO_FINISH_ACROSS, y = (int)threadIdx.x / KOLO_FINISH_ACROSS;
    const int columns = kinds * c.stored, column = (int)blockIdx.x * KOLO_FINISH_ACROSS + x;
    kolo_finish f = {false, column / c.stored, column % c.stored, 0};
    double s = 0;
#pragma unroll 8
    for (int i = y; i < c.chunks; i += KOLO_FINISH_DOWN)
        if (column < columns) s += partial[(int64_t)i * columns + column];
    lane[threadIdx.x] = s;
    for (unsigned left = KOLO_COLUMN_THREADS / 2; left >= KOLO_FINISH_ACROSS; left /= 2) {
        __syncthreads();
        if (threadIdx.x < left) lane[threadIdx.x] = s += lane[threadIdx.x + left];
    }
    f.sum = s;
    f.mine = y == 0 && column < columns && f.channel < c.channels;
    return f;
}

#endif
