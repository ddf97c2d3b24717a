#include "ops/cpu/dnnl.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/hash.h"
#include "base/memory.h"
#include "ops/cpu/dnnl_version.h"

struct kolo_dnnl_desc {
    md_owned md;
    uint64_t hash;
    kolo_dnnl *dnnl;
};

struct dnnl_engine_of_kolo {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr; /* scratch memory comes from the caller */
    kolo_dnnl_desc **desc;
    int64_t descs, capacity;
    bool warm[2]; /* products in f32, in bf16 */
};

struct kolo_dnnl_primitive {
    kolo_dnnl *dnnl;
    dnnl_primitive_t primitive;
    int pointers; /* then the scratch, if any */
    dnnl_exec_arg_t arg[5];
    size_t scratch;
    const kolo_dnnl_desc *weight;
    char name[64];
};

static int fail(const char *what, dnnl_status_t status)
{
    if (status == dnnl_out_of_memory)
        return kolo_fail(KOLO_ENOMEM, "oneDNN %s: %s: out of memory; use a smaller micro_batch",
                         kolo_dnnl_version(), what);
    return kolo_fail(KOLO_EINTERNAL, "oneDNN %s: %s failed (status %d)", kolo_dnnl_version(), what,
                     (int)status);
}

const char *kolo_dnnl_version(void)
{
    static __thread char text[32];
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, sizeof text, "%d.%d.%d", v->major, v->minor, v->patch);
    return text;
}

/* Some virtual machines show AMX but hide the leaf that describes its tiles; oneDNN then loads an empty tile
 * configuration and the first tile instruction is illegal. Such a CPU is used as one without AMX. */
static void hide_undescribed_amx(void)
{
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    bool tiles = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1);
    bool described = __get_cpuid_count(0x1D, 1, &a, &b, &c, &d) && b >> 16 >= 8 && (c & 0xFFFF) >= 16;
    if (tiles && !described) dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
#endif
}

bool kolo_dnnl_has_tiles(void)
{
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
}

bool kolo_dnnl_has_bf16(void)
{
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

int kolo_dnnl_open(kolo_dnnl **dnnl)
{
    hide_undescribed_amx();
    kolo_dnnl *d = *dnnl = kolo_alloc(sizeof *d);
    if (!d) return KOLO_ENOMEM;
    dnnl_status_t s = dnnl_engine_create(&d->engine, dnnl_cpu, 0);
    if (s == dnnl_success) s = dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags);
    if (s == dnnl_success) s = dnnl_primitive_attr_create(&d->attr);
    if (s == dnnl_success) s = dnnl_primitive_attr_set_scratchpad_mode(d->attr, dnnl_scratchpad_mode_user);
    if (s == dnnl_success) return 0;
    kolo_dnnl_close(dnnl);
    return fail("start", s);
}

void kolo_dnnl_close(kolo_dnnl **dnnl)
{
    kolo_dnnl *d = *dnnl;
    if (!d) return;
    for (int64_t i = 0; i < d->descs; i++) {
        md_destroy(d->desc[i]->md);
        free(d->desc[i]);
    }
    free(d->desc);
    if (d->attr) dnnl_primitive_attr_destroy(d->attr);
    if (d->stream) dnnl_stream_destroy(d->stream);
    if (d->engine) dnnl_engine_destroy(d->engine);
    free(d);
    *dnnl = NULL;
}

/* ---- descriptors --------------------------------------------------------------------------------------- */

/* Field by field: the struct has holes and unused tails. */
static uint64_t hash_of(md_view md)
{
    const md_parts m = md_parts_of(md);
    const size_t n = (size_t)m.rank;
    const int kind[4] = {m.rank, m.type, m.kind, m.extra};
    uint64_t h = kolo_hash_bytes(KOLO_HASH, kind, sizeof kind);
    h = kolo_hash_bytes(h, m.dims, n * sizeof *m.dims);
    h = kolo_hash_bytes(h, m.padded, n * sizeof *m.dims);
    if (m.kind == dnnl_blocked) {
        const size_t inner = (size_t)m.inner;
        h = kolo_hash_bytes(h, m.strides, n * sizeof *m.strides);
        h = kolo_hash_bytes(h, &m.inner, sizeof m.inner);
        h = kolo_hash_bytes(h, m.blocks, inner * sizeof *m.blocks);
        h = kolo_hash_bytes(h, m.indices, inner * sizeof *m.indices);
    }
    return h ? h : 1;
}

/* The one object for what equals m, which is taken. NULL: error text set. */
static const kolo_dnnl_desc *intern(kolo_dnnl *d, md_owned m)
{
    kolo_dnnl_desc *n = NULL;
    for (int64_t i = 0; i < d->descs && !n; i++)
        if (dnnl_memory_desc_equal(d->desc[i]->md, m)) n = d->desc[i];
    if (n || kolo_grow(&d->desc, &d->capacity, d->descs, sizeof *d->desc) < 0 ||
        !(n = kolo_alloc(sizeof *n))) {
        md_destroy(m);
        return n;
    }
    n->md = m;
    n->hash = hash_of(m);
    n->dnnl = d;
    return d->desc[d->descs++] = n;
}

static const kolo_dnnl_desc *intern_copy(kolo_dnnl *d, md_view md)
{
    md_owned m;
    const dnnl_status_t s = md_clone(&m, md);
    if (s == dnnl_success) return intern(d, m);
    fail("describing a tensor", s);
    return NULL;
}

static dnnl_data_type_t type_of(enum kolo_dtype t)
{
    return t == KOLO_BF16 ? dnnl_bf16 : t == KOLO_I32 ? dnnl_s32 : t == KOLO_U8 ? dnnl_u8 : dnnl_f32;
}

/* oneDNN counts the pixels of a batch, in blocks of 16 channels, in 32 bits. What is more it divides by zero
 * (2.6), or computes in part. */
static int check_countable(int rank, const int64_t *dim)
{
    char text[128] = "";
    int64_t blocks = 1;
    bool fits = true;
    for (int i = 0; i < rank; i++) {
        const size_t used = strlen(text);
        fits = fits && !__builtin_mul_overflow(blocks, i == 1 ? (dim[i] + 15) / 16 : dim[i], &blocks) &&
               blocks <= INT32_MAX;
        snprintf(text + used, sizeof text - used, "%s%" PRId64, i ? " x " : "", dim[i]);
    }
    if (fits) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "a tensor of %s numbers is larger than oneDNN %s can count (2^31 pixels of 16 "
                     "channels): use a smaller batch or "
                     "micro_batch, or smaller images (size=)",
                     text, kolo_dnnl_version());
}

static const kolo_dnnl_desc *by_tag(kolo_dnnl *d, enum kolo_dtype dtype, int rank, const int64_t *dim,
                                    dnnl_format_tag_t tag)
{
    md_owned m;
    if (check_countable(rank, dim) < 0) return NULL;
    const dnnl_status_t s = md_by_tag(&m, rank, dim, type_of(dtype), tag);
    if (s == dnnl_success) return intern(d, m);
    fail("describing a tensor", s);
    return NULL;
}

const kolo_dnnl_desc *kolo_dnnl_plain(kolo_dnnl *d, enum kolo_dtype dtype, int rank, const int64_t *dim)
{
    static const dnnl_format_tag_t tag[] = {dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde, dnnl_abcdef};
    return by_tag(d, dtype, rank, dim, tag[rank - 1]);
}

const kolo_dnnl_desc *kolo_dnnl_map(kolo_dnnl *d, enum kolo_dtype dtype, const int64_t *dim, int64_t block,
                                    bool nhwc)
{
    dnnl_format_tag_t tag = nhwc         ? dnnl_nhwc
                            : block == 1 ? dnnl_nchw
                            : block == 8 ? dnnl_nChw8c
                                         : dnnl_nChw16c;
    return by_tag(d, dtype, 4, dim, tag);
}

const kolo_dnnl_desc *kolo_dnnl_any(kolo_dnnl *d, enum kolo_dtype dtype, int rank, const int64_t *dim)
{
    return by_tag(d, dtype, rank, dim, dnnl_format_tag_any);
}

const kolo_dnnl_desc *kolo_dnnl_blocked_weight(kolo_dnnl *d, const int64_t *dim)
{
    return by_tag(d, KOLO_F32, 4, dim, dnnl_OIhw16i16o);
}

const kolo_dnnl_desc *kolo_dnnl_as(kolo_dnnl *d, const kolo_dnnl_desc *desc, enum kolo_dtype dtype)
{
    md_owned m;
    const dnnl_status_t s = md_as(&m, desc->md, type_of(dtype));
    if (s == dnnl_success) return intern(d, m);
    fail("describing a tensor of another type", s);
    return NULL;
}

const kolo_dnnl_desc *kolo_dnnl_rows_of(kolo_dnnl *d, const kolo_dnnl_desc *desc)
{
    const md_parts m = md_parts_of(desc->md);
    return kolo_dnnl_plain(d, KOLO_F32, m.rank, m.dims);
}

size_t kolo_dnnl_bytes(const kolo_dnnl_desc *desc) { return dnnl_memory_desc_get_size(desc->md); }
uint64_t kolo_dnnl_hash(const kolo_dnnl_desc *desc) { return desc->hash; }

bool kolo_dnnl_is_plain_memory(const kolo_dnnl_desc *desc)
{
    const md_parts m = md_parts_of(desc->md);
    return m.kind == dnnl_blocked && m.extra == 0;
}

/* ---- primitives ---------------------------------------------------------------------------------------- */

typedef struct argument {
    int name;
    dnnl_query_t query;
    int index;
} argument; /* name 0: not there */

static int add_pointer(kolo_dnnl_primitive *p, int at, int name, md_view md)
{
    dnnl_exec_arg_t *a = &p->arg[at];
    dnnl_status_t s = dnnl_memory_create(&a->memory, md, p->dnnl->engine, DNNL_MEMORY_NONE);
    if (s != dnnl_success) return fail("making a memory object", s);
    a->arg = name;
    return 0;
}

static int add_pointers(kolo_dnnl_primitive *p, const_dnnl_primitive_desc_t pd, const argument *list)
{
    for (; p->pointers < 4 && list[p->pointers].name; p->pointers++) {
        const argument *a = &list[p->pointers];
        md_view md = dnnl_primitive_desc_query_md(pd, a->query, a->index);
        KOLO_TRY(add_pointer(p, p->pointers, a->name, md));
        if (p->pointers == 1 && !(p->weight = intern_copy(p->dnnl, md))) return kolo_error_status();
    }
    md_view scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    p->scratch = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
    return p->scratch ? add_pointer(p, p->pointers, DNNL_ARG_SCRATCHPAD, scratch) : 0;
}

static const char *name_of(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success && name ? name
                                                                                                     : "";
}

/* A primitive from its description, which it takes; list: its pointers, in order. 1: its code cannot be
 * generated for so much. */
static int dnnl_finish(kolo_dnnl *d, dnnl_primitive_desc_t pd, const argument *list,
                       kolo_dnnl_primitive **out)
{
    int rc = 0;
    kolo_dnnl_primitive *p = kolo_alloc(sizeof *p);
    if (!p) {
        dnnl_primitive_desc_destroy(pd);
        return KOLO_ENOMEM;
    }
    p->dnnl = d;
    dnnl_status_t s = dnnl_primitive_create(&p->primitive, pd);
    if (s != dnnl_success) {
        rc = s == dnnl_runtime_error ? 1 : fail("making a primitive", s);
        goto fail;
    }
    KOLO_TRY_GOTO(rc, add_pointers(p, pd, list));
    snprintf(p->name, sizeof p->name, "%s", name_of(pd));
    dnnl_primitive_desc_destroy(pd);
    *out = p;
    return 0;
fail:
    dnnl_primitive_desc_destroy(pd);
    kolo_dnnl_destroy(&p);
    return rc;
}

void kolo_dnnl_destroy(kolo_dnnl_primitive **primitive)
{
    kolo_dnnl_primitive *p = *primitive;
    if (!p) return;
    for (int i = 0; i < 5; i++)
        if (p->arg[i].memory) dnnl_memory_destroy(p->arg[i].memory);
    if (p->primitive) dnnl_primitive_destroy(p->primitive);
    free(p);
    *primitive = NULL;
}

/* Winograd's code and that of batch-reduce products count the numbers of a tensor in 32 bits: with 2^31 or
 * more they read and write elsewhere. */
static bool overruns(const_dnnl_primitive_desc_t pd, const argument *list)
{
    const char *name = name_of(pd);
    if (strncmp(name, "jit_wino", 8) && strncmp(name, "brg", 3)) return false;
    for (; list->name; list++) {
        md_view md = dnnl_primitive_desc_query_md(pd, list->query, list->index);
        const md_parts m = md ? md_parts_of(md) : (md_parts){0};
        int64_t count = 1;
        for (int i = 0; i < m.rank; i++) count *= m.padded[i];
        if (count > INT32_MAX) return true;
    }
    return false;
}

/* The first implementation that is safe for pointers of `list` (in order, to a name of 0). 0, 1 (oneDNN
 * has no such thing), or an error */
static int dnnl_describe(kolo_dnnl *d, dnnl_primitive_desc_t *pd, const operation *o,
                         dnnl_primitive_desc_t hint, const argument *list)
{
    implementations all = {.current = NULL};
    dnnl_status_t s = implementations_open(&all, o, hint, d->engine, d->attr);
    while (s == dnnl_success && overruns(all.current, list)) s = implementations_next(&all);
    *pd = all.current;
    implementations_close(&all);
    if (s == dnnl_success) return 0;
    return s == dnnl_unimplemented || s == no_more_implementations ? 1 : fail("describing a primitive", s);
}

static const argument pass_arguments[3][5] = {
    {{DNNL_ARG_SRC, dnnl_query_src_md, 0},
     {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
     {DNNL_ARG_DST, dnnl_query_dst_md, 0},
     {DNNL_ARG_BIAS, dnnl_query_weights_md, 1},
     {0, 0, 0}},
    {{DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0},
     {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
     {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0},
     {0, 0, 0},
     {0, 0, 0}},
    {{DNNL_ARG_SRC, dnnl_query_src_md, 0},
     {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, 0},
     {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0},
     {DNNL_ARG_DIFF_BIAS, dnnl_query_diff_weights_md, 1},
     {0, 0, 0}},
};

/* forward: the forward operation that oneDNN wants beside a backward one, or NULL. */
static int dnnl_make(kolo_dnnl *d, const operation *o, const operation *forward, kolo_dnnl_primitive **out)
{
    dnnl_primitive_desc_t hint = NULL, pd = NULL;
    argument list[5];
    memcpy(list, pass_arguments[o->pass], sizeof list);
    if (!o->bias) list[3].name = 0;
    int rc =
        forward ? dnnl_describe(d, &hint, forward, NULL, (const argument[]){{0, dnnl_query_undef, 0}}) : 0;
    if (rc == 0) rc = dnnl_describe(d, &pd, o, hint, list);
    if (hint) dnnl_primitive_desc_destroy(hint);
    return rc ? rc : dnnl_finish(d, pd, list, out);
}

/* The forward pass that belongs to a backward one has weights of the activations' type, in any layout. */
static const kolo_dnnl_desc *hint_weight(kolo_dnnl *d, const kolo_dnnl_desc *x, const kolo_dnnl_desc *w)
{
    const md_parts m = md_parts_of(w->md);
    return by_tag(d, md_parts_of(x->md).type == dnnl_bf16 ? KOLO_BF16 : KOLO_F32, m.rank, m.dims,
                  dnnl_format_tag_any);
}

static int make_with_hint(kolo_dnnl *d, const operation *o, const kolo_dnnl_desc *x, const kolo_dnnl_desc *w,
                          kolo_dnnl_primitive **out)
{
    *out = NULL;
    if (o->pass == KOLO_DNNL_FORWARD) return dnnl_make(d, o, NULL, out);
    const kolo_dnnl_desc *forward_w = hint_weight(d, x, w);
    if (!forward_w) return kolo_error_status();
    operation forward = *o;
    forward.pass = KOLO_DNNL_FORWARD;
    forward.w = forward_w->md;
    return dnnl_make(d, o, &forward, out);
}

int kolo_dnnl_make_conv(kolo_dnnl *d, const kolo_dnnl_conv *c, kolo_dnnl_primitive **primitive)
{
    operation o = {.pass = c->pass,
                   .kind = c->winograd ? dnnl_convolution_winograd : dnnl_convolution_direct};
    o.x = c->x->md;
    o.w = c->w->md;
    o.bias = c->bias ? c->bias->md : NULL;
    o.y = c->y->md;
    for (int i = 0; i < 2; i++) {
        o.stride[i] = c->stride[i];
        o.pad[i] = c->pad[i];
        o.dilate[i] = c->dilation[i] - 1; /* oneDNN counts dilation from 0 */
    }
    return make_with_hint(d, &o, c->x, c->w, primitive);
}

int kolo_dnnl_make_linear(kolo_dnnl *d, enum kolo_dnnl_pass pass, const kolo_dnnl_desc *x,
                          const kolo_dnnl_desc *w, const kolo_dnnl_desc *bias, const kolo_dnnl_desc *y,
                          kolo_dnnl_primitive **primitive)
{
    const operation o = {
        .pass = pass, .linear = true, .x = x->md, .w = w->md, .bias = bias ? bias->md : NULL, .y = y->md};
    return make_with_hint(d, &o, x, w, primitive);
}

int kolo_dnnl_make_reorder(kolo_dnnl *d, const kolo_dnnl_desc *from, const kolo_dnnl_desc *to,
                           kolo_dnnl_primitive **primitive)
{
    static const argument list[5] = {{DNNL_ARG_FROM, dnnl_query_src_md, 0},
                                     {DNNL_ARG_TO, dnnl_query_dst_md, 0},
                                     {0, 0, 0},
                                     {0, 0, 0},
                                     {0, 0, 0}};
    *primitive = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t s =
        dnnl_reorder_primitive_desc_create(&pd, from->md, d->engine, to->md, d->engine, d->attr);
    if (s != dnnl_success) return fail("describing a change of layout", s);
    const int rc = dnnl_finish(d, pd, list, primitive);
    return rc > 0 ? fail("making a change of layout", dnnl_runtime_error) : rc;
}

enum { WARM_SIDE = 16 };

int kolo_dnnl_warm(const kolo_dnnl_primitive *like, enum kolo_dtype dtype)
{
    static const int64_t dim[2] = {WARM_SIDE, WARM_SIDE};
    static float zero[3][WARM_SIDE * WARM_SIDE];
    kolo_dnnl *d = like->dnnl;
    kolo_dnnl_primitive *p = NULL;
    bool *done = &d->warm[dtype == KOLO_BF16];
    if (*done || !strstr(like->name, "gemm")) return 0; /* others generate theirs when they are made */
    const kolo_dnnl_desc *square = kolo_dnnl_plain(d, dtype, 2, dim);
    void *pointer[3] = {zero[0], zero[1], zero[2]}, *scratch = NULL;
    if (!square) return kolo_error_status();
    int rc = kolo_dnnl_make_linear(d, KOLO_DNNL_FORWARD, square, square, NULL, square, &p);
    *done = true;
    if (rc != 0) return rc < 0 ? rc : 0;
    scratch = kolo_alloc(p->scratch);
    rc = scratch ? kolo_dnnl_run(p, pointer, scratch) : KOLO_ENOMEM;
    free(scratch);
    kolo_dnnl_destroy(&p);
    return rc;
}

const kolo_dnnl_desc *kolo_dnnl_weight_of(const kolo_dnnl_primitive *p) { return p->weight; }
size_t kolo_dnnl_scratch(const kolo_dnnl_primitive *p) { return p->scratch; }
const char *kolo_dnnl_name(const kolo_dnnl_primitive *p) { return p->name; }

int kolo_dnnl_run(kolo_dnnl_primitive *p, void *const *pointer, void *scratch)
{
    dnnl_status_t s = dnnl_success;
    for (int i = 0; i < p->pointers && s == dnnl_success; i++)
        s = dnnl_memory_set_data_handle(p->arg[i].memory, pointer[i]);
    if (p->scratch && s == dnnl_success) s = dnnl_memory_set_data_handle(p->arg[p->pointers].memory, scratch);
    if (s == dnnl_success)
        s = dnnl_primitive_execute(p->primitive, p->dnnl->stream, p->pointers + (p->scratch > 0), p->arg);
    return s == dnnl_success ? 0 : fail(p->name, s);
}
