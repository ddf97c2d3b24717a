/* Placement: lifetimes become offsets, in little more than the bytes that are alive; the
 * hash; what is printed. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "models/models.h"
#include "plan/parts.h"
#include "tap.h"

static kolo_backend *backend;

static kolo_plan *make(const char *model, int64_t rows, int64_t side, int64_t channels, kolo_graph **g,
                       const kolo_plan_config *c)
{
    kolo_model_config m = {.rows = rows,
                           .height = side,
                           .width = side,
                           .channels = channels,
                           .classes = 10,
                           .train = c->optimizer,
                           .mean = {.5f, .5f, .5f},
                           .std = {.25f, .25f, .25f}};
    kolo_plan *p = NULL;
    if (kolo_model_graph(g, model, &m) < 0 || kolo_plan_create(&p, *g, backend, c, NULL) < 0)
        diag("%s: %s", model, kolo_error_text());
    return p;
}

static kolo_plan_config usual(void)
{
    return (kolo_plan_config){
        .ranks = 2, .slots = 2, .bucket_bytes = 1 << 18, .optimizer = kolo_optimizer_find("sgd")};
}

static uint32_t state = 1;
static int64_t draw(int64_t n) /* any will do here */
{
    state = state * 1664525u + 1013904223u;
    return (int64_t)((uint64_t)state * (uint64_t)n >> 32);
}

static void test_pieces(void)
{
    int apart = 1, bound = 1;
    for (int round = 0; round < 300; round++) {
        kolo_piece piece[40];
        int n = 1 + (int)draw(40);
        size_t peak, least, most = 0, reach = 0;
        for (int i = 0; i < n; i++) {
            int64_t begin = draw(30);
            piece[i] = (kolo_piece){begin, begin + draw(10), 64 * (size_t)(1 + draw(50)), 0};
        }
        if (kolo_place_pieces(n, piece, &peak, &least) < 0) apart = 0;
        for (int64_t t = 0; t < 40; t++) {
            size_t alive = 0;
            for (int i = 0; i < n; i++)
                if (piece[i].begin <= t && t <= piece[i].end) alive += piece[i].bytes;
            most = alive > most ? alive : most;
        }
        for (int i = 0; i < n; i++) {
            reach = piece[i].offset + piece[i].bytes > reach ? piece[i].offset + piece[i].bytes : reach;
            for (int k = 0; k < i; k++)
                if (piece[i].begin <= piece[k].end && piece[k].begin <= piece[i].end &&
                    piece[i].offset < piece[k].offset + piece[k].bytes &&
                    piece[k].offset < piece[i].offset + piece[i].bytes)
                    apart = 0;
        }
        bound &= least == most && peak == reach && peak >= least;
    }
    ok(apart, "no two pieces that are alive together overlap, in 300 random sets");
    ok(bound, "peak and lower bound are what counting by hand gives");
}

static void test_small(void)
{
    kolo_piece piece[] = {{0, 1, 128, 0}, {1, 2, 256, 0}, {2, 3, 128, 0}, {3, 3, 256, 0}};
    size_t peak, least;
    kolo_place_pieces(4, piece, &peak, &least);
    is_int(least, 384, "a chain needs two neighbours at a time");
    is_int(peak, 384, "and gets no more");
    kolo_place_pieces(0, piece, &peak, &least);
    is_int(peak, 0, "nothing needs nothing");
}

/* Alive bytes per operation, from the graph alone: from the producer to the last reader;
 * in-place pairs counted once. */
static size_t recount(const kolo_plan *p)
{
    const kolo_graph *g = p->graph;
    size_t most = 0;
    for (int64_t at = -1; at < g->nodes; at++) {
        size_t alive = 0;
        for (int t = 0; t < g->tensors; t++) {
            if (!kolo_plan_placed(g->tensor[t].role)) continue;
            int64_t begin = g->tensor[t].producer, end = begin;
            for (int64_t i = 0; i < g->nodes; i++)
                for (int k = 0; k < g->node[i].n_in; k++)
                    if (g->node[i].in[k] == t) end = i;
            if (begin <= at && at <= end) alive += kolo_round_up(p->layout[t].bytes, KOLO_ALIGN);
        }
        if (at >= 0) { /* an input that dies in an operation that may overwrite it is not there twice */
            const kolo_node *n = &g->node[at];
            int w = kolo_op_table[n->op].overwrite < n->n_in ? kolo_op_table[n->op].overwrite : -1, dies = 1;
            for (int64_t i = at + 1; w >= 0 && i < g->nodes; i++)
                for (int k = 0; k < g->node[i].n_in; k++) dies &= g->node[i].in[k] != n->in[w];
            if (w >= 0 && dies && n->out[0] >= 0 && p->layout[n->in[w]].bytes == p->layout[n->out[0]].bytes)
                alive -= kolo_round_up(p->layout[n->out[0]].bytes, KOLO_ALIGN);
        }
        most = alive > most ? alive : most;
    }
    return most;
}

static void test_networks(void)
{
    static const struct {
        const char *name;
        int64_t rows, side, channels;
    } net[] = {{"mlp", 8, 28, 1},
               {"lenet5", 8, 28, 1},
               {"resnet20", 8, 32, 3},
               {"resnet18", 2, 128, 3},
               {"resnet50", 2, 128, 3}};
    for (size_t i = 0; i < sizeof net / sizeof *net; i++) {
        kolo_graph *g = NULL;
        kolo_plan_config c = usual();
        c.ranks = c.slots = 1;
        kolo_plan *p = make(net[i].name, net[i].rows, net[i].side, net[i].channels, &g, &c);
        if (p) {
            size_t peak = p->arena_bytes[KOLO_ARENA_ACTIVATION];
            is_int(p->least_activation, recount(p),
                   "%s: the lower bound is what a recount from the graph gives", net[i].name);
            ok(peak <= p->least_activation * 103 / 100, "%s: the peak %zu is within 3 %% of it", net[i].name,
               peak);
        }
        kolo_plan_destroy(&p);
        kolo_graph_destroy(&g);
    }
}

/* Bounds from the graph alone hold for the plan that is made, and are of use: no arena is larger than it
 * comes out, and of what is placed 5 % are missing at most. */
static void test_least(void)
{
    static const struct {
        const char *name;
        int64_t rows, side, channels;
        int slots;
        bool canonical;
    } net[] = {{"lenet5", 64, 28, 1, 1, false},
               {"resnet20", 8, 32, 3, 4, true},
               {"resnet50", 2, 128, 3, 2, false},
               {"efficientnet_b0", 2, 64, 3, 1, false},
               {"swin_t", 2, 64, 3, 1, false}};
    for (size_t i = 0; i < sizeof net / sizeof *net; i++) {
        kolo_graph *g = NULL;
        kolo_plan_config c = usual();
        size_t least[KOLO_ARENAS], low = 0, high = 0;
        int over = -1;
        c.slots = net[i].slots;
        c.canonical = net[i].canonical;
        c.ema = true;
        kolo_plan *p = make(net[i].name, net[i].rows, net[i].side, net[i].channels, &g, &c);
        const int rc = p ? kolo_plan_least(g, &c, least) : -1;
        for (int a = 0; rc == 0 && a < KOLO_ARENAS; a++) {
            if (least[a] > p->arena_bytes[a]) over = a;
            low += least[a];
            high += a == KOLO_ARENA_INPUT || a == KOLO_ARENA_WORKSPACE ? 0 : p->arena_bytes[a];
        }
        ok(rc == 0 && over < 0, "%s: no lower bound is above the plan%s%s", net[i].name, over < 0 ? "" : ": ",
           over < 0 ? "" : kolo_arena_name[over]);
        ok(low >= high - high / 20, "%s: the bounds, %zu bytes, are within 5 %% of %zu", net[i].name, low,
           high);
        kolo_plan_destroy(&p);
        kolo_graph_destroy(&g);
    }
}

static void test_slots_share(void)
{
    kolo_graph *g = NULL, *h = NULL;
    kolo_plan_config c = usual();
    kolo_plan *one, *many;
    c.slots = 1;
    one = make("resnet20", 4, 16, 3, &g, &c);
    c.slots = 4;
    many = make("resnet20", 4, 16, 3, &h, &c);
    ok(one && many && one->arena_bytes[KOLO_ARENA_ACTIVATION] == many->arena_bytes[KOLO_ARENA_ACTIVATION],
       "micro-batches run in the same memory, one after another");
    ok(many && many->arena_bytes[KOLO_ARENA_PART] == many->arena_bytes[KOLO_ARENA_GRADIENT],
       "fast sums keep one level of parts");
    kolo_plan_destroy(&many);
    kolo_graph_destroy(&h);
    c.canonical = true;
    c.slots = 8;
    many = make("resnet20", 4, 16, 3, &h, &c);
    ok(many && many->arena_bytes[KOLO_ARENA_PART] == 3 * many->arena_bytes[KOLO_ARENA_GRADIENT],
       "canonical sums of 8 blocks keep three");
    kolo_plan_destroy(&one);
    kolo_plan_destroy(&many);
    kolo_graph_destroy(&g);
    kolo_graph_destroy(&h);
}

static void test_buckets(void)
{
    kolo_graph *g = NULL;
    kolo_plan_config c = usual();
    c.bucket_bytes = 4 << 20;
    kolo_plan *p = make("resnet18", 2, 64, 3, &g, &c);
    if (!p) return;
    int large = 0;
    for (int b = 0; b < p->buckets; b++) large += (double)p->bucket[b].count * 4 >= c.bucket_bytes;
    ok(p->buckets >= 5 && large >= p->buckets - 2,
       "buckets hold at least bucket_mb, but for the last two: %d of %d", large, p->buckets);
    ok((double)p->bucket[p->buckets - 1].count * 4 <= c.bucket_bytes / 8, "the last one is small");
    const kolo_binding *h = p->fixed;
    int conv1 = kolo_graph_find(g, "conv1.weight"), fc = kolo_graph_find(g, "fc.weight");
    ok(h[fc].offset < h[conv1].offset, "what backward makes first stands first");
    ok(h[g->grad[conv1]].offset == h[conv1].offset + p->reduced_front,
       "a parameter stands where its gradient does");
    kolo_plan_destroy(&p);
    kolo_graph_destroy(&g);
}

static uint64_t hash_of(const char *model, int64_t rows, const kolo_plan_config *c)
{
    kolo_graph *g = NULL;
    kolo_plan *p = make(model, rows, 16, 3, &g, c);
    uint64_t h = p ? p->hash : 0;
    kolo_plan_destroy(&p);
    kolo_graph_destroy(&g);
    return h;
}

/* Of LeNet's plan when the k-th of these attributes is another one at all nodes; k 0: none. */
enum { ATTRIBUTES = 12 };
static uint64_t hash_with(int k)
{
    const kolo_plan_config c = usual();
    const kolo_model_config m = {.rows = 2, .train = true, .std = {1}};
    kolo_graph *g = NULL;
    kolo_plan *p = NULL;
    if (kolo_model_graph(&g, "lenet5", &m) < 0) return 0;
    for (int i = 0; i < g->nodes; i++) {
        kolo_attributes *a = &g->node[i].a;
        if (k == 1) a->slope += .25;
        if (k == 2) a->drop += .25;
        if (k == 3) a->draw++;
        if (k == 4) a->activation++;
        if (k == 5) a->detector = "yolov3";
        if (k == 6) a->overlap++;
        if (k == 7) a->l1 = !a->l1;
        if (k == 8) a->anchor[8][1]++;
        if (k == 9) a->mask[2][2]++;
        if (k == 10) a->margin++;
        if (k == 11) a->reverse = !a->reverse;
        if (k == 12) a->first++;
    }
    if (kolo_plan_create(&p, g, backend, &c, NULL) < 0) diag("%s", kolo_error_text());
    const uint64_t hash = p ? p->hash : 0;
    kolo_plan_destroy(&p);
    kolo_graph_destroy(&g);
    return hash;
}

static void test_attributes(void)
{
    const uint64_t plain = hash_with(0);
    int odd = 0;
    for (int k = 1; k <= ATTRIBUTES; k++) {
        const uint64_t hash = hash_with(k);
        odd += hash && hash != plain;
        if (hash == plain) diag("attribute %d is not in the hash", k);
    }
    ok(plain && plain == hash_with(0) && odd == ATTRIBUTES,
       "another activation, dropout, detector, anchor, ..., another hash");
}

static void test_hash(void)
{
    kolo_plan_config c = usual(), d = usual();
    uint64_t h = hash_of("resnet20", 2, &c);
    ok(h && h == hash_of("resnet20", 2, &c), "the hash of the same plan is the same");
    ok(h != hash_of("resnet20", 4, &c), "other rows, other hash");
    ok(h != hash_of("resnet32", 2, &c), "another network, another hash");
    d.bucket_bytes *= 2;
    ok(h != hash_of("resnet20", 2, &d), "other buckets, other hash");
    d = c;
    d.bn = KOLO_bn_sync;
    ok(h != hash_of("resnet20", 2, &d), "other batch norm, other hash");
    d = c;
    d.decay_norms = true;
    ok(h != hash_of("resnet20", 2, &d), "other decay, other hash");

    kolo_graph *g = NULL;
    kolo_plan *p = make("resnet20", 2, 16, 3, &g, &c);
    uint64_t *before = calloc((size_t)p->actions + 1, sizeof *before),
             *after = calloc((size_t)p->actions + 1, sizeof *after);
    kolo_plan_hashes(p, before);
    int64_t at = p->actions / 2;
    while (p->action[at].kind != KOLO_ACTION_RUN) at++;
    p->binding[p->action[at].binding].offset += 64;
    kolo_plan_hashes(p, after);
    ok(before[at] == after[at] && before[at + 1] != after[at + 1] && before[p->actions] != after[p->actions],
       "hashes part at the action that differs");
    free(before);
    free(after);
    kolo_plan_destroy(&p);
    kolo_graph_destroy(&g);
}

static void test_print(void)
{
    kolo_graph *g = NULL;
    kolo_plan_config c = usual();
    kolo_plan *p = make("resnet20", 2, 16, 3, &g, &c);
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    int rc = kolo_plan_print(p, f, true);
    fclose(f);
    char want[64];
    snprintf(want, sizeof want, "%zu", kolo_plan_bytes(p));
    ok(rc == 0 && strstr(text, want), "the peak is printed to the byte");
    ok(strstr(text, "reduce bucket 0") && strstr(text, "conv1.weight") && strstr(text, "load micro-batch 1"),
       "actions are printed");
    size_t lines = 0;
    for (const char *s = text; *s; s++) lines += *s == '\n';
    ok(lines > (size_t)p->actions, "all of them");
    free(text);
    f = open_memstream(&text, &size);
    kolo_plan_print(p, f, false);
    fclose(f);
    ok(size < 6000 && strstr(text, "reduce bucket 0"), "folded, it fits a screen or two: %zu bytes", size);
    free(text);
    kolo_plan_destroy(&p);
    kolo_graph_destroy(&g);
}

int main(void)
{
    kolo_backend_config config = {.threads = 1, .deterministic = true};
    if (kolo_backend_create(&backend, "cpu", &config) < 0) {
        ok(0, "backend: %s", kolo_error_text());
        return done_testing();
    }
    test_pieces();
    test_small();
    test_networks();
    test_least();
    test_slots_share();
    test_buckets();
    test_hash();
    test_attributes();
    test_print();
    kolo_backend_destroy(&backend);
    return done_testing();
}
