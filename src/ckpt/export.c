/* Weights as other programs take them. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/ckpt.h"
#include "ckpt/darknet.h"
#include "ckpt/items.h"
#include "ckpt/names.h"
#include "ckpt/stream.h"
#include "kolo/error.h"

/* Tensors to be written, and what goes with them. */
typedef struct bundle {
    const kolo_export *how;
    const name_map *names;
    kolo_weight *weight; /* [n] */
    void **owned;        /* [owns] names and data of them */
    int n, owns;
} bundle;

static void *own(bundle *b, void *memory)
{
    if (memory) b->owned[b->owns++] = memory;
    return memory;
}

static const char *tail_of(const char *name, const char *tail)
{
    const size_t length = strlen(name), n = strlen(tail);
    return length > n && name[length - n - 1] == '.' && !strcmp(name + length - n, tail) ? name + length - n
                                                                                         : NULL;
}

/* Upper halves of f32, rounded to nearest, ties to even; in place. */
static void round_to_bf16(float *values, int64_t count)
{
    uint16_t *half = (uint16_t *)values;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        const bool nan = (bits & 0x7FFFFFFF) > 0x7F800000;
        const uint16_t rounded =
            nan ? (uint16_t)(bits >> 16 | 64) : (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
        memcpy(&half[i], &rounded, sizeof rounded);
    }
}

/* After a norm's variance the number of its batches. */
static int add_counter(bundle *b, const char *theirs)
{
    const char *tail = tail_of(theirs, "running_var");
    if (!tail) return 0;
    char *name = own(b, kolo_format("%.*snum_batches_tracked", (int)(tail - theirs), theirs));
    if (!name) return KOLO_ENOMEM;
    b->weight[b->n++] = (kolo_weight){
        .name = name, .type = KOLO_I64, .data = &b->how->batches, .bytes = sizeof b->how->batches};
    return 0;
}

/* After a table of biases by distance, ((2M-1)^2, heads), which of its rows each pair of a window's M^2
 * places takes, as torchvision keeps it. */
static int add_index(bundle *b, const char *theirs, int64_t rows)
{
    const char *tail = tail_of(theirs, "relative_position_bias_table");
    int64_t m = 1;
    while ((2 * m - 1) * (2 * m - 1) < rows) m++;
    if (!tail || b->how->names != KOLO_names_torchvision || (2 * m - 1) * (2 * m - 1) != rows) return 0;
    char *name = own(b, kolo_format("%.*srelative_position_index", (int)(tail - theirs), theirs));
    int64_t *index = own(b, kolo_alloc((size_t)(m * m * m * m) * sizeof *index)), k = 0;
    if (!name || !index) return KOLO_ENOMEM;
    for (int64_t i = 0; i < m * m; i++)
        for (int64_t j = 0; j < m * m; j++)
            index[k++] = (i / m - j / m + m - 1) * (2 * m - 1) + (i % m - j % m + m - 1);
    b->weight[b->n++] = (kolo_weight){.name = name,
                                      .type = KOLO_I64,
                                      .rank = 1,
                                      .dim = {k},
                                      .data = index,
                                      .bytes = (size_t)k * sizeof *index};
    return 0;
}

static int add_tensor(bundle *b, kolo_exec *exec, int tensor, const kolo_tensor *t)
{
    const int64_t count = kolo_tensor_count(t);
    char theirs[NAME_LENGTH];
    float *values = own(b, kolo_alloc((size_t)count * sizeof *values + 1));
    if (!values) return KOLO_ENOMEM;
    KOLO_TRY(kolo_exec_get(exec, b->how->ema ? "ema" : "param", tensor, values));
    kolo_weight w = {.name = t->name, .type = KOLO_F32, .rank = t->rank, .data = values};
    memcpy(w.dim, t->dim, sizeof w.dim);
    if (!kolo_names_theirs(b->names, &w, theirs))
        return kolo_fail(KOLO_EINTERNAL, "%s has no name elsewhere", t->name);
    if (!(w.name = own(b, kolo_strdup(theirs)))) return KOLO_ENOMEM;
    if (b->how->dtype == KOLO_export_dtype_bf16) {
        round_to_bf16(values, count);
        w.type = KOLO_BF16;
    }
    w.bytes = (size_t)count * kolo_dtype_size(w.type);
    b->weight[b->n++] = w;
    KOLO_TRY(add_counter(b, w.name));
    return add_index(b, w.name, t->dim[0]);
}

static int write_safetensors(const char *path, kolo_exec *exec, const kolo_plan *plan, const item *items,
                             int n, const kolo_export *how)
{
    const char *const metadata[] = {"format", "pt", how->classes ? "classes" : NULL, how->classes, NULL};
    bundle b = {.how = how};
    KOLO_TRY(kolo_names_choose(plan->graph, how->names, &b.names));
    b.weight = kolo_alloc((size_t)(2 * n + 1) * sizeof *b.weight);
    b.owned = kolo_alloc((size_t)(4 * n + 1) * sizeof *b.owned);
    int rc = b.weight && b.owned ? 0 : KOLO_ENOMEM;
    for (int i = 0; rc == 0 && i < n; i++)
        rc = add_tensor(&b, exec, items[i].tensor, &plan->graph->tensor[items[i].tensor]);
    if (rc == 0) rc = kolo_weights_write(path, b.weight, b.n, metadata);
    for (int i = 0; i < b.owns; i++) free(b.owned[i]);
    free(b.owned);
    free(b.weight);
    return rc;
}

static int put_tensor(stream *s, kolo_exec *exec, int tensor, const kolo_tensor *t, bool ema)
{
    const size_t bytes = (size_t)kolo_tensor_count(t) * sizeof(float);
    float *values = kolo_alloc(bytes + 1);
    int rc = values ? kolo_exec_get(exec, ema ? "ema" : "param", tensor, values) : KOLO_ENOMEM;
    if (rc == 0) rc = kolo_stream_put(s, values, bytes);
    free(values);
    return rc;
}

/* Version 0.2.0, images seen, numbers. */
static int write_darknet(const char *path, kolo_exec *exec, const kolo_graph *g, const kolo_export *how)
{
    darknet_order order;
    stream s;
    const struct {
        int32_t version[3];
        uint32_t seen[2];
    } head = {{0, 2, 0}, {(uint32_t)how->batches, (uint32_t)((uint64_t)how->batches >> 32)}};
    if (how->dtype != KOLO_export_dtype_f32)
        return kolo_fail(KOLO_ECONFIG, "%s: darknet's weights are f32: leave export_dtype=f32", path);
    KOLO_TRY(kolo_darknet_order(g, &order));
    int rc = kolo_stream_open_temp(&s, path);
    if (rc == 0) {
        rc = kolo_stream_put(&s, &head, sizeof head);
        for (int i = 0; rc == 0 && i < order.tensors; i++)
            rc = put_tensor(&s, exec, order.tensor[i], &g->tensor[order.tensor[i]], how->ema);
        rc = kolo_stream_commit(&s, path, rc);
    }
    kolo_darknet_order_free(&order);
    return rc;
}

int kolo_export_form(const char *path, enum kolo_export_form *form)
{
    static const char *const end[] = {[KOLO_FORM_SAFETENSORS] = ".safetensors",
                                      [KOLO_FORM_DARKNET] = ".weights",
                                      [KOLO_FORM_ONNX] = ".onnx"};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof end / sizeof *end; i++) {
        *form = (enum kolo_export_form)i;
        if (!strcmp(dot, end[i])) return 0;
    }
    return kolo_fail(KOLO_ECONFIG, "%s: no format of weights has this ending; end it in %s, %s or %s", path,
                     end[KOLO_FORM_SAFETENSORS], end[KOLO_FORM_DARKNET], end[KOLO_FORM_ONNX]);
}

int kolo_weights_export(const char *path, kolo_exec *exec, const kolo_plan *plan, const kolo_export *how)
{
    item *items = NULL;
    int n = 0;
    if (how->ema && !plan->config.ema)
        return kolo_fail(KOLO_ECONFIG,
                         "%s: this model has no averaged weights (ema=0); export the weights themselves",
                         path);
    if (how->form == KOLO_FORM_DARKNET) return write_darknet(path, exec, plan->graph, how);
    int rc = kolo_items_make(plan, false, false, &items, &n);
    if (rc == 0) rc = write_safetensors(path, exec, plan, items, n, how);
    kolo_items_free(&items, n);
    return rc;
}
