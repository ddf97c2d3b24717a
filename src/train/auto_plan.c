#include "train/auto_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "plan/fabric.h"
#include "plan/search.h"
#include "train/parts.h"
#include "train/times.h"
#include "train/uneven.h"

enum { MOST_DIVISIONS = 256, MOST_VALUES = 8 };
/* What another plan must gain at least, as a share of the plain one's step: prices are no more exact than
 * tests/long/predict.t asks of their median. */
static const double GAIN = .05;

/* Layers in parts on ranks side by side: another network to the last bit, so none but the first where the
 * recipe gives parts, or search_parts= says so. Behind these: maps up to one of the network's last modules,
 * channels from there on (list_switches). */
typedef struct layer_cut {
    char words[128];
    int parts;
} layer_cut;
static const layer_cut cuts[] = {
    {"", 1},          {"spatial=2x1 ", 2}, {"spatial=2x2 ", 4}, {"spatial=4x2 ", 8},
    {"tensor=2 ", 2}, {"tensor=4 ", 4},    {"tensor=8 ", 8}};
enum { CUTS = sizeof cuts / sizeof *cuts, MODULES = 12, MOST_CUTS = CUTS + 3 * MODULES };

/* How a step is divided: what all bounds are of. */
typedef struct division {
    int stages, cut;
    int64_t rows; /* of a micro-batch */
    double work;  /* seconds: that of all ranks, evenly divided; -1: not yet known */
} division;

/* The other axes: words each value stands for. */
typedef struct axis {
    const char *key;
    const char *value[MOST_VALUES];
    bool of_stages; /* but for its first value, of pipelines alone */
} axis;
static const axis axes[] = {
    {"pipeline",
     {"pipeline=1f1b", "pipeline=zero_bubble", "pipeline=gpipe", "pipeline=interleaved chunks=2"},
     true},
    {"shard", {"", "shard=optimizer", "shard=gradients", "shard=parameters"}, false},
    {"recompute", {"", "recompute=auto"}, false},
    {"bucket_mb", {"", "bucket_mb=4", "bucket_mb=64"}, false},
    {"halo", {"halo=narrow", "halo=wide"}, false}};
enum { AXES = sizeof axes / sizeof *axes, RECOMPUTE = 2, BUCKETS = 3, HALO = 4 };

typedef struct task {
    const kolo_options *options; /* as they were given */
    const kolo_gpu *gpu;
    bool begun;        /* the run keeps what changes its numbers */
    kolo_launch alone; /* one rank, whatever was started */
    int here[2];       /* its node, its number there */
    int parts;
    division division[MOST_DIVISIONS];
    int divisions;
    layer_cut cut[MOST_CUTS]; /* cuts, and switches of this network */
    int cuts;
    int given;  /* parts that the recipe cuts layers into */
    char *fits; /* [plans] 1: its bytes do, 2: they do not; 0: not yet known */
    kolo_search_space space;
    double until, limit_seconds; /* when time is up; of all */
    double plain, best;
    double param_bytes; /* of the whole network */
    int priced;
    double exposed, idle; /* of the plain one */
    size_t plain_bytes, limit;
    kolo_auto_plan *result;
} task;

/* ---- points ---- */

/* Ranks side by side: of a pipeline, of the parts of its layers. */
static int across_of(const task *t, int stages, int cut)
{
    return stages * (cut ? t->cut[cut].parts : t->given);
}

static int64_t number_of(const task *t, const int *point)
{
    int64_t number = 0;
    for (int i = 0; i < t->space.axes; i++) number = number * t->space.choices[i] + point[i];
    return number;
}

/* Options of a point as words; 1: it says the same as another one, or cannot be. */
static int point_text(const task *t, const int *point, char *text, size_t size)
{
    const division *p = &t->division[point[0]];
    const kolo_options *o = t->options;
    const int64_t across = across_of(t, p->stages, p->cut);
    const bool maps =
        p->cut ? strstr(t->cut[p->cut].words, "spatial") != NULL : strcmp(o->spatial, "1x1") != 0;
    *text = 0;
    if (p->stages > 1) kolo_append(text, size, "stages=%d ", p->stages);
    kolo_append(text, size, "%s", t->cut[p->cut].words);
    if (p->rows != o->micro_batch && p->rows * o->ranks != o->batch * across)
        kolo_append(text, size, "micro_batch=%ld ", (long)p->rows);
    for (int i = 0; i < AXES; i++) {
        const char *value = axes[i].value[point[1 + i]];
        const bool of_stages = axes[i].of_stages;
        if (of_stages && p->stages == 1 && point[1 + i] > 0) return 1;
        if (i == HALO && !maps) {
            if (point[1 + i] > 0) return 1;
            continue;
        }
        if (i == HALO && o->halo != KOLO_halo_auto) continue;
        if (!(of_stages && p->stages == 1) && *value) kolo_append(text, size, "%s ", value);
    }
    if (across == o->ranks && strstr(text, "shard=")) return 1; /* nobody to share with */
    int kept[KOLO_SEARCH_AXES];
    memcpy(kept, point, sizeof kept);
    kept[1 + RECOMPUTE] = 0;
    if (point[1 + RECOMPUTE] > 0 && t->fits[number_of(t, kept)] == 1) return 1; /* nothing is to be dropped */
    const size_t length = strlen(text);
    if (length) text[length - 1] = 0;
    return 0;
}

static int set_words(kolo_options *o, const char *text)
{
    char copy[256], *save;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *value = strchr(word, '=');
        *value++ = 0;
        KOLO_TRY(kolo_option_set(o, word, value, "plan=auto"));
    }
    return 0;
}

static int open_session(const task *t, kolo_options *o, kolo_session *s)
{
    kolo_launch *alone = (kolo_launch *)(uintptr_t)&t->alone;
    return kolo_session_open_for(s, o, alone, t->parts, t->gpu);
}

/* ---- bounds ---- */

/* Where time allows, steps tell more than a clock of single operations. Of many cuts each may take but little
 * of it. */
static int rehearse(const task *t, const kolo_session *s, bool cut, double *seconds)
{
    const double takes = 24 * *seconds; /* two times a dozen steps of a micro-batch */
    const double share = cut ? .1 : t->best < INFINITY ? .5 : 1;
    if (t->gpu || s->untimed || takes > (t->until - kolo_time()) * share) return 0;
    const int rc = kolo_session_rehearse(s, false);
    if (rc == KOLO_ECONFIG) return 0; /* too little memory */
    return rc < 0 ? rc : kolo_session_work(s, seconds);
}

/* The seconds of a micro-batch on one rank, and so of all of them on all ranks at once. Nothing is waited
 * for, summed or updated. */
static int work_of(task *t, division *p)
{
    kolo_options o;
    kolo_session s;
    char words[128];
    double seconds = 0;
    KOLO_TRY(kolo_options_copy(&o, t->options));
    snprintf(words, sizeof words, "%sbatch=%ld micro_batch=%ld", t->cut[p->cut].words, (long)p->rows,
             (long)p->rows);
    o.ranks = 1;
    o.stages = 1;
    int rc = set_words(&o, words);
    if (rc == 0) rc = open_session(t, &o, &s);
    if (rc == 0) {
        rc = kolo_session_work(&s, &seconds);
        t->param_bytes = (double)s.plan->param_bytes;
        if (rc == 0) rc = rehearse(t, &s, p->cut > 0, &seconds);
        kolo_session_close(&s);
    }
    const double cores = t->gpu ? INFINITY : (double)kolo_node_cpu_count() / (double)o.threads,
                 at_once = fmin((double)t->options->ranks, cores);
    kolo_options_free(&o);
    p->work = rc == KOLO_ECONFIG ? INFINITY : seconds * (double)t->options->batch / (double)p->rows / at_once;
    return rc == KOLO_ECONFIG ? 0 : rc;
}

/* Gradients that nodes exchange: each sends all that its ranks have of them twice, but for its own part. */
static double sums_of(const task *t, const division *p)
{
    const kolo_options *o = t->options;
    const int across = across_of(t, p->stages, p->cut);
    if (!t->gpu || !t->gpu->fabric || o->compression != KOLO_compression_none || across >= o->ranks) return 0;
    const kolo_fabric *f = t->gpu->fabric;
    const double nodes = ceil((double)o->ranks / f->gpus), here = fmin(1, f->gpus / across);
    return 2 * (nodes - 1) / nodes * t->param_bytes * here / (f->network * 1e9 * f->share);
}

/* On CPUs a clock tells: of a switch that would take longer than all else. It takes about what parts of maps
 * do, or parts of channels, whichever are less; LESS: or a little less still. -1: neither is known. */
static double work_of_switch(const task *t, const division *p)
{
    static const double LESS = .9;
    double least = -1;
    for (int i = 0; i < t->divisions; i++) {
        const division *d = &t->division[i];
        const bool alike =
            d->cut < CUTS && d->rows == p->rows && t->cut[d->cut].parts == t->cut[p->cut].parts;
        if (alike && d->work >= 0 && (least < 0 || d->work < least)) least = d->work;
    }
    return LESS * least;
}

static int bound_of(void *of, const int *point, int set, double *bound)
{
    task *t = of;
    division *p = &t->division[point[0]];
    for (int i = 0; i < t->divisions && p->work < 0; i++) {
        const division *d = &t->division[i];
        if (d->rows == p->rows && d->cut == p->cut && d->work >= 0) p->work = d->work;
    }
    if (p->work < 0 && p->cut >= CUTS && !t->gpu) p->work = work_of_switch(t, p);
    if (p->work < 0) KOLO_TRY(work_of(t, p));
    *bound = fmax(p->work, sums_of(t, p));
    for (int i = 0; i < set - 1; i++)
        if (axes[i].of_stages && p->stages == 1 && point[1 + i] > 0) *bound = INFINITY;
    return 0;
}

/* With what a pipeline waits to be filled and emptied, and what parts of layers send. */
static double guess_of(void *of, const int *point, int set)
{
    const task *t = of;
    const division *p = &t->division[point[0]];
    const int across = across_of(t, p->stages, p->cut);
    const double slots = (double)t->options->batch * across / t->options->ranks / (double)p->rows,
                 parts = t->cut[p->cut].parts;
    (void)set;
    return p->work * (1 + (p->stages - 1) / fmax(slots, 1) + (parts - 1) / 4) + sums_of(t, p) / 2;
}

/* ---- prices ---- */

static void remember_plain(task *t, const kolo_play *play, double seconds)
{
    t->plain = seconds;
    t->exposed = play->stage[0].exposed;
}

/* fits: as task's, or NULL. */
static int price_words(task *t, const char *text, double *seconds, char *fits, bool plain)
{
    kolo_options o;
    kolo_session s;
    kolo_play *play = NULL;
    *seconds = INFINITY;
    KOLO_TRY(kolo_options_copy(&o, t->options));
    int rc = set_words(&o, text);
    if (rc == 0) rc = open_session(t, &o, &s);
    if (rc == 0) {
        const size_t bytes = kolo_session_rank_bytes(&s);
        rc = kolo_session_memory(&s, &t->limit);
        if (t->gpu && t->gpu->memory < t->limit) t->limit = t->gpu->memory;
        if (plain) t->plain_bytes = bytes;
        if (fits) *fits = bytes <= t->limit ? 1 : 2;
        if (rc == 0 && bytes <= t->limit) rc = kolo_session_play(&s, &play, NULL);
        if (rc == 0 && play) *seconds = play->step;
        if (rc == 0 && play && plain) remember_plain(t, play, *seconds);
        if (rc == 0 && plain) rc = session_uneven(&s, t->result->uneven, sizeof t->result->uneven);
        kolo_play_destroy(&play);
        kolo_session_close(&s);
    }
    kolo_options_free(&o);
    t->priced++;
    if (*seconds < t->best) t->best = *seconds;
    return rc;
}

static int price_of(void *of, const int *point, double *seconds)
{
    task *t = of;
    char text[256];
    *seconds = INFINITY;
    if (point_text(t, point, text, sizeof text)) return 0;
    const int rc = price_words(t, text, seconds, &t->fits[number_of(t, point)], false);
    if (rc == 0) kolo_debug("plan=auto: %s: %.3f ms", *text ? text : "plain", *seconds * 1e3);
    return rc == KOLO_ECONFIG ? 0 : rc; /* what cannot be is no plan */
}

/* While nothing is found that can be it goes on: no plan at all is worse than a longer search. */
static bool is_over(void *of)
{
    enum { LONGER = 3 };
    const task *t = of;
    return kolo_time() > t->until + (t->best < INFINITY ? 0 : LONGER * t->limit_seconds);
}

/* ---- the space ---- */

static void add_division(task *t, int stages, int cut, int64_t rows)
{
    for (int i = 0; i < t->divisions; i++) {
        const division *d = &t->division[i];
        if (d->stages == stages && d->cut == cut && d->rows == rows) return;
    }
    if (t->divisions < MOST_DIVISIONS) t->division[t->divisions++] = (division){stages, cut, rows, -1};
}

/* Micro-batches: as given, else powers of two of them a rank that leave batch norm its images. */
static void list_rows(task *t, int stages, int cut)
{
    enum { MOST_SLOTS = 64, LEAST_ROWS = 16 };
    const kolo_options *o = t->options;
    const int64_t across = across_of(t, stages, cut), local = o->batch * across / o->ranks;
    if (o->ranks % across || o->batch * across % o->ranks) return;
    if (o->micro_batch) {
        if (local % o->micro_batch == 0) add_division(t, stages, cut, o->micro_batch);
        return;
    }
    int64_t slots = stages > 1 && local >= 2 * LEAST_ROWS ? 2 : 1; /* fewer images are one block anyway */
    do {
        if (local % slots == 0) add_division(t, stages, cut, local / slots);
        slots *= 2;
    } while (slots <= MOST_SLOTS && local / slots >= LEAST_ROWS);
}

/* The first `depth` words of a parameter's name: its module; "": it has no more. */
static void module_of(const char *name, int depth, char module[64])
{
    const char *end = name;
    for (int i = 0; i < depth && end; i++) end = strchr(end + (i > 0), '.');
    snprintf(module, 64, "%.*s", end ? (int)(end - name) : 0, name);
}

/* Modules of the network, in its order, up to MODULES, the last ones; their number. */
static int list_modules(const kolo_graph *g, int depth, char module[MODULES][64])
{
    int64_t all = 0;
    char last[64] = "";
    for (int64_t t = 0; t < g->tensors; t++) {
        char name[64];
        if (g->tensor[t].role != KOLO_ROLE_PARAM) continue;
        module_of(g->tensor[t].name, depth, name);
        if (!*name || !strcmp(name, last)) continue;
        memcpy(last, name, sizeof last);
        memcpy(module[all++ % MODULES], name, sizeof name);
    }
    return (int)(all < MODULES ? all : MODULES);
}

/* Maps in parts up to a module, channels from there on. */
static int list_switches(task *t, int most)
{
    enum { FEW = 3 }; /* modules: then those inside them */
    char module[MODULES][64];
    kolo_options o;
    kolo_session s;
    int n = 0;
    KOLO_TRY(kolo_options_copy(&o, t->options));
    o.batch = o.micro_batch = o.ranks = o.stages = 1;
    int rc = open_session(t, &o, &s);
    if (rc == 0) {
        n = list_modules(s.graph, 1, module);
        if (n <= FEW) n = list_modules(s.graph, 2, module);
        kolo_session_close(&s);
    }
    kolo_options_free(&o);
    for (int i = 0; rc == 0 && i < n; i++)
        for (int k = 1; k < CUTS; k++) {
            const size_t length = strlen(cuts[k].words);
            if (strncmp(cuts[k].words, "spatial=", 8) || cuts[k].parts > most) continue;
            layer_cut *made = &t->cut[t->cuts++];
            made->parts = cuts[k].parts;
            snprintf(made->words, sizeof made->words, "%.*s,%.63s:tensor ", (int)length - 1, cuts[k].words,
                     module[i]);
        }
    return rc == KOLO_ECONFIG ? 0 : rc; /* as it is, it cannot be: the price of the plain one says why */
}

/* Ranks that parts of layers may be on: those of a node; 1: none are searched. */
static int most_parts(const task *t)
{
    const kolo_options *o = t->options;
    if (t->given > 1 || t->begun || o->search_parts == KOLO_search_parts_never) return 1;
    if (t->gpu) return t->gpu->fabric ? (int)t->gpu->fabric->gpus : 1;
    return o->search_parts == KOLO_search_parts_always || !(t->plain < INFINITY) ? (int)o->ranks : 1;
}

static void list_plain(task *t)
{
    const kolo_options *o = t->options;
    const int64_t all = o->batch * t->given;
    if (all % o->ranks == 0) add_division(t, 1, 0, o->micro_batch ? o->micro_batch : all / o->ranks);
}

/* Behind the plain one. */
static int list_divisions(task *t)
{
    enum { MOST_STAGES = 16 };
    const kolo_options *o = t->options;
    const int most = most_parts(t);
    if (most > 1) KOLO_TRY(list_switches(t, most));
    for (int cut = 0; cut < t->cuts; cut++)
        for (int stages = 1; stages <= o->ranks && stages <= (cut < CUTS ? MOST_STAGES : 1); stages++)
            if (t->cut[cut].parts <= most) list_rows(t, stages, cut);
    return 0;
}

static kolo_search_space space_of(task *t)
{
    kolo_search_space space = {.axes = 1 + AXES,
                               .choices = {t->divisions},
                               .of = t,
                               .bound = bound_of,
                               .guess = guess_of,
                               .price = price_of,
                               .over = is_over};
    for (int i = 0; i < AXES; i++)
        while (space.choices[1 + i] < MOST_VALUES && axes[i].value[space.choices[1 + i]])
            space.choices[1 + i]++;
    if (t->options->halo != KOLO_halo_auto) space.choices[1 + HALO] = 1;
    if (t->begun) space.choices[1 + BUCKETS] = 1;
    return space;
}

/* ---- what comes of it ---- */

static void explain(const task *t, kolo_auto_plan *r)
{
    const double plain = t->plain;
    if (!(plain < INFINITY) && !t->plain_bytes)
        snprintf(r->why, sizeof r->why, "plain data parallel cannot divide the batch over its ranks");
    else if (!(plain < INFINITY))
        snprintf(r->why, sizeof r->why, "plain data parallel needs %zu bytes a rank, %zu are there",
                 t->plain_bytes, t->limit);
    else if (!*r->text)
        snprintf(r->why, sizeof r->why,
                 "plain data parallel is the fastest: %.1f %% of its step is waited for sums",
                 100 * t->exposed / plain);
    else
        snprintf(r->why, sizeof r->why,
                 "plain data parallel takes %.3f ms a step, %.1f %% longer; %.1f %% of it is waited for sums",
                 plain * 1e3, 100 * (plain / r->seconds - 1), 100 * t->exposed / plain);
}

int kolo_auto_plan_check(const kolo_options *o, int64_t ranks)
{
    if (ranks < 1) return kolo_fail(KOLO_ECONFIG, "a search for how many ranks? give ranks=N");
    if (o->batch) return 0;
    return kolo_fail(KOLO_ECONFIG, "a search wants a batch to divide: give batch=N instead of batch=auto");
}

/* Parts of spatial= and tensor= as they were given; fewer ranks have several each. */
static int given_parts(const kolo_options *o)
{
    int rows = 1, columns = 1, late;
    if (sscanf(o->spatial, "%dx%d", &rows, &columns) != 2 || rows < 1 || columns < 1) rows = columns = 1;
    int64_t parts = (int64_t)rows * columns;
    for (const char *at = o->spatial; (at = strstr(at, ":tensor=")); at++)
        if (sscanf(at, ":tensor=%d", &late) == 1 && late > parts) parts = late;
    parts *= o->tensor;
    return (int)(parts < o->ranks ? parts : o->ranks);
}

/* What plain data parallel is: nothing of what is searched is given. */
static int forget_given(kolo_options *o)
{
    static const char *const plain[][2] = {{"stages", "1"},   {"pipeline", "1f1b"}, {"chunks", "1"},
                                           {"shard", "none"}, {"cut", ""},          {"rank", "-1"}};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        KOLO_TRY(kolo_option_set(o, plain[i][0], plain[i][1], "plan=auto"));
    return 0;
}

static int search(task *t, kolo_auto_plan *r)
{
    kolo_search_result found;
    kolo_failure first;
    double seconds;
    memcpy(t->cut, cuts, sizeof cuts);
    t->cuts = CUTS;
    list_plain(t);
    /* the plain one is measured as the others will be */
    if (!t->gpu && t->divisions) KOLO_TRY(work_of(t, &t->division[0]));
    int rc = price_words(t, "", &seconds, NULL, true);
    if (rc == KOLO_ECONFIG) t->plain = INFINITY;
    else KOLO_TRY(rc);
    kolo_error_keep(&first);
    KOLO_TRY(list_divisions(t));
    const kolo_search_space space = t->space = space_of(t);
    r->plans = 1;
    for (int i = 0; i < space.axes; i++) r->plans *= space.choices[i];
    if (!(t->fits = kolo_alloc((size_t)r->plans + 1))) return KOLO_ENOMEM;
    KOLO_TRY(kolo_search_run(&space, &found));
    r->priced = t->priced;
    r->plain = t->plain < INFINITY ? t->plain : 0;
    r->bound = fmin(found.bound, fmin(found.price, t->plain));
    const bool pays = found.price < t->plain * (1 - GAIN);
    r->seconds = pays ? found.price : t->plain;
    if (pays) point_text(t, found.point, r->text, sizeof r->text);
    explain(t, r);
    if (r->seconds < INFINITY) return 0;
    if (rc < 0) return kolo_error_restore(&first, rc);
    return kolo_fail(KOLO_ECONFIG,
                     "none of %lld plans that were looked at fits: %s; lower micro_batch or use more ranks",
                     (long long)r->priced, r->why);
}

/* Of a rank, as session.c divides a node's cores. */
static int64_t threads_of(const kolo_options *o)
{
    const int64_t threads = kolo_node_cpu_count() / o->ranks;
    return o->reduce == KOLO_reduce_canonical || threads < 1 ? 1 : threads;
}

/* A search by one rank of its own. given: the options, copied; the caller frees them. */
static int open_task(task *t, const kolo_options *o, kolo_options *given, const kolo_gpu *gpu)
{
    t->options = given;
    t->gpu = gpu;
    t->parts = KOLO_SESSION_TRAIN | KOLO_SESSION_PLAN_ONLY | KOLO_SESSION_QUIET;
    t->plain = t->best = INFINITY;
    KOLO_TRY(kolo_options_copy(given, o));
    if (!*o->data || !strcmp(o->data, "synthetic")) t->parts |= KOLO_SESSION_NO_DATA;
    if (!given->threads) given->threads = threads_of(o);
    if (!gpu) given->device = KOLO_device_cpu;
    t->given = given_parts(given);
    t->alone = (kolo_launch){
        .size = 1, .nodes = 1, .local_size = 1, .node_of = &t->here[0], .local_of = &t->here[1]};
    return 0;
}

int kolo_auto_plan_take(kolo_options *o, const char *text)
{
    KOLO_TRY(forget_given(o));
    return set_words(o, text);
}

int kolo_auto_plan_choose(kolo_options *o, const kolo_gpu *gpu, bool begun, double limit, kolo_auto_plan *r)
{
    kolo_options given;
    const double start = kolo_time();
    task t = {.begun = begun, .until = start + limit, .limit_seconds = limit, .result = r};
    *r = (kolo_auto_plan){.plain = 0};
    KOLO_TRY(kolo_auto_plan_check(o, o->ranks));
    KOLO_TRY(open_task(&t, o, &given, gpu));
    int rc = forget_given(&given);
    if (rc == 0) rc = search(&t, r);
    if (rc == 0) rc = kolo_auto_plan_take(o, r->text);
    r->took = kolo_time() - start;
    free(t.fits);
    kolo_options_free(&given);
    return rc;
}

int kolo_auto_halo_choose(kolo_options *o, const kolo_gpu *gpu, kolo_auto_halo *r)
{
    kolo_options given;
    kolo_auto_plan unused;
    task t = {.result = &unused};
    *r = (kolo_auto_halo){.chosen = -1};
    if (o->halo != KOLO_halo_auto || !strcmp(o->spatial, "1x1")) return 0;
    KOLO_TRY(open_task(&t, o, &given, gpu));
    int rc = price_words(&t, "halo=narrow", &r->seconds[0], NULL, false);
    if (rc == 0) rc = price_words(&t, "halo=wide", &r->seconds[1], NULL, false);
    r->chosen = r->seconds[1] < r->seconds[0] ? KOLO_halo_wide : KOLO_halo_narrow;
    if (rc == 0) o->halo = r->chosen;
    kolo_options_free(&given);
    return rc;
}
