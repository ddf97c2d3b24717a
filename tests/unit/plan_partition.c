/* Cuts of a chain against exhaustive search, cases done by hand, and the clock. SEED repeats a campaign of
 * random cases. */
#include "plan/partition.h"

#include <limits.h>

#include "base/philox.h"
#include "kolo/error.h"
#include "tap.h"

enum { MAX_LAYERS = 12, MAX_STAGES = 5, MAX_PARTS = 12, MAX_OVERFULL = 6 };

typedef struct trial {
    kolo_partition_input in;
    kolo_chain_layer layer[MAX_LAYERS];
    kolo_link link[MAX_STAGES];
    kolo_overfull overfull[MAX_OVERFULL];
} trial;

/* ---- exhaustive search --------------------------------------------------------------------------------- */

typedef struct oracle {
    const trial *c;
    int stages, parts, held[MAX_PARTS];
    bool links;
    /* the cut at hand and the best that fits; least: the smallest that the largest stage of any cut is */
    int first[MAX_PARTS + 1], best[MAX_PARTS + 1];
    bool found, any;
    double bottleneck;
    int64_t crossing, least;
} oracle;

/* Slots that a chunk holds: the literature's, but with several chunks what the turns say. */
static int held_by(enum kolo_pipeline order, int stages, int chunks, int slots, int part)
{
    const int stage = part % stages;
    kolo_turn *turn;
    int turns;
    if (order == KOLO_PIPELINE_GPIPE) return slots;
    if (order == KOLO_PIPELINE_1F1B) return stages - stage < slots ? stages - stage : slots;
    if (order == KOLO_PIPELINE_ZERO_BUBBLE) return stages < slots ? stages : slots;
    if (kolo_turns_create(order, stages, stage, chunks, slots, &turn, &turns) < 0) return -1;
    const int held = kolo_turns_in_flight(turn, turns, part / stages);
    free(turn);
    return held;
}
static bool is_overfull(const oracle *o)
{
    for (int i = 0; i < o->c->in.overfulls && o->stages == o->c->in.stages; i++) {
        const kolo_overfull *f = &o->c->overfull[i];
        if (o->first[f->part] <= f->first && o->first[f->part + 1] >= f->end) return true;
    }
    return false;
}
static void oracle_weigh(oracle *o)
{
    const kolo_partition_input *in = &o->c->in;
    double bottleneck = 0;
    int64_t crossing = 0, largest = 0;
    for (int s = 0; s < o->stages; s++) {
        int64_t bytes = in->fixed;
        for (int k = s; k < o->parts; k += o->stages)
            for (int i = o->first[k]; i < o->first[k + 1]; i++)
                bytes += in->layer[i].weights + o->held[k] * in->layer[i].activations;
        if (bytes > largest) largest = bytes;
    }
    for (int k = 0; k < o->parts; k++) {
        double seconds = 0;
        for (int i = o->first[k]; i < o->first[k + 1]; i++)
            seconds += in->layer[i].forward + in->layer[i].backward;
        bottleneck = fmax(bottleneck, seconds);
        if (k + 1 == o->parts) break;
        const kolo_chain_layer *behind = &in->layer[o->first[k + 1] - 1];
        crossing += behind->crossing;
        if (!o->links || o->stages == 1) continue;
        const kolo_link *link = &o->c->link[k % o->stages];
        bottleneck = fmax(bottleneck, 2 * link->latency + (double)behind->crossing / link->bandwidth);
    }
    if (!o->any || largest < o->least) o->least = largest;
    o->any = true;
    if ((in->limit && largest > in->limit) || is_overfull(o)) return;
    int order = !o->found || bottleneck < o->bottleneck ? -1 : bottleneck > o->bottleneck;
    if (!order) order = crossing < o->crossing ? -1 : crossing > o->crossing;
    if (order >= 0) return; /* cuts come in ascending order: an equal one is later */
    o->found = true;
    o->bottleneck = bottleneck;
    o->crossing = crossing;
    memcpy(o->best, o->first, sizeof o->best);
}
static void oracle_cut(oracle *o, int part)
{
    const kolo_partition_input *in = &o->c->in;
    if (part == o->parts) {
        o->first[part] = in->layers;
        oracle_weigh(o);
        return;
    }
    for (int i = o->first[part - 1] + 1; i < in->layers; i++) {
        if (!in->layer[i - 1].cut) continue;
        o->first[part] = i;
        oracle_cut(o, part + 1);
    }
}
static oracle oracle_of(const trial *c, int stages, bool links)
{
    oracle o = {.c = c, .stages = stages, .parts = stages * c->in.chunks, .links = links};
    for (int k = 0; k < o.parts; k++) o.held[k] = held_by(c->in.order, stages, c->in.chunks, c->in.slots, k);
    oracle_cut(&o, 1);
    return o;
}
static int oracle_fewest_stages(const trial *c)
{
    for (int p = 1; p * c->in.chunks <= c->in.layers; p++)
        if (oracle_of(c, p, false).found) return p;
    return 0;
}

/* ---- random cases: eighths of seconds, so that sums are exact ------------------------------------------ */

static int below(kolo_random *r, int n) { return (int)kolo_random_below(r, (uint32_t)n); }

static void trial_random(trial *c, kolo_random *r, bool chunked, bool limited)
{
    *c = (trial){0};
    const int range = below(r, 2) ? 4 : 100; /* small: many ties */
    c->in.layers = 1 + below(r, MAX_LAYERS);
    c->in.chunks = chunked ? 2 + below(r, 2) : 1;
    c->in.order = chunked ? KOLO_PIPELINE_INTERLEAVED : (enum kolo_pipeline)below(r, KOLO_PIPELINES);
    c->in.stages = 1 + below(r, chunked ? 4 : MAX_STAGES);
    c->in.slots = 1 + below(r, 8);
    for (int i = 0; i < c->in.layers; i++)
        c->layer[i] = (kolo_chain_layer){.name = "layer",
                                         .forward = below(r, range) / 8.,
                                         .backward = below(r, range) / 8.,
                                         .weights = below(r, range),
                                         .activations = below(r, range),
                                         .cut = below(r, 8) > 0,
                                         .crossing = below(r, range)};
    for (int s = 0; s < c->in.stages; s++)
        c->link[s] = (kolo_link){.latency = below(r, range) / 64., .bandwidth = 1 << below(r, 6)};
    c->in.layer = c->layer;
    c->in.link = below(r, 2) ? c->link : NULL;
    c->in.fixed = below(r, range);
    if (!limited) return;
    /* about what the least cut needs */
    const oracle o = oracle_of(c, c->in.stages, false);
    c->in.limit = 1 + (o.any ? o.least * (80 + below(r, 60)) / 100 : below(r, 100));
}

/* Parts that may not hold some run of layers. */
static void trial_overfull(trial *c, kolo_random *r)
{
    c->in.overfull = c->overfull;
    c->in.overfulls = 1 + below(r, MAX_OVERFULL);
    for (int i = 0; i < c->in.overfulls; i++) {
        const int first = below(r, c->in.layers);
        c->overfull[i] = (kolo_overfull){.part = below(r, c->in.stages * c->in.chunks),
                                         .first = first,
                                         .end = first + 1 + below(r, c->in.layers - first)};
    }
}

typedef struct count {
    int cases, cut, apart, tight, refused, right;
} count;
/* Whether what is made, or refused, is what exhaustive search finds. */
static bool is_right(const trial *c, count *n)
{
    kolo_partition *p = NULL;
    kolo_misfit misfit = {-1, -1};
    const oracle o = oracle_of(c, c->in.stages, c->in.link != NULL);
    const int rc = kolo_partition_create(&p, &c->in, &misfit);
    bool right = (rc == 0) == o.found && (rc == 0) == (p != NULL);
    if (o.found && right) {
        n->cut++;
        n->tight += c->in.limit > 0 && o.least * 21 > c->in.limit * 20;
        right = p->bottleneck == o.bottleneck && p->all_crossing == o.crossing &&
                !memcmp(p->first, o.best, (size_t)(o.parts + 1) * sizeof *p->first);
    } else if (o.any && right && c->in.overfulls) {
        n->refused++;
        right = rc == 1;
    } else if (o.any && right) {
        n->refused++;
        right = rc == KOLO_ECONFIG && misfit.shortfall == o.least - c->in.limit &&
                misfit.stages == oracle_fewest_stages(c);
    } else if (right) {
        n->apart++;
        right = rc == KOLO_ECONFIG && misfit.shortfall == 0;
    }
    if (!right)
        diag("  %d layers, %d stages, %d chunks, limit %lld: %d %s; bottleneck %g, want %g; shortfall %lld, "
             "want %lld; stages %d, want %d",
             c->in.layers, c->in.stages, c->in.chunks, (long long)c->in.limit, rc,
             rc ? kolo_error_text() : "", p ? p->bottleneck : -1, o.bottleneck, (long long)misfit.shortfall,
             (long long)(o.least - c->in.limit), misfit.stages, rc ? oracle_fewest_stages(c) : 0);
    kolo_partition_destroy(&p);
    return right;
}
static void exhaustive(kolo_random *r, bool chunked, bool limited, bool overfull, int cases)
{
    count n = {0};
    for (; n.cases < cases; n.cases++) {
        trial c;
        trial_random(&c, r, chunked, limited);
        if (overfull) trial_overfull(&c, r);
        n.right += is_right(&c, &n);
    }
    diag("%d cut (%d with no twentieth to spare), %d short of memory, %d of places for cuts", n.cut, n.tight,
         n.refused, n.apart);
    ok(n.right == cases && n.cut > cases / 20 && n.apart > 0 && (!limited || (n.refused > 0 && n.tight > 0)),
       "%s, %s%s: as by exhaustive search in %d of %d cases", chunked ? "chunks" : "no chunks",
       limited ? "limited memory" : "any memory", overfull ? ", parts known to be overfull" : "", n.right,
       cases);
}

/* ---- cases by hand ------------------------------------------------------------------------------------- */

enum { LONG = 4000 };
static kolo_chain_layer layers[LONG];
/* So many equal layers. */
static kolo_partition_input equal(int n, int stages, double seconds)
{
    for (int i = 0; i < n; i++)
        layers[i] = (kolo_chain_layer){.name = "layer",
                                       .forward = seconds / 2,
                                       .backward = seconds / 2,
                                       .weights = 10,
                                       .activations = 1,
                                       .cut = true,
                                       .crossing = 1};
    return (kolo_partition_input){
        .layer = layers, .layers = n, .stages = stages, .chunks = 1, .slots = 4, .order = KOLO_PIPELINE_1F1B};
}
static void is_cut(const kolo_partition_input *in, const char *want, const char *what)
{
    kolo_partition *p = NULL;
    char text[256] = "";
    int n = 0;
    if (kolo_partition_create(&p, in, NULL) < 0) snprintf(text, sizeof text, "%s", kolo_error_text());
    for (int k = 0; p && k < p->parts; k++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", k ? " " : "", p->first[k + 1] - p->first[k]);
    is_text(text, want, "%s", what);
    kolo_partition_destroy(&p);
}
static void by_hand(void)
{
    /* a tenth of a second is no sum of halves: sums of equal layers differ in their last bits */
    kolo_partition_input in = equal(23, 8, .1);
    is_cut(&in, "2 3 3 3 3 3 3 3", "23 equal layers on 8 stages: 3 at most, cuts as early as they can be");
    in = equal(8, 4, 1);
    is_cut(&in, "2 2 2 2", "8 equal layers on 4 stages");
    in = equal(4, 4, 0);
    is_cut(&in, "1 1 1 1", "layers that take no time: each stage has one");
    in = equal(6, 1, 1);
    is_cut(&in, "6", "one stage");
    /* the first four layers are cut fastest as 2 and 2 */
    in = equal(5, 3, 1);
    layers[4].forward = 3;
    layers[0].crossing = layers[1].crossing = 5;
    is_cut(&in, "3 1 1", "a stage in front of the slowest takes longer where fewer bytes cross");
    layers[0].crossing = 1;
    is_cut(&in, "1 3 1", "as few bytes: the earlier cut");
    in = equal(6, 2, 1);
    layers[2].cut = layers[3].cut = false;
    is_cut(&in, "2 4", "cuts only where they may be");
    in = equal(6, 2, 1);
    const kolo_link slow[2] = {{.latency = .5, .bandwidth = 1}, {0, 0}};
    in.link = slow;
    layers[2].crossing = 4;
    is_cut(&in, "2 4", "a link of 1 + 4 seconds is slower than a stage of 4 layers");
    in = equal(6, 2, 1);
    in.slots = 2;
    in.limit = 34; /* 2 x (10 + 2); 2 layers in front, 4 behind hold 44 */
    is_cut(&in,
           "stages=2 pipeline=1f1b: the best cut needs 2 bytes more than the 34 that a stage may hold; use "
           "stages=3, the fewest that fit",
           "memory: the shortfall, and the fewest stages");
    in.limit = 36;
    is_cut(&in, "3 3", "memory: as much as it takes");
    in.limit = 10;
    is_cut(&in,
           "stages=2 pipeline=1f1b: the best cut needs 26 bytes more than the 10 that a stage may hold; no "
           "number of "
           "stages up to 6 fits; use a smaller micro_batch",
           "memory that no number of stages fits");
    in = equal(4, 5, 1);
    is_cut(&in, "stages=5 chunks=1: more parts than the network's 4 layers; use fewer",
           "more stages than layers");
    in = equal(4, 3, 1);
    layers[0].cut = layers[1].cut = false;
    is_cut(&in, "stages=3 chunks=1: the network can be cut into 2 parts at most; use fewer",
           "more stages than cuts");
    in = equal(4, 2, 1);
    in.chunks = 2;
    is_cut(&in, "chunks=2: pipeline=1f1b has one chunk a stage; use pipeline=interleaved or chunks=1",
           "chunks where there are none");
    in = equal(4, 2, 1);
    layers[2].backward = NAN;
    is_cut(&in, "partition: layer 2, layer: 0.5 + nan seconds, 10 + 1 bytes, 1 crossing",
           "seconds that are none");
    in = equal(4, 2, 1);
    layers[2].weights = INT64_MAX;
    ok(kolo_partition_create(&(kolo_partition *){NULL}, &in, NULL) == KOLO_ECONFIG &&
           strstr(kolo_error_text(), "more than can be counted"),
       "bytes whose sum leaves 64 bits");
}

/* ---- stated cuts --------------------------------------------------------------------------------------- */

static bool same_price(const kolo_partition *a, const kolo_partition *b)
{
    const size_t parts = (size_t)a->parts, stages = (size_t)a->stages;
    return a->parts == b->parts && a->stages == b->stages && a->bottleneck == b->bottleneck &&
           a->all_crossing == b->all_crossing &&
           !memcmp(a->first, b->first, (parts + 1) * sizeof *a->first) &&
           !memcmp(a->seconds, b->seconds, parts * sizeof *a->seconds) &&
           !memcmp(a->link_seconds, b->link_seconds, parts * sizeof *a->link_seconds) &&
           !memcmp(a->crossing, b->crossing, parts * sizeof *a->crossing) &&
           !memcmp(a->in_flight, b->in_flight, parts * sizeof *a->in_flight) &&
           !memcmp(a->bytes, b->bytes, stages * sizeof *a->bytes);
}
static void is_refused(const kolo_partition_input *in, const int *first, const char *words, int64_t shortfall)
{
    kolo_partition here, *p = &here;
    kolo_misfit misfit;
    const int rc = kolo_partition_create_at(&p, in, first, &misfit);
    is_text(kolo_error_text(), words, "a stated cut is refused");
    ok(rc == KOLO_ECONFIG && !p && misfit.shortfall == shortfall, "with 78, short of %lld bytes",
       (long long)shortfall);
}
static void stated(kolo_random *r)
{
    int same = 0, cases = 0;
    for (int i = 0; i < 2000; i++) {
        kolo_partition *made = NULL, *p = NULL;
        trial c;
        trial_random(&c, r, i % 2, i % 4 > 1);
        if (kolo_partition_create(&made, &c.in, NULL) < 0) continue;
        cases++;
        same += kolo_partition_create_at(&p, &c.in, made->first + 1, NULL) == 0 && same_price(p, made);
        kolo_partition_destroy(&made);
        kolo_partition_destroy(&p);
    }
    ok(cases > 300 && same == cases, "stated cuts cost what the same cuts do when found (%d cases)", cases);

    kolo_partition_input in = equal(6, 3, 1);
    const kolo_link link[3] = {{.latency = .25, .bandwidth = 2}, {0, 0}, {0, 0}};
    kolo_partition *p = NULL;
    in.link = link;
    in.fixed = 100;
    is_int(kolo_partition_create_at(&p, &in, (int[]){1, 4}, NULL), 0, "layers 0, 1 to 3, 4 and 5");
    ok(p->first[0] == 0 && p->first[1] == 1 && p->first[2] == 4 && p->first[3] == 6, "are the parts");
    ok(p->seconds[0] == 1 && p->seconds[1] == 3 && p->seconds[2] == 2 && p->bottleneck == 3, "their seconds");
    ok(p->link_seconds[0] == 1 && p->link_seconds[1] == 0 && p->link_seconds[2] == 0,
       "seconds of links: 2 x latency and bytes over bandwidth");
    ok(p->in_flight[0] == 3 && p->in_flight[1] == 2 && p->in_flight[2] == 1, "1f1b's slots in flight");
    ok(p->bytes[0] == 100 + 10 + 3 && p->bytes[1] == 100 + 30 + 6 && p->bytes[2] == 100 + 20 + 2, "bytes");
    ok(p->crossing[0] == 1 && p->crossing[1] == 1 && p->crossing[2] == 0 && p->all_crossing == 2,
       "bytes crossing");
    kolo_partition_destroy(&p);

    layers[1].name = "a", layers[2].name = "b", layers[3].name = "c", layers[4].name = "d";
    layers[1].cut = false; /* between a and b */
    is_refused(&in, (int[]){2, 4}, "cut 1: no cut can be in front of b; the nearest is in front of a", 0);
    is_refused(&in, (int[]){1, 2}, "cut 2: no cut can be in front of b; the nearest is in front of c", 0);
    is_refused(&in, (int[]){3, 3},
               "cut 2, in front of layer 3: a cut comes behind layer 3 and in front of layer "
               "5, the last",
               0);
    is_refused(&in, (int[]){0, 3},
               "cut 1, in front of layer 0: a cut comes behind layer 0 and in front of layer "
               "5, the last",
               0);
    is_refused(&in, (int[]){3, 6},
               "cut 2, in front of layer 6: a cut comes behind layer 3 and in front of layer "
               "5, the last",
               0);
    layers[2].cut = false; /* and between b and c */
    is_refused(&in, (int[]){3, 5}, "cut 1: no cut can be in front of c; the nearest is in front of d", 0);
    is_refused(&in, (int[]){2, 5}, "cut 1: no cut can be in front of b; the nearest is in front of a", 0);
    layers[2].cut = true;
    layers[1].cut = true;
    in.limit = 126;
    is_refused(
        &in, (int[]){1, 4},
        "stages=3 pipeline=1f1b: stage 1 needs 10 bytes more than the 126 that a stage may hold; leave out "
        "cut=, other cuts fit",
        10);
}

/* ---- the clock ----------------------------------------------------------------------------------------- */

static void quick(kolo_random *r, int stages, int chunks, int64_t limit, bool links, bool is_fit)
{
    kolo_link link[64];
    kolo_partition_input in = equal(LONG, stages, 0);
    for (int i = 0; i < LONG; i++) {
        layers[i].forward = below(r, 1000) * 1e-6;
        layers[i].backward = below(r, 2000) * 1e-6;
        layers[i].weights = below(r, 1000000);
        layers[i].activations = below(r, 1000000);
        layers[i].crossing = below(r, 1000000);
    }
    for (int s = 0; s < stages; s++) link[s] = (kolo_link){.latency = 1e-5, .bandwidth = 1e9};
    if (links) in.link = link;
    if (chunks > 1) in.order = KOLO_PIPELINE_INTERLEAVED;
    in.chunks = chunks;
    in.slots = 32;
    in.limit = limit;
    kolo_partition *p = NULL;
    const double begin = tap_cpu();
    const int rc = kolo_partition_create(&p, &in, NULL);
    const double seconds = tap_cpu() - begin;
    diag("%.3f seconds; %s", seconds, rc < 0 ? kolo_error_text() : "cut");
    ok((rc == 0) == is_fit && seconds < 1, "%d layers, %d stages, %d chunks, limit %lld: less than a second",
       LONG, stages, chunks, (long long)limit);
    kolo_partition_destroy(&p);
}

int main(void)
{
    const char *given = getenv("SEED");
    const uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    diag("SEED=%llu", (unsigned long long)seed);
    kolo_random r = kolo_random_at(seed, 0, 0);
    exhaustive(&r, false, false, false, 4000);
    exhaustive(&r, false, true, false, 4000);
    exhaustive(&r, true, false, false, 1000);
    exhaustive(&r, true, true, false, 2000);
    exhaustive(&r, false, false, true, 2000);
    exhaustive(&r, true, false, true, 500);
    by_hand();
    stated(&r);
    quick(&r, 8, 1, 0, false, true);
    quick(&r, 64, 1, 0, true, true);
    quick(&r, 8, 1, 2100000000, true, true);
    quick(&r, 8, 1, 1000000000, true, false);
    quick(&r, 8, 4, 0, true, true);
    return done_testing();
}
