/* The checker: plays the list of actions on paper and proves what plan.h promises. It shares no code with the
 * parts that made the plan: it knows only which bytes hold what. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/parts.h"
#include "plan/shard.h"

/* What a stretch of the arenas ACTIVATION and TRANSFER holds. */
typedef struct region {
    int arena;
    size_t offset, bytes;
    int tensor, slot;
    bool again;               /* made by an operation that ran a second time */
    enum kolo_form_kind form; /* not the values but what they are kept as */
    bool only_signs;          /* values that came back from their signs */
    bool summed;
    bool coming; /* a transfer writes there */
    int going;   /* transfers that read it */
} region;

/* What a level of a bucket holds: the sum of slots [begin, end), of `written` of its
 * tensors. Empty: end == 0. */
typedef struct content {
    int begin, end, written;
} content;

enum { UNTOUCHED, STARTED, DONE };

typedef struct check {
    const kolo_plan *plan;
    const kolo_graph *graph;
    int64_t at; /* action */
    /* late pipelines are played for so many steps, one otherwise: which one, and of the action its batch
     * and its micro-batch, counted through all */
    int64_t steps, step, batch, micro;
    kolo_binding bound[2 * KOLO_MAX_ARGS]; /* of the action, at the places of its micro-batch */
    int64_t *version;                      /* [buckets][versions] updates before a copy */
    char *stashed, *predicted;             /* [buckets] in this step */
    region *region;
    int64_t regions, capacity;
    int levels;
    content *content;                           /* [buckets][levels] */
    int *tensors;                               /* [buckets] reduced tensors in it */
    int *written;                               /* [tensors] 1 + slot that wrote it last */
    char *started, *waited, *updated, *stepped; /* [buckets] stepped: holds steps instead of gradients */
    char *shared;    /* [buckets] holds what ranks average, in the place of gradients */
    char *averaged;  /* [buckets] how much of its own was: weights, then each state; of statistics 1 */
    char *collected; /* [buckets] sharded gradients: this rank's part is in SUM */
    char *fetched;   /* [units] UNTOUCHED, STARTED: its state is here, DONE */
    char *here;      /* [units] of a file: its parameters are, or were asked for */
    char *unclear;   /* [buckets] gaps of its window are not zero */
    char *gathered;  /* [units] UNTOUCHED, STARTED, DONE */
    bool windows;    /* the last of the levels is a bucket's window */
    char *transfer;  /* [transfers][steps] UNTOUCHED, STARTED, DONE */
    char *ran;       /* [steps][slots][nodes] */
    char *squared;   /* [slots][buckets] */
    int squares;     /* of buckets and micro-batches */
    int norms, layers, buffers, noises;
} check;

static int breach(const check *c, const char *what, int tensor, int slot)
{
    char text[256];
    kolo_plan_action_text(c->plan, c->at, text, sizeof text);
    if (tensor < 0)
        return kolo_fail(KOLO_EINTERNAL, "plan: action %lld (%s): %s", (long long)c->at, text, what);
    return kolo_fail(KOLO_EINTERNAL, "plan: action %lld (%s): %s: %s, micro-batch %d", (long long)c->at, text,
                     what, c->graph->tensor[tensor].name, slot);
}

static bool overlap(size_t a, size_t a_bytes, size_t b, size_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* The batch of a late pipeline's action is there. What there is one of in a batch counts as its
 * micro-batch 0. */
static bool find_batch(check *c, const kolo_action *a)
{
    const kolo_plan *p = c->plan;
    const bool transfers =
        p->ring && kolo_action_transfers(a->kind) && a->transfer >= 0 && a->transfer < p->transfers;
    const bool metrics = transfers && p->transfer[a->transfer].tensor == c->graph->metrics;
    c->batch = c->step + (p->ring ? a->ahead : 0);
    c->micro = c->batch * p->config.slots + (metrics ? 0 : a->slot);
    return c->batch >= 0 && c->batch < c->steps;
}

static const kolo_binding *bindings_of(check *c, const kolo_action *a)
{
    const kolo_plan *p = c->plan;
    for (int k = 0; k < kolo_action_bindings(p, a); k++) {
        c->bound[k] = p->binding[a->binding + k];
        if (p->ring)
            c->bound[k].offset +=
                (size_t)kolo_ring_place(&p->ring[a->binding + k], c->batch, p->config.slots, a->slot) *
                p->ring[a->binding + k].stride;
    }
    return c->bound;
}

static bool must_sum(const check *c)
{
    return c->graph->train && c->plan->config.bn == KOLO_bn_sync && c->plan->config.ranks > 1;
}

/* ---- activations: a value is there as long as nobody else wrote to its bytes. What runs twice makes the
 * same bits twice, perhaps elsewhere: a reader may name either place. ---- */

/* What stands at a place; else, if the tensor stands anywhere, *elsewhere. */
static region *find_region(check *c, const kolo_binding *b, int tensor, int slot, bool *elsewhere)
{
    *elsewhere = false;
    for (int64_t i = 0; i < c->regions; i++) {
        region *r = &c->region[i];
        if (r->tensor != tensor || r->slot != slot || r->form) continue;
        if (r->arena == b->arena && r->offset == b->offset) return r;
        *elsewhere = true;
    }
    return NULL;
}

static int write_bytes(check *c, const kolo_binding *b, int tensor, int slot, size_t bytes)
{
    const bool may = b->arena == KOLO_ARENA_ACTIVATION || b->arena == KOLO_ARENA_TRANSFER ||
                     b->arena == KOLO_ARENA_OFFLOADED;
    if (!may || b->offset % KOLO_ALIGN || b->offset + bytes > c->plan->arena_bytes[b->arena])
        return breach(c, "writes outside the arena of activations or unaligned", tensor, slot);
    int64_t left = 0;
    for (int64_t i = 0; i < c->regions; i++) {
        const region *r = &c->region[i];
        if (r->arena == b->arena && overlap(r->offset, r->bytes, b->offset, bytes)) {
            if (r->coming || r->going)
                return breach(c, "writes into a transfer that is under way", tensor, slot);
            continue;
        }
        c->region[left++] = c->region[i];
    }
    c->regions = left;
    KOLO_TRY(kolo_grow(&c->region, &c->capacity, c->regions, sizeof *c->region));
    c->region[c->regions++] =
        (region){.arena = b->arena, .offset = b->offset, .bytes = bytes, .tensor = tensor, .slot = slot};
    return 0;
}

static int write_region(check *c, const kolo_binding *b, int tensor, int slot, bool again)
{
    if (b->arena == KOLO_ARENA_OFFLOADED) return breach(c, "computes aside", tensor, slot);
    KOLO_TRY(write_bytes(c, b, tensor, slot, c->plan->layout[tensor].bytes));
    c->region[c->regions - 1].again = again;
    return 0;
}

static int read_region(check *c, const kolo_binding *b, int tensor, int slot)
{
    bool elsewhere;
    const region *r = find_region(c, b, tensor, slot, &elsewhere);
    if (!r)
        return breach(c,
                      elsewhere ? "reads from a place where it does not stand"
                                : "reads what was never written or was overwritten",
                      tensor, slot);
    if (r->coming) return breach(c, "reads what has not arrived", tensor, slot);
    if (c->graph->tensor[tensor].role == KOLO_ROLE_PARTIAL && must_sum(c) && !r->summed)
        return breach(c, "reads this rank's part before it is summed over ranks", tensor, slot);
    return 0;
}

/* ---- reduced tensors ---- */

static content *content_of(check *c, int bucket, int level)
{
    return &c->content[(int64_t)bucket * c->levels + level];
}

static bool in_window(const check *c, int bucket) { return c->windows && c->plan->bucket[bucket].params > 0; }

/* The level in which the sum of all micro-batches is formed. */
static int last_level(const check *c, int bucket) { return in_window(c, bucket) ? c->levels - 1 : 0; }

/* The level that a binding is in, where a tensor with its home at `home` has the place in it that it should;
 * below 0: another place. */
static int level_at(const check *c, const kolo_binding *b, size_t home, int bucket)
{
    const kolo_plan *p = c->plan;
    const size_t front = p->reduced_front, all = p->param_bytes;
    size_t size = p->arena_bytes[KOLO_ARENA_GRADIENT], begin = 0;
    if (in_window(c, bucket)) {
        const kolo_unit *u = &p->unit[p->bucket[bucket].unit];
        size = (size_t)kolo_plan_rest(p) * sizeof(float);
        if (b->arena == KOLO_ARENA_GRADIENT)
            return b->offset - u->gradient == home - (size_t)u->param * sizeof(float) ? c->levels - 1 : -1;
        if (b->arena != KOLO_ARENA_PART || size > all || b->offset % size != home - front) return -1;
        return (int)(b->offset / size);
    }
    if (b->arena == KOLO_ARENA_GRADIENT) return b->offset == home ? 0 : -1;
    if (b->arena != KOLO_ARENA_PART) return -1;
    if (c->windows) { /* behind the levels of parameters */
        size = front;
        begin = p->arena_bytes[KOLO_ARENA_PART] - (size_t)(kolo_plan_levels(&p->config) - 1) * front;
    }
    if (b->offset < begin || (b->offset - begin) % size != home) return -1;
    return 1 + (int)((b->offset - begin) / size);
}

/* No bucket that still needs its window meets that of `bucket`. */
static int free_window(check *c, int bucket, int tensor, int slot)
{
    const kolo_plan *p = c->plan;
    const kolo_unit *own = &p->unit[p->bucket[bucket].unit];
    for (int b = 0; b < p->buckets; b++) {
        if (b == bucket || !in_window(c, b) || !content_of(c, b, c->levels - 1)->end) continue;
        const kolo_unit *u = &p->unit[p->bucket[b].unit];
        if (overlap(own->gradient, (size_t)own->params * sizeof(float), u->gradient,
                    (size_t)u->params * sizeof(float)))
            return breach(c, "writes into the window of a bucket that is still needed", tensor, slot);
    }
    return 0;
}

static int write_reduced(check *c, const kolo_binding *b, int tensor, int slot)
{
    const size_t home = c->plan->home[tensor].offset;
    const int bucket = kolo_plan_bucket_of(c->plan, home), level = level_at(c, b, home, bucket);
    if (level < 0 || level >= c->levels ||
        b->offset + c->plan->layout[tensor].bytes > c->plan->arena_bytes[b->arena])
        return breach(c, "writes outside its place in the gradients", tensor, slot);
    content *k = content_of(c, bucket, level);
    if (level == last_level(c, bucket) && c->started[bucket])
        return breach(c, "writes into a bucket whose reduction has begun", tensor, slot);
    if (in_window(c, bucket) && level == c->levels - 1) KOLO_TRY(free_window(c, bucket, tensor, slot));
    if (c->written[tensor] == slot + 1) return breach(c, "writes twice", tensor, slot);
    if (k->end && (k->begin != slot || k->end != slot + 1 || k->written == c->tensors[bucket]))
        return breach(c, "overwrites gradients that are not folded yet", tensor, slot);
    k->begin = slot;
    k->end = slot + 1;
    k->written++;
    if (in_window(c, bucket) && level == c->levels - 1)
        c->unclear[bucket] |= c->plan->layout[tensor].bytes % KOLO_ALIGN != 0;
    c->written[tensor] = slot + 1;
    return 0;
}

static bool whole(check *c, int bucket, int level)
{
    const content *k = content_of(c, bucket, level);
    const bool unclear = in_window(c, bucket) && level == c->levels - 1 && c->unclear[bucket];
    return k->end && k->written == c->tensors[bucket] && !unclear;
}

static bool finished(check *c, int bucket) /* all slots summed on this rank */
{
    const int last = last_level(c, bucket);
    const content *k = content_of(c, bucket, last);
    for (int l = 0; l < c->levels; l++)
        if (l != last && content_of(c, bucket, l)->end) return false;
    return whole(c, bucket, last) && k->begin == 0 && k->end == c->plan->config.slots;
}

/* summed over ranks too */
static bool ready(check *c, int bucket)
{
    const kolo_plan_config *config = &c->plan->config;
    if (in_window(c, bucket)) return c->collected[bucket];
    if (config->ranks > 1 && config->exchange == KOLO_EXCHANGE_GRADIENTS) return c->waited[bucket];
    return finished(c, bucket) && !c->shared[bucket] && !c->averaged[bucket];
}

/* Of a fold: a level by its number in the list of actions. */
static int level_number(const check *c, int bucket, int level)
{
    return level == KOLO_WINDOW && in_window(c, bucket) ? c->levels - 1 : level;
}

static int on_fold(check *c, const kolo_action *a)
{
    if (a->bucket < 0 || a->bucket >= c->plan->buckets) return breach(c, "no such bucket", -1, 0);
    const int last = c->levels - 1, t = level_number(c, a->bucket, a->to),
              f = level_number(c, a->bucket, a->from);
    const bool window = in_window(c, a->bucket) && (t == last) != (f == last);
    if (t < 0 || f < 0 || t > last || f > last || (!window && f != t + 1))
        return breach(c, "no such levels", -1, 0);
    if (c->started[a->bucket]) return breach(c, "folds into a bucket whose reduction has begun", -1, 0);
    if (!whole(c, a->bucket, f) || !whole(c, a->bucket, t))
        return breach(c, "folds a level whose gradients are not all written", -1, 0);
    content *to = content_of(c, a->bucket, t), *from = content_of(c, a->bucket, f);
    const content *before = to->begin < from->begin ? to : from, *after = before == to ? from : to;
    if (before->end != after->begin) return breach(c, "folds micro-batches that are not neighbours", -1, 0);
    int n = after->end - before->begin, half = 1;
    while (half * 2 < n) half *= 2;
    if (c->plan->config.canonical && before->end - before->begin != half)
        return breach(c, "leaves the canonical tree", -1, 0);
    *to = (content){before->begin, after->end, to->written};
    *from = (content){0};
    return 0;
}

/* ---- parameters ---- */

/* A parameter where its unit has been gathered, or among those that all ranks have. */
static int read_unit(check *c, const kolo_binding *b, int tensor, int slot)
{
    const kolo_plan *p = c->plan;
    const size_t home = p->home[tensor].offset, width = p->layout[tensor].half ? 2 : 1;
    for (int u = 0; u < p->units; u++) {
        const kolo_unit *one = &p->unit[u];
        const size_t begin = (size_t)one->param * sizeof(float), bytes = (size_t)one->params * sizeof(float);
        if (home < begin || home >= begin + bytes) continue;
        if (b->arena != (width == 2 ? KOLO_ARENA_SHADOW : KOLO_ARENA_GATHERED) ||
            b->offset * width != one->gathered + home - begin)
            return breach(c, "reads another place than the window of its unit", tensor, slot);
        return c->gathered[u] == DONE ? 0 : breach(c, "reads what has not been gathered", tensor, slot);
    }
    return 0;
}

/* Into a window, where what stood there is gone; or, behind its update, where every rank keeps it. */
static int on_gather(check *c, const kolo_action *a)
{
    const kolo_plan *p = c->plan;
    if (a->unit < 0 || a->unit >= p->units) return breach(c, "no such unit", -1, 0);
    const kolo_unit *own = &p->unit[a->unit];
    char *state = &c->gathered[a->unit];
    if (a->kind == KOLO_ACTION_GATHERED) {
        if (*state != STARTED) return breach(c, "waits for parts that are not under way", -1, 0);
        *state = DONE;
        return 0;
    }
    if (*state == STARTED) return breach(c, "gathers twice", -1, 0);
    *state = STARTED;
    if (!kolo_plan_shards(p, KOLO_shard_parameters)) {
        for (int b = 0; b < p->buckets; b++)
            if (p->bucket[b].unit == a->unit && !c->updated[b])
                return breach(c, "gathers what is not updated yet", -1, 0);
        return 0;
    }
    const size_t bytes = (size_t)own->params * sizeof(float);
    if (own->gathered + bytes > p->arena_bytes[KOLO_ARENA_GATHERED])
        return breach(c, "gathers outside the arena", -1, 0);
    for (int u = 0; u < p->units; u++) {
        const kolo_unit *k = &p->unit[u];
        if (u == a->unit || !overlap(own->gathered, bytes, k->gathered, (size_t)k->params * sizeof(float)))
            continue;
        if (c->gathered[u] == STARTED) return breach(c, "gathers into a window that is being filled", -1, 0);
        c->gathered[u] = UNTOUCHED;
    }
    return 0;
}

/* The optimizer's state of a unit: at most two are here. */
static int on_state(check *c, const kolo_action *a)
{
    const bool goes = a->kind == KOLO_ACTION_LET_GO;
    int here = 0;
    if (a->unit < 0 || a->unit >= c->plan->units || !(c->plan->config.offload & KOLO_OFFLOAD_STATE))
        return breach(c, "no such unit, or nothing is in a file", -1, 0);
    if (c->fetched[a->unit] != (goes ? STARTED : UNTOUCHED))
        return breach(c, "fetches twice, or lets go what is not here", -1, 0);
    for (int b = 0; goes && b < c->plan->buckets; b++)
        if (c->plan->bucket[b].unit == a->unit && !c->updated[b])
            return breach(c, "lets go what is still to be updated", -1, 0);
    c->fetched[a->unit] = goes ? DONE : STARTED;
    for (int u = 0; u < c->plan->units; u++) here += c->fetched[u] == STARTED;
    return here > 2 ? breach(c, "has more than two units here", -1, 0) : 0;
}

static int on_file_param(check *c, const kolo_action *a)
{
    const bool goes = a->kind == KOLO_ACTION_LET_GO_PARAM;
    if (a->unit < 0 || a->unit >= c->plan->units || !(c->plan->config.offload & KOLO_OFFLOAD_PARAM))
        return breach(c, "no such unit, or parameters are in no file", -1, 0);
    if (c->here[a->unit] != goes) return breach(c, "fetches twice, or lets go what is not here", -1, 0);
    c->here[a->unit] = !goes;
    return 0;
}

static bool is_away(const check *c, int unit)
{
    return (c->plan->config.offload & KOLO_OFFLOAD_PARAM) && unit >= 0 && !c->here[unit];
}

static int read_home(check *c, const kolo_binding *b, int tensor, int slot)
{
    const kolo_plan *p = c->plan;
    const kolo_binding *h = &p->home[tensor];
    if (h->arena == KOLO_ARENA_PARAM && kolo_plan_shards(p, KOLO_shard_parameters)) {
        KOLO_TRY(read_unit(c, b, tensor, slot));
    } else if (h->arena == KOLO_ARENA_PARAM && p->layout[tensor].half) {
        if (b->arena != KOLO_ARENA_SHADOW || b->offset * 2 != h->offset)
            return breach(c, "reads another place than its 16-bit copy", tensor, slot);
    } else if (h->arena < 0 || b->arena != h->arena || b->offset != h->offset) {
        return breach(c, "reads from a place that is not its home", tensor, slot);
    } else if (h->arena == KOLO_ARENA_PARAM && is_away(c, kolo_plan_unit_of(p, tensor))) {
        return breach(c, "reads a parameter that is still in its file", tensor, slot);
    }
    for (int k = 0; k < p->buckets; k++) {
        size_t begin = (size_t)p->bucket[k].param * sizeof(float),
               bytes = (size_t)p->bucket[k].params * sizeof(float);
        if (h->arena == KOLO_ARENA_PARAM && c->updated[k] && overlap(begin, bytes, h->offset, 1))
            return breach(c, "reads a parameter that is updated already", tensor, slot);
    }
    return 0;
}

/* Which updates of a parameter its place shows. While a late pipeline fills, the newest weights are those of
 * before the first step, among the versions. */
static int64_t updates_at(const check *c, const kolo_binding *b, int bucket)
{
    const int versions = kolo_plan_weight_versions(c->plan);
    const bool fills = c->step < 0 && versions > 0;
    const bool foreseen = kolo_plan_predicts(c->plan) && b->arena == KOLO_ARENA_VERSION &&
                          b->offset / c->plan->param_bytes == (size_t)versions,
               now = b->arena != KOLO_ARENA_VERSION || foreseen;
    if (foreseen && !fills) return c->predicted[bucket] ? c->step : -1;
    if (now && !fills) return c->step + c->updated[bucket];
    const size_t place = fills && now ? (size_t)(c->batch % versions) : b->offset / c->plan->param_bytes;
    return place < (size_t)versions ? c->version[bucket * versions + (int64_t)place] : -1;
}

/* A late pipeline's operation reads the version of its batch (order.h). */
static int read_version(check *c, const kolo_node *n, const kolo_binding *b, int tensor)
{
    const kolo_plan *p = c->plan;
    const kolo_binding *h = &p->home[tensor];
    const bool copy = b->arena == KOLO_ARENA_VERSION;
    if ((!copy && b->arena != KOLO_ARENA_PARAM) || p->layout[tensor].half || h->arena != KOLO_ARENA_PARAM ||
        (copy ? b->offset % p->param_bytes : b->offset) != h->offset)
        return breach(c, "reads from a place that is not its home", tensor, (int)c->micro);
    const bool stashes = kolo_pipeline[p->config.placement->order].stashes;
    const int64_t late = c->batch - kolo_plan_staleness(p);
    const int64_t want = n->backward && !stashes ? c->step : late > 0 ? late : 0;
    for (int k = 0; k < p->buckets; k++) {
        const size_t begin = (size_t)p->bucket[k].param * sizeof(float),
                     bytes = (size_t)p->bucket[k].params * sizeof(float);
        if (overlap(begin, bytes, h->offset, 1) && updates_at(c, b, k) != want)
            return breach(c, "reads weights of another version than its batch's", tensor, (int)c->micro);
    }
    return 0;
}

/* ---- actions ---- */

static int on_load(check *c, const kolo_action *a)
{
    const kolo_binding *b = bindings_of(c, a);
    if (c->graph->input >= 0) KOLO_TRY(write_region(c, &b[0], c->graph->input, (int)c->micro, false));
    if (c->graph->label >= 0) KOLO_TRY(write_region(c, &b[1], c->graph->label, (int)c->micro, false));
    return 0;
}

/* Statistics begin to count; metrics, summed, are put aside to be sent. */
static int on_copy(check *c, const kolo_action *a)
{
    if (!c->plan->ring || a->tensor < 0 || a->tensor >= c->graph->tensors)
        return breach(c, "copies nothing of this plan", -1, 0);
    const enum kolo_role role = c->graph->tensor[a->tensor].role;
    const kolo_binding *b = bindings_of(c, a), *home = &c->plan->home[a->tensor];
    if (role == KOLO_ROLE_STATISTIC) {
        KOLO_TRY(read_region(c, &b[0], a->tensor, (int)c->micro));
        return write_reduced(c, &b[1], a->tensor, a->slot);
    }
    if (role != KOLO_ROLE_METRIC || b[0].arena != home->arena || b[0].offset != home->offset)
        return breach(c, "copies what is neither a statistic nor summed", a->tensor, a->slot);
    bool elsewhere;
    if (find_region(c, &b[1], a->tensor, (int)c->micro, &elsewhere))
        return breach(c, "is done twice", a->tensor, a->slot);
    if (!ready(c, kolo_plan_bucket_of(c->plan, home->offset)))
        return breach(c, "copies sums that are not complete", a->tensor, a->slot);
    return write_region(c, &b[1], a->tensor, (int)c->micro, false);
}

static int on_stash(check *c, int b)
{
    const int versions = kolo_plan_weight_versions(c->plan);
    if (b < 0 || b >= c->plan->buckets || versions == 0) return breach(c, "keeps no version", -1, 0);
    if (c->step < 0 || c->updated[b] || c->stashed[b] || (kolo_plan_predicts(c->plan) && !c->predicted[b]))
        return breach(c, "keeps a version that is none", -1, 0);
    c->version[(int64_t)b * versions + c->step % versions] = c->step;
    c->stashed[b] = 1;
    return 0;
}

static int on_predict(check *c, int b)
{
    if (b < 0 || b >= c->plan->buckets || !kolo_plan_predicts(c->plan))
        return breach(c, "predicts nothing here", -1, 0);
    if (c->step < 0 || c->updated[b] || c->predicted[b]) return breach(c, "predicts out of turn", -1, 0);
    c->predicted[b] = 1;
    return 0;
}

/* Inputs and outputs of one operation must not meet, but for out[0] on the input that it may overwrite. */
static int meet(check *c, const kolo_node *n, const kolo_binding *b, int slot)
{
    int may = kolo_op_table[n->op].overwrite, all = n->n_in + n->n_out;
    for (int o = n->n_in; o < all; o++) {
        int out = n->out[o - n->n_in];
        if (out < 0) continue;
        for (int i = 0; i < all; i++) {
            int other = i < n->n_in ? n->in[i] : n->out[i - n->n_in];
            if (i == o || other < 0 || b[i].arena != b[o].arena) continue;
            if (!overlap(b[i].offset, c->plan->layout[other].bytes, b[o].offset, c->plan->layout[out].bytes))
                continue;
            if (o == n->n_in && i == may && b[i].offset == b[o].offset &&
                c->plan->layout[other].bytes == c->plan->layout[out].bytes)
                continue;
            return breach(c, "writes over its own operand", out, slot);
        }
    }
    return 0;
}

/* A second time only what is of the forward half, after the first, and what it would count twice (statistics,
 * metrics, gradients) goes where nobody counts it: among the activations. */
static int check_again(check *c, const kolo_action *a)
{
    char *ran = &c->ran[c->micro * c->graph->nodes + a->node];
    if (!a->again && *ran) return breach(c, "is done twice", -1, 0);
    if (a->again && c->graph->node[a->node].backward)
        return breach(c, "is of the backward half, which nothing does again", -1, 0);
    if (a->again && !*ran) return breach(c, "is done again before it was done", -1, 0);
    *ran = 1;
    return 0;
}

static int write_output(check *c, const kolo_action *a, const kolo_binding *b, int tensor)
{
    const enum kolo_role role = c->graph->tensor[tensor].role;
    const bool waits =
        kolo_plan_ahead(c->plan) > 0 && role == KOLO_ROLE_STATISTIC && !c->graph->node[a->node].backward;
    if (kolo_plan_placed(role) || waits || (a->again && kolo_plan_is_reduced(role)))
        return write_region(c, b, tensor, (int)c->micro, a->again);
    if (kolo_plan_is_reduced(role)) return write_reduced(c, b, tensor, a->slot);
    return breach(c, "writes a tensor that operations must not write", tensor, a->slot);
}

/* Signs serve who asks for nothing else; what came back rounded is read by all of the backward half, and by
 * nobody before. */
static int read_operand(check *c, const kolo_action *a, int k, const kolo_binding *b)
{
    const kolo_node *n = &c->graph->node[a->node];
    const int tensor = n->in[k];
    bool elsewhere;
    KOLO_TRY(read_region(c, b, tensor, (int)c->micro));
    const region *r = find_region(c, b, tensor, (int)c->micro, &elsewhere);
    if (r->only_signs && !kolo_op_reads_sign(n->op, k))
        return breach(c, "reads numbers where nothing but signs was kept", tensor, a->slot);
    if (!kolo_form_is_exact(kolo_plan_form(c->plan, tensor)) && r->again != (a->again || n->backward))
        return breach(c, "reads other numbers than its half of the step", tensor, a->slot);
    return 0;
}

static int on_run(check *c, const kolo_action *a)
{
    if (a->node < 0 || a->node >= c->graph->nodes || !kolo_plan_has_node(c->plan, a->node) || a->slot < 0 ||
        a->slot >= c->plan->config.slots)
        return breach(c, "no such operation or micro-batch", -1, 0);
    const kolo_node *n = &c->graph->node[a->node];
    const kolo_binding *b = bindings_of(c, a);
    KOLO_TRY(check_again(c, a));
    for (int k = 0; k < n->n_in; k++) {
        if (n->in[k] < 0) continue;
        if (kolo_plan_placed(c->graph->tensor[n->in[k]].role)) KOLO_TRY(read_operand(c, a, k, &b[k]));
        else if (c->plan->ring && c->graph->tensor[n->in[k]].role == KOLO_ROLE_PARAM)
            KOLO_TRY(read_version(c, n, &b[k], n->in[k]));
        else KOLO_TRY(read_home(c, &b[k], n->in[k], a->slot));
    }
    KOLO_TRY(meet(c, n, b, a->slot));
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] >= 0) KOLO_TRY(write_output(c, a, &b[n->n_in + k], n->out[k]));
    return 0;
}

static int on_sum(check *c, const kolo_action *a)
{
    const kolo_binding *b = bindings_of(c, a);
    for (int64_t i = 0; i < c->regions; i++) {
        region *r = &c->region[i];
        if (b->arena != r->arena || r->offset != b->offset || r->slot != c->micro || r->form) continue;
        if (c->graph->tensor[r->tensor].role != KOLO_ROLE_PARTIAL)
            return breach(c, "sums what is no partial sum", r->tensor, a->slot);
        if (r->summed || r->again || !must_sum(c))
            return breach(c, "sums twice, or where nothing is to be summed", r->tensor, a->slot);
        r->summed = true;
        return 0;
    }
    return breach(c, "sums what was never written", -1, 0);
}

static int on_transfer(check *c, const kolo_action *a)
{
    if (a->transfer < 0 || a->transfer >= c->plan->transfers) return breach(c, "no such transfer", -1, 0);
    const kolo_plan *p = c->plan;
    const kolo_transfer *t = &p->transfer[a->transfer];
    const kolo_binding *b = bindings_of(c, a);
    const kolo_binding *home = &p->home[t->tensor];
    const bool at_home = t->sends && home->arena >= 0 && !p->ring; /* metrics */
    const size_t turn =
                     (size_t)kolo_ring_place(&t->ring, c->batch, p->config.slots, t->slot) * t->ring.stride,
                 place = at_home ? home->offset : t->offset - kolo_plan_transfer_base(p) + turn;
    char *state = &c->transfer[a->transfer * c->steps + c->batch];
    const char before = a->kind == KOLO_ACTION_TRANSFERRED ? STARTED : UNTOUCHED;
    const int slot = (int)c->micro;
    if (*state != before) return breach(c, "starts or waits for a transfer out of turn", t->tensor, t->slot);
    if (b->arena != (at_home ? home->arena : KOLO_ARENA_TRANSFER) || b->offset != place ||
        (at_home && t->offset != place) || a->slot != t->slot)
        return breach(c, "has another place than its transfer", t->tensor, t->slot);
    (*state)++;
    if (at_home) /* summed, and at rest from here on */
        return ready(c, kolo_plan_bucket_of(p, place))
                   ? 0
                   : breach(c, "sends sums that are not complete", t->tensor, t->slot);
    if (a->kind == KOLO_ACTION_RECEIVE) KOLO_TRY(write_region(c, b, t->tensor, slot, false));
    if (a->kind == KOLO_ACTION_SEND) KOLO_TRY(read_region(c, b, t->tensor, slot));
    bool elsewhere;
    region *r = find_region(c, b, t->tensor, slot, &elsewhere);
    if (!r) return breach(c, "waits for what was overwritten", t->tensor, t->slot);
    if (t->sends) r->going += a->kind == KOLO_ACTION_SEND ? 1 : -1;
    else {
        r->coming = a->kind == KOLO_ACTION_RECEIVE;
        r->summed = !r->coming; /* who sends a partial sum has summed it over ranks */
    }
    return 0;
}

/* ---- forms ---- */

/* What stands at a binding: values of action `a`'s tensor, or what they are kept as. */
static region *find_formed(check *c, const kolo_action *a, int k, bool formed)
{
    const kolo_binding *b = &c->plan->binding[a->binding + k];
    for (int64_t i = 0; i < c->regions; i++) {
        region *r = &c->region[i];
        if (r->tensor == a->tensor && r->slot == a->slot && (r->form != KOLO_FORM_KEPT) == formed &&
            r->arena == b->arena && r->offset == b->offset)
            return r;
    }
    return NULL;
}

/* A copy of values to what they are kept as, or back: begun, and with `done` finished too. */
static int begin_form(check *c, const kolo_action *a, enum kolo_form_kind form, bool done)
{
    const bool back = kolo_action_unforms(a->kind);
    const kolo_binding *b = &c->plan->binding[a->binding];
    const size_t own = c->plan->layout[a->tensor].bytes;
    const size_t formed =
        kolo_form_is_encoded(form)
            ? kolo_form_bytes(form, own / kolo_dtype_size(c->graph->tensor[a->tensor].dtype))
            : own;
    const region *from = find_formed(c, a, 0, back);
    if (!from || from->coming || (back && from->form != form))
        return breach(c, "changes the form of what does not stand there", a->tensor, a->slot);
    if (!back && (from->again || from->only_signs))
        return breach(c, "keeps what came back before", a->tensor, a->slot);
    KOLO_TRY(write_bytes(c, &b[1], a->tensor, a->slot, back ? own : formed));
    region *to = &c->region[c->regions - 1], *source = find_formed(c, a, 0, back);
    if (!source) return breach(c, "writes over what it reads", a->tensor, a->slot);
    to->form = back ? KOLO_FORM_KEPT : form;
    to->again = back;
    to->only_signs = back && form == KOLO_FORM_SIGNS;
    to->coming = !done;
    source->going += !done;
    return 0;
}

static int end_form(check *c, const kolo_action *a)
{
    const bool back = kolo_action_unforms(a->kind);
    region *from = find_formed(c, a, 0, back), *to = find_formed(c, a, 1, !back);
    if (!from || !to || !from->going || !to->coming)
        return breach(c, "waits for a copy that is not under way", a->tensor, a->slot);
    from->going--;
    to->coming = false;
    return 0;
}

static int on_form(check *c, const kolo_action *a)
{
    if (a->tensor < 0 || a->tensor >= c->graph->tensors || a->slot < 0 || a->slot >= c->plan->config.slots)
        return breach(c, "no such tensor or micro-batch", -1, 0);
    const enum kolo_form_kind form = kolo_plan_form(c->plan, a->tensor);
    const bool encodes = a->kind == KOLO_ACTION_ENCODE || a->kind == KOLO_ACTION_DECODE;
    const bool aside =
        c->plan->binding[a->binding + !kolo_action_unforms(a->kind)].arena == KOLO_ARENA_OFFLOADED;
    if (encodes ? !kolo_form_takes(form, c->graph->tensor[a->tensor].dtype) : form != KOLO_FORM_ASIDE)
        return breach(c, "has not this form", a->tensor, a->slot);
    if (aside == encodes) return breach(c, "has another place than its form", a->tensor, a->slot);
    if (a->kind == KOLO_ACTION_STORED || a->kind == KOLO_ACTION_RETRIEVED) return end_form(c, a);
    return begin_form(c, a, form, encodes);
}

static bool combined(const check *c, int bucket)
{
    return c->plan->config.adasum && c->plan->bucket[bucket].params > 0;
}

/* The optimizer's rule, on sums of all ranks or, for Adasum, on this rank's own. */
static int on_update(check *c, int b)
{
    const kolo_plan_config *config = &c->plan->config;
    if (combined(c, b) ? !finished(c, b) : !ready(c, b))
        return breach(c, "updates before the gradients are complete", -1, 0);
    if (c->updated[b] || c->stepped[b]) return breach(c, "updates twice", -1, 0);
    if ((config->clip_norm || config->scaled || config->noise) && !c->norms)
        return breach(c, "updates before the gradients are judged", -1, 0);
    if (kolo_is_layerwise(config->optimizer) && !c->layers)
        return breach(c, "updates before the tensors' factors are known", -1, 0);
    if (is_away(c, c->plan->bucket[b].unit)) return breach(c, "updates what is still in its file", -1, 0);
    if (kolo_plan_weight_versions(c->plan) > 0 && !c->stashed[b])
        return breach(c, "updates weights of which a version is to be kept", -1, 0);
    if ((config->offload & KOLO_OFFLOAD_STATE) && c->fetched[c->plan->bucket[b].unit] != STARTED)
        return breach(c, "updates a state that is not here", -1, 0);
    if (combined(c, b)) c->stepped[b] = 1;
    else c->updated[b] = 1;
    return 0;
}

/* Something of the bucket is averaged over ranks. */
static bool averages(const check *c, int bucket)
{
    const kolo_plan *p = c->plan;
    if (!kolo_plan_exchanges_weights(&p->config)) return false;
    if (p->bucket[bucket].params > 0) return true;
    for (int t = 0; t < c->graph->tensors; t++)
        if (c->graph->tensor[t].role == KOLO_ROLE_STATISTIC && p->home[t].arena == KOLO_ARENA_GRADIENT &&
            kolo_plan_bucket_of(p, p->home[t].offset) == bucket)
            return true;
    return false;
}

/* How often: weights, and each of the optimizer's states. */
static int averages_of(const check *c, int bucket)
{
    const kolo_plan *p = c->plan;
    const bool states = p->config.average_state && p->bucket[bucket].params > 0;
    return averages(c, bucket) ? 1 + (states ? kolo_plan_own_states(p) : 0) : 0;
}

/* What a rank has made by itself goes to the others, or comes back. */
static int on_share(check *c, const kolo_action *a)
{
    const int b = a->bucket;
    if (b < 0 || b >= c->plan->buckets || !averages(c, b)) return breach(c, "averages nothing here", -1, 0);
    if (a->from != c->averaged[b] || a->from >= averages_of(c, b))
        return breach(c, "averages out of turn", -1, 0);
    if (a->kind == KOLO_ACTION_TAKE) {
        if (!c->shared[b] || !c->waited[b]) return breach(c, "takes what is not averaged yet", -1, 0);
        c->shared[b] = 0;
        c->averaged[b]++;
        return 0;
    }
    if (c->shared[b] || (c->started[b] && !c->waited[b]))
        return breach(c, "writes into a bucket whose reduction has begun", -1, 0);
    if (c->plan->bucket[b].params > 0 ? !c->updated[b] : !c->buffers)
        return breach(c, "shares what this step has not changed yet", -1, 0);
    c->shared[b] = 1;
    c->started[b] = c->waited[b] = 0;
    return 0;
}

static int on_bucket(check *c, const kolo_action *a)
{
    int b = a->bucket, from;
    if (b < 0 || b >= c->plan->buckets) return breach(c, "no such bucket", -1, 0);
    switch (a->kind) {
    case KOLO_ACTION_REDUCE:
        if (c->started[b]) return breach(c, "the reduction has begun before", -1, 0);
        if (!finished(c, b)) return breach(c, "the bucket is not complete", -1, 0);
        if (!kolo_plan_reduces(&c->plan->config)) return breach(c, "sums what is this rank's own", -1, 0);
        if (averages(c, b) && !c->shared[b])
            return breach(c, "gradients would be averaged instead of weights", -1, 0);
        if (combined(c, b) && !c->stepped[b])
            return breach(c, "gradients would be combined instead of steps", -1, 0);
        c->started[b] = 1;
        return 0;
    case KOLO_ACTION_WAIT:
        if (!c->started[b] || c->waited[b])
            return breach(c, "waits for a reduction that is not under way", -1, 0);
        c->waited[b] = 1;
        return 0;
    case KOLO_ACTION_CLEAR:
        if (!in_window(c, b) || c->started[b] || content_of(c, b, c->levels - 1)->written != c->tensors[b])
            return breach(c, "clears what is not complete in its window", -1, 0);
        c->unclear[b] = 0;
        return 0;
    case KOLO_ACTION_COLLECT:
        if (!in_window(c, b) || !c->waited[b] || c->collected[b])
            return breach(c, "collects what is not summed, or a second time", -1, 0);
        c->collected[b] = 1;
        *content_of(c, b, c->levels - 1) = (content){0};
        return 0;
    case KOLO_ACTION_SQUARE:
        from = level_number(c, b, a->from);
        if (from < 0 || from >= c->levels || !whole(c, b, from) || c->started[b])
            return breach(c, "measures gradients that are not complete, or not there any more", -1, 0);
        if (content_of(c, b, from)->begin != a->slot || content_of(c, b, from)->end != a->slot + 1)
            return breach(c, "measures more than one micro-batch", -1, 0);
        if (c->plan->bucket[b].params == 0) return breach(c, "measures no gradients", -1, 0);
        if (c->squared[a->slot * c->plan->buckets + b]++)
            return breach(c, "measures a micro-batch twice", -1, 0);
        if ((a->to != 0) != (c->squares++ > 0)) return breach(c, "adds to nothing, or begins anew", -1, 0);
        return 0;
    case KOLO_ACTION_APPLY:
        if (!c->stepped[b] || !c->waited[b]) return breach(c, "applies what is no step of all ranks", -1, 0);
        if (c->updated[b]) return breach(c, "updates twice", -1, 0);
        c->updated[b] = 1;
        return 0;
    default:
        if ((a->kind == KOLO_ACTION_DELTA) != combined(c, b))
            return breach(c, "is no action of this plan", -1, 0);
        return on_update(c, b);
    }
}

static int on_all(check *c, const kolo_action *a)
{
    bool statistics = a->kind == KOLO_ACTION_BUFFERS;
    int *done = statistics                     ? &c->buffers
                : a->kind == KOLO_ACTION_NORM  ? &c->norms
                : a->kind == KOLO_ACTION_NOISE ? &c->noises
                                               : &c->layers;
    const kolo_plan_config *config = &c->plan->config;
    if (a->kind == KOLO_ACTION_LAYERS && (config->clip_norm || config->scaled || config->noise) && !c->norms)
        return breach(c, "measures gradients before they are judged", -1, 0);
    for (int t = 0; t < c->graph->tensors; t++) {
        enum kolo_role role = c->graph->tensor[t].role;
        if (c->plan->home[t].arena != KOLO_ARENA_GRADIENT || (statistics && role != KOLO_ROLE_STATISTIC))
            continue;
        int b = kolo_plan_bucket_of(c->plan, c->plan->home[t].offset);
        const bool front = c->plan->bucket[b].params == 0;
        if (combined(c, b)                                                ? !finished(c, b) || c->stepped[b]
            : !statistics && config->adasum                               ? false
            : !statistics && front && kolo_plan_exchanges_weights(config) ? false
                                                                          : !ready(c, b))
            return breach(c, "uses sums that are not complete", t, 0);
    }
    if ((*done)++) return breach(c, "is done twice", -1, 0);
    return 0;
}

static int play_action(check *c, const kolo_action *a)
{
    switch (a->kind) {
    case KOLO_ACTION_LOAD: return on_load(c, a);
    case KOLO_ACTION_RUN: return on_run(c, a);
    case KOLO_ACTION_SUM: return on_sum(c, a);
    case KOLO_ACTION_FOLD: return on_fold(c, a);
    case KOLO_ACTION_REDUCE:
    case KOLO_ACTION_WAIT:
    case KOLO_ACTION_CLEAR:
    case KOLO_ACTION_COLLECT:
    case KOLO_ACTION_SQUARE:
    case KOLO_ACTION_DELTA:
    case KOLO_ACTION_APPLY:
    case KOLO_ACTION_UPDATE: return on_bucket(c, a);
    case KOLO_ACTION_SHARE:
    case KOLO_ACTION_TAKE: return on_share(c, a);
    case KOLO_ACTION_COPY: return on_copy(c, a);
    case KOLO_ACTION_STASH: return on_stash(c, a->bucket);
    case KOLO_ACTION_PREDICT: return on_predict(c, a->bucket);
    case KOLO_ACTION_SEND:
    case KOLO_ACTION_RECEIVE:
    case KOLO_ACTION_TRANSFERRED: return on_transfer(c, a);
    case KOLO_ACTION_FETCH:
    case KOLO_ACTION_LET_GO: return on_state(c, a);
    case KOLO_ACTION_FETCH_PARAM:
    case KOLO_ACTION_LET_GO_PARAM: return on_file_param(c, a);
    case KOLO_ACTION_GATHER:
    case KOLO_ACTION_GATHERED: return on_gather(c, a);
    case KOLO_ACTION_NOISE:
    case KOLO_ACTION_NORM:
    case KOLO_ACTION_LAYERS:
    case KOLO_ACTION_BUFFERS: return on_all(c, a);
    case KOLO_ACTION_ENCODE:
    case KOLO_ACTION_DECODE:
    case KOLO_ACTION_STORE:
    case KOLO_ACTION_STORED:
    case KOLO_ACTION_RETRIEVE:
    case KOLO_ACTION_RETRIEVED: return on_form(c, a);
    default: return breach(c, "unknown kind", -1, 0);
    }
}

static int play(check *c)
{
    for (c->at = 0; c->at < c->plan->actions; c->at++) {
        const kolo_action *a = &c->plan->action[c->at];
        const int rc = find_batch(c, a) ? play_action(c, a) : 0;
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- after the last action ---- */

static int check_end(check *c)
{
    const kolo_plan *p = c->plan;
    int measured = 0;
    for (int b = 0; b < p->buckets; b++) measured += p->bucket[b].params > 0 ? p->config.slots : 0;
    if (p->config.noise &&
        (c->squares != measured || c->noises != (p->config.ranks > 1 || p->config.placement)))
        return kolo_fail(KOLO_EINTERNAL, "plan: %d of %d parts are measured for the noise scale", c->squares,
                         measured);
    if (p->config.optimizer && !c->norms && (p->config.clip_norm || p->config.scaled || p->config.noise))
        return kolo_fail(KOLO_EINTERNAL, "plan: the gradients are never judged");
    if (p->config.optimizer && !c->layers && kolo_is_layerwise(p->config.optimizer))
        return kolo_fail(KOLO_EINTERNAL, "plan: the tensors' factors are never known");
    for (int b = 0; b < p->buckets; b++) {
        if (in_window(c, b) ? !c->collected[b] : !finished(c, b))
            return kolo_fail(KOLO_EINTERNAL, "plan: bucket %d is not complete at the end of the step", b);
        if (!p->config.optimizer) continue;
        if (kolo_plan_reduces(&p->config) && !c->waited[b])
            return kolo_fail(KOLO_EINTERNAL, "plan: bucket %d is never reduced", b);
        if (c->averaged[b] != averages_of(c, b))
            return kolo_fail(KOLO_EINTERNAL, "plan: not all of bucket %d is averaged", b);
        if (p->bucket[b].params > 0 && !c->updated[b])
            return kolo_fail(KOLO_EINTERNAL, "plan: bucket %d is never updated", b);
    }
    for (int u = 0; u < p->units; u++)
        if (c->here[u]) return kolo_fail(KOLO_EINTERNAL, "plan: the parameters of unit %d stay here", u);
    for (int u = 0; u < p->units && (p->config.offload & KOLO_OFFLOAD_STATE); u++)
        if (c->fetched[u] != DONE)
            return kolo_fail(KOLO_EINTERNAL, "plan: the state of unit %d stays here", u);
    for (int u = 0; u < p->units && p->config.shards > 1 && !kolo_plan_shards(p, KOLO_shard_parameters); u++)
        if (p->config.optimizer && c->gathered[u] != DONE)
            return kolo_fail(KOLO_EINTERNAL, "plan: unit %d is not gathered behind its update", u);
    for (int t = 0; t < p->graph->tensors; t++) {
        bool reduced = p->home[t].arena == KOLO_ARENA_GRADIENT;
        if (reduced && c->written[t] != p->config.slots)
            return kolo_fail(KOLO_EINTERNAL, "plan: %s is not written in every micro-batch",
                             p->graph->tensor[t].name);
        if (reduced && p->graph->tensor[t].role == KOLO_ROLE_STATISTIC && p->config.optimizer && !c->buffers)
            return kolo_fail(KOLO_EINTERNAL, "plan: the running statistics are never updated");
    }
    return 0;
}

/* Of a late pipeline behind the last step. */
static int check_transferred(const check *c)
{
    const kolo_plan *p = c->plan;
    for (int64_t i = 0; i < p->transfers * c->steps; i++)
        if (c->transfer[i] != DONE)
            return kolo_fail(KOLO_EINTERNAL,
                             "plan: transfer %d (%s) is not waited for by the end of the step",
                             (int)(i / c->steps), p->graph->tensor[p->transfer[i / c->steps].tensor].name);
    for (int64_t i = 0; i < c->regions; i++)
        if (c->region[i].coming || c->region[i].going)
            return kolo_fail(KOLO_EINTERNAL, "plan: a copy of %s is not waited for by the end of the step",
                             p->graph->tensor[c->region[i].tensor].name);
    return 0;
}

/* What a step begins with. */
static void begin_step(check *c)
{
    const kolo_plan *p = c->plan;
    const size_t buckets = (size_t)p->buckets + 1;
    memset(c->content, 0, buckets * (size_t)c->levels * sizeof *c->content);
    memset(c->written, 0, ((size_t)p->graph->tensors + 1) * sizeof *c->written);
    memset(c->started, 0, 10 * buckets);
    memset(c->squared, 0, (size_t)p->config.slots * buckets);
    c->squares = c->norms = c->layers = c->buffers = c->noises = 0;
}

/* So many steps that every place of every ring is taken twice, the filling before and what is waited for
 * behind. */
static int play_all(check *c)
{
    const kolo_plan *p = c->plan;
    int first = 0, last = 0;
    for (int64_t i = 0; i < p->actions && p->ring; i++) {
        if (p->action[i].ahead > first) first = p->action[i].ahead;
        if (-p->action[i].ahead > last) last = -p->action[i].ahead;
    }
    for (c->step = -first; c->step < c->steps + last; c->step++) {
        begin_step(c);
        KOLO_TRY(play(c));
        if (c->step >= 0 && c->step < c->steps) KOLO_TRY(check_end(c));
    }
    return check_transferred(c);
}

static int make_room(check *c)
{
    const kolo_plan *p = c->plan;
    size_t buckets = (size_t)p->buckets + 1;
    c->steps = 1;
    for (int64_t i = 0; i < p->bindings && p->ring; i++)
        if (2 * p->ring[i].places + 1 > c->steps) c->steps = 2 * p->ring[i].places + 1;
    c->windows = p->config.optimizer && kolo_plan_shards(p, KOLO_shard_gradients);
    c->levels = kolo_plan_levels(&p->config) + c->windows;
    c->content = kolo_alloc(buckets * (size_t)c->levels * sizeof *c->content);
    c->tensors = kolo_alloc(buckets * sizeof *c->tensors);
    c->written = kolo_alloc(((size_t)p->graph->tensors + 1) * sizeof *c->written);
    c->started = kolo_alloc(10 * buckets);
    c->version = kolo_alloc(buckets * (size_t)(kolo_plan_weight_versions(p) + 1) * sizeof *c->version);
    c->gathered = kolo_alloc(3 * (size_t)p->units + 1);
    c->transfer = kolo_alloc((size_t)p->transfers * (size_t)c->steps + 1);
    c->squared = kolo_alloc((size_t)p->config.slots * buckets);
    c->ran = kolo_alloc((size_t)c->steps * (size_t)p->config.slots * (size_t)p->graph->nodes + 1);
    if (!c->content || !c->tensors || !c->written || !c->started || !c->transfer || !c->ran || !c->gathered ||
        !c->squared || !c->version)
        return KOLO_ENOMEM;
    c->waited = c->started + buckets;
    c->updated = c->waited + buckets;
    c->stepped = c->updated + buckets;
    c->fetched = c->gathered + p->units;
    c->here = c->fetched + p->units;
    c->collected = c->stepped + buckets;
    c->unclear = c->collected + buckets;
    c->shared = c->unclear + buckets;
    c->averaged = c->shared + buckets;
    c->stashed = c->averaged + buckets;
    c->predicted = c->stashed + buckets;
    for (int t = 0; t < p->graph->tensors; t++)
        if (p->home[t].arena == KOLO_ARENA_GRADIENT) c->tensors[kolo_plan_bucket_of(p, p->home[t].offset)]++;
    return 0;
}

int kolo_plan_check(const kolo_plan *plan)
{
    check c = {.plan = plan, .graph = plan->graph};
    int rc;
    KOLO_TRY(kolo_plan_check_still(plan));
    KOLO_TRY_GOTO(rc, make_room(&c));
    KOLO_TRY_GOTO(rc, play_all(&c));
fail:
    free(c.region);
    free(c.content);
    free(c.tensors);
    free(c.written);
    free(c.started);
    free(c.gathered);
    free(c.transfer);
    free(c.ran);
    free(c.squared);
    free(c.version);
    return rc;
}
