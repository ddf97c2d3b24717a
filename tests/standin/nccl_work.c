/* What communicators of the stand-in for NCCL carry. A call, or a group of them, is one piece of work: first
 * its collectives, as they were called, then its letters from rank to rank, all at a time. Every reduction is
 * formed in rank order. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin/nccl_comm.h"

enum kind { ALLREDUCE, REDUCE, REDUCE_SCATTER, BROADCAST, ALLGATHER, SEND, RECEIVE };

typedef struct part {
    enum kind kind;
    const char *from;
    char *to;
    size_t count; /* as the call has it */
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer;    /* or root */
    size_t done; /* of a collective: elements of its whole; of a letter: bytes */
    bool posted; /* the present chunk lies in the segment */
} part;

typedef struct batch {
    struct ncclComm *comm;
    cudaStream_t stream;
    part *part;
    int parts;
    bool captured;
    size_t bytes;
} batch;

static __thread uint64_t chance;
static __thread int depth;    /* of groups */
static __thread batch *group; /* what they hold */
static __thread ncclResult_t group_error;

static size_t width_of(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 4;
    }
}

/* ---- arithmetic ---- */

static float from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static uint16_t to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (f != f) return (uint16_t)(bits >> 16 | 64);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_f16(uint16_t x)
{
    const int exponent = x >> 10 & 31, digits = x & 1023;
    const float v = exponent == 31 ? (digits ? NAN : INFINITY)
                    : exponent     ? ldexpf((float)(1024 + digits), exponent - 25)
                                   : ldexpf((float)digits, -24);
    return x >> 15 ? -v : v;
}

static uint16_t to_f16(float f)
{
    const uint16_t sign = signbit(f) ? 0x8000 : 0;
    int exponent = 0;
    f = fabsf(f);
    if (f != f) return sign | 0x7e00;
    if (f >= 65520) return sign | 0x7c00;
    frexpf(f, &exponent);
    const int power = exponent - 1 < -14 ? -14 : exponent - 1;
    const long digits = lrintf(ldexpf(f, 10 - power)); /* ties to even */
    if (digits < 1024) return sign | (uint16_t)digits;
    return sign | (uint16_t)(((power + 15) << 10) + (digits - 1024));
}

#define AS_IT_IS(x) (x)
#define FOLD(type, wide, widen, narrow)                              \
    do {                                                             \
        type *t = to;                                                \
        const type *f = from;                                        \
        for (size_t i = 0; i < count; i++) {                         \
            const wide a = (wide)widen(t[i]), b = (wide)widen(f[i]); \
            const wide r = op == ncclSum    ? (wide)(a + b)          \
                           : op == ncclProd ? (wide)(a * b)          \
                           : op == ncclMin  ? (b < a ? b : a)        \
                                            : (b > a ? b : a);        \
            t[i] = (type)narrow(r);                                  \
        }                                                            \
    } while (0)

static void fold(ncclDataType_t type, ncclRedOp_t op, void *to, const void *from, size_t count)
{
    switch (type) {
    case ncclInt8: FOLD(int8_t, int64_t, AS_IT_IS, AS_IT_IS); break;
    case ncclUint8: FOLD(uint8_t, uint64_t, AS_IT_IS, AS_IT_IS); break;
    case ncclInt32: FOLD(int32_t, int64_t, AS_IT_IS, AS_IT_IS); break;
    case ncclUint32: FOLD(uint32_t, uint64_t, AS_IT_IS, AS_IT_IS); break;
    case ncclUint64: FOLD(uint64_t, uint64_t, AS_IT_IS, AS_IT_IS); break;
    case ncclInt64: {
        if (op == ncclSum || op == ncclProd) FOLD(uint64_t, uint64_t, AS_IT_IS, AS_IT_IS); /* wraps */
        else FOLD(int64_t, int64_t, AS_IT_IS, AS_IT_IS);
        break;
    }
    case ncclFloat16: FOLD(uint16_t, float, from_f16, to_f16); break;
    case ncclBfloat16: FOLD(uint16_t, float, from_bf16, to_bf16); break;
    case ncclFloat64: FOLD(double, double, AS_IT_IS, AS_IT_IS); break;
    default: FOLD(float, float, AS_IT_IS, AS_IT_IS);
    }
}

/* ---- collectives: every rank puts a chunk down, all read it ---- */

static size_t whole(const struct ncclComm *c, const part *p)
{
    return p->kind == REDUCE_SCATTER ? p->count * (size_t)c->size : p->count;
}

static bool put_down(struct ncclComm *c, const part *p, size_t n)
{
    const size_t width = width_of(p->type);
    nccl_slot *mine = &c->segment->slot[c->rank];
    for (int k = 0; k < c->size; k++) /* the chunk before the last was read by all */
        if (c->segment->slot[k].taken + 1 < c->turn) return false;
    if (p->kind != BROADCAST || p->peer == c->rank)
        memcpy(mine->data[c->turn & 1], p->from + p->done * width, n * width);
    mine->piece[c->turn & 1] =
        (nccl_piece){c->rounds, p->count, (uint32_t)p->type,
                     (uint32_t)p->kind << 16 | (uint32_t)p->op << 8 | (uint32_t)p->peer};
    mine->posted = c->turn + 1;
    return true;
}

static bool all_posted(struct ncclComm *c)
{
    bool all = true;
    for (int k = 0; k < c->size; k++) {
        if (c->segment->slot[k].posted > c->turn) continue;
        all = false;
        if (nccl_is_dead(c, k)) nccl_set_error(c, ncclRemoteError, "a rank died");
    }
    return all;
}

static bool same_pieces(struct ncclComm *c)
{
    const int at = c->turn & 1;
    for (int k = 0; k < c->size; k++) {
        if (!memcmp(&c->segment->slot[k].piece[at], &c->segment->slot[c->rank].piece[at], sizeof(nccl_piece)))
            continue;
        standin_defect("ranks %d and %d are at different calls of NCCL", c->rank, k);
        nccl_set_error(c, ncclInvalidUsage, "ranks are at different calls");
        return false;
    }
    return true;
}

static void take_reduced(struct ncclComm *c, const part *p, size_t n)
{
    unsigned char sum[NCCL_CHUNK];
    const size_t width = width_of(p->type), mine = (size_t)c->rank * p->count;
    const int at = c->turn & 1;
    memcpy(sum, c->segment->slot[0].data[at], n * width);
    for (int k = 1; k < c->size; k++) fold(p->type, p->op, sum, c->segment->slot[k].data[at], n);
    if (p->kind == REDUCE && p->peer != c->rank) return;
    if (p->kind != REDUCE_SCATTER) {
        memcpy(p->to + p->done * width, sum, n * width);
        return;
    }
    size_t first = p->done > mine ? p->done : mine,
           end = p->done + n < mine + p->count ? p->done + n : mine + p->count;
    if (first < end)
        memcpy(p->to + (first - mine) * width, sum + (first - p->done) * width, (end - first) * width);
}

static void take(struct ncclComm *c, const part *p, size_t n)
{
    const size_t width = width_of(p->type);
    const int at = c->turn & 1;
    if (!same_pieces(c)) return;
    if (p->kind == BROADCAST) memcpy(p->to + p->done * width, c->segment->slot[p->peer].data[at], n * width);
    else if (p->kind != ALLGATHER) take_reduced(c, p, n);
    for (int k = 0; p->kind == ALLGATHER && k < c->size; k++)
        memcpy(p->to + ((size_t)k * p->count + p->done) * width, c->segment->slot[k].data[at], n * width);
    c->segment->slot[c->rank].taken = ++c->turn;
}

static int carry_collective(struct ncclComm *c, part *p)
{
    const size_t most = NCCL_CHUNK / width_of(p->type), all = whole(c, p);
    while (p->done < all) {
        size_t n = all - p->done < most ? all - p->done : most;
        /* what stands in memory then is nobody's */
        if (c->aborted || c->error != ncclSuccess) return STANDIN_DONE;
        if (!p->posted && !put_down(c, p, n)) return STANDIN_LATER;
        p->posted = true;
        if (!all_posted(c)) return c->error != ncclSuccess ? STANDIN_DONE : STANDIN_LATER;
        take(c, p, n);
        p->done += n;
        p->posted = false;
    }
    c->rounds++;
    return STANDIN_DONE;
}

/* ---- letters ---- */

/* True: something moved. */
static bool carry_letter(struct ncclComm *c, part *p, size_t bytes)
{
    nccl_box *box = p->kind == SEND ? &c->segment->box[c->rank][p->peer] : &c->segment->box[p->peer][c->rank];
    const size_t n = bytes - p->done < NCCL_LETTER ? bytes - p->done : NCCL_LETTER;
    if (p->kind == SEND && box->posted == box->taken) {
        box->bytes = bytes;
        memcpy(box->data, p->from + p->done, n);
        box->posted++;
    } else if (p->kind == RECEIVE && box->posted > box->taken) {
        if (box->bytes != bytes) {
            standin_defect("rank %d sends %lu bytes to rank %d, which receives %lu", p->peer,
                           (unsigned long)box->bytes, c->rank, (unsigned long)bytes);
            nccl_set_error(c, ncclInvalidUsage, "a letter of another length");
            return true;
        }
        memcpy(p->to + p->done, box->data, n);
        box->taken++;
    } else {
        if (nccl_is_dead(c, p->peer)) nccl_set_error(c, ncclRemoteError, "a rank died");
        return false;
    }
    p->done += n;
    return true;
}

/* Letters of one pair go one after another. */
static bool is_next(const batch *b, const part *p)
{
    for (const part *other = b->part; other < p; other++)
        if (other->kind == p->kind && other->peer == p->peer &&
            other->done < other->count * width_of(other->type))
            return false;
    return true;
}

static int carry_letters(struct ncclComm *c, batch *b)
{
    for (bool more = true, moved = true; more;) {
        if (c->aborted || c->error != ncclSuccess) return STANDIN_DONE;
        if (!moved) return STANDIN_LATER;
        more = moved = false;
        for (part *p = b->part; p < b->part + b->parts; p++) {
            const size_t bytes = p->count * width_of(p->type);
            if (p->kind < SEND || p->done == bytes) continue;
            if (is_next(b, p) && carry_letter(c, p, bytes)) moved = true;
            more = more || p->done < bytes;
        }
    }
    return STANDIN_DONE;
}

/* ---- a piece of work ---- */

/* state[0]: the collective that is under way; state[1]: it has begun. */
static int batch_run(standin_op *op)
{
    batch *b = op->work.argument;
    struct ncclComm *c = b->comm;
    if (!op->state[1]++) {
        c->busy++;
        c->calls++;
        /* a graph does it again */
        for (int i = 0; i < b->parts; i++) b->part[i].done = 0, b->part[i].posted = false;
        if (nccl_fault("die", c->rank) == (int64_t)c->calls) kill(getpid(), SIGKILL);
        if (nccl_fault("error", c->rank) == (int64_t)c->calls)
            nccl_set_error(c, ncclSystemError, "an error that was asked for");
    }
    if (nccl_fault("hang", c->rank) == (int64_t)c->calls && !c->aborted && c->error == ncclSuccess)
        return STANDIN_LATER;
    for (; op->state[0] < b->parts; op->state[0]++) {
        part *p = &b->part[op->state[0]];
        if (p->kind < SEND && carry_collective(c, p) == STANDIN_LATER) return STANDIN_LATER;
    }
    int rc = carry_letters(c, b);
    if (rc == STANDIN_DONE) c->busy--;
    return rc;
}

static void batch_free(batch *b)
{
    if (!b) return;
    free(b->part);
    free(b);
}

static void batch_drop(void *argument)
{
    batch *b = argument;
    b->comm->captured -= b->captured;
    nccl_comm_drop(b->comm);
    batch_free(b);
}

ncclResult_t nccl_give(struct ncclComm *c)
{
    standin_work work = c->late;
    batch *b = work.argument;
    c->late.run = NULL;
    standin_hold();
    const struct CUstream_st *s = standin_stream(c->late_stream);
    b->captured = s && s->capture;
    c->captured += b->captured;
    standin_release();
    return standin_enqueue(c->late_stream, &work, &c->chain) == cudaSuccess ? ncclSuccess
                                                                            : ncclUnhandledCudaError;
}

static ncclResult_t submit(batch *b)
{
    struct ncclComm *c = b->comm;
    standin_hold();
    c->references++;
    standin_release();
    c->late = (standin_work){"NCCL", batch_run, batch_drop, b, 1e-5 + (double)b->bytes / 2e11};
    c->late_stream = b->stream;
    c->polls = (int)(standin_random(&chance) % 3);
    if (!c->blocking && standin_random(&chance) % 2) return ncclInProgress;
    return nccl_give(c);
}

/* ---- the calls ---- */

static ncclResult_t check(const char *call, const struct ncclComm *c, const part *p)
{
    const size_t bytes = p->count * width_of(p->type), all = bytes * (size_t)c->size;
    const bool reads = p->kind != RECEIVE && (p->kind != BROADCAST || p->peer == c->rank),
               writes = p->kind != SEND && (p->kind != REDUCE || p->peer == c->rank);
    if (!c->joined || c->late.run || c->finalizing || (group && group->comm != c)) {
        standin_defect("%s while the communicator is still busy with another call", call);
        return ncclInvalidUsage;
    }
    if (c->error != ncclSuccess) return (ncclResult_t)c->error;
    if ((unsigned)p->type >= ncclNumTypes || p->op > ncclMin || p->peer < 0 || p->peer >= c->size)
        return ncclInvalidArgument;
    if ((reads && standin_place_of(p->from, p->kind == REDUCE_SCATTER ? all : bytes) != STANDIN_DEVICE) ||
        (writes && standin_place_of(p->to, p->kind == ALLGATHER ? all : bytes) != STANDIN_DEVICE)) {
        standin_defect("%s of %zu numbers that do not lie in device memory as a whole", call, p->count);
        return ncclInvalidArgument;
    }
    if (p->kind == REDUCE_SCATTER && p->to < p->from + all && p->from < p->to + bytes &&
        p->to != p->from + bytes * (size_t)c->rank) {
        standin_defect("%s over its own input", call);
        return ncclInvalidArgument;
    }
    return ncclSuccess;
}

static ncclResult_t add(const char *call, ncclComm_t c, cudaStream_t stream, const part *p)
{
    if (!nccl_known(c)) return ncclInvalidArgument;
    ncclResult_t rc = check(call, c, p);
    if (rc != ncclSuccess) {
        group_error = rc;
        return rc;
    }
    standin_count_kernel(call);
    batch *b = group ? group : calloc(1, sizeof *b);
    part *more = b ? realloc(b->part, (size_t)(b->parts + 1) * sizeof *more) : NULL;
    if (!more) abort();
    b->comm = c;
    b->stream = stream;
    b->part = more;
    b->part[b->parts++] = *p;
    b->bytes += p->count * width_of(p->type);
    if (!depth) return submit(b);
    group = b;
    return c->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclGroupStart(void); /* nccl.h says nothing of arguments */
ncclResult_t ncclGroupStart(void)
{
    ENTER(STANDIN_OTHER);
    if (!depth++) group_error = ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclGroupEnd(void)
{
    ENTER(STANDIN_OTHER);
    if (!depth) return ncclInvalidUsage;
    if (--depth) return ncclSuccess;
    batch *b = group;
    group = NULL;
    if (group_error == ncclSuccess) return b ? submit(b) : ncclSuccess;
    batch_free(b);
    return group_error;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t c, cudaStream_t stream)
{
    ENTER(STANDIN_LAUNCH);
    return add(__func__, c, stream,
               &(part){.kind = ALLREDUCE, .from = from, .to = to, .count = count, .type = type, .op = op});
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t c, cudaStream_t stream)
{
    ENTER(STANDIN_LAUNCH);
    return add(
        __func__, c, stream,
        &(part){
            .kind = REDUCE, .from = from, .to = to, .count = count, .type = type, .op = op, .peer = root});
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t stream)
{
    ENTER(STANDIN_LAUNCH);
    return add(
        __func__, c, stream,
        &(part){.kind = REDUCE_SCATTER, .from = from, .to = to, .count = count, .type = type, .op = op});
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t c, cudaStream_t stream)
{
    ENTER(STANDIN_LAUNCH);
    return add(
        __func__, c, stream,
        &(part){.kind = BROADCAST, .from = from, .to = to, .count = count, .type = type, .peer = root});
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t c,
                           cudaStream_t stream)
{
    ENTER(STANDIN_LAUNCH);
    return add(__func__, c, stream,
               &(part){.kind = ALLGATHER, .from = from, .to = to, .count = count, .type = type});
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t stream)
{
    ENTER(STANDIN_LAUNCH);
    return add(__func__, c, stream,
               &(part){.kind = SEND, .from = from, .count = count, .type = type, .peer = peer});
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t stream)
{
    ENTER(STANDIN_LAUNCH);
    return add(__func__, c, stream,
               &(part){.kind = RECEIVE, .to = to, .count = count, .type = type, .peer = peer});
}
