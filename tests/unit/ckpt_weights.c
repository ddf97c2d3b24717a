/* Weights out and in: torchvision's names, bf16, a head of another size, files that do not fit. */
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "ckpt_rig.h"
#include "tap.h"

static char top[] = "/tmp/kolo_weights_XXXXXX";
static char path[128], other[128];
static const rig_config net = {"resnet18", 64, 3, 1, true, true, false};

static float *values_of(rig *r, const char *which, const char *name, int64_t *n)
{
    int t = kolo_graph_find(r->graph, name);
    *n = t < 0 ? 0 : kolo_tensor_count(&r->graph->tensor[t]);
    float *values = calloc((size_t)*n + 1, sizeof *values);
    if (t < 0 || kolo_exec_get(r->exec, which, t, values) < 0) diag("%s: %s", name, kolo_error_text());
    return values;
}

static int equal(rig *a, const char *which, rig *b, const char *what, const char *name)
{
    int64_t n, m;
    float *x = values_of(a, which, name, &n), *y = values_of(b, what, name, &m);
    int same = n == m && n > 0 && !memcmp(x, y, (size_t)n * sizeof *x);
    free(x);
    free(y);
    return same;
}

static void names(rig *a)
{
    kolo_weights *w = NULL;
    is_int(kolo_weights_export(path, a->exec, a->plan, &(kolo_export){.batches = 77}), 0, "exported (%s)",
           kolo_error_text());
    is_int(kolo_weights_open(&w, path, NULL), 0, "and read (%s)", kolo_error_text());
    is_int(kolo_weights_count(w), 122, "as many tensors as torchvision's resnet18().state_dict() has");
    static const char *const first[] = {
        "conv1.weight",          "bn1.weight",         "bn1.bias",
        "bn1.running_mean",      "bn1.running_var",    "bn1.num_batches_tracked",
        "layer1.0.conv1.weight", "layer1.0.bn1.weight"};
    int in_order = 1;
    for (int i = 0; i < 8; i++) in_order &= !strcmp(kolo_weights_at(w, i)->name, first[i]);
    ok(in_order && !strcmp(kolo_weights_at(w, 121)->name, "fc.bias"), "in its order");
    const kolo_weight *t = kolo_weights_find(w, "layer4.1.bn2.num_batches_tracked");
    int64_t count = 0;
    if (t) memcpy(&count, t->data, sizeof count);
    ok(t && t->type == KOLO_I64 && t->rank == 0 && count == 77, "counters are I64 scalars");
    t = kolo_weights_find(w, "layer2.0.downsample.0.weight");
    ok(t && t->rank == 4 && t->dim[0] == 128 && t->dim[1] == 64 && t->dim[2] == 1,
       "convolutions are (O,I,KH,KW)");
    int64_t n;
    float *x = values_of(a, "param", "layer2.0.downsample.0.weight", &n);
    ok(t && !memcmp(t->data, x, t->bytes), "with the executor's values");
    free(x);
    kolo_weights_close(&w);
    is_int(kolo_weights_export(other, a->exec, a->plan, &(kolo_export){.ema = true, .batches = 77}), 0,
           "the averages too");
    kolo_weights_open(&w, other, NULL);
    x = values_of(a, "ema", "fc.weight", &n);
    t = kolo_weights_find(w, "fc.weight");
    ok(t && !memcmp(t->data, x, t->bytes), "under the same names");
    free(x);
    kolo_weights_close(&w);
}

static void import(rig *a)
{
    rig b;
    rig_open(&b, &net);
    rig_step(&b, 9);
    is_int(kolo_weights_import(path, b.exec, b.plan, KOLO_init_head_load), 0, "imported (%s)",
           kolo_error_text());
    ok(equal(a, "param", &b, "param", "layer3.0.conv1.weight") &&
           equal(a, "param", &b, "param", "bn1.running_var") && equal(a, "param", &b, "param", "fc.bias"),
       "weights and statistics");
    ok(equal(a, "param", &b, "ema", "layer3.0.conv1.weight") &&
           equal(a, "param", &b, "ema", "bn1.running_mean"),
       "and the averages begin there");
    rig_close(&b);
}

/* The file again with changes: bf16, a smaller head, without a tensor, with one too many. */
static void rewrite(enum kolo_dtype type, int64_t classes, const char *without, const char *extra)
{
    kolo_weights *w = NULL;
    kolo_weights_open(&w, path, NULL);
    int n = kolo_weights_count(w), m = 0;
    kolo_weight *list = calloc((size_t)n + 1, sizeof *list);
    void **data = calloc((size_t)n + 1, sizeof *data);
    for (int i = 0; i < n; i++) {
        kolo_weight t = *kolo_weights_at(w, i);
        if (without && !strcmp(t.name, without)) continue;
        if (!strncmp(t.name, "fc.", 3)) t.bytes = t.bytes / 10 * (size_t)classes, t.dim[0] = classes;
        if (t.type == KOLO_F32 && type == KOLO_BF16) {
            uint16_t *half = data[i] = calloc(t.bytes / 4, sizeof *half);
            for (size_t k = 0; k < t.bytes / 4; k++) memcpy(&half[k], (const char *)t.data + 4 * k + 2, 2);
            t.data = half, t.bytes /= 2, t.type = type;
        }
        list[m++] = t;
    }
    static const float one = 1;
    if (extra)
        list[m++] =
            (kolo_weight){.name = extra, .type = KOLO_F32, .rank = 1, .dim = {1}, .data = &one, .bytes = 4};
    if (kolo_weights_write(other, list, m, NULL) < 0) diag("%s", kolo_error_text());
    for (int i = 0; i < n; i++) free(data[i]);
    free(data);
    free(list);
    kolo_weights_close(&w);
}

static void others(rig *a)
{
    rig b;
    int64_t n;
    rig_open(&b, &net);
    rewrite(KOLO_BF16, 10, NULL, NULL);
    is_int(kolo_weights_import(other, b.exec, b.plan, KOLO_init_head_load), 0, "bf16 is taken (%s)",
           kolo_error_text());
    float *x = values_of(a, "param", "conv1.weight", &n), *y = values_of(&b, "param", "conv1.weight", &n);
    int near = 1;
    for (int64_t i = 0; i < n; i++) near &= fabsf(x[i] - y[i]) <= fabsf(x[i]) / 128;
    ok(near && memcmp(x, y, (size_t)n * sizeof *x), "to the precision it has");
    free(x);
    free(y);
    rewrite(KOLO_F32, 5, NULL, NULL);
    is_int(kolo_weights_import(other, b.exec, b.plan, KOLO_init_head_load), KOLO_ECONFIG,
           "a head of 5 classes is refused");
    ok(strstr(kolo_error_text(), "2 of another shape: fc.weight (F32 5x512, the model has 10x512)"),
       "with both shapes: %s", kolo_error_text());
    float *head = values_of(&b, "param", "fc.weight", &n);
    is_int(kolo_weights_import(other, b.exec, b.plan, KOLO_init_head_auto), 0,
           "unless the head may begin anew (%s)", kolo_error_text());
    y = values_of(&b, "param", "fc.weight", &n);
    ok(!memcmp(head, y, (size_t)n * sizeof *y) && equal(a, "param", &b, "param", "layer4.1.conv2.weight"),
       "then it stays as it is and the rest is taken");
    free(head);
    free(y);
    rewrite(KOLO_F32, 10, NULL, NULL);
    is_int(kolo_weights_import(other, b.exec, b.plan, KOLO_init_head_new), 0,
           "the head may begin anew though it would fit");
    y = values_of(&b, "param", "fc.weight", &n);
    x = values_of(a, "param", "fc.weight", &n);
    ok(memcmp(x, y, (size_t)n * sizeof *x), "then it is not taken");
    free(x);
    free(y);
    rewrite(KOLO_F32, 10, "layer4.1.conv2.weight", NULL);
    is_int(kolo_weights_import(other, b.exec, b.plan, KOLO_init_head_load), KOLO_ECONFIG, "a missing tensor");
    ok(strstr(kolo_error_text(), "1 missing: layer4.1.conv2.weight"), "is named: %s", kolo_error_text());
    rewrite(KOLO_F32, 10, NULL, "aux.weight");
    is_int(kolo_weights_import(other, b.exec, b.plan, KOLO_init_head_load), KOLO_ECONFIG, "one too many");
    ok(strstr(kolo_error_text(), "1 unknown: aux.weight"), "too: %s", kolo_error_text());
    rewrite(KOLO_F32, 10, "bn1.num_batches_tracked", "momentum:conv1.weight");
    is_int(kolo_weights_import(other, b.exec, b.plan, KOLO_init_head_load), 0,
           "counters may be missing, and a checkpoint's own file will do");
    is_int(kolo_weights_import("/nonexistent", b.exec, b.plan, KOLO_init_head_load), KOLO_EINPUT,
           "no such file (%s)", kolo_error_text());
    is_int(kolo_weights_export("/nonexistent/x", b.exec, b.plan, &(kolo_export){.batches = 0}), KOLO_EIO,
           "no such folder (%s)", kolo_error_text());
    rig_close(&b);
}

int main(void)
{
    rig a;
    if (!mkdtemp(top)) return 1;
    snprintf(path, sizeof path, "%s/a.safetensors", top);
    snprintf(other, sizeof other, "%s/b.safetensors", top);
    if (rig_open(&a, &net) < 0) diag("%s", kolo_error_text());
    rig_step(&a, 0);
    names(&a);
    import(&a);
    others(&a);
    rig_close(&a);
    kolo_folder_remove(top);
    return done_testing();
}
