/* The clock that chooses between candidates when a plan is made: events on the compute stream. */
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "ops/cuda/cuda.h"

/* ---- memory ---- */

/* Where there is not as much, what there was stays: other candidates still work in it. */
static int need_piece(kolo_backend *backend, enum kolo_trial_piece piece, size_t bytes, void **memory)
{
    kolo_cuda *cuda = kolo_cuda_of(backend);
    if (bytes > cuda->trial[piece].bytes) {
        void *more = NULL;
        KOLO_TRY(KOLO_CUDA(cudaMalloc(&more, bytes)));
        if (cuda->trial[piece].memory) cudaFree(cuda->trial[piece].memory); /* waits for what still uses it */
        cuda->trial[piece].memory = more;
        cuda->trial[piece].bytes = bytes;
    }
    *memory = cuda->trial[piece].memory;
    return 0;
}

/* The first mebibyte is drawn; the rest repeats it, in pieces that double. */
int kolo_cuda_trial_data(kolo_backend *backend, size_t bytes, enum kolo_dtype dtype, void **memory)
{
    const size_t drawn = (size_t)1 << 20;
    cudaStream_t stream = kolo_cuda_of(backend)->stream[KOLO_LANE_COMPUTE];
    bytes = kolo_round_up(bytes, 4096);
    KOLO_TRY(need_piece(backend, KOLO_TRIAL_DATA, bytes, memory));
    size_t done = bytes < drawn ? bytes : drawn;
    KOLO_TRY(kolo_cuda_noise(backend, *memory, dtype, (int64_t)(done / kolo_dtype_size(dtype))));
    for (size_t next; done < bytes; done += next) {
        next = done < bytes - done ? done : bytes - done;
        KOLO_TRY(KOLO_CUDA(
            cudaMemcpyAsync((char *)*memory + done, *memory, next, cudaMemcpyDeviceToDevice, stream)));
    }
    return 0;
}

int kolo_cuda_trial_scratch(kolo_backend *backend, size_t bytes, void **memory)
{
    return need_piece(backend, KOLO_TRIAL_SCRATCH, bytes, memory);
}

void kolo_cuda_trial_end(kolo_backend *backend)
{
    kolo_cuda *cuda = kolo_cuda_of(backend);
    for (int piece = 0; piece < KOLO_TRIAL_PIECES; piece++) {
        if (cuda->trial[piece].memory) cudaFree(cuda->trial[piece].memory);
        cuda->trial[piece].memory = NULL;
        cuda->trial[piece].bytes = 0;
    }
}

/* ---- the clock ---- */

/* A candidate whose quick run took longer than so many times the quickest is out: quick runs are that
 * uncertain. So many of the others are timed again, in turns, so that a GPU which grows warmer does so for
 * all of them. */
#define LOSES 1.3
enum { FINALISTS = 6, ROUNDS = 10 };

typedef struct contender {
    int64_t at;
    double seconds;
} contender;

typedef struct contest {
    const kolo_trial *trial;
    cudaStream_t stream;
    cudaEvent_t start, stop;
    contender *left; /* still open */
    int64_t count;
    double best, until; /* the quickest so far, 0: none; kolo_time() */
    int refused;        /* the last error of a candidate that did not run; 0: none */
} contest;

/* Seconds of one run, as the mean of `repeat` in a row. */
static int time_round(const contest *c, int64_t candidate, int repeat, double *seconds)
{
    float ms = 0;
    KOLO_TRY(KOLO_CUDA(cudaEventRecord(c->start, c->stream)));
    for (int i = 0; i < repeat; i++) KOLO_TRY(c->trial->run(c->trial->argument, candidate));
    KOLO_TRY(KOLO_CUDA(cudaEventRecord(c->stop, c->stream)));
    KOLO_TRY(KOLO_CUDA(cudaEventSynchronize(c->stop)));
    KOLO_TRY(KOLO_CUDA(cudaEventElapsedTime(&ms, c->start, c->stop)));
    *seconds = (double)ms * 1e-3 / repeat;
    return 0;
}

/* So many runs are long beside the resolution of the events (0.5 us) and the time between two launches. */
static int repeats(double seconds) { return seconds > 5e-5 ? 1 : seconds > 1e-5 ? 3 : 5; }

/* The first run loads the kernels; where it was far too slow even so, there is no second. */
static int time_quick(const contest *c, int64_t candidate, double *seconds)
{
    double again;
    KOLO_TRY(time_round(c, candidate, 1, seconds));
    if (c->best > 0 && *seconds > 0.1 && *seconds > 20 * c->best) return 0;
    KOLO_TRY(time_round(c, candidate, 1, &again));
    if (again < *seconds) *seconds = again;
    if (repeats(again) == 1 || (c->best > 0 && *seconds > 2 * LOSES * c->best)) return 0;
    return time_round(c, candidate, repeats(again), seconds);
}

static void drop_losers(contest *c)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < c->count; i++) {
        if (c->left[i].seconds <= LOSES * c->best) c->left[kept++] = c->left[i];
        else c->trial->close(c->trial->argument, c->left[i].at);
    }
    c->count = kept;
}

/* 0, or a negative status that has nothing to do with this candidate. */
static int run_quick(contest *c, int64_t candidate)
{
    double seconds;
    int rc = c->trial->open(c->trial->argument, candidate);
    if (rc) return rc < 0 ? rc : 0;
    rc = time_quick(c, candidate, &seconds);
    if (rc < 0) {
        c->refused = rc;
        kolo_debug("candidate %ld is passed over: %s", (long)candidate, kolo_error_text());
        c->trial->close(c->trial->argument, candidate);
        return 0;
    }
    if (c->best <= 0 || seconds < c->best) c->best = seconds;
    c->left[c->count++] = (contender){candidate, seconds};
    drop_losers(c);
    return 0;
}

static int by_seconds(const void *a, const void *b)
{
    const contender *x = a, *y = b;
    if (x->seconds != y->seconds) return x->seconds < y->seconds ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Rounds until the same one leads twice by its own best time. */
static int run_final(contest *c)
{
    int64_t leader = -1, rivals = c->count < FINALISTS ? c->count : FINALISTS;
    qsort(c->left, (size_t)c->count, sizeof *c->left, by_seconds);
    for (int round = 0; round < ROUNDS && rivals > 1 && kolo_time() < c->until; round++) {
        for (int64_t i = 0; i < rivals; i++) {
            double seconds;
            KOLO_TRY(time_round(c, c->left[i].at, 2 * repeats(c->best), &seconds));
            if (!round || seconds < c->left[i].seconds) c->left[i].seconds = seconds;
        }
        qsort(c->left, (size_t)rivals, sizeof *c->left, by_seconds);
        if (round > 1 && c->left[0].at == leader) break;
        leader = c->left[0].at;
    }
    return 0;
}

static int run_contest(contest *c, double seconds, int64_t *best)
{
    const double start = kolo_time();
    int64_t tried = 0;
    int rc = 0;
    for (; tried < c->trial->count && rc >= 0 && (!c->count || kolo_time() < start + seconds / 2); tried++)
        rc = run_quick(c, tried);
    c->until = start + seconds;
    if (rc >= 0) rc = run_final(c);
    if (rc >= 0 && c->count) *best = c->left[0].at;
    else if (rc >= 0) rc = c->refused; /* the GPU itself may have failed */
    for (int64_t i = *best >= 0; i < c->count; i++) c->trial->close(c->trial->argument, c->left[i].at);
    if (*best >= 0)
        kolo_debug("candidate %ld of %ld is the fastest: %.1f us; %ld were tried in %.2f s", (long)*best,
                   (long)c->trial->count, c->left[0].seconds * 1e6, (long)tried, kolo_time() - start);
    return rc;
}

static int choose_first(const kolo_trial *t, int64_t *best)
{
    for (int64_t i = 0; i < t->count; i++) {
        int rc = t->open(t->argument, i);
        if (rc < 0) return rc;
        if (rc) continue;
        *best = i;
        return 0;
    }
    return 0;
}

int kolo_cuda_trial_choose(kolo_backend *backend, const kolo_trial *trial, bool clock, int64_t *best)
{
    *best = -1;
    if (!clock || trial->count < 2) return choose_first(trial, best);
    const kolo_cuda *cuda = kolo_cuda_of(backend);
    contest c = {.trial = trial,
                 .stream = cuda->stream[KOLO_LANE_COMPUTE],
                 .left = kolo_alloc((size_t)trial->count * sizeof *c.left)};
    if (!c.left) return KOLO_ENOMEM;
    int rc = KOLO_CUDA(cudaEventCreate(&c.start));
    if (rc >= 0) rc = KOLO_CUDA(cudaEventCreate(&c.stop));
    if (rc >= 0) rc = run_contest(&c, cuda->trial_seconds, best);
    if (c.start) cudaEventDestroy(c.start);
    if (c.stop) cudaEventDestroy(c.stop);
    free(c.left);
    return rc;
}
