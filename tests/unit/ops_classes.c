/* Softmax cross entropy of classes in parts beside that of all at once, with every form of label, behind a
 * linear layer and behind ArcFace's cosines: metrics, and gradients of logits, bit for bit where logits are
 * whole numbers. */
#include "golden_file.h"
#include "ops_rig.h"

enum { N = 7, VALID = 5, C = 12, F = 6, GLOBAL = 10 };
enum form { CLASS, FACTOR, MIXED, NUMBERS };
static const char *const form_name[] = {"a class", "a class and a factor", "two classes", "numbers"};

static void fill_label(enum form form, int32_t *words)
{
    int32_t class[2 * N];
    golden_labels("l", 1, C, class, 2 * N);
    if (form == NUMBERS) golden_fill("y", 1, .5, 1, (float *)words, N * C);
    for (int n = 0; n < N && form != NUMBERS; n++) {
        const float weight = n == 2 ? 1 : .2f + .1f * (float)n;
        const int size = form == CLASS ? 1 : form == FACTOR ? 2 : 3;
        words[size * n] = class[n];
        if (form == MIXED) words[size * n + 1] = n == 1 ? class[n] : class[N + n];
        if (form != CLASS) memcpy(&words[size * n + size - 1], &weight, sizeof weight);
    }
}

static int build(rig *r, bool arc, enum form form, double eps)
{
    kolo_graph *g = r->g;
    const int64_t dim[] = {N, form == NUMBERS ? C : form == MIXED ? 3 : 2};
    const int x = g->input = rig_input(r, "x", 2, (const int64_t[]){N, F});
    g->label = kolo_graph_tensor(g, "label", KOLO_ROLE_LABEL, form == NUMBERS ? KOLO_F32 : KOLO_I32,
                                 form == CLASS ? 1 : 2, dim);
    if (!arc) return kolo_cross_entropy(g, kolo_linear(g, "fc", x, C, true, rig_init, rig_init), eps);
    return kolo_cross_entropy(g, kolo_arc_margin(g, "arc", kolo_cosine(g, "fc", x, C, rig_init), 0.5, 16),
                              eps);
}

static rig open_classes(kolo_backend *b, bool arc, enum form form, double eps, int parts)
{
    rig r = rig_open(b, KOLO_F32, 1);
    kolo_graph *g = r.g;
    rig_check(build(&r, arc, form, eps), "network");
    if (parts > 1) rig_check(kolo_graph_split_channels(g, parts), "parts");
    rig_check(kolo_graph_backward(g), "backward");
    rig_layout(&r);
    for (int t = 0; t < (int)g->tensors; t++) {
        const kolo_tensor *x = &g->tensor[t];
        if (x->producer >= 0 || t == g->label) continue;
        char name[256];
        const kolo_tensor whole = kolo_tensor_whole(x, name);
        float v[C * F], slab[C * F];
        const int64_t count = kolo_tensor_count(&whole);
        golden_fill(name, 3, 0, 3, v, count);
        for (int64_t i = 0; i < count && !arc; i++) v[i] = roundf(v[i]);
        if (x->slab.runs) kolo_slab_take(x, slab, v);
        rig_set(&r, t, x->slab.runs ? slab : v);
    }
    fill_label(form, r.buffer[g->label]);
    r.step.valid[0] = VALID;
    r.step.valid_global = GLOBAL;
    rig_run(&r);
    return r;
}

/* Columns that parts have of the gradient of `name`, (N,C), put together. */
static void gradients(rig *r, const char *name, int parts, float *to)
{
    for (int p = 0; p < parts; p++) {
        char text[64];
        float v[N * C];
        snprintf(text, sizeof text, parts > 1 ? "%s:part%d" : "%s", name, p);
        const int t = kolo_graph_find(r->g, text), d = t < 0 ? t : r->g->grad[t];
        rig_check(d, text);
        const int64_t first = kolo_part_start(C, parts, p), count = kolo_part_start(C, parts, p + 1) - first;
        rig_get(r, d, v);
        for (int n = 0; n < N; n++) memcpy(to + n * C + first, v + n * count, (size_t)count * sizeof *to);
    }
}

static void compare(kolo_backend *b, bool arc, enum form form, double eps, int parts)
{
    rig whole = open_classes(b, arc, form, eps, 1), cut = open_classes(b, arc, form, eps, parts);
    float want[N * C], got[N * C], loss[4], sum[4];
    double far = 0, large = 0;
    rig_get(&whole, whole.g->metrics, loss);
    rig_get(&cut, cut.g->metrics, sum);
    gradients(&whole, arc ? "arc" : "fc", 1, want);
    gradients(&cut, arc ? "arc" : "fc", parts, got);
    for (int i = 0; i < N * C; i++) {
        far = fmax(far, fabs((double)(want[i] - got[i])));
        large = fmax(large, fabs((double)want[i]));
    }
    ok(loss[0] > 0 && fabsf(loss[0] - sum[0]) <= (arc ? 1e-6f * loss[0] : 0) && loss[1] == sum[1] &&
           loss[2] == sum[2] && loss[3] == sum[3],
       "%s, %s, smoothing %g, in %d parts: the same metrics (%.7g, %.7g)", arc ? "cosines" : "linear",
       form_name[form], eps, parts, (double)loss[0], (double)sum[0]);
    ok(large > 0 && far <= (arc ? 1e-6 * large : 0), "  and gradients (%.2g apart)", far);
    ok(kolo_graph_find(cut.g, arc ? "arc" : "fc") < 0, "  without the logits of all classes");
    rig_close(&whole);
    rig_close(&cut);
}

int main(void)
{
    kolo_backend *b = rig_backend(2);
    for (int form = CLASS; form <= NUMBERS; form++)
        for (int parts = 2; parts <= 4; parts++)
            compare(b, false, (enum form)form, form % 2 ? 0.1 : 0, parts);
    compare(b, true, CLASS, 0, 2);
    compare(b, true, CLASS, 0.1, 12);
    kolo_backend_destroy(&b);
    return done_testing();
}
