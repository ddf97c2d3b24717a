/* The CPU backend: its table of operations, and what its kernels share. */
#include "ops/cpu/cpu.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/simd.h"

static const kolo_op_row *const cpu_rows[KOLO_OP_COUNT] = {
#define OP(name, ...) [KOLO_OP_##name] = &kolo_cpu_##name,
#include "graph/ops.def"
#undef OP
};

static int level_of_cpu(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512cd"))
        return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
        return 1;
#endif
    return 0;
}

int kolo_cpu_level(void)
{
    static int level = -1; /* racing threads write the same value */
    int l = __atomic_load_n(&level, __ATOMIC_RELAXED);
    if (l < 0) __atomic_store_n(&level, l = level_of_cpu(), __ATOMIC_RELAXED);
    return l;
}

/* "model name" of /proc/cpuinfo, or "cpu". */
static void processor_name(char *name, size_t size)
{
    char line[256];
    snprintf(name, size, "cpu");
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(name, size, "%.100s", colon + 2);
        break;
    }
    if (f) fclose(f);
}

static const char *version(void)
{
    static __thread char text[48];
    snprintf(text, sizeof text, "oneDNN %s", kolo_dnnl_version());
    return text;
}

/* One more where a pass has a candidate more, or a faster one: choices are then made anew. */
enum { CANDIDATES = 4 };

static int open_cpu(kolo_backend *b)
{
    kolo_cpu *c = b->state = kolo_alloc(sizeof *c);
    if (!c) return KOLO_ENOMEM;
    char name[112];
    processor_name(name, sizeof name);
    snprintf(c->machine, sizeof c->machine, "%.100s, %.30s, %d threads, candidates %d", name, version(),
             b->threads, CANDIDATES);
    return kolo_dnnl_open(&c->dnnl);
}

static void close_cpu(kolo_backend *b)
{
    kolo_cpu *c = b->state;
    if (!c) return;
    kolo_dnnl_close(&c->dnnl);
    free(c);
    b->state = NULL;
}

static const char *machine(kolo_backend *b) { return ((kolo_cpu *)b->state)->machine; }

/* oneDNN takes its threads from the calling thread's setting. */
static void cpu_enter(kolo_backend *b)
{
    if (omp_get_max_threads() != b->threads) omp_set_num_threads(b->threads);
}

const kolo_backend_type kolo_cpu_backend = {
    .name = "cpu",
    .version = version,
    .rows = cpu_rows,
    .open = open_cpu,
    .machine = machine,
    .close = close_cpu,
    .enter = cpu_enter,
    .blocks = kolo_cpu_blocks,
    .to_canonical = kolo_cpu_to_canonical,
    .from_canonical = kolo_cpu_from_canonical,
    .fold = kolo_cpu_fold,
    .divide = kolo_cpu_divide,
    .narrow = kolo_cpu_narrow_arena,
    .encode = kolo_cpu_encode,
    .decode = kolo_cpu_decode,
};

kolo_view kolo_cpu_view(const kolo_tensor *t, const kolo_layout *layout)
{
    kolo_view v = {.rows = t->dim[0],
                   .channels = t->rank > 1 ? t->dim[1] : 1,
                   .height = 1,
                   .width = 1,
                   .bf16 = t->dtype == KOLO_BF16};
    if (kolo_tensor_is_map(t)) {
        v.height = t->dim[2];
        v.width = t->dim[3];
        v.block = layout->block;
    } else {
        v.block = v.channels;
    }
    v.blocks = (v.channels + v.block - 1) / v.block;
    v.pixels = v.height * v.width;
    return v;
}

kolo_view kolo_cpu_view_in(const kolo_kernel_request *r, int i)
{
    return kolo_cpu_view(kolo_request_in(r, i), &r->layout[r->node->in[i]]);
}

kolo_view kolo_cpu_view_out(const kolo_kernel_request *r, int i)
{
    return kolo_cpu_view(kolo_request_out(r, i), &r->layout[r->node->out[i]]);
}

void kolo_cpu_clear_padding(const kolo_view *v, void *base)
{
    int64_t first = v->channels % v->block;
    size_t element = v->bf16 ? 2 : 4;
    for (int64_t row = 0; first && row < v->rows; row++) {
        char *plane =
            (char *)base + (size_t)((row + 1) * v->blocks - 1) * (size_t)kolo_view_plane(v) * element;
        for (int64_t i = 0; i < v->pixels; i++)
            memset(plane + (size_t)(i * v->block + first) * element, 0, (size_t)(v->block - first) * element);
    }
}

int kolo_cpu_threads(const kolo_backend *b, int64_t elements) { return elements < 8192 ? 1 : b->threads; }
