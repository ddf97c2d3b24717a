/* Plans of ranks that step by themselves: what each exchange says passes the checker, and every mistake in
 * what is averaged is found. */
#include <stdlib.h>
#include <string.h>

#include "kolo/error.h"
#include "models/models.h"
#include "plan/plan.h"
#include "tap.h"

static kolo_backend *backend;

static kolo_graph *graph_of(const char *model, int64_t side)
{
    kolo_model_config c = {.rows = 2,
                           .height = side,
                           .width = side,
                           .channels = 3,
                           .classes = 10,
                           .train = true,
                           .std = {.25f, .25f, .25f}};
    kolo_graph *g = NULL;
    if (kolo_model_graph(&g, model, &c) < 0) diag("%s: %s", model, kolo_error_text());
    return g;
}

static kolo_plan *plan_of(const kolo_graph *g, int ranks, int slots, const char *optimizer, bool state,
                          enum kolo_exchange exchange)
{
    const kolo_plan_config config = {.ranks = ranks,
                                     .slots = slots,
                                     .bucket_bytes = 1 << 16,
                                     .ema = true,
                                     .local = true,
                                     .average_state = state,
                                     .clip_norm = slots > 1,
                                     .exchange = exchange,
                                     .optimizer = kolo_optimizer_find(optimizer)};
    kolo_plan *p = NULL;
    if (kolo_plan_create(&p, g, backend, &config, NULL) < 0) diag("%s", kolo_error_text());
    return p;
}

static int count(const kolo_plan *p, enum kolo_action_kind kind)
{
    int n = 0;
    for (int64_t i = 0; i < p->actions; i++) n += p->action[i].kind == kind;
    return n;
}

static void test_lists(const char *model)
{
    static const char *const optimizers[] = {"sgd", "adamw", "lars", "lamb"};
    kolo_graph *g = graph_of(model, 16);
    int good = 0, all = 0, silent = 0, summed = 0, averaged = 0;
    for (int i = 0; g && i < 4 * 2 * 2 * KOLO_EXCHANGES; i++) {
        const enum kolo_exchange exchange = (enum kolo_exchange)(i / 16);
        const bool state = i / 8 % 2;
        kolo_plan *p = plan_of(g, 3, 1 + i / 4 % 2, optimizers[i % 4], state, exchange);
        all++;
        good += p && kolo_plan_check(p) == 0;
        if (p && kolo_plan_check(p) < 0) diag("%s", kolo_error_text());
        const int sent = p ? count(p, KOLO_ACTION_REDUCE) : 0, taken = p ? count(p, KOLO_ACTION_TAKE) : 0;
        silent += p && exchange == KOLO_EXCHANGE_NOTHING && sent + taken + count(p, KOLO_ACTION_WAIT) == 0;
        summed += p && exchange == KOLO_EXCHANGE_GRADIENTS && sent == p->buckets && taken == 0;
        if (p && exchange >= KOLO_EXCHANGE_NODE) {
            int front = 0;
            while (p->bucket[front].params == 0) front++;
            const int times = 1 + state * kolo_plan_states(p);
            averaged += sent == front + (p->buckets - front) * times;
        }
        kolo_plan_destroy(&p);
    }
    is_int(good, all, "%s: plans of every exchange pass", model);
    is_int(silent, 16, "%s: where nothing is exchanged nothing is sent", model);
    is_int(summed, 16, "%s: where gradients are, every bucket once, and nothing is averaged", model);
    is_int(averaged, 32, "%s: weights once, each of the optimizer's states where it is averaged", model);
    kolo_graph_destroy(&g);
}

static bool is_of_average(const kolo_action *a)
{
    return a->kind == KOLO_ACTION_SHARE || a->kind == KOLO_ACTION_TAKE || a->kind == KOLO_ACTION_REDUCE ||
           a->kind == KOLO_ACTION_WAIT || a->kind == KOLO_ACTION_UPDATE || a->kind == KOLO_ACTION_BUFFERS;
}

enum { DROPPED, DOUBLED, RETARGETED, OTHERWISE, WAYS };

static bool harm(kolo_plan *p, int64_t i, int way)
{
    kolo_action *a = &p->action[i];
    switch (way) {
    case DROPPED:
        memmove(a, a + 1, (size_t)(p->actions - i - 1) * sizeof *a);
        p->actions--;
        return true;
    case DOUBLED: {
        kolo_action *more = realloc(p->action, (size_t)(p->actions + 1) * sizeof *more);
        if (!more) return false;
        p->action = more;
        memmove(&more[i + 1], &more[i], (size_t)(p->actions - i) * sizeof *more);
        p->actions++;
        return true;
    }
    case RETARGETED:
        a->bucket = (a->bucket + 1) % p->buckets;
        return a->kind != KOLO_ACTION_BUFFERS; /* which names none that matters */
    default:                                   /* another state, or weights */
        a->from = (a->from + 1) % 2;
        return a->kind == KOLO_ACTION_SHARE || a->kind == KOLO_ACTION_TAKE;
    }
}

static void test_mistakes(bool state)
{
    static const char *const what[WAYS] = {"left out", "done twice", "done to another bucket",
                                           "done to something else"};
    kolo_graph *g = graph_of("resnet20", 16);
    for (int way = 0; way < WAYS; way++) {
        int made = 0, found = 0;
        kolo_plan *whole = plan_of(g, 2, 1, "sgd", state, KOLO_EXCHANGE_WEIGHTS);
        for (int64_t i = 0; whole && i < whole->actions; i++) {
            if (!is_of_average(&whole->action[i])) continue;
            kolo_plan *p = plan_of(g, 2, 1, "sgd", state, KOLO_EXCHANGE_WEIGHTS);
            if (p && harm(p, i, way)) {
                made++;
                const bool seen = kolo_plan_check(p) == KOLO_EINTERNAL;
                found += seen;
                char text[256];
                kolo_plan_action_text(whole, i, text, sizeof text);
                if (!seen) diag("not found: %s", text);
            }
            kolo_plan_destroy(&p);
        }
        ok(made > 0 && found == made, "averages%s: %d actions %s, %d found", state ? " of state too" : "",
           made, what[way], found);
        kolo_plan_destroy(&whole);
    }
    kolo_graph_destroy(&g);
}

int main(void)
{
    const kolo_backend_config config = {.threads = 1, .direct = true, .deterministic = true};
    if (kolo_backend_create(&backend, "cpu", &config) < 0) {
        ok(0, "backend: %s", kolo_error_text());
        return done_testing();
    }
    test_lists("resnet20");
    test_lists("mlp");
    test_mistakes(false);
    test_mistakes(true);
    kolo_backend_destroy(&backend);
    return done_testing();
}
