/* kolo bench gradients: how fast ranks sum in the buckets of training, on GPUs too, and whether they sum
 * right. Prints the columns of nccl-tests (calls back to back), or with format=osu OSU's (each call
 * alone, then a barrier). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"
#include "cmd/bench_table.h"
#include "cmd/cmd.h"
#include "comm/buckets/reducer.h"
#include "kolo/error.h"
#include "train/parts.h"

enum { SIZES = 40, SMALL_BYTES = 32 << 10, PERIOD = 17 };

typedef struct bench {
    kolo_session session; /* launch, device, backend (NULL on CPUs) and comm of it */
    int64_t min, max, iterations;
    float *host;
    kolo_bench_table table;
} bench;

/* ---- words --------------------------------------------------------------------------------------------- */

int kolo_bench_take(int *n, char **words, const char *key, int64_t low, int64_t *value)
{
    size_t length = strlen(key);
    for (int i = 0; i < *n; i++) {
        const char *text = words[i];
        if (strncmp(text, key, length) || text[length] != '=') continue;
        char *end;
        static const char units[] = "KMG";
        long long number = strtoll(text + length + 1, &end, 10);
        const char *unit = *end ? strchr(units, *end) : NULL;
        int shift = unit ? 10 * (int)(unit - units + 1) : 0;
        if (end == text + length + 1 || end[unit ? 1 : 0] || number < 0 ||
            number > INT64_MAX >> (shift + 4) || (int64_t)number << shift < low)
            return kolo_fail(KOLO_ECONFIG, "%s: a whole number from %" PRId64 " on, such as 64, 8K or 64M",
                             text, low);
        *value = (int64_t)number << shift;
        memmove(&words[i], &words[i + 1], (size_t)(*n - i - 1) * sizeof *words);
        --*n;
        return 0;
    }
    return 0;
}

static int bench_gradients_read_words(bench *b, kolo_options *options, int n, char **words)
{
    int64_t check = 1;
    b->min = 8;
    b->max = 64 << 20;
    b->table.osu = kolo_command_flag(&n, words, "format=osu");
    kolo_command_flag(&n, words, "format=nccl");
    KOLO_TRY(kolo_bench_take(&n, words, "min", sizeof(float), &b->min));
    KOLO_TRY(kolo_bench_take(&n, words, "max", sizeof(float), &b->max));
    KOLO_TRY(kolo_bench_take(&n, words, "iterations", 1, &b->iterations));
    KOLO_TRY(kolo_bench_take(&n, words, "check", 0, &check));
    if (b->max < b->min)
        return kolo_fail(KOLO_ECONFIG, "max=%" PRId64 " is less than min=%" PRId64 " bytes", b->max, b->min);
    b->table.checks = check != 0;
    return kolo_command_words(options, n, words, 0, NULL);
}

/* ---- one size ------------------------------------------------------------------------------------------ */

static int64_t size_at(const bench *b, int i)
{
    return (b->min << i) / (int64_t)sizeof(float) * (int64_t)sizeof(float);
}
static int64_t calls_of(const bench *b, int64_t bytes)
{
    return b->iterations ? b->iterations : bytes <= SMALL_BYTES ? 1000 : 50;
}

/* Calls in a row, and what they left is there. */
static int reduce(bench *b, int bucket, int64_t calls)
{
    kolo_session *s = &b->session;
    for (int64_t i = 0; i < calls; i++) {
        KOLO_TRY(kolo_comm_start(s->comm, bucket));
        KOLO_TRY(kolo_comm_wait(s->comm, bucket));
    }
    if (s->backend) KOLO_TRY(kolo_backend_finish(s->backend));
    return kolo_comm_status(s->comm);
}

static int bench_gradients_put(bench *b, int64_t bytes)
{
    kolo_session *s = &b->session;
    if (s->backend) return kolo_backend_write(s->backend, kolo_comm_arena(s->comm), b->host, (size_t)bytes);
    memcpy(kolo_comm_arena(s->comm), b->host, (size_t)bytes);
    return 0;
}

static int get(bench *b, int64_t bytes)
{
    kolo_session *s = &b->session;
    if (s->backend) return kolo_backend_read(s->backend, b->host, kolo_comm_arena(s->comm), (size_t)bytes);
    memcpy(b->host, kolo_comm_arena(s->comm), (size_t)bytes);
    return 0;
}

/* Small whole numbers: every sum of them is exact in any order. */
static float value(int64_t rank, int64_t i) { return (float)((i * 7 + rank * 13) % PERIOD - PERIOD / 2); }

static int bench_gradients_check(bench *b, int bucket, int64_t bytes, int64_t *wrong)
{
    const kolo_launch *l = b->session.launch;
    int64_t count = bytes / (int64_t)sizeof(float);
    float want[PERIOD] = {0};
    *wrong = 0;
    for (int r = 0; r < l->size; r++)
        for (int i = 0; i < PERIOD; i++) want[i] += value(r, i);
    for (int64_t i = 0; i < count; i++) b->host[i] = value(l->rank, i);
    KOLO_TRY(bench_gradients_put(b, bytes));
    KOLO_TRY(reduce(b, bucket, 1));
    KOLO_TRY(get(b, bytes));
    for (int64_t i = 0; i < count; i++) *wrong += b->host[i] != want[i % PERIOD];
    KOLO_TRY(kolo_comm_allreduce(b->session.comm, wrong, 1, KOLO_I64, KOLO_SUM));
    return 0;
}

/* What a call took, over ranks. The vector is zero, so that its sums stay what they are. */
static int over_ranks(bench *b, double seconds, kolo_bench_timing *t)
{
    kolo_comm *comm = b->session.comm;
    *t = (kolo_bench_timing){seconds, seconds, seconds, -1};
    KOLO_TRY(kolo_comm_allreduce(comm, &t->mean, 1, KOLO_F64, KOLO_SUM));
    KOLO_TRY(kolo_comm_allreduce(comm, &t->least, 1, KOLO_F64, KOLO_MIN));
    KOLO_TRY(kolo_comm_allreduce(comm, &t->most, 1, KOLO_F64, KOLO_MAX));
    t->mean /= b->session.launch->size;
    return 0;
}

static int bench_gradients_measure(bench *b, int bucket, int64_t bytes, kolo_bench_timing *t)
{
    kolo_comm *comm = b->session.comm;
    int64_t calls = calls_of(b, bytes);
    double seconds = 0;
    memset(b->host, 0, (size_t)bytes);
    KOLO_TRY(bench_gradients_put(b, bytes));
    KOLO_TRY(reduce(b, bucket, 1 + calls / 10));
    KOLO_TRY(kolo_comm_barrier(comm));
    double begin = kolo_time();
    if (!b->table.osu) {
        KOLO_TRY(reduce(b, bucket, calls));
        seconds = kolo_time() - begin;
    }
    for (int64_t i = 0; b->table.osu && i < calls; i++) {
        begin = kolo_time();
        KOLO_TRY(reduce(b, bucket, 1));
        seconds += kolo_time() - begin;
        KOLO_TRY(kolo_comm_barrier(comm));
    }
    return over_ranks(b, seconds / (double)calls, t);
}

/* ---- the table ----------------------------------------------------------------------------------------- */

static void print_head(bench *b)
{
    const kolo_session *s = &b->session;
    const kolo_launch *l = b->table.launch = s->launch;
    if (l->rank == 0)
        printf("# kolo bench gradients: buckets of training, %d rank%s on %d node%s, %s, %s, in place\n",
               l->size, l->size > 1 ? "s" : "", l->nodes, l->nodes > 1 ? "s" : "",
               s->cuda ? s->device.name : "CPUs", kolo_comm_name(s->comm));
    kolo_bench_head(&b->table);
}

static int measure_all(bench *b)
{
    const int n = b->session.launch->size;
    for (int i = 0; i < SIZES && size_at(b, i) <= b->max; i++) {
        const int64_t bytes = size_at(b, i);
        const kolo_bench_row row = {bytes, bytes / 4, calls_of(b, bytes), kolo_dtype_name(KOLO_F32),
                                    "sum", -1,        2.0 * (n - 1) / n};
        kolo_bench_timing t;
        KOLO_TRY(bench_gradients_measure(b, i, bytes, &t));
        if (b->table.checks) KOLO_TRY(bench_gradients_check(b, i, bytes, &t.wrong));
        kolo_bench_line(&b->table, &row, &t, NULL);
    }
    kolo_bench_tail(&b->table);
    if (b->table.wrong)
        return kolo_fail(
            KOLO_EINTERNAL,
            "%" PRId64
            " wrong sums by %s: a defect of kolo, the network or a GPU; run kolo doctor on these nodes",
            b->table.wrong, kolo_comm_name(b->session.comm));
    return 0;
}

/* ---- life ---------------------------------------------------------------------------------------------- */

static int open_comm(bench *b)
{
    kolo_session *s = &b->session;
    const kolo_options *o = s->options;
    kolo_backend_config backend = {.threads = 1, .deterministic = o->deterministic};
    KOLO_TRY(session_choose_device(s));
    KOLO_TRY(kolo_launch_bind(s->launch, (int)o->threads, o->bind != KOLO_bind_none));
    backend.device = s->device_index;
    if (s->cuda) KOLO_TRY(kolo_backend_create(&s->backend, "cuda", &backend));
    KOLO_TRY(session_open_comm(s, s->launch, (size_t)b->max, 0, 0, &s->comm));
    for (int i = 0; i < SIZES && size_at(b, i) <= b->max; i++)
        KOLO_TRY(kolo_comm_bucket(s->comm, 0, size_at(b, i) / (int64_t)sizeof(float)));
    b->host = kolo_alloc((size_t)b->max);
    KOLO_TRY(kolo_comm_commit(s->comm));
    return b->host ? 0 : KOLO_ENOMEM;
}

int kolo_bench_gradients(int n, char **words)
{
    kolo_options options;
    bench b = {.min = 0};
    KOLO_TRY(bench_gradients_read_words(&b, &options, n, words));
    b.session.options = &options;
    int rc = kolo_command_launch(&options, &b.session.launch);
    if (rc == 0) rc = open_comm(&b);
    if (rc == 0) print_head(&b);
    if (rc == 0) rc = measure_all(&b);
    if (rc == 0) rc = kolo_comm_barrier(b.session.comm);
    free(b.host);
    kolo_session_close(&b.session);
    kolo_options_free(&options);
    return rc;
}
