/* parity MODEL BATCH SIDE CLASSES PRECISION [key=value ...]: every operation of one training step of a
 * network, forward and backward, on a device against the CPU backend; TAP, a line a kind of operation.
 *   PRECISION: f32, tf32, bf16, fp16    device=cuda|cpu    valid=ROWS of the batch that count
 *   deterministic=true: also the same bits twice
 * The CPU computes in f32 from the values that the device stores (rounded to 16 bits where it stores 16), one
 * operation after another, and each operation of the device starts from the CPU's values: so what is compared
 * is one operation, on numbers as a training has them. Outputs start as NaN; lanes of padding and the bytes
 * behind an output are looked at. */
#include <stdio.h>

#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "models/models.h"
#include "ops/element.h"
#include "ops/kernel.h"
#include "parity_compare.h"
#include "tap.h"

enum { GUARD = 256 };

typedef struct side {
    kolo_backend *backend;
    kolo_graph *g;
    kolo_layout *layout;
    kolo_step *step; /* backend memory */
} side;

typedef struct family {
    int shapes, repeated, different;
    double share; /* worst distance over what is allowed */
    char worst[200];
} family;

typedef struct parity {
    side cpu, device;
    /* [tensors] in canonical order: f32, of a PARTIAL f64; NULL: not there, or not used any more */
    void **value;
    kolo_step step;
    const char *precision, *label;
    bool deterministic;
    const kolo_kernel **seen;
    int64_t seens;
    family family[KOLO_OP_COUNT];
} parity;

static void must(int rc, const char *what)
{
    if (rc >= 0) return;
    printf("Bail out! %s: %s\n", what, kolo_error_text());
    exit(1);
}

static void *room(size_t bytes)
{
    void *p = calloc(1, bytes + 64);
    if (!p) must(kolo_fail(KOLO_ENOMEM, "out of memory for %zu bytes", bytes), "memory");
    return p;
}

/* ---- values -------------------------------------------------------------------------------------------- */

static bool is_half(enum kolo_dtype t) { return t == KOLO_BF16 || t == KOLO_F16; }

static float rounded(float x, enum kolo_dtype t)
{
    return t == KOLO_BF16  ? kolo_from_bf16(kolo_to_bf16(x))
           : t == KOLO_F16 ? kolo_from_f16(kolo_to_f16(x))
                           : x;
}

/* As the device's operations read it: a parameter through its 16-bit copy. */
static enum kolo_dtype seen_as(const side *s, int t)
{
    return s->layout[t].half ? s->g->dtype : s->g->tensor[t].dtype;
}

static void store(parity *p, int t, void *value)
{
    const kolo_tensor *x = &p->device.g->tensor[t];
    enum kolo_dtype as = seen_as(&p->device, t);
    if (is_half(as))
        for (int64_t i = 0; i < kolo_tensor_count(x); i++)
            ((float *)value)[i] = rounded(((float *)value)[i], as);
    free(p->value[t]);
    p->value[t] = value;
}

/* Parameters at their usual scale, any image, any label. */
static void first_values(parity *p, int64_t classes)
{
    const kolo_graph *g = p->device.g;
    for (int t = 0; t < g->tensors; t++) {
        const kolo_tensor *x = &g->tensor[t];
        if (x->producer >= 0) continue;
        int64_t count = kolo_tensor_count(x);
        float *v = room((size_t)count * sizeof *v);
        uint32_t seed = 2463534242u + (uint32_t)t;
        for (int64_t i = 0; i < count; i++) {
            seed ^= seed << 13, seed ^= seed >> 17, seed ^= seed << 5;
            if (x->role == KOLO_ROLE_LABEL) v[i] = (float)(seed % (uint32_t)classes);
            else if (x->role == KOLO_ROLE_INPUT) v[i] = (float)(seed >> 24);
            else
                v[i] = kolo_initial_value(x, 1, i) +
                       (x->rank == 1 ? 0.2f * ((float)(seed >> 8) * 0x1p-24f - 0.5f) : 0);
        }
        store(p, t, v);
    }
}

/* ---- one operation on one side ------------------------------------------------------------------------- */

typedef struct call {
    void *args[2 * KOLO_MAX_ARGS], *workspace;
    size_t bytes[2 * KOLO_MAX_ARGS], workspace_bytes;
} call;

static void *memory(const side *s, size_t bytes, int byte)
{
    void *m = kolo_backend_alloc(s->backend, bytes + GUARD);
    if (!m) must(KOLO_ENOMEM, "memory");
    must(kolo_backend_fill(s->backend, KOLO_LANE_COMPUTE, m, byte, bytes + GUARD), "fill");
    return m;
}

static void *input_memory(const parity *p, const side *s, int t, size_t *bytes)
{
    const kolo_tensor *x = &s->g->tensor[t];
    const kolo_layout *layout = &s->layout[t];
    void *host = room(layout->bytes), *m = memory(s, layout->bytes, 0);
    if (x->role == KOLO_ROLE_PARTIAL) memcpy(host, p->value[t], layout->bytes);
    else must(kolo_backend_from_canonical(s->backend, x, layout, p->value[t], host), x->name);
    must(kolo_backend_write(s->backend, m, host, layout->bytes), x->name);
    free(host);
    *bytes = layout->bytes;
    if (!layout->half) return m;
    void *half = memory(s, layout->bytes / 2, 0);
    must(kolo_backend_narrow(s->backend, half, s->g->dtype, m, (int64_t)(layout->bytes / 4)), "narrow");
    must(kolo_backend_finish(s->backend), "narrow");
    kolo_backend_free(s->backend, &m, layout->bytes + GUARD);
    *bytes = layout->bytes / 2;
    return half;
}

static void call_open(const parity *p, const side *s, const kolo_node *n, size_t workspace, call *c)
{
    *c = (call){.workspace_bytes = workspace, .workspace = memory(s, workspace, 0xFF)};
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] >= 0) c->args[k] = input_memory(p, s, n->in[k], &c->bytes[k]);
    for (int k = 0; k < n->n_out; k++) {
        if (n->out[k] < 0) continue;
        c->bytes[n->n_in + k] = s->layout[n->out[k]].bytes;
        c->args[n->n_in + k] = memory(s, c->bytes[n->n_in + k], 0xFF);
    }
}

static void call_close(const side *s, const kolo_node *n, call *c)
{
    for (int k = 0; k < n->n_in + n->n_out; k++)
        kolo_backend_free(s->backend, &c->args[k], c->bytes[k] + GUARD);
    kolo_backend_free(s->backend, &c->workspace, c->workspace_bytes + GUARD);
}

static void call_run(parity *p, const side *s, kolo_kernel *kernel, call *c, const char *name)
{
    must(kolo_backend_write(s->backend, s->step, &p->step, sizeof p->step), "step");
    must(kolo_kernel_run(kernel, c->args, c->workspace, s->step, 0), name);
    must(kolo_backend_finish(s->backend), name);
}

/* Output k as it lies in memory, with the guard behind it. Caller frees. */
static unsigned char *raw_output(const side *s, const kolo_node *n, const call *c, int k)
{
    size_t bytes = c->bytes[n->n_in + k] + GUARD;
    unsigned char *raw = room(bytes);
    must(kolo_backend_read(s->backend, raw, c->args[n->n_in + k], bytes), "read");
    return raw;
}

static void *canonical(const side *s, int t, const void *raw)
{
    const kolo_tensor *x = &s->g->tensor[t];
    int64_t count = kolo_tensor_count(x);
    void *value = room((size_t)count * sizeof(double));
    if (x->role == KOLO_ROLE_PARTIAL) memcpy(value, raw, (size_t)count * sizeof(double));
    else must(kolo_backend_to_canonical(s->backend, x, &s->layout[t], raw, value), x->name);
    return value;
}

/* ---- comparing ----------------------------------------------------------------------------------------- */

static double *widened(const side *s, int t, const void *value)
{
    int64_t count = kolo_tensor_count(&s->g->tensor[t]);
    double *wide = room((size_t)count * sizeof *wide);
    for (int64_t i = 0; i < count; i++)
        wide[i] = s->g->tensor[t].role == KOLO_ROLE_PARTIAL ? ((const double *)value)[i]
                                                            : (double)((const float *)value)[i];
    return wide;
}

static double far_apart(const parity *p, const kolo_node *n, int t, const void *got, const void *want)
{
    const kolo_tensor *x = &p->device.g->tensor[t];
    int64_t count = kolo_tensor_count(x);
    double *a = widened(&p->device, t, got), *b = widened(&p->device, t, want),
           tolerance = parity_allowed(p->precision, n->op, x);
    /* the smallest number of fp16 */
    double least = x->dtype == KOLO_F16 ? 6e-8 * sqrt((double)count) / tolerance : 0;
    double share = parity_is_sums(n->op, n->out[0] != t)
                       ? parity_sums(a, b, count, tolerance)
                       : parity_distance(a, b, count, least, tolerance, parity_strays(n->op, count));
    free(a);
    free(b);
    return share;
}

/* Lanes beyond the last channel are zero; bytes behind the tensor are untouched. */
static const char *stray_bytes(const side *s, int t, const unsigned char *raw)
{
    const kolo_tensor *x = &s->g->tensor[t];
    const kolo_layout *layout = &s->layout[t];
    for (size_t i = 0; i < GUARD; i++)
        if (raw[layout->bytes + i] != 0xFF) return "writes behind its output";
    if (!kolo_tensor_is_map(x) || x->dim[1] % layout->block == 0) return NULL;
    int64_t block = layout->block, blocks = (x->dim[1] + block - 1) / block, pixels = x->dim[2] * x->dim[3];
    size_t size = kolo_dtype_size(x->dtype);
    for (int64_t i = 0; i < x->dim[0] * blocks * pixels * block; i++) {
        if (i / (pixels * block) % blocks * block + i % block < x->dim[1]) continue;
        for (size_t k = 0; k < size; k++)
            if (raw[(size_t)i * size + k]) return "leaves padding that is not zero";
    }
    return NULL;
}

static void note(parity *p, int node, int t, double share, const char *why)
{
    const kolo_node *n = &p->device.g->node[node];
    const kolo_tensor *x = &p->device.g->tensor[t], *in = &p->device.g->tensor[n->in[0]];
    family *f = &p->family[n->op];
    if (why) share = INFINITY;
    if (!(share <= 1))
        diag("%s node %d %s: %s (%ld,%ld,%ld,%ld) from (%ld,%ld,%ld,%ld) %s", p->label, node,
             kolo_op_table[n->op].name, x->name, (long)x->dim[0], (long)x->dim[1], (long)x->dim[2],
             (long)x->dim[3], (long)in->dim[0], (long)in->dim[1], (long)in->dim[2], (long)in->dim[3],
             why ? why : "differs");
    if (share <= f->share) return;
    f->share = share;
    snprintf(f->worst, sizeof f->worst, "%.150s%s%.30s", x->name, why ? " " : "", why ? why : "");
}

/* Again, and where the first output may take an input's memory, in place: the same bits? */
static void again(parity *p, const kolo_node *n, kolo_kernel *kernel, call *c, unsigned char **first)
{
    family *f = &p->family[n->op];
    int over = kolo_op_table[n->op].overwrite;
    if (over >= n->n_in || (over >= 0 && n->in[over] < 0)) over = -1;
    f->repeated++;
    for (int turn = 0; turn < (over >= 0 ? 2 : 1); turn++) {
        void *kept = c->args[n->n_in];
        if (turn) c->args[n->n_in] = c->args[over];
        call_run(p, &p->device, kernel, c, "again");
        bool same = true;
        for (int k = 0; k < n->n_out; k++) {
            if (n->out[k] < 0) continue;
            unsigned char *raw = raw_output(&p->device, n, c, k);
            same &= !memcmp(raw, first[k], c->bytes[n->n_in + k]);
            free(raw);
        }
        c->args[n->n_in] = kept;
        if (same) continue;
        f->different++;
        diag("%s %s: other bits %s", p->label, kernel->name, turn ? "in place" : "the second time");
        break;
    }
}

static bool is_new(parity *p, const kolo_kernel *kernel)
{
    for (int64_t i = 0; i < p->seens; i++)
        if (p->seen[i] == kernel) return false;
    p->seen[p->seens++] = kernel;
    return true;
}

static void compare(parity *p, int node)
{
    const side *s = &p->device;
    const kolo_node *n = &s->g->node[node];
    kolo_kernel *kernel;
    size_t workspace;
    unsigned char *raw[KOLO_MAX_ARGS] = {NULL};
    call c;
    must(kolo_backend_prepare(s->backend, s->g, node, s->layout, &kernel, &workspace),
         kolo_op_table[n->op].name);
    if (!is_new(p, kernel)) return;
    p->family[n->op].shapes++;
    call_open(p, s, n, workspace, &c);
    call_run(p, s, kernel, &c, kolo_op_table[n->op].name);
    for (int k = 0; k < n->n_out; k++) {
        if (n->out[k] < 0) continue;
        raw[k] = raw_output(s, n, &c, k);
        void *got = canonical(s, n->out[k], raw[k]);
        note(p, node, n->out[k], far_apart(p, n, n->out[k], got, p->value[n->out[k]]),
             stray_bytes(s, n->out[k], raw[k]));
        free(got);
    }
    again(p, n, kernel, &c, raw);
    for (int k = 0; k < n->n_out; k++) free(raw[k]);
    call_close(s, n, &c);
}

/* ---- the step ------------------------------------------------------------------------------------------ */

static void reference(parity *p, int node, void **result)
{
    const side *s = &p->cpu;
    const kolo_node *n = &s->g->node[node];
    kolo_kernel *kernel;
    size_t workspace;
    call c;
    must(kolo_backend_prepare(s->backend, s->g, node, s->layout, &kernel, &workspace),
         kolo_op_table[n->op].name);
    call_open(p, s, n, workspace, &c);
    call_run(p, s, kernel, &c, kolo_op_table[n->op].name);
    for (int k = 0; k < n->n_out; k++) {
        if (n->out[k] < 0) continue;
        unsigned char *raw = raw_output(s, n, &c, k);
        result[k] = canonical(s, n->out[k], raw);
        free(raw);
    }
    call_close(s, n, &c);
}

static void every_node(parity *p)
{
    const kolo_graph *g = p->cpu.g;
    int64_t *last = room((size_t)g->tensors * sizeof *last);
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            if (g->node[i].in[k] >= 0) last[g->node[i].in[k]] = i;
    for (int i = 0; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        void *result[KOLO_MAX_ARGS] = {NULL};
        reference(p, i, result);
        /* compared with the unrounded result; whoever reads it gets the rounded one */
        for (int k = 0; k < n->n_out; k++)
            if (n->out[k] >= 0) p->value[n->out[k]] = result[k];
        compare(p, i);
        for (int k = 0; k < n->n_out; k++) {
            if (n->out[k] < 0) continue;
            p->value[n->out[k]] = NULL;
            store(p, n->out[k], result[k]);
        }
        for (int t = 0; t < g->tensors; t++)
            if (p->value[t] && last[t] <= i && g->tensor[t].producer >= 0 && g->tensor[t].producer <= i) {
                free(p->value[t]);
                p->value[t] = NULL;
            }
    }
    free(last);
}

static void side_open(side *s, const char *backend, const kolo_backend_config *config, const char *model,
                      kolo_model_config c, enum kolo_dtype dtype)
{
    c.dtype = dtype;
    must(kolo_backend_create(&s->backend, backend, config), backend);
    must(kolo_model_graph(&s->g, model, &c), model);
    s->layout = room((size_t)s->g->tensors * sizeof *s->layout);
    must(kolo_backend_layout(s->backend, s->g, NULL, NULL, s->layout), "layout");
    s->step = kolo_backend_alloc(s->backend, sizeof *s->step);
    if (!s->step) must(KOLO_ENOMEM, "step");
}

static void side_close(side *s)
{
    kolo_backend_free(s->backend, (void **)&s->step, sizeof *s->step);
    free(s->layout);
    kolo_graph_destroy(&s->g);
    kolo_backend_destroy(&s->backend);
}

static void tell(const parity *p)
{
    int shapes = 0, different = 0;
    for (int op = 0; op < KOLO_OP_COUNT; op++) {
        const family *f = &p->family[op];
        if (!f->shapes) continue;
        shapes += f->shapes;
        different += f->different;
        ok(f->share <= 1, "%s %s: %d shapes, worst at %.0f %% of what is allowed (%s)", p->label,
           kolo_op_table[op].name, f->shapes, 100 * f->share, f->worst);
    }
    if (p->deterministic)
        ok(different == 0, "%s: the same bits twice and in place, %d operations", p->label, shapes);
    else if (different)
        diag("%s: %d of %d operations do not give the same bits every time", p->label, different, shapes);
}

static const char *word(int argc, char **argv, const char *key, const char *otherwise)
{
    size_t n = strlen(key);
    for (int i = 6; i < argc; i++)
        if (!strncmp(argv[i], key, n) && argv[i][n] == '=') return argv[i] + n + 1;
    return otherwise;
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr,
                "usage: parity MODEL BATCH SIDE CLASSES f32|tf32|bf16|fp16 [device=cuda|cpu] [valid=ROWS] "
                "[deterministic=true]\n");
        return 78;
    }
    const char *device = word(argc, argv, "device", "cuda");
    const kolo_model *model = kolo_model_find(argv[1]);
    int64_t rows = atol(argv[2]), side_length = atol(argv[3]), classes = atol(argv[4]),
            valid = atol(word(argc, argv, "valid", argv[2]));
    char label[200];
    must(model ? 0 : KOLO_ECONFIG, "model");
    parity p = {.precision = argv[5],
                .label = label,
                .deterministic = !strcmp(word(argc, argv, "deterministic", "false"), "true")};
    snprintf(label, sizeof label, "%s %s batch %ld%s %ldpx", argv[1], argv[5], (long)rows,
             valid < rows ? " (short)" : "", (long)side_length);
    enum kolo_dtype dtype = !strcmp(argv[5], "bf16")   ? KOLO_BF16
                            : !strcmp(argv[5], "fp16") ? KOLO_F16
                                                       : KOLO_F32;
    kolo_model_config c = {.rows = rows,
                           .height = side_length,
                           .width = side_length,
                           .channels = model->channels,
                           .classes = classes,
                           .shortcut = "a",
                           .smoothing = 0.1,
                           .train = true,
                           .mean = {.48f, .46f, .41f, .5f},
                           .std = {.23f, .22f, .23f, .25f}};
    kolo_backend_config on_cpu = {.threads = kolo_cpu_count(), .direct = true, .deterministic = true},
                        on_device = on_cpu;
    on_device.direct = false;
    on_device.deterministic = p.deterministic;
    on_device.tf32 = !strcmp(argv[5], "tf32");
    side_open(&p.cpu, "cpu", &on_cpu, argv[1], c, KOLO_F32);
    side_open(&p.device, device, &on_device, argv[1], c, dtype);
    must(p.cpu.g->tensors == p.device.g->tensors && p.cpu.g->nodes == p.device.g->nodes ? 0 : KOLO_EINTERNAL,
         "graphs of two precisions");
    p.value = room((size_t)p.cpu.g->tensors * sizeof *p.value);
    p.seen = room((size_t)p.cpu.g->nodes * sizeof *p.seen);
    p.step.valid_global = valid;
    p.step.scaler.scale = dtype == KOLO_F16 ? 1024 : 1;
    for (int i = 0; i < KOLO_MAX_SLOTS; i++) p.step.valid[i] = (int32_t)valid;
    first_values(&p, classes);
    every_node(&p);
    tell(&p);
    for (int t = 0; t < p.cpu.g->tensors; t++) free(p.value[t]);
    free(p.value);
    free(p.seen);
    side_close(&p.cpu);
    side_close(&p.device);
    return done_testing();
}
