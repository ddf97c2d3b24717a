/* kolo plan: prints and checks the plan; computes nothing, for any number of ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cmd/cmd.h"
#include "cmd/gpu.h"
#include "cmd/plan_fit.h"
#include "cmd/plan_forecast.h"
#include "cmd/plan_scale.h"
#include "kolo/error.h"
#include "optim/outer.h"
#include "plan/matrices.h"
#include "plan/price.h"
#include "train/auto_plan.h"
#include "train/compression.h"
#include "train/local.h"
#include "train/session.h"
#include "train/strategy.h"
#include "train/times.h"
#include "train/tournament.h"

/* Where batch or image size change: every phase, and what each shape of a batch needs of the memory that
 * they share. The list above is of the first. */
static void print_shapes(const kolo_session *s)
{
    for (int i = 0; i < s->phases; i++) {
        const kolo_phase *p = &s->phase[i];
        printf("epoch %ld on: batch %ld, ", (long)p->epoch, (long)p->batch);
        if (!p->sides.low) printf("images of %ld x %ld\n", (long)s->width, (long)s->height);
        else if (p->sides.low == p->sides.high) printf("images of %d x %d\n", p->sides.high, p->sides.high);
        else
            printf("images of %d to %d in steps of %d, drawn every %d steps\n", p->sides.low, p->sides.high,
                   p->sides.step, p->sides.every);
    }
    for (int i = 0; i < s->shapes; i++) {
        const kolo_shape *k = &s->shape[i];
        printf("plan %d: %d x %ld images of %ld x %ld, %ld actions, %.1f MiB while it runs\n", i, k->slots,
               (long)k->rows, (long)k->width, (long)k->height, (long)k->plan->actions,
               (double)k->scratch / 0x1p20);
    }
}

/* Bytes of what a rank's actions put on the links, where sums use them well. */
static int bytes_sent(const kolo_plan *plan, double *bytes)
{
    kolo_cost *cost = kolo_alloc((size_t)(plan->actions + 1) * sizeof *cost);
    int rc = cost ? kolo_plan_costs(plan, cost) : KOLO_ENOMEM;
    *bytes = 0;
    for (int64_t i = 0; rc == 0 && i < plan->actions; i++) *bytes += cost[i].sent;
    free(cost);
    return rc;
}

/* What becomes of averages, where it is not the mean. */
static void print_outer(const kolo_session *s)
{
    const kolo_outer outer = kolo_outer_of(s->options, s->replicas);
    const char *name = kolo_option_find("local_outer")->choices[outer.kind];
    if (outer.kind == KOLO_local_outer_none) return;
    printf("  local_outer=%s: rate %g", name, (double)outer.rate);
    if (outer.kind != KOLO_local_outer_easgd) printf(", momentum %g", (double)outer.momentum);
    printf(", %d vector%s of the weights' size kept by every rank\n", kolo_outer_states(outer.kind),
           kolo_outer_states(outer.kind) > 1 ? "s" : "");
}

/* With local steps, what ranks exchange in how many of the run's steps. The list above is of steps in which
 * gradients are summed. */
static int print_exchanges(const kolo_session *s)
{
    static const char *const what[KOLO_EXCHANGES] = {"gradients are summed", "nothing is exchanged",
                                                     "weights are averaged within a node",
                                                     "weights are averaged over all ranks"};
    const int64_t start = kolo_local_start(s);
    int64_t steps[KOLO_EXCHANGES] = {0};
    if (!s->shape[0].exchange[KOLO_EXCHANGE_NOTHING] || !s->steps) return 0;
    for (int64_t i = 0; i < s->steps; i++) steps[kolo_local_exchange(s->options, start, i, s->steps)]++;
    printf("local steps: ranks have weights of their own from step %ld of %ld on\n", (long)start + 1,
           (long)s->steps);
    print_outer(s);
    for (int x = 0; x < KOLO_EXCHANGES; x++) {
        const kolo_plan *plan = x ? s->shape[0].exchange[x] : s->plan;
        double bytes;
        if (!plan || !steps[x]) continue;
        KOLO_TRY(bytes_sent(plan, &bytes));
        printf("  %s in %ld step%s, %.0f bytes a rank sent in each\n", what[x], (long)steps[x],
               steps[x] > 1 ? "s" : "", bytes);
    }
    return 0;
}

/* Who meets how often, and what then goes from rank to rank. */
static void print_tournament(const kolo_session *s)
{
    const kolo_options *o = s->options;
    const kolo_tournament *t = s->tournament;
    int messages;
    if (!t || s->replicas == 1) return;
    const size_t bytes = kolo_exec_transfer_state_bytes(s->plan, &messages); /* a stage may have none */
    const int64_t all = s->steps > 0 ? (s->steps - 1) / o->tournament : 0;
    const char *who = t->group > 1 ? "group" : "rank";
    printf("tournament: %d %ss", t->members, who);
    if (t->group > 1) printf(" of %d ranks", t->group);
    printf(" have networks of their own; %ld meeting%s of %d pair%s after every %ld steps%s%s%s\n", (long)all,
           all == 1 ? "" : "s", t->members / 2, t->members > 3 ? "s" : "", (long)o->tournament,
           t->members % 2 ? ", one " : "", t->members % 2 ? who : "", t->members % 2 ? " sits out" : "");
    printf("  every %s evaluates its network on all tournament images, and losses are exchanged: %zu bytes; "
           "a loser%s is sent %zu bytes in %d messages by its winner%s\n",
           who, 2 * (size_t)s->replicas * sizeof(double), t->group > 1 ? "'s rank" : "", bytes, messages,
           t->group > 1 ? "'s" : "");
}

static int check_plans(const kolo_session *s)
{
    for (int i = 0; i < s->shapes; i++) {
        KOLO_TRY(kolo_plan_check(s->shape[i].plan));
        for (int x = 0; x < KOLO_EXCHANGES; x++)
            if (s->shape[i].exchange[x]) KOLO_TRY(kolo_plan_check(s->shape[i].exchange[x]));
    }
    return 0;
}

/* What the command line wants beside options. */
typedef struct wants {
    bool all, json, searches;
    const char *write, *strategy, *scale; /* FILE, FILE, A..B; or NULL */
} wants;

/* The GPU of gpu=, or where there is one its table, if Kolo has it; 1: nothing is known of rates. */
static int open_table(kolo_gpu_table *table, const kolo_options *o)
{
    if (!*o->gpu) return 1;
    if (o->device == KOLO_device_cpu)
        return kolo_fail(KOLO_ECONFIG,
                         "gpu=%s plans for a GPU, device=cpu for this machine's cores; give one of them",
                         o->gpu);
    return kolo_gpu_open(table, o->gpu);
}

/* What the step costs, and whether it fits. */
static int print_price(const kolo_session *s, const kolo_gpu_table *table, bool known)
{
    const kolo_options *o = s->options;
    kolo_price price;
    const kolo_rates *rates = known ? &table->rates : NULL;
    KOLO_TRY(kolo_plan_price(s->plan, rates, o->precision == KOLO_precision_tf32, &price));
    KOLO_TRY(kolo_price_print(&price, s->plan, rates, table->where, stdout));
    if (*kolo_backend_note(s->backend)) printf("%s: %s\n", table->name, kolo_backend_note(s->backend));
    return 0;
}

/* Playing a step takes the times of all operations: where those were measured, or are known already. */
static bool is_played(const kolo_session *s)
{
    return !s->cuda && s->plan->config.optimizer &&
           (s->program || *s->options->timeline || *s->options->svg || kolo_session_is_measured(s));
}

static int print_plan(kolo_session *s, const kolo_gpu_table *given, const wants *w, int n, char **words)
{
    kolo_gpu_table own = {0};
    const kolo_gpu_table *table = given;
    int named = 1, rc = w->strategy ? kolo_strategy_write(s, w->strategy) : 0;
    if (rc == 0 && (w->write || is_played(s))) rc = kolo_plan_forecast(s, NULL, false, w->write);
    if (rc == 0) rc = kolo_plan_print(s->plan, stdout, w->all);
    comm_compress compress = kolo_compression(s->options, s->phase[0].steps_per_epoch);
    if (rc == 0) rc = kolo_plan_print_compressed(s->plan, s->backend, &compress, stdout);
    if (rc == 0 && s->cuda && !given->name) {
        named = kolo_gpu_open_named(&own, s->device.name);
        if (named < 0) rc = named;
        else table = &own;
    }
    if (rc == 0) rc = print_price(s, table, table->name != NULL);
    if (rc == 0 && s->shapes > 1) print_shapes(s);
    if (rc == 0) rc = print_exchanges(s);
    if (rc == 0) print_tournament(s);
    if (rc == 0) rc = check_plans(s);
    if (rc == 0)
        printf(
            "checked: every value is written before it is read, no two live values overlap, every bucket is "
            "complete when it is sent\n");
    if (rc == 0 && *s->options->memory) rc = kolo_plan_fit(s, n, words);
    if (rc == 0) rc = kolo_session_print_memory(s, stdout);
    kolo_gpu_close(&own);
    return rc;
}

/* The first word may be a network's name instead of a recipe's. */
static int name_network(int n, char **words, char **made)
{
    *made = NULL;
    for (int i = 0; i < n; i++) {
        if (strchr(words[i], '=') || *words[i] == '-' || kolo_recipe_is(words[i])) continue;
        for (int k = 0; k < kolo_model_count; k++)
            if (!strcmp(kolo_model_table[k].name, words[i])) {
                *made = kolo_format("model=%s", words[i]);
                if (!*made) return KOLO_ENOMEM;
                words[i] = *made;
                return 0;
            }
        return 0;
    }
    return 0;
}

/* `--timeline FILE`, `--svg FILE`: as timeline=FILE, svg=FILE. Made words are [2], the caller's. */
static int join_files(int *n, char **words, char **made)
{
    static const char *const names[] = {"timeline", "svg"};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < *n; i++) {
            if (strncmp(words[i], "--", 2) || strcmp(words[i] + 2, names[k])) continue;
            if (i + 1 == *n) return kolo_fail(KOLO_ECONFIG, "--%s: give the FILE to write", names[k]);
            free(made[k]);
            words[i] = made[k] = kolo_format("%s=%s", names[k], words[i + 1]);
            if (!made[k]) return KOLO_ENOMEM;
            memmove(&words[i + 1], &words[i + 2], (size_t)(*n - i - 2) * sizeof *words);
            --*n;
        }
    return 0;
}

/* halo=auto: likewise. */
static int choose_halo(kolo_options *o, const kolo_gpu *gpu, bool json)
{
    kolo_auto_halo r;
    KOLO_TRY(kolo_auto_halo_choose(o, gpu, &r));
    if (r.chosen < 0) return 0;
    fprintf(json ? stderr : stdout,
            "halo=auto: %s; played, a step takes %.3f ms with narrow halos, %.3f with wide ones\n",
            r.chosen == KOLO_halo_wide ? "wide" : "narrow", r.seconds[0] * 1e3, r.seconds[1] * 1e3);
    return 0;
}

/* plan=auto, --search: the options become those of the plan that was found. */
static int search(kolo_options *o, const kolo_gpu *gpu, bool json)
{
    enum { SECONDS = 50 };
    kolo_auto_plan r;
    if (strcmp(o->plan, "auto")) return choose_halo(o, gpu, json);
    KOLO_TRY(kolo_auto_plan_choose(o, gpu, false, SECONDS, &r));
    KOLO_TRY(kolo_option_set(o, "plan", "", "kolo plan"));
    FILE *f = json ? stderr : stdout;
    fprintf(f, "searched: %lld of %lld plans were played in %.1f s; ", (long long)r.priced,
            (long long)r.plans, r.took);
    if (r.bound >= .99 * r.seconds) fprintf(f, "no other can be faster by a hundredth\n");
    else if (r.bound > 0) fprintf(f, "time was up, and none could take less than %.3f ms\n", r.bound * 1e3);
    else fprintf(f, "time was up before anything was ruled out\n");
    fprintf(f, "the best: %s, %.3f ms a step; %s\n", *r.text ? r.text : "plain data parallel",
            r.seconds * 1e3, r.why);
    if (*r.uneven) fprintf(f, "beyond that: %s\n", r.uneven);
    return 0;
}

/* cluster=: the forecast of the plan on it. */
static int plan_for_cluster(kolo_options *options, kolo_launch *launch, int parts, const wants *w)
{
    kolo_cluster cluster;
    kolo_session session;
    if (w->all || options->rank >= 0)
        return kolo_fail(
            KOLO_ECONFIG,
            "%s lists what a rank does, cluster=%s tells how long it takes; leave one of them out",
            w->all ? "--all" : "rank=", options->cluster);
    KOLO_TRY(kolo_cluster_open(&cluster, options, w->scale != NULL));
    if (w->scale) {
        const int scaled = kolo_plan_scale(options, launch, parts, &cluster, w->scale, w->json);
        kolo_cluster_close(&cluster);
        return scaled;
    }
    int rc = search(options, &cluster.gpu.gpu, w->json);
    if (rc == 0)
        rc = kolo_session_open_for(&session, options, launch, parts | (w->json ? KOLO_SESSION_QUIET : 0),
                                   &cluster.gpu.gpu);
    if (rc == 0) {
        rc = w->strategy ? kolo_strategy_write(&session, w->strategy) : 0;
        if (rc == 0) rc = kolo_plan_forecast(&session, &cluster, w->json, w->write);
        kolo_session_close(&session);
    }
    kolo_cluster_close(&cluster);
    return rc;
}

/* Without cluster=: the lists, and what is known of this machine or of gpu=. */
static int plan_lists(kolo_options *options, kolo_launch *launch, int parts, const wants *w, int n,
                      char **words)
{
    kolo_session session;
    kolo_gpu_table table = {0};
    if (w->scale) return kolo_plan_scale(options, launch, parts, NULL, w->scale, w->json);
    int rc = open_table(&table, options);
    if (rc >= 0) rc = search(options, NULL, w->json);
    if (rc < 0) {
        kolo_gpu_close(&table);
        return rc;
    }
    rc = kolo_session_open_for(&session, options, launch, parts | (w->json ? KOLO_SESSION_QUIET : 0),
                               table.name ? &table.gpu : NULL);
    if (rc == 0) {
        if (w->json && w->strategy) rc = kolo_strategy_write(&session, w->strategy);
        if (rc == 0)
            rc = w->json ? kolo_plan_forecast(&session, NULL, true, w->write)
                         : print_plan(&session, &table, w, n, words);
        kolo_session_close(&session);
    }
    kolo_gpu_close(&table);
    return rc;
}

static int ask_for_search(kolo_options *o)
{
    if (*o->plan && strcmp(o->plan, "auto"))
        return kolo_fail(KOLO_ECONFIG, "--search looks for a plan, and plan=%s is one; leave one of them out",
                         o->plan);
    return kolo_option_set(o, "plan", "auto", "--search");
}

static int plan_words(int n, char **words, const wants *w)
{
    kolo_options options;
    kolo_launch *launch;
    KOLO_TRY(kolo_command_options(&options, n, words, 0, NULL));
    if (w->searches) KOLO_TRY(ask_for_search(&options));
    int parts = KOLO_SESSION_TRAIN | KOLO_SESSION_PLAN_ONLY;
    if (!*options.data || !strcmp(options.data, "synthetic")) parts |= KOLO_SESSION_NO_DATA;
    int rc = kolo_command_alone(&launch);
    if (rc == 0)
        rc = *options.cluster ? plan_for_cluster(&options, launch, parts, w)
                              : plan_lists(&options, launch, parts, w, n, words);
    kolo_options_free(&options);
    return rc;
}

/* `--write FILE`, `--export-strategy FILE`, `--scale A..B`. */
static int take_word(int *n, char **words, const char *flag, const char *what, const char **value)
{
    for (int i = 0; i < *n; i++) {
        if (strcmp(words[i], flag)) continue;
        if (i + 1 == *n) return kolo_fail(KOLO_ECONFIG, "%s: give %s", flag, what);
        *value = words[i + 1];
        memmove(&words[i], &words[i + 2], (size_t)(*n - i - 2) * sizeof *words);
        *n -= 2;
        return 0;
    }
    return 0;
}

int kolo_command_plan(int n, char **words)
{
    char *network = NULL, *files[2] = {NULL, NULL};
    wants w = {.all = kolo_command_flag(&n, words, "--all"),
               .json = kolo_command_flag(&n, words, "--json"),
               .searches = kolo_command_flag(&n, words, "--search")};
    int rc = take_word(&n, words, "--write", "the FILE to write", &w.write);
    if (rc == 0) rc = take_word(&n, words, "--export-strategy", "the FILE to write", &w.strategy);
    if (rc == 0) rc = take_word(&n, words, "--scale", "numbers of ranks, such as 1..64", &w.scale);
    if (rc == 0) rc = join_files(&n, words, files);
    if (rc == 0) rc = name_network(n, words, &network);
    if (rc == 0) rc = plan_words(n, words, &w);
    free(network);
    free(files[0]);
    free(files[1]);
    return rc;
}
