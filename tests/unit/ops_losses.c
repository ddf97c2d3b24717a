/* Losses of classes with every form of label, and the margin of ArcFace, counted again in f64; gradients
 * against differences of that. */
#include "golden_file.h"
#include "ops_rig.h"

enum { N = 7, VALID = 5, C = 9, GLOBAL = 10 };
enum form { CLASS, MIXED, NUMBERS };
static const char *const form_name[] = {"a class", "two classes", "numbers"};

/* What the label of row n says of class c. */
static double truth(enum form form, const void *label, int n, int c)
{
    const int32_t *words = label;
    float weight;
    if (form == NUMBERS) return (double)((const float *)label)[n * C + c];
    if (form == CLASS) return words[n] == c;
    memcpy(&weight, &words[3 * n + 2], sizeof weight);
    return (double)weight * (words[3 * n] == c) + (1 - (double)weight) * (words[3 * n + 1] == c);
}

static double loss_of(bool binary, double eps, enum form form, const void *label, const double *x, int n)
{
    double z = 0, loss = 0;
    for (int c = 0; c < C; c++) z += exp(x[c]);
    for (int c = 0; c < C; c++) {
        const double y = truth(form, label, n, c) * (1 - eps) + eps / C, p = 1 / (1 + exp(-x[c]));
        loss -= binary ? (y * log(p) + (1 - y) * log(1 - p)) / C : y * (x[c] - log(z));
    }
    return loss;
}

static void fill_labels(enum form form, void *label)
{
    int32_t *words = label, class[2 * N];
    golden_labels("l", 1, C, class, 2 * N);
    if (form == NUMBERS) golden_fill("y", 1, .5, 1, label, N * C);
    for (int n = 0; n < N && form != NUMBERS; n++) {
        const float weight = n == 2 ? 1 : .2f + .1f * (float)n;
        words[form == MIXED ? 3 * n : n] = class[n];
        if (form == CLASS) continue;
        /* also an image mixed with one of its own class */
        words[3 * n + 1] = n == 1 ? class[n] : class[N + n];
        memcpy(&words[3 * n + 2], &weight, sizeof weight);
    }
}

static rig open_loss(kolo_backend *b, bool binary, enum form form, double eps, int *x, int *metrics)
{
    rig r = rig_open(b, KOLO_F32, 1);
    kolo_graph *g = r.g;
    *x = rig_input(&r, "x", 2, (const int64_t[]){N, C});
    const int64_t dim[] = {N, form == MIXED ? 3 : C};
    g->label = kolo_graph_tensor(g, "label", KOLO_ROLE_LABEL, form == NUMBERS ? KOLO_F32 : KOLO_I32,
                                 form == CLASS ? 1 : 2, dim);
    *metrics = (binary ? kolo_bce : kolo_cross_entropy)(g, *x, eps);
    rig_check(*metrics, "loss");
    g->grad = malloc(64 * sizeof *g->grad);
    for (int i = 0; i < 64; i++) g->grad[i] = -1;
    rig_check(kolo_op_table[g->node[0].op].gradient(g, 0), "gradient");
    rig_layout(&r);
    golden_fill("x", 3, 0, 6, r.buffer[*x], N * C);
    fill_labels(form, r.buffer[g->label]);
    r.step.valid[0] = VALID;
    r.step.valid_global = GLOBAL;
    return r;
}

static void test_loss(kolo_backend *b, bool binary, enum form form, double eps)
{
    int x, m;
    rig r = open_loss(b, binary, form, eps, &x, &m);
    rig_run(&r);
    const float *logit = r.buffer[x], *metric = r.buffer[m], *dx = r.buffer[r.g->grad[x]];
    const void *label = r.buffer[r.g->label];
    double sum = 0, worst = 0, row[C];
    int top[2] = {0, 0}, zero = 1;
    for (int n = 0; n < VALID; n++) {
        int heavier = 0, before = 0;
        for (int c = 0; c < C; c++) row[c] = (double)logit[n * C + c];
        sum += loss_of(binary, eps, form, label, row, n);
        for (int c = 0; c < C; c++)
            if (truth(form, label, n, c) > truth(form, label, n, heavier)) heavier = c;
        for (int c = 0; c < C; c++) before += row[c] > row[heavier];
        top[0] += before < 1;
        top[1] += before < 5;
        for (int c = 0; c < C; c++) {
            const double was = row[c], h = 1e-5;
            row[c] = was + h;
            const double up = loss_of(binary, eps, form, label, row, n);
            row[c] = was - h;
            const double slope = (up - loss_of(binary, eps, form, label, row, n)) / (2 * h) / GLOBAL;
            row[c] = was;
            worst = fmax(worst, fabs(slope - (double)dx[n * C + c]));
        }
    }
    for (int i = VALID * C; i < N * C; i++) zero &= dx[i] == 0;
    const char *name = binary ? "bce" : "cross entropy";
    ok(fabs((double)metric[0] - sum) < 1e-5 * sum, "%s of %s, smoothing %g: the sum over valid rows (%.6f)",
       name, form_name[form], eps, sum);
    ok(metric[1] == (float)top[0] && metric[2] == (float)top[1] && metric[3] == VALID,
       "  hits are counted for the heavier class");
    ok(worst < 1e-7 && zero, "  its gradient is that of the mean over the global batch (%.2g)", worst);
    rig_close(&r);
}

/* Auxiliary logits: their loss counts a.weight times, hits do not; the logits have the gradient as without
 * them. */
static void test_auxiliary(kolo_backend *b, bool binary)
{
    const double weight = .3;
    rig r = rig_open(b, KOLO_F32, 1);
    kolo_graph *g = r.g;
    const int x = rig_input(&r, "x", 2, (const int64_t[]){N, C}),
              second = rig_input(&r, "second", 2, (const int64_t[]){N, C});
    g->label = kolo_graph_tensor(g, "label", KOLO_ROLE_LABEL, KOLO_I32, 1, (const int64_t[]){N});
    g->train = true;
    g->auxiliary = second;
    g->auxiliary_weight = weight;
    const int m = (binary ? kolo_bce : kolo_cross_entropy)(g, x, .1);
    rig_check(m, "loss");
    g->grad = malloc(64 * sizeof *g->grad);
    for (int i = 0; i < 64; i++) g->grad[i] = -1;
    rig_check(kolo_op_table[g->node[0].op].gradient(g, 0), "gradient");
    rig_layout(&r);
    golden_fill("x", 3, 0, 6, r.buffer[x], N * C);
    golden_fill("x", 4, 0, 6, r.buffer[second], N * C);
    fill_labels(CLASS, r.buffer[g->label]);
    r.step.valid[0] = VALID;
    r.step.valid_global = GLOBAL;
    rig_run(&r);
    int alone, metrics, top = 0, zero = 1;
    rig one = open_loss(b, binary, CLASS, .1, &alone, &metrics);
    rig_run(&one);
    const float *metric = r.buffer[m], *dx = r.buffer[g->grad[x]], *d2 = r.buffer[g->grad[second]],
                *without = one.buffer[one.g->grad[alone]], *logit = r.buffer[second];
    double sum = (double)((float *)one.buffer[metrics])[0], worst = 0, row[C];
    for (int n = 0; n < VALID; n++) {
        for (int c = 0; c < C; c++) row[c] = (double)logit[n * C + c];
        sum += weight * loss_of(binary, .1, CLASS, r.buffer[g->label], row, n);
        for (int c = 0; c < C; c++) {
            const double was = row[c], h = 1e-5;
            row[c] = was + h;
            const double up = loss_of(binary, .1, CLASS, r.buffer[g->label], row, n);
            row[c] = was - h;
            const double slope = (up - loss_of(binary, .1, CLASS, r.buffer[g->label], row, n)) / (2 * h);
            row[c] = was;
            worst = fmax(worst, fabs(weight * slope / GLOBAL - (double)d2[n * C + c]));
        }
    }
    for (int i = 0; i < N * C; i++) zero &= dx[i] == without[i];
    for (int i = 1; i < 4; i++) top += metric[i] == ((float *)one.buffer[metrics])[i];
    ok(fabs((double)metric[0] - sum) < 1e-5 * sum && top == 3,
       "%s with auxiliary logits: %g of their loss is added, their hits are not", binary ? "bce" : "softmax",
       weight);
    ok(worst < 1e-7 && zero, "  their gradient is so much of it (%.2g), that of the logits as it was", worst);
    rig_close(&one);
    rig_close(&r);
}

/* torch 2.15, f64: CrossEntropyLoss(weight=[.5, 3, 1.25])(x, [0, 2, 2, 1]), x[n][c] = ((7 n + 3 c) % 5) / 2
 * - 1. The factor of a row is its weight by the mean weight of the batch, 6 / 4. */
static void test_class_weight(kolo_backend *b)
{
    enum { ROWS = 4, CLASSES = 3 };
    static const double loss = 1.0233269094340323,
                        gradient[ROWS * CLASSES] = {
                            -0.07164630140282596, 0.052377643267646865, 0.019268658135179084,
                            0.06906228342168572,  0.025406594231193506, -0.09446887765287923,
                            0.1385918657864212,   0.05098509813641617,  -0.1895769639228374,
                            0.07012219158304424,  -0.18573414039411879, 0.11561194881107452};
    static const int32_t class[ROWS] = {0, 2, 2, 1};
    static const float weight[CLASSES] = {.5f, 3, 1.25f};
    rig r = rig_open(b, KOLO_F32, 1);
    const int x = rig_input(&r, "x", 2, (const int64_t[]){ROWS, CLASSES});
    r.g->label = kolo_graph_tensor(r.g, "label", KOLO_ROLE_LABEL, KOLO_I32, 2, (const int64_t[]){ROWS, 2});
    const int m = kolo_cross_entropy(r.g, x, 0);
    rig_check(m, "loss");
    r.g->grad = malloc(64 * sizeof *r.g->grad);
    for (int i = 0; i < 64; i++) r.g->grad[i] = -1;
    rig_check(kolo_op_table[r.g->node[0].op].gradient(r.g, 0), "gradient");
    rig_layout(&r);
    int32_t *label = r.buffer[r.g->label];
    for (int n = 0; n < ROWS; n++) {
        const float factor = weight[class[n]] * ROWS / 6;
        label[2 * n] = class[n];
        memcpy(&label[2 * n + 1], &factor, sizeof factor);
        for (int c = 0; c < CLASSES; c++)
            ((float *)r.buffer[x])[n * CLASSES + c] = (float)((7 * n + 3 * c) % 5) / 2 - 1;
    }
    r.step.valid[0] = r.step.valid_global = ROWS;
    rig_run(&r);
    const float *metric = r.buffer[m], *dx = r.buffer[r.g->grad[x]];
    double worst = 0;
    for (int i = 0; i < ROWS * CLASSES; i++) worst = fmax(worst, fabs((double)dx[i] - gradient[i]));
    ok(fabs((double)metric[0] / ROWS - loss) < 1e-6, "class weights: the loss is torch's (%.7f)",
       (double)metric[0] / ROWS);
    ok(worst < 1e-7, "  so is its gradient (%.2g)", worst);
    rig_close(&r);
}

static void test_bad_labels(kolo_backend *b)
{
    for (int word = 0; word < 2; word++) {
        int x, m;
        rig r = open_loss(b, false, MIXED, 0, &x, &m);
        ((int32_t *)r.buffer[r.g->label])[3 * 1 + word] = C;
        is_int(rig_run_node(&r, 0), KOLO_EINPUT, "class %d of two outside the network's is refused: %s", word,
               kolo_error_text());
        rig_close(&r);
    }
}

/* Of row n: class c % 3 == 0 unknown in even rows; weights such as mixing and pos_weight give; row
 * 4 has nothing known. */
static void fill_image_labels(float *weight)
{
    golden_fill("p", 1, .5, 1, weight, N * 2 * C);
    for (int n = 0; n < N; n++)
        for (int c = 0; c < C; c++) {
            float *yes = &weight[n * 2 * C + c], *no = yes + C;
            *yes = fabsf(*yes) / C, *no = fabsf(*no) / C;
            if ((c + n) % 2) *yes = 0;
            else if (c % 4 == 0) *no = 0;
            if ((n % 2 == 0 && c % 3 == 0) || n == 4) *yes = *no = 0;
        }
}

static double image_loss(const float *weight, const double *x)
{
    double sum = 0;
    for (int c = 0; c < C; c++)
        sum -=
            (double)weight[c] * log(1 / (1 + exp(-x[c]))) + (double)weight[C + c] * log(1 / (1 + exp(x[c])));
    return sum;
}

/* Known classes with more of a negative than of a positive that stand before the best of the others. */
static int image_rank(const float *weight, const double *x)
{
    int before = 0, best = -1;
    for (int c = 0; c < C; c++)
        if (weight[c] > weight[C + c] && (best < 0 || x[c] > x[best])) best = c;
    for (int c = 0; c < C && best >= 0; c++)
        before += weight[c] + weight[C + c] > 0 && weight[c] <= weight[C + c] && x[c] >= x[best];
    return best < 0 ? C : before;
}

static void test_image_labels(kolo_backend *b, enum kolo_dtype dtype)
{
    rig r = rig_open(b, dtype, 1);
    kolo_graph *g = r.g;
    const double allowed = dtype == KOLO_F32 ? 1e-7 : 2e-4;
    const int64_t dim[] = {N, 2, C};
    int x = rig_input(&r, "x", 2, (const int64_t[]){N, C});
    g->label = kolo_graph_tensor(g, "label", KOLO_ROLE_LABEL, KOLO_F32, 3, dim);
    is_int(kolo_cross_entropy(g, x, 0), KOLO_EINTERNAL, "softmax cross entropy of image labels is refused");
    int m = kolo_bce(g, x, 0);
    rig_check(m, "loss");
    g->grad = malloc(64 * sizeof *g->grad);
    for (int i = 0; i < 64; i++) g->grad[i] = -1;
    rig_check(kolo_op_table[KOLO_OP_bce].gradient(g, g->tensor[m].producer), "gradient");
    rig_layout(&r);
    float v[N * C], dx[N * C], weight[N * 2 * C];
    golden_fill("x", 3, 0, 60, v, N * C); /* also where e^x is more than f32 has digits for */
    rig_set(&r, x, v);
    fill_image_labels(weight);
    memcpy(r.buffer[g->label], weight, sizeof weight);
    r.step.valid[0] = VALID;
    r.step.valid_global = GLOBAL;
    rig_run(&r);
    rig_get(&r, x, v); /* as rounded */
    rig_get(&r, g->grad[x], dx);
    const float *metric = r.buffer[m];
    double sum = 0, worst = 0, row[C];
    int top[2] = {0, 0}, zero = 1;
    for (int n = 0; n < N; n++) {
        const float *w = weight + n * 2 * C;
        for (int c = 0; c < C; c++) row[c] = (double)v[n * C + c];
        for (int c = 0; c < C; c++) {
            const double was = row[c], h = 1e-5;
            row[c] = was + h;
            const double up = image_loss(w, row);
            row[c] = was - h;
            const double slope = (up - image_loss(w, row)) / (2 * h) / GLOBAL;
            row[c] = was;
            if (n < VALID) worst = fmax(worst, fabs(slope - (double)dx[n * C + c]));
            else zero &= dx[n * C + c] == 0;
            if (w[c] + w[C + c] == 0) zero &= dx[n * C + c] == 0;
        }
        if (n >= VALID) continue;
        sum += image_loss(w, row);
        top[0] += image_rank(w, row) < 1;
        top[1] += image_rank(w, row) < 5;
    }
    const char *type = kolo_dtype_name(dtype);
    ok(fabs((double)metric[0] - sum) < 1e-5 * sum,
       "%s: bce of image labels: the sum over valid rows (%.6f, %.6f)", type, (double)metric[0], sum);
    ok(metric[1] == (float)top[0] && metric[2] == (float)top[1] && metric[3] == VALID,
       "%s: hits are positive classes before all negative ones", type);
    ok(worst < allowed && zero, "%s: its gradient; 0 where nothing is known and beyond the valid rows (%.2g)",
       type, worst);
    rig_close(&r);
}

static double margin_of(double cosine, double margin)
{
    const double angle = acos(cosine);
    return angle + margin < M_PI ? cos(angle + margin) : cosine - margin * sin(M_PI - margin);
}

static void test_arc(kolo_backend *b, enum kolo_dtype dtype)
{
    const double margin = .5, scale = 8, allowed = dtype == KOLO_F32 ? 1e-5 : .03;
    rig r = rig_open(b, dtype, 1);
    kolo_graph *g = r.g;
    const int64_t rows = N;
    int x = rig_input(&r, "x", 2, (const int64_t[]){N, C});
    g->label = kolo_graph_tensor(g, "label", KOLO_ROLE_LABEL, KOLO_I32, 1, &rows);
    int y = kolo_arc_margin(g, "m", x, margin, scale), dy = (rig_check(y, "margin"), rig_backward(&r, y));
    rig_layout(&r);
    float v[N * C], d[N * C], out[N * C], dx[N * C];
    golden_fill("c", 1, 0, 1.9, v, N * C); /* from -.95 to .95: on both sides of pi - margin */
    golden_fill("d", 1, 0, 1, d, N * C);
    int32_t label[N];
    golden_labels("l", 1, C, label, N);
    v[label[0]] = -.93f;
    rig_set(&r, x, v);
    rig_set(&r, dy, d);
    memcpy(r.buffer[g->label], label, sizeof label);
    r.step.valid[0] = VALID;
    rig_run(&r);
    rig_get(&r, x, v); /* as rounded */
    rig_get(&r, dy, d);
    rig_get(&r, y, out);
    rig_get(&r, g->grad[x], dx);
    double worst = 0, worst_grad = 0;
    for (int i = 0; i < N * C; i++) {
        const bool own = i / C < VALID && i % C == label[i / C];
        const double c = (double)v[i], h = 1e-6;
        const double want = own ? margin_of(c, margin) : c;
        const double slope = own ? (margin_of(c + h, margin) - margin_of(c - h, margin)) / (2 * h) : 1;
        worst = fmax(worst, fabs(want * scale - (double)out[i]));
        worst_grad = fmax(worst_grad, fabs(slope * scale * (double)d[i] - (double)dx[i]));
    }
    ok(worst < allowed * scale && worst_grad < allowed * scale * 4,
       "%s: margin of the own class, and its slope (%.2g, %.2g)", kolo_dtype_name(dtype), worst, worst_grad);
    rig_close(&r);
}

/* (N,C) = cosines of rows of 11 numbers */
static void test_cosine(kolo_backend *b, enum kolo_dtype dtype)
{
    enum { F = 11 };
    const double allowed = dtype == KOLO_F32 ? 1e-6 : .02;
    rig r = rig_open(b, dtype, 1);
    int x = rig_input(&r, "x", 2, (const int64_t[]){N, F}), y = kolo_cosine(r.g, "y", x, C, rig_init);
    rig_check(y, "cosine");
    int dy = rig_backward(&r, y), w = kolo_graph_find(r.g, "y.weight");
    rig_layout(&r);
    float v[N * F], u[C * F], d[N * C], out[N * C], dx[N * F], dw[C * F];
    golden_fill("x", 1, 0, 6, v, N * F);
    golden_fill("w", 1, 0, .3, u, C * F);
    golden_fill("d", 1, 0, 1, d, N * C);
    rig_set(&r, x, v);
    rig_set(&r, w, u);
    rig_set(&r, dy, d);
    rig_run(&r);
    rig_get(&r, x, v);
    rig_get(&r, dy, d);
    rig_get(&r, y, out);
    rig_get(&r, r.g->grad[x], dx);
    rig_get(&r, r.g->grad[w], dw);
    double worst = 0, far[2] = {0, 0}, gx[N * F] = {0}, gw[C * F] = {0};
    for (int n = 0; n < N; n++)
        for (int c = 0; c < C; c++) {
            double dot = 0, xx = 0, ww = 0;
            for (int k = 0; k < F; k++) {
                const double p = (double)v[n * F + k], q = (double)u[c * F + k];
                dot += p * q, xx += p * p, ww += q * q;
            }
            const double length = sqrt(xx * ww), one = (double)d[n * C + c];
            worst = fmax(worst, fabs(dot / length - (double)out[n * C + c]));
            for (int k = 0; k < F; k++) {
                const double p = (double)v[n * F + k], q = (double)u[c * F + k];
                gx[n * F + k] += one * (q / length - p * dot / (length * xx));
                gw[c * F + k] += one * (p / length - q * dot / (length * ww));
            }
        }
    for (int i = 0; i < N * F; i++) far[0] = fmax(far[0], fabs(gx[i] - (double)dx[i]));
    for (int i = 0; i < C * F; i++) far[1] = fmax(far[1], fabs(gw[i] - (double)dw[i]));
    ok(worst < allowed && far[0] < allowed && far[1] < 20 * allowed,
       "%s: cosines and their gradients (%.2g, %.2g, %.2g)", kolo_dtype_name(dtype), worst, far[0], far[1]);
    rig_close(&r);
}

int main(void)
{
    kolo_backend *b = rig_backend(2);
    for (int binary = 0; binary < 2; binary++)
        for (int form = CLASS; form <= NUMBERS; form++)
            for (int smooth = 0; smooth < 2; smooth++) test_loss(b, binary, (enum form)form, smooth ? .1 : 0);
    for (int binary = 0; binary < 2; binary++) test_auxiliary(b, binary);
    test_class_weight(b);
    test_bad_labels(b);
    for (int dtype = KOLO_F32; dtype <= KOLO_BF16; dtype++) {
        test_image_labels(b, (enum kolo_dtype)dtype);
        test_arc(b, (enum kolo_dtype)dtype);
        test_cosine(b, (enum kolo_dtype)dtype);
    }
    kolo_backend_destroy(&b);
    return done_testing();
}
