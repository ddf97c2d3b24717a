/* What must hold for every operation of the CPU backend, whatever it computes: a row for each, valid rows,
 * work in place, the same bits for any number of threads, bf16 within its rounding, zero padding, choices
 * that another process repeats. */
#include <unistd.h>

#include "golden_file.h"
#include "ops_rig.h"

/* One network that holds the operations of classifying maps but cross entropy; x (N, 20, 9, 11) is an
 * input. */
static int build_all(rig *r, int64_t rows, bool norm_only)
{
    kolo_graph *g = r->g;
    int x = rig_input(r, "x", 4, (const int64_t[]){rows, 20, 9, 11});
    if (norm_only) {
        int y = kolo_relu(g, "relu", kolo_add(g, "add", kolo_batch_norm(g, "n", x, 1e-3, 0.1, 1), x));
        y = kolo_add(g, "add2", kolo_batch_norm(g, "n2", y, 1e-3, 0.1, 1),
                     kolo_batch_norm(g, "n3", kolo_max_pool(g, "max", y, 3, 1, 1), 1e-3, 0.1, 1));
        y = kolo_relu(g, "relu2", y);
        rig_check(kolo_graph_fuse(g), "fuse");
        return y < 0 ? y : g->node[g->nodes - 1].out[0];
    }
    kolo_conv_spec s = {
        .out = 12, .kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}, .bias = true, .weight = rig_init};
    int a = kolo_conv(g, "c", x, &s);
    a = kolo_relu(g, "relu", kolo_batch_norm(g, "n", a, 1e-3, 0.1, 1));
    a = kolo_add(g, "add", kolo_avg_pool(g, "avg", a, 3, 1, 1, false), a);
    a = kolo_add(g, "even",
                 kolo_adaptive_avg_pool(g, "adaptive", kolo_max_pool(g, "half", a, 2, 2, 0), 9, 11), a);
    a = kolo_shortcut_a(g, "short", kolo_max_pool(g, "max", a, 3, 1, 1), 20);
    int b = kolo_global_avg_pool(g, "global", a);
    int c = kolo_linear(g, "l2", kolo_flatten(g, "flat", a), 20, false, rig_init, rig_init);
    int d = kolo_add(g, "add2", b, c);
    return kolo_linear(g, "l", kolo_relu(g, "relu2", d), 7, true, rig_init, rig_init);
}

static void fill_inputs(rig *r)
{
    for (int t = 0; t < (int)r->g->tensors; t++) {
        const kolo_tensor *x = &r->g->tensor[t];
        if (x->producer >= 0) continue;
        int64_t n = kolo_tensor_count(x);
        float *v = malloc((size_t)n * sizeof *v);
        double scale = x->role == KOLO_ROLE_PARAM && x->rank > 1 ? 0.2 : 1;
        golden_fill(x->name, 3, x->rank == 1 && golden_ends(x->name, "weight") ? 1 : 0,
                    x->rank == 1 ? 0.4 : scale * golden_unit, v, n);
        rig_set(r, t, v);
        free(v);
    }
}

/* What of the networks: all, or the norm with its sum and relu, whose gradient takes the sign
 * from y or from signs. */
enum { ALL, NORM, SIGNS };

static rig open_all(kolo_backend *b, enum kolo_dtype dtype, int64_t block, int64_t rows, int norm_only)
{
    rig r = rig_open(b, dtype, block);
    r.g->signs = norm_only == SIGNS;
    int y = build_all(&r, rows, norm_only != ALL);
    rig_check(y, "network");
    rig_backward(&r, y);
    rig_layout(&r);
    fill_inputs(&r);
    return r;
}

/* Largest distance of two rigs' values, or gradients (of the same graph), relative to the l2 norm of each. */
static double distance(rig *a, rig *b, bool gradients, const char **worst)
{
    double most = 0;
    for (int t = 0; t < (int)a->g->tensors; t++) {
        const kolo_tensor *x = &a->g->tensor[t];
        if (x->producer < 0 || x->dtype == KOLO_U8 || x->dtype == KOLO_F64) continue;
        if (!strncmp(x->name, "grad:", 5) != gradients) continue;
        if (!strcmp(x->name, "grad:c.bias")) continue; /* 0 in truth: the norm takes a shift away */
        int64_t n = kolo_tensor_count(x);
        float *v = malloc((size_t)n * sizeof *v), *w = malloc((size_t)n * sizeof *w);
        rig_get(a, t, v);
        rig_get(b, t, w);
        double square = 0, apart = 0;
        for (int64_t i = 0; i < n; i++) {
            square += (double)v[i] * (double)v[i];
            apart += ((double)v[i] - (double)w[i]) * ((double)v[i] - (double)w[i]);
        }
        double far = !isfinite(apart) ? INFINITY : square > 0 ? sqrt(apart / square) : sqrt(apart);
        if (far > most) {
            most = far;
            *worst = x->name;
        }
        free(v);
        free(w);
    }
    return most;
}

static const int64_t blocks[] = {1, 8, 16, RIG_NHWC};
static const char *const block_name[] = {"nchw", "nChw8c", "nChw16c", "nhwc"};

static void test_rows(void)
{
    extern const kolo_backend_type kolo_cpu_backend;
    int rows = 0;
    for (int op = 0; op < KOLO_OP_COUNT; op++) {
        const kolo_op_row *row = kolo_cpu_backend.rows[op];
        if (row && row->prepare) rows++;
        else diag("the cpu backend lacks %s", kolo_op_table[op].name);
    }
    is_int(rows, KOLO_OP_COUNT, "every operation of the table has a row of the cpu backend");
}

/* The gradients of the norm by signs have the bits of those by y. */
static void test_signs(kolo_backend *b)
{
    for (int dtype = KOLO_F32; dtype <= KOLO_BF16; dtype++)
        for (int i = 0; i < 4; i++) {
            rig by_y = open_all(b, (enum kolo_dtype)dtype, blocks[i], 4, NORM),
                by_signs = open_all(b, (enum kolo_dtype)dtype, blocks[i], 4, SIGNS);
            by_y.step.valid[0] = by_signs.step.valid[0] = 3;
            rig_run(&by_y);
            rig_run(&by_signs);
            int same = 0, signs = 0, other_bits = 0;
            for (int64_t t = 0; t < by_y.g->tensors; t++) {
                const int other = kolo_graph_find(by_signs.g, by_y.g->tensor[t].name);
                const bool equal =
                    other >= 0 && !memcmp(by_y.buffer[t], by_signs.buffer[other], by_y.layout[t].bytes);
                same += equal;
                other_bits += other >= 0 && !equal;
            }
            for (int64_t t = 0; t < by_signs.g->tensors; t++) signs += by_signs.g->tensor[t].dtype == KOLO_U8;
            /* the signs are two of three u8 tensors */
            ok(same == (int)by_y.g->tensors && !other_bits && signs == 3,
               "%s %s: signs in the place of y, the same bits", kolo_dtype_name((enum kolo_dtype)dtype),
               block_name[i]);
            rig_close(&by_y);
            rig_close(&by_signs);
        }
}

static void test_in_place(kolo_backend *b)
{
    for (int dtype = KOLO_F32; dtype <= KOLO_BF16; dtype++)
        for (int i = 0; i < 4; i++)
            for (int norm_only = 0; norm_only < 2; norm_only++) {
                const char *which = "";
                rig apart = open_all(b, (enum kolo_dtype)dtype, blocks[i], 3, norm_only),
                    over = open_all(b, (enum kolo_dtype)dtype, blocks[i], 3, norm_only);
                over.in_place = true;
                rig_run(&apart);
                rig_run(&over);
                ok(rig_same_bits(&apart, &over, &which), "%s %s%s: in place, the same bits %s",
                   kolo_dtype_name((enum kolo_dtype)dtype), block_name[i], norm_only ? ", norm" : "", which);
                ok(rig_padding_is_zero(&apart), "%s %s%s: the padding is zero",
                   kolo_dtype_name((enum kolo_dtype)dtype), block_name[i], norm_only ? ", norm" : "");
                rig_close(&apart);
                rig_close(&over);
            }
}

static void test_threads(void)
{
    kolo_backend *one = rig_backend(1), *two = rig_backend(2), *three = rig_backend(3);
    for (int i = 0; i < 4; i++) {
        const char *which = "";
        rig a = open_all(one, KOLO_F32, blocks[i], 5, true), b = open_all(two, KOLO_F32, blocks[i], 5, true),
            c = open_all(three, KOLO_F32, blocks[i], 5, true);
        rig_run(&a);
        rig_run(&b);
        rig_run(&c);
        ok(rig_same_bits(&a, &b, &which) && rig_same_bits(&a, &c, &which),
           "%s: norm with 1, 2 and 3 threads, the same bits %s", block_name[i], which);
        rig_close(&a);
        rig_close(&b);
        rig_close(&c);
    }
    enum { N = 300007 };
    float *x = malloc(N * sizeof *x);
    golden_fill("x", 1, 0, 1, x, N);
    float *sum = calloc(N, sizeof *sum);
    kolo_backend_fold(two, sum, x, N);
    kolo_backend_fold(two, sum, x, N);
    int wrong = 0;
    for (int i = 0; i < N; i++) wrong += sum[i] != 2 * x[i];
    is_int(wrong, 0, "fold adds every element");
    free(x);
    free(sum);
    kolo_backend_destroy(&one);
    kolo_backend_destroy(&two);
    kolo_backend_destroy(&three);
}

/* Rows beyond the valid ones must not matter: 6 rows of which n are valid give what n rows give. */
static void test_valid(kolo_backend *b)
{
    enum { ROWS = 6 };
    for (int i = 0; i < 4; i++)
        for (int valid = 0; valid <= ROWS; valid += valid == 1 ? ROWS - 2 : 1) {
            rig r = open_all(b, KOLO_F32, blocks[i], ROWS, true),
                small = open_all(b, KOLO_F32, blocks[i], valid ? valid : 1, true);
            int x = kolo_graph_find(r.g, "x"), dy = kolo_graph_find(r.g, "dy");
            r.step.valid[0] = valid;
            size_t row = r.layout[x].bytes / ROWS; /* whatever lies in invalid rows, NaN too, is not read */
            memset((char *)r.buffer[x] + (size_t)valid * row, 0xFF, (size_t)(ROWS - valid) * row);
            memset((char *)r.buffer[dy] + (size_t)valid * row, 0xFF, (size_t)(ROWS - valid) * row);
            rig_run(&r);
            bool equal = true, zero = true;
            if (valid) {
                rig_run(&small);
                for (int64_t t = 0; t < r.g->tensors; t++)
                    if (t != x && t != dy)
                        equal &= !memcmp(r.buffer[t], small.buffer[t], small.layout[t].bytes);
            }
            const kolo_node *apply = NULL, *grad = NULL;
            for (int64_t k = 0; k < r.g->nodes; k++) {
                if (r.g->node[k].op == KOLO_OP_norm_apply) apply = &r.g->node[k];
                if (r.g->node[k].op == KOLO_OP_norm_grad_apply) grad = &r.g->node[k];
            }
            for (size_t k = (size_t)valid * row; k < ROWS * row; k++)
                zero &= !((char *)r.buffer[apply->out[0]])[k] && !((char *)r.buffer[grad->out[0]])[k];
            float flag = ((float *)r.buffer[apply->out[1]])[2 * 20];
            ok(equal && zero && flag == (valid ? 1 : 0),
               "%s: norm with %d of %d rows valid is norm of %d rows", block_name[i], valid, ROWS, valid);
            rig_close(&r);
            rig_close(&small);
        }
}

static void test_bf16(kolo_backend *b)
{
    for (int i = 0; i < 4; i++) {
        const char *which = "";
        rig a = open_all(b, KOLO_F32, blocks[i], 4, false), h = open_all(b, KOLO_BF16, blocks[i], 4, false);
        for (int t = 0; t < (int)a.g->tensors; t++) /* the same inputs: rounded ones */
            if (a.g->tensor[t].producer < 0 && a.g->tensor[t].dtype == KOLO_F32 &&
                h.g->tensor[t].dtype == KOLO_BF16) {
                int64_t n = kolo_tensor_count(&a.g->tensor[t]);
                float *v = malloc((size_t)n * sizeof *v);
                rig_get(&h, t, v);
                rig_set(&a, t, v);
                free(v);
            }
        rig_run(&a);
        rig_run(&h);
        double far = distance(&a, &h, false, &which);
        ok(far > 1e-5 && far < 0.01, "%s: bf16 is near f32 (%.2g of the norm, %s)", block_name[i], far,
           which);
        /* of equal bf16 numbers a maximum takes one, in f32 perhaps the other */
        far = distance(&a, &h, true, &which);
        ok(far > 1e-5 && far < 0.2, "%s: so are the gradients (%.2g of the norm, %s)", block_name[i], far,
           which);
        rig_close(&a);
        rig_close(&h);
    }
    int bad = 0;
    for (uint32_t u = 0; u < 1u << 16; u++) { /* every bf16 number survives the way to f32 and back */
        uint16_t back = kolo_to_bf16(kolo_from_bf16((uint16_t)u));
        bad += back != u && !((u & 0x7F80) == 0x7F80 && (u & 0x7F) && back == (u | 0x40));
    }
    is_int(bad, 0, "bf16 -> f32 -> bf16 is the identity (a NaN becomes quiet)");
    ok(kolo_to_bf16(1.00390625f) == 0x3F80 && kolo_to_bf16(1.01171875f) == 0x3F82, "ties go to even");
    ok(isnan(kolo_from_bf16(kolo_to_bf16(kolo_bits_float(0x7F800001)))),
       "a NaN whose payload would be cut stays a NaN");
}

static void test_cross_entropy(kolo_backend *b)
{
    enum { N = 7, C = 9 };
    rig r = rig_open(b, KOLO_F32, 1);
    kolo_graph *g = r.g;
    int64_t rows = N;
    int x = rig_input(&r, "x", 2, (const int64_t[]){N, C});
    g->label = kolo_graph_tensor(g, "label", KOLO_ROLE_LABEL, KOLO_I32, 1, &rows);
    int m = kolo_cross_entropy(g, x, 0.1);
    rig_check(m, "cross entropy");
    g->grad = malloc(64 * sizeof *g->grad);
    for (int i = 0; i < 64; i++) g->grad[i] = -1;
    rig_check(kolo_op_table[KOLO_OP_cross_entropy].gradient(g, 0), "gradient");
    rig_layout(&r);
    fill_inputs(&r);
    int32_t *label = r.buffer[g->label];
    float *logit = r.buffer[x], *metric = r.buffer[m], *dx = r.buffer[g->grad[x]];
    golden_labels("l", 1, C, label, N);
    r.step.valid[0] = 5;
    r.step.valid_global = 10;
    label[6] = 99; /* not looked at */
    rig_run(&r);
    int top[2] = {0, 0};
    for (int n = 0; n < 5; n++) {
        int before = 0;
        for (int c = 0; c < C; c++) before += logit[n * C + c] > logit[n * C + label[n]];
        top[0] += before < 1;
        top[1] += before < 5;
    }
    ok(metric[1] == (float)top[0] && metric[2] == (float)top[1] && metric[3] == 5,
       "top-1, top-5 and rows are counted over valid rows");
    double worst = 0;
    for (int i = 0; i < 5 * C; i++) { /* the loss of 10 rows is a mean, hence / 10 */
        float was = logit[i];
        double loss[2];
        for (int s = 0; s < 2; s++) {
            double sum = 0;
            logit[i] = was + (s ? 1e-2f : -1e-2f);
            rig_check(rig_run_node(&r, 0), "loss");
            sum = (double)metric[0] / 10;
            loss[s] = sum;
        }
        logit[i] = was;
        worst = fmax(worst, fabs((loss[1] - loss[0]) / 2e-2 - (double)dx[i]));
    }
    ok(worst < 2e-5, "its gradient is that of the global mean (%.2g)", worst);
    bool zero = true;
    for (int i = 5 * C; i < N * C; i++) zero &= dx[i] == 0;
    ok(zero, "rows that are not valid have no gradient");
    for (int c = 0; c < C; c++) logit[c] = 1;
    label[0] = 4;
    r.step.valid[0] = 1;
    rig_check(rig_run_node(&r, 0), "loss");
    ok(metric[1] == 0 && metric[2] == 1, "of equal logits the lower class comes first");
    label[0] = C;
    is_int(rig_run_node(&r, 0), KOLO_EINPUT, "a label outside the classes is refused: %s", kolo_error_text());
    r.step.valid[0] = 0;
    is_int(rig_run_node(&r, 0), 0, "no valid row is no error");
    ok(metric[0] == 0 && metric[3] == 0, "and counts nothing");
    rig_close(&r);
}

static char *choices_of(const char *given, const char *cache, bool deterministic, int64_t *block)
{
    kolo_backend_config config = {
        .threads = 2, .choices = given, .cache = cache, .deterministic = deterministic};
    kolo_backend *b = NULL;
    rig_check(kolo_backend_create(&b, "cpu", &config), "backend");
    rig r = rig_open(b, KOLO_F32, 1);
    int y = build_all(&r, 2, false);
    rig_backward(&r, y);
    for (int64_t i = 0; i < r.g->nodes; i++)
        r.g->node[i].backward = kolo_op_table[r.g->node[i].op].shape == NULL;
    r.layout = calloc((size_t)r.g->tensors, sizeof *r.layout);
    rig_check(kolo_backend_layout(b, r.g, NULL, NULL, r.layout), "layout");
    for (int i = 0; i < (int)r.g->nodes; i++) {
        kolo_kernel *k;
        size_t bytes;
        rig_check(kolo_backend_prepare(b, r.g, i, r.layout, &k, &bytes), "prepare");
    }
    *block = r.layout[r.g->node[0].out[0]].block;
    char *text = kolo_backend_choices(b);
    free(r.layout);
    r.layout = NULL;
    kolo_graph_destroy(&r.g);
    kolo_backend_destroy(&b);
    return text;
}

static int lines(const char *text)
{
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

static void test_choices(void)
{
    int64_t block[4];
    char *made = choices_of(NULL, NULL, false, &block[0]), *again = choices_of(made, NULL, false, &block[1]);
    ok(lines(made) >= 1 && block[0] == block[1],
       "a second process takes the choices of the first (%d of them)", lines(made));
    int missing = 0;
    char *rest = again;
    for (char *line; (line = strsep(&rest, "\n"));) missing += !strstr(made, line);
    is_int(missing, 0, "and makes none of its own");
    char *rule = choices_of(NULL, NULL, true, &block[2]);
    is_text(rule, "", "deterministic=true asks no clock");
    char path[] = "/tmp/kolo-choices-XXXXXX";
    int fd = mkstemp(path);
    if (fd >= 0) close(fd);
    char *first = choices_of(NULL, path, false, &block[2]), *text = NULL;
    rig_check(kolo_file_read(path, &text, NULL), "cache");
    int kept = lines(text);
    char *second = choices_of(NULL, path, false, &block[3]), *after = NULL;
    rig_check(kolo_file_read(path, &after, NULL), "cache");
    ok(kept == lines(first) && !strcmp(text, after) && block[2] == block[3],
       "the cache file keeps %d choices and is not timed again", kept);
    unlink(path);
    free(made);
    free(again);
    free(rule);
    free(first);
    free(second);
    free(text);
    free(after);
    char *odd = choices_of("conv f32 nonsense = direct\nlayout f32 12 = 7\ntorn", NULL, false, &block[0]);
    is_text(odd, "", "choices that do not fit are passed over for the fixed rule");
    free(odd);
}

static void test_refusals(void)
{
    kolo_backend *b = NULL;
    kolo_backend_config config = {.threads = 2};
    is_int(kolo_backend_create(&b, "tpu", &config), KOLO_ECONFIG, "an unknown backend is refused: %s",
           kolo_error_text());
    ok(!b, "and none is made");
    config.threads = 0;
    is_int(kolo_backend_create(&b, "cpu", &config), KOLO_ECONFIG, "no threads are refused: %s",
           kolo_error_text());
    ok(!strncmp(kolo_backend_version("cpu"), "oneDNN ", 7), "the library has a version: %s",
       kolo_backend_version("cpu"));
}

/* Weights go to the backend's layout and back unchanged, padding and all. */
static void test_canonical(kolo_backend *b)
{
    for (int i = 0; i < 4; i++) {
        rig r = open_all(b, KOLO_F32, blocks[i], 2, false);
        int bad = 0;
        for (int t = 0; t < (int)r.g->tensors; t++) {
            int64_t n = kolo_tensor_count(&r.g->tensor[t]);
            if (r.g->tensor[t].dtype != KOLO_F32) continue;
            float *v = malloc((size_t)n * sizeof *v), *w = malloc((size_t)n * sizeof *w);
            golden_fill("v", 1, 0, 1, v, n);
            rig_set(&r, t, v);
            rig_get(&r, t, w);
            bad += memcmp(v, w, (size_t)n * sizeof *v) != 0;
            double sum = 0, want = 0;
            for (size_t k = 0; k < r.layout[t].bytes / 4; k++)
                sum += (double)((float *)r.buffer[t])[k] * (double)((float *)r.buffer[t])[k];
            for (int64_t k = 0; k < n; k++) want += (double)v[k] * (double)v[k];
            bad += fabs(sum - want) > 1e-9 * want; /* what is beside the elements is zero */
            free(v);
            free(w);
        }
        is_int(bad, 0, "%s: tensors survive the way in and out, padding is zero", block_name[i]);
        rig_close(&r);
    }
}

int main(void)
{
    kolo_backend *b = rig_backend(2);
    test_rows();
    test_canonical(b);
    test_signs(b);
    test_in_place(b);
    test_threads();
    test_valid(b);
    test_bf16(b);
    test_cross_entropy(b);
    test_choices();
    test_refusals();
    kolo_backend_destroy(&b);
    return done_testing();
}
