/* kolo bench NAME (allreduce, reduce_scatter, allgather, broadcast, gather, scatter, alltoall): the
 * collectives of libkolo_comm, timed and checked, in the columns of nccl-tests (out of place and in place) or
 * OSU's. Numbers are small and whole, so that every result is exact in every type. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/failure.h"
#include "base/thread.h"
#include "cmd/bench_table.h"
#include "cmd/cmd.h"
#include "comm/core/kernel.h"
#include "comm/library/parts.h"
#include "train/parts.h"

enum { SMALL_BYTES = 32 << 10, PERIOD = 5 };

/* factor: busbw = algbw times (n - 1) / n times this; 0: they are the same (broadcast). */
static const struct what {
    const char *name;
    enum kolo_collective collective;
    int factor;
    bool reduces, apart, in_place;
} kinds[] = {
    {"allreduce", KOLO_ALLREDUCE, 2, true, true, true},
    {"reduce_scatter", KOLO_REDUCE_SCATTER, 1, true, true, false},
    {"allgather", KOLO_ALLGATHER, 1, false, true, false},
    {"broadcast", KOLO_BROADCAST, 0, false, false, true},
    {"gather", KOLO_GATHER, 1, false, true, false},
    {"scatter", KOLO_SCATTER, 1, false, true, false},
    {"alltoall", KOLO_ALLTOALL, 1, false, true, false},
};
enum { SHARED, ORDINARY, DEVICE, MEMORIES };
static const char *const memory_name[MEMORIES] = {"shared", "ordinary", "device"};
static const char *const reduce_name[KOLO_REDUCE_COUNT] = {"sum", "average", "min",
                                                           "max", "product", "adasum"};

typedef struct bench {
    const struct what *what;
    kolo_launch *launch;
    kolo_world *world;
    kolo_group *all;
    int64_t min, max, iterations, root;
    enum kolo_dtype type;
    enum kolo_reduce reduce;
    bool named;
    int memory;
    kolo_options options;
    kolo_session session; /* memory=device: launch, device and backend of it */
    char *in, *out;       /* vectors */
    /* what goes in and comes out, where the processor sees it: `in` and `out`, unless they lie on a GPU */
    char *put, *got;
    double *numbers; /* of a vector, as f64 */
    int64_t *each;   /* [ranks] elements of every part */
    kolo_bench_table table;
} bench;

/* ---- words --------------------------------------------------------------------------------------------- */

static int fail_name(const char *key, const char *name, const char *const *names, int count)
{
    char list[256];
    size_t used = 0;
    for (int i = 0; i < count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    return kolo_fail(KOLO_ECONFIG, "%s=%s is not a choice; one of %s", key, name, list);
}

/* Takes KEY=NAME out of the words; the place of NAME in the list. */
static int extract_choice(int *n, char **words, const char *key, const char *const *names, int count,
                          int *value)
{
    size_t length = strlen(key);
    for (int i = 0; i < *n; i++) {
        if (strncmp(words[i], key, length) || words[i][length] != '=') continue;
        const char *name = words[i] + length + 1;
        int at = 0;
        while (at < count && strcmp(names[at], name)) at++;
        if (at == count) return fail_name(key, name, names, count);
        *value = at;
        memmove(&words[i], &words[i + 1], (size_t)(*n - i - 1) * sizeof *words);
        --*n;
        return 1;
    }
    return 0;
}

static const struct what *find_what(const char *name)
{
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (!strcmp(name, kinds[k].name)) return &kinds[k];
    return NULL;
}

bool kolo_bench_is_collective(const char *name) { return find_what(name); }

static int bench_collective_read_words(bench *b, int n, char **words)
{
    static const char *const paths[] = {"order", "named"}, *const formats[] = {"nccl", "osu"};
    int64_t check = 1;
    const char *types[KOLO_DTYPES];
    int type = KOLO_F32, reduce = KOLO_SUM, path = 0, format = 0;
    b->what = find_what(words[0]);
    n--, words++;
    b->min = 8;
    b->max = 64 << 20;
    for (int i = 0; i < KOLO_DTYPES; i++) types[i] = kolo_dtype_name((enum kolo_dtype)i);
    KOLO_TRY(extract_choice(&n, words, "dtype", types, KOLO_DTYPES, &type));
    /* Adasum's results are not whole */
    KOLO_TRY(extract_choice(&n, words, "op", reduce_name, KOLO_ADASUM, &reduce));
    KOLO_TRY(extract_choice(&n, words, "memory", memory_name, MEMORIES, &b->memory));
    KOLO_TRY(extract_choice(&n, words, "path", paths, 2, &path));
    KOLO_TRY(extract_choice(&n, words, "format", formats, 2, &format));
    KOLO_TRY(kolo_bench_take(&n, words, "min", 1, &b->min));
    KOLO_TRY(kolo_bench_take(&n, words, "max", 1, &b->max));
    KOLO_TRY(kolo_bench_take(&n, words, "iterations", 1, &b->iterations));
    KOLO_TRY(kolo_bench_take(&n, words, "check", 0, &check));
    KOLO_TRY(kolo_bench_take(&n, words, "root", 0, &b->root));
    if (b->max < b->min)
        return kolo_fail(KOLO_ECONFIG, "max=%" PRId64 " is less than min=%" PRId64 " bytes", b->max, b->min);
    b->type = (enum kolo_dtype)type;
    b->reduce = (enum kolo_reduce)reduce;
    b->named = path == 1;
    b->table.osu = format == 1;
    b->table.both = b->what->apart && b->what->in_place;
    b->table.checks = check != 0;
    return kolo_command_words(&b->options, n, words, 0, NULL);
}

/* ---- numbers ------------------------------------------------------------------------------------------- */

static void store(const bench *b, void *to, int64_t count)
{
    const double *x = b->numbers;
    for (int64_t i = 0; i < count; i++) {
        float f = (float)x[i];
        switch (b->type) {
        case KOLO_U8:
        case KOLO_BOOL: ((uint8_t *)to)[i] = (uint8_t)x[i]; break;
        case KOLO_I8: ((int8_t *)to)[i] = (int8_t)x[i]; break;
        case KOLO_U16: ((uint16_t *)to)[i] = (uint16_t)x[i]; break;
        case KOLO_I16: ((int16_t *)to)[i] = (int16_t)x[i]; break;
        case KOLO_I32: ((int32_t *)to)[i] = (int32_t)x[i]; break;
        case KOLO_I64: ((int64_t *)to)[i] = (int64_t)x[i]; break;
        case KOLO_F16:
        case KOLO_BF16: comm_narrow((uint16_t *)to + i, &f, 1, b->type); break;
        case KOLO_F32: ((float *)to)[i] = f; break;
        default: ((double *)to)[i] = x[i];
        }
    }
}

/* Small enough that a product over many ranks is exact: 1 or 2 on the first ranks, then 1. */
static double value(const bench *b, int rank, int64_t i)
{
    if (b->type == KOLO_BOOL) return (double)((i + rank) % PERIOD == 0);
    if (b->what->reduces && b->reduce == KOLO_PRODUCT) return (i + rank) % PERIOD == 0 && rank < 4 ? 2 : 1;
    /* a sum is below 128, whatever the ranks */
    const int64_t apart = PERIOD * ((b->launch->size + 39) / 40), at = (i * 3 + rank) % apart;
    return at < PERIOD ? (double)at : 0;
}

static double reduced(const bench *b, int64_t i)
{
    double all = value(b, 0, i);
    for (int r = 1; r < b->launch->size; r++) {
        double v = value(b, r, i);
        if (b->reduce == KOLO_MIN) all = v < all ? v : all;
        else if (b->reduce == KOLO_MAX) all = v > all ? v : all;
        else if (b->reduce == KOLO_PRODUCT) all *= v;
        else all += v;
    }
    bool or = b->type == KOLO_BOOL && (b->reduce == KOLO_SUM || b->reduce == KOLO_AVERAGE);
    if (or) return all > 0;
    if (b->reduce != KOLO_AVERAGE) return all;
    return kolo_dtype_is_real(b->type) ? all / b->launch->size : (double)((int64_t)all / b->launch->size);
}

/* ---- one call ------------------------------------------------------------------------------------------ */

/* count: elements of the whole, a multiple of the ranks where it is cut. */
static kolo_request request(const bench *b, int64_t count, bool in_place)
{
    const int n = b->launch->size;
    bool part_in = b->what->collective == KOLO_ALLGATHER || b->what->collective == KOLO_GATHER;
    kolo_request r = {.what = b->what->collective,
                      .name = b->named ? "bench" : NULL,
                      .in = in_place ? NULL : b->in,
                      .out = b->out,
                      .type = b->type,
                      .dims = 1,
                      .dim = {part_in ? count / n : count},
                      .reduce = b->reduce,
                      .root = (int)b->root};
    if (b->what->collective == KOLO_BROADCAST) r.in = NULL;
    if (part_in || b->what->collective == KOLO_ALLTOALL || b->what->collective == KOLO_SCATTER)
        r.splits = b->each;
    return r;
}

static int bench_collective_call(const bench *b, const kolo_request *r, int64_t calls)
{
    for (int64_t i = 0; i < calls; i++) {
        kolo_handle handle;
        if (!b->named) KOLO_TRY(lib_do(b->all, r, NULL, NULL, NULL));
        else {
            KOLO_TRY(kolo_submit(b->all, r, &handle));
            KOLO_TRY(kolo_wait(b->world, handle));
        }
    }
    return 0;
}

/* The vectors are as `put` and `got` are, or the other way. */
static int send_vectors(const bench *b, size_t bytes)
{
    if (b->memory != DEVICE) return 0;
    KOLO_TRY(kolo_backend_write(b->session.backend, b->in, b->put, bytes));
    KOLO_TRY(kolo_backend_write(b->session.backend, b->out, b->got, bytes));
    return kolo_backend_finish(b->session.backend);
}

static int fetch_result(const bench *b, size_t bytes)
{
    return b->memory == DEVICE ? kolo_backend_read(b->session.backend, b->got, b->out, bytes) : 0;
}

/* What this rank brings, and what it should have afterwards: elements of `out`, or 0. */
static int64_t fill_input(const bench *b, int64_t count)
{
    const int n = b->launch->size, me = b->launch->rank;
    bool part = b->what->collective == KOLO_ALLGATHER || b->what->collective == KOLO_GATHER;
    int64_t mine = part ? count / n : count;
    for (int64_t i = 0; i < mine; i++) b->numbers[i] = value(b, me, i);
    return mine;
}

static int64_t expect(const bench *b, int64_t count)
{
    const int n = b->launch->size, me = b->launch->rank;
    const int64_t part = count / n;
    switch (b->what->collective) {
    case KOLO_ALLREDUCE:
        for (int64_t i = 0; i < count; i++) b->numbers[i] = reduced(b, i);
        return count;
    case KOLO_REDUCE_SCATTER:
        for (int64_t i = 0; i < part; i++) b->numbers[i] = reduced(b, me * part + i);
        return part;
    case KOLO_BROADCAST:
        for (int64_t i = 0; i < count; i++) b->numbers[i] = value(b, (int)b->root, i);
        return count;
    case KOLO_SCATTER:
        for (int64_t i = 0; i < part; i++) b->numbers[i] = value(b, (int)b->root, me * part + i);
        return part;
    case KOLO_ALLTOALL:
        for (int64_t i = 0; i < count; i++) b->numbers[i] = value(b, (int)(i / part), me * part + i % part);
        return count;
    default: /* what is gathered */
        for (int64_t i = 0; i < count; i++) b->numbers[i] = value(b, (int)(i / part), i % part);
        return b->what->collective == KOLO_ALLGATHER || me == b->root ? count : 0;
    }
}

static int bench_collective_check(bench *b, int64_t count, bool in_place, int64_t *wrong)
{
    const size_t width = kolo_dtype_size(b->type);
    const kolo_request r = request(b, count, in_place);
    int64_t mine = fill_input(b, count), most = count;
    bool own = r.in == NULL && (b->what->collective != KOLO_BROADCAST || b->launch->rank == b->root);
    memset(b->got, 0x5a, (size_t)most * width);
    store(b, b->put, mine);
    if (own) store(b, b->got, mine);
    KOLO_TRY(send_vectors(b, (size_t)most * width));
    KOLO_TRY(bench_collective_call(b, &r, 1));
    KOLO_TRY(fetch_result(b, (size_t)most * width));
    int64_t have = expect(b, count);
    store(b, b->put, have);
    *wrong = 0;
    for (int64_t i = 0; i < have; i++)
        *wrong += memcmp(b->put + (size_t)i * width, b->got + (size_t)i * width, width) != 0;
    KOLO_TRY(kolo_allreduce(b->all, NULL, wrong, 1, KOLO_I64, KOLO_SUM));
    return 0;
}

/* ---- the table ----------------------------------------------------------------------------------------- */

static int64_t calls_of(const bench *b, int64_t bytes)
{
    return b->iterations ? b->iterations : bytes <= SMALL_BYTES ? 1000 : 20;
}

static int bench_collective_measure(bench *b, int64_t count, bool in_place, kolo_bench_timing *t)
{
    const int64_t bytes = count * (int64_t)kolo_dtype_size(b->type), calls = calls_of(b, bytes);
    const kolo_request r = request(b, count, in_place);
    double seconds = 0;
    memset(b->put, 0, (size_t)bytes);
    memset(b->got, 0, (size_t)bytes);
    KOLO_TRY(send_vectors(b, (size_t)bytes));
    KOLO_TRY(bench_collective_call(b, &r, 1 + calls / 10));
    KOLO_TRY(kolo_barrier(b->all));
    double begin = kolo_time();
    if (!b->table.osu) {
        KOLO_TRY(bench_collective_call(b, &r, calls));
        seconds = kolo_time() - begin;
    }
    for (int64_t i = 0; b->table.osu && i < calls; i++) {
        begin = kolo_time();
        KOLO_TRY(bench_collective_call(b, &r, 1));
        seconds += kolo_time() - begin;
        KOLO_TRY(kolo_barrier(b->all));
    }
    t->mean = t->least = t->most = seconds / (double)calls;
    KOLO_TRY(kolo_allreduce(b->all, NULL, &t->mean, 1, KOLO_F64, KOLO_AVERAGE));
    KOLO_TRY(kolo_allreduce(b->all, NULL, &t->least, 1, KOLO_F64, KOLO_MIN));
    KOLO_TRY(kolo_allreduce(b->all, NULL, &t->most, 1, KOLO_F64, KOLO_MAX));
    t->wrong = -1;
    return b->table.checks ? bench_collective_check(b, count, in_place, &t->wrong) : 0;
}

static void print_head(bench *b)
{
    const kolo_launch *l = b->table.launch = b->launch;
    if (l->rank == 0)
        printf("# kolo bench %s: libkolo_comm, %d rank%s on %d node%s, %s memory, %s, algorithm %s\n",
               b->what->name, l->size, l->size > 1 ? "s" : "", l->nodes, l->nodes > 1 ? "s" : "",
               b->memory == DEVICE ? b->session.device.name : memory_name[b->memory],
               b->named ? "named" : "matched by order", b->options.comm_algorithm);
    kolo_bench_head(&b->table);
}

static int one_size(bench *b, int64_t count)
{
    const struct what *w = b->what;
    const int64_t bytes = count * (int64_t)kolo_dtype_size(b->type);
    const int n = b->launch->size;
    const bool rootless = w->reduces || w->collective == KOLO_ALLGATHER || w->collective == KOLO_ALLTOALL;
    const kolo_bench_row row = {.bytes = bytes,
                                .count = count,
                                .calls = calls_of(b, bytes),
                                .type = kolo_dtype_name(b->type),
                                .sum = w->reduces ? reduce_name[b->reduce] : "none",
                                .root = rootless ? -1 : (int)b->root,
                                .factor = w->factor || n == 1 ? (double)(w->factor * (n - 1)) / n : 1};
    kolo_bench_timing out, in;
    if (w->apart) KOLO_TRY(bench_collective_measure(b, count, false, &out));
    if (w->in_place) KOLO_TRY(bench_collective_measure(b, count, true, &in));
    kolo_bench_line(&b->table, &row, w->apart ? &out : &in, b->table.both ? &in : NULL);
    return 0;
}

static int measure_all(bench *b)
{
    const int64_t width = (int64_t)kolo_dtype_size(b->type), n = b->launch->size;
    int64_t last = -1;
    bool cut = b->what->collective != KOLO_ALLREDUCE && b->what->collective != KOLO_BROADCAST;
    for (int64_t bytes = b->min; bytes <= b->max; bytes *= 2) {
        int64_t count = bytes / width;
        if (cut) count = count / n * n;
        if (count < 1 || count == last) continue;
        last = count;
        for (int r = 0; r < n; r++) b->each[r] = count / n;
        KOLO_TRY(one_size(b, count));
    }
    kolo_bench_tail(&b->table);
    return b->table.wrong ? kolo_fail(KOLO_EINTERNAL,
                                      "%" PRId64 " wrong values from %s: a defect of kolo, the network or "
                                      "the memory; run kolo doctor on these nodes",
                                      b->table.wrong, b->what->name)
                          : 0;
}

/* ---- life ---------------------------------------------------------------------------------------------- */

static size_t room(const bench *b) { return (size_t)b->max + 8 * (size_t)b->launch->size; }

static int open_device(bench *b)
{
    const size_t bytes = room(b);
    kolo_session *s = &b->session;
    s->options = &b->options;
    s->launch = b->launch;
    b->options.device = KOLO_device_cuda;
    KOLO_TRY(session_choose_device(s));
    const kolo_backend_config config = {.threads = 1, .device = s->device_index};
    KOLO_TRY(kolo_backend_create(&s->backend, "cuda", &config));
    b->in = kolo_backend_alloc(s->backend, bytes);
    b->out = kolo_backend_alloc(s->backend, bytes);
    return b->in && b->out ? 0 : kolo_error_status();
}

static void close_all(bench *b)
{
    void *memory[] = {b->in, b->out};
    kolo_world_close(&b->world);
    for (int i = 0; i < 2 && b->session.backend; i++)
        kolo_backend_free(b->session.backend, &memory[i], room(b));
    kolo_backend_destroy(&b->session.backend);
    if (b->memory != SHARED) free(b->put), free(b->got);
    free(b->each);
    free(b->numbers);
    kolo_options_free(&b->options);
}

static int open_all(bench *b)
{
    const size_t bytes = room(b);
    const kolo_options *o = &b->options;
    const kolo_world_config config = {.size = sizeof(kolo_world_config),
                                      .algorithm = o->comm_algorithm,
                                      .table = o->comm_table,
                                      .timeout = o->comm_timeout,
                                      .heartbeat_timeout = o->heartbeat_timeout,
                                      .shared_bytes = b->memory == SHARED ? 2 * bytes + (1 << 20) : 0};
    if (!comm_combine_of(b->type, b->reduce))
        return kolo_fail(KOLO_ECONFIG, "%s has no %s", kolo_dtype_name(b->type), reduce_name[b->reduce]);
    if (b->root >= b->launch->size)
        return kolo_fail(KOLO_ECONFIG, "root=%" PRId64 " of %d ranks", b->root, b->launch->size);
    KOLO_TRY(lib_world_start(&b->world, b->launch, &config, NULL, NULL));
    b->all = kolo_world_group(b->world);
    b->each = kolo_alloc((size_t)b->launch->size * sizeof *b->each);
    b->numbers = kolo_alloc((bytes / kolo_dtype_size(b->type) + 1) * sizeof *b->numbers);
    if (!b->each || !b->numbers) return KOLO_ENOMEM;
    if (b->memory != SHARED) {
        b->put = kolo_alloc(bytes);
        b->got = kolo_alloc(bytes);
        if (!b->put || !b->got) return KOLO_ENOMEM;
    } else {
        KOLO_TRY(kolo_world_alloc(b->world, bytes, (void **)&b->put));
        KOLO_TRY(kolo_world_alloc(b->world, bytes, (void **)&b->got));
    }
    if (b->memory == DEVICE) return open_device(b);
    b->in = b->put;
    b->out = b->got;
    return 0;
}

int kolo_bench_collective(int n, char **words)
{
    bench b = {.min = 0};
    KOLO_TRY(bench_collective_read_words(&b, n, words));
    int rc = kolo_command_launch(&b.options, &b.launch);
    if (rc == 0) rc = open_all(&b);
    if (rc == 0) print_head(&b);
    if (rc == 0) rc = measure_all(&b);
    close_all(&b);
    return rc;
}
