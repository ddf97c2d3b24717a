#include "train/strategy.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/placement.h"
#include "train/parts.h"
#include "train/pipeline.h"

enum { SAMPLES, ROWS, COLUMNS, CHANNELS, DEGREES };
static const char *const degree_name[DEGREES] = {"samples", "rows", "columns", "channels"};

/* An operation, of all parts that it is cut into. */
typedef struct row {
    char name[KOLO_OPERATION_NAME];
    char *where; /* NULL: of a session, not of a file */
    int degree[DEGREES];
    int *rank, ranks; /* ascending */
} row;

struct kolo_strategy {
    row *row;
    int64_t rows, room;
};

void kolo_strategy_destroy(kolo_strategy **strategy)
{
    kolo_strategy *s = *strategy;
    for (int64_t i = 0; s && i < s->rows; i++) {
        free(s->row[i].where);
        free(s->row[i].rank);
    }
    if (s) free(s->row);
    free(s);
    *strategy = NULL;
}

/* Another row, without ranks, room for so many; NULL: no memory. */
static row *another(kolo_strategy *s, const char *name, const char *where, int most)
{
    if (kolo_grow(&s->row, &s->room, s->rows, sizeof *s->row) < 0) return NULL;
    row *r = &s->row[s->rows];
    *r = (row){.degree = {1, 1, 1, 1},
               .where = where ? kolo_strdup(where) : NULL,
               .rank = kolo_alloc((size_t)(most + 1) * sizeof *r->rank)};
    snprintf(r->name, sizeof r->name, "%s", name);
    if (r->rank && (r->where || !where)) return s->rows++, r;
    free(r->where);
    free(r->rank);
    return NULL;
}

/* In its place among them; twice is once. */
static void add_rank(row *r, int rank)
{
    int at = r->ranks;
    while (at > 0 && r->rank[at - 1] > rank) at--;
    if (at > 0 && r->rank[at - 1] == rank) return;
    memmove(&r->rank[at + 1], &r->rank[at], (size_t)(r->ranks - at) * sizeof *r->rank);
    r->rank[at] = rank;
    r->ranks++;
}

/* ---- of a session ---- */

bool kolo_operation_name(const kolo_graph *g, int64_t node, char name[KOLO_OPERATION_NAME])
{
    const enum kolo_op op = g->node[node].op;
    if (op == KOLO_OP_tile || op == KOLO_OP_share || op == KOLO_OP_total) return false;
    snprintf(name, KOLO_OPERATION_NAME, "%s", kolo_graph_node_name(g, node));
    char *part = strstr(name, ":part");
    if (part) *part = 0;
    return true;
}

static int describe_node(const kolo_session *s, int64_t i, kolo_strategy *all, int *parts)
{
    char name[KOLO_OPERATION_NAME];
    if (!kolo_operation_name(s->graph, i, name)) return 0;
    const int stage = s->placement ? kolo_placement_stage(s->placement, s->placement->part[i]) : 0,
              replicas = s->program ? s->replicas : s->ranks;
    row *r = NULL;
    for (int64_t k = 0; k < all->rows && !r; k++)
        if (!strcmp(all->row[k].name, name)) r = &all->row[k];
    if (!r && !(r = another(all, name, NULL, s->ranks))) return KOLO_ENOMEM;
    parts[r - all->row] += strstr(kolo_graph_node_name(s->graph, i), ":part") != NULL;
    r->degree[SAMPLES] = replicas;
    for (int k = 0; k < replicas; k++) add_rank(r, s->program ? kolo_grid_rank(&s->grid, stage, k) : k);
    return 0;
}

static int check_describable(const kolo_session *s)
{
    const char *why = strchr(s->options->spatial, ',') ? "spatial= has other parts further on"
                      : s->options->tensor > 1 && s->spatial[0] * s->spatial[1] > 1
                          ? "spatial= and tensor= are both given"
                          : NULL;
    if (!why) return 0;
    return kolo_fail(KOLO_ECONFIG, "a strategy has one division of each layer, and %s: use --write", why);
}

static int describe(const kolo_session *s, kolo_strategy **strategy)
{
    const int64_t chain = kolo_graph_forward_nodes(s->graph);
    KOLO_TRY(check_describable(s));
    kolo_strategy *all = *strategy = kolo_alloc(sizeof *all);
    int *parts = kolo_alloc((size_t)(chain + 1) * sizeof *parts);
    int rc = all && parts ? 0 : KOLO_ENOMEM;
    for (int64_t i = 0; rc == 0 && i < chain; i++) rc = describe_node(s, i, all, parts);
    for (int64_t k = 0; rc == 0 && k < all->rows; k++) {
        row *r = &all->row[k];
        if (parts[k] < 2) continue;
        if (s->options->tensor > 1) r->degree[CHANNELS] = (int)s->options->tensor;
        else r->degree[ROWS] = s->spatial[0], r->degree[COLUMNS] = s->spatial[1];
    }
    free(parts);
    if (rc < 0) kolo_strategy_destroy(strategy);
    return rc;
}

int kolo_strategy_write(const kolo_session *s, const char *path)
{
    kolo_strategy *all = NULL;
    KOLO_TRY(describe(s, &all));
    FILE *f = fopen(path, "w");
    if (f) {
        fprintf(f,
                "# A strategy: `plan=FILE` carries it out. Of each operation the degrees to which samples,\n"
                "# rows, columns and channels are divided, then the ranks that do it.\n"
                "kolo_strategy: 1\n");
        fprintf(f, "network: %s\nparameters: %lld\nranks: %d\n\n", s->options->model,
                (long long)kolo_graph_parameters(s->graph), s->ranks);
        for (int64_t i = 0; i < all->rows; i++) {
            fprintf(f, "%s: [", all->row[i].name);
            for (int k = 0; k < DEGREES; k++) fprintf(f, "%d, ", all->row[i].degree[k]);
            for (int k = 0; k < all->row[i].ranks; k++)
                fprintf(f, "%s%d", k ? ", " : " ", all->row[i].rank[k]);
            fprintf(f, "]\n");
        }
    }
    kolo_strategy_destroy(&all);
    const bool failed = f && ferror(f);
    if (!f || fclose(f) != 0 || failed)
        return kolo_fail(KOLO_EIO, "--export-strategy %s: %s", path, strerror(errno));
    return 0;
}

/* ---- of a file ---- */

int kolo_strategy_add(kolo_strategy **strategy, int ranks, const char *name, const char *value,
                      const char *where)
{
    if (!*strategy && !(*strategy = kolo_alloc(sizeof **strategy))) return KOLO_ENOMEM;
    row *r = another(*strategy, name, where, ranks);
    if (!r) return KOLO_ENOMEM;
    int count = 0;
    for (const char *at = value; *at; count++) {
        char *end;
        const long number = strtol(at, &end, 10);
        const bool degree = count < DEGREES;
        if (end == at || (*end && *end != ',') || number < (degree ? 1 : 0) || number > INT_MAX)
            return kolo_fail(KOLO_ECONFIG, "%s: %s: \"%s\" is no %s of an operation", where, name, at,
                             degree ? "degree (1 or more)" : "rank (0 or more)");
        if (!degree && number >= ranks)
            return kolo_fail(KOLO_ECONFIG, "%s: %s: rank %ld, and there are %d, from 0 on", where, name,
                             number, ranks);
        if (degree) r->degree[count] = (int)number;
        else add_rank(r, (int)number);
        at = *end ? end + 1 : end;
    }
    if (count > DEGREES) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "%s: %s: %d numbers; four degrees (samples, rows, columns, channels) and the ranks are "
                     "needed",
                     where, name, count);
}

/* What the lines together say. */
typedef struct said {
    int *group;        /* [ranks] the least rank that it shares operations with; of one stage all have one */
    int now;           /* that of the line before */
    int links, stages; /* runs of lines of one stage, and how many stages there are */
    int degree[DEGREES];    /* the most */
    const row *of[DEGREES]; /* which line has it */
    const row *begins;      /* of the last run */
    char cut[4096];
} said;

static int group_of(const said *all, int rank)
{
    while (all->group[rank] != rank) rank = all->group[rank];
    return rank;
}

static int find_stages(said *all, const kolo_strategy *s)
{
    int most = 0;
    for (int64_t i = 0; i < s->rows; i++)
        if (s->row[i].rank[s->row[i].ranks - 1] > most) most = s->row[i].rank[s->row[i].ranks - 1];
    if (!(all->group = kolo_alloc((size_t)(most + 1) * sizeof *all->group))) return KOLO_ENOMEM;
    for (int r = 0; r <= most; r++) all->group[r] = r;
    for (int64_t i = 0; i < s->rows; i++)
        for (int k = 1; k < s->row[i].ranks; k++) {
            const int a = group_of(all, s->row[i].rank[0]), b = group_of(all, s->row[i].rank[k]);
            all->group[a > b ? a : b] = a > b ? b : a;
        }
    char *seen = kolo_alloc((size_t)most + 1);
    for (int64_t i = 0; seen && i < s->rows; i++) {
        const int group = group_of(all, s->row[i].rank[0]);
        all->stages += !seen[group];
        seen[group] = 1;
    }
    free(seen);
    return seen ? 0 : KOLO_ENOMEM;
}

static int add_line(said *all, const row *r, const row *first)
{
    const int group = group_of(all, r->rank[0]);
    if (r->degree[SAMPLES] != first->degree[SAMPLES])
        return kolo_fail(KOLO_ECONFIG,
                         "%s: %s: samples are divided by %d, and by %d of %s: stages of unequally many ranks "
                         "cannot be carried out",
                         r->where, r->name, r->degree[SAMPLES], first->degree[SAMPLES], first->name);
    for (int k = ROWS; k < DEGREES; k++) {
        if (r->degree[k] > 1 && all->degree[k] > 1 && r->degree[k] != all->degree[k])
            return kolo_fail(
                KOLO_ECONFIG,
                "%s: %s: %s are divided by %d, but those of %s by %d; divide both alike, or one of them not",
                r->where, r->name, degree_name[k], r->degree[k], all->of[k]->name, all->degree[k]);
        if (r->degree[k] > all->degree[k]) all->degree[k] = r->degree[k], all->of[k] = r;
    }
    if (r != first && group != all->now) {
        kolo_append(all->cut, sizeof all->cut, "%s%s", *all->cut ? "," : "", r->name);
        all->begins = r;
    }
    all->links += r == first || group != all->now;
    all->now = group;
    return 0;
}

int kolo_strategy_apply(const kolo_strategy *s, const char *path,
                        int (*give)(void *context, const char *key, const char *value, const char *where),
                        void *context)
{
    said all = {.degree = {1, 1, 1, 1}};
    char text[32];
    if (!s || !s->rows) return kolo_fail(KOLO_ECONFIG, "%s: a strategy without operations", path);
    int rc = find_stages(&all, s);
    for (int64_t i = 0; rc == 0 && i < s->rows; i++) rc = add_line(&all, &s->row[i], &s->row[0]);
    free(all.group);
    KOLO_TRY(rc);
    const int chunks = all.links / all.stages;
    if (all.links % all.stages)
        return kolo_fail(KOLO_ECONFIG,
                         "%s: %s: the ranks change %d times, which %d stages cannot share evenly",
                         all.begins->where, all.begins->name, all.links - 1, all.stages);
    const char *where = all.begins ? all.begins->where : s->row[0].where;
    snprintf(text, sizeof text, "%d", all.stages);
    KOLO_TRY(give(context, "stages", text, where));
    if (chunks > 1) KOLO_TRY(give(context, "pipeline", "interleaved", where));
    snprintf(text, sizeof text, "%d", chunks);
    if (chunks > 1) KOLO_TRY(give(context, "chunks", text, where));
    if (all.links > 1) KOLO_TRY(give(context, "cut", all.cut, where));
    const row *maps = all.of[ROWS] ? all.of[ROWS] : all.of[COLUMNS], *channels = all.of[CHANNELS];
    snprintf(text, sizeof text, "%dx%d", all.degree[ROWS], all.degree[COLUMNS]);
    if (maps) KOLO_TRY(give(context, "spatial", text, maps->where));
    snprintf(text, sizeof text, "%d", all.degree[CHANNELS]);
    return channels ? give(context, "tensor", text, channels->where) : 0;
}

static void row_text(const row *r, char *text, size_t size)
{
    *text = 0;
    for (int k = 0; k < DEGREES; k++) kolo_append(text, size, "%d, ", r->degree[k]);
    for (int k = 0; k < r->ranks; k++) kolo_append(text, size, "%s%d", k ? ", " : " ", r->rank[k]);
}

static const row *find_row(const kolo_strategy *s, const char *name)
{
    for (int64_t i = 0; i < s->rows; i++)
        if (!strcmp(s->row[i].name, name)) return &s->row[i];
    return NULL;
}

static int check_line(const row *r, const kolo_strategy *made)
{
    const row *m = find_row(made, r->name);
    if (!m) {
        const char **names = kolo_alloc((size_t)(made->rows + 1) * sizeof *names);
        for (int64_t i = 0; names && i < made->rows; i++) names[i] = made->row[i].name;
        const char *near = names ? kolo_nearest(r->name, names, (int)made->rows) : NULL;
        const int rc = kolo_fail(KOLO_ECONFIG, "%s: the network has no operation %s%s%s%s", r->where, r->name,
                                 near ? "; is " : "", near ? near : "", near ? " meant?" : "");
        free(names);
        return rc;
    }
    if (!memcmp(m->degree, r->degree, sizeof m->degree) && m->ranks == r->ranks &&
        !memcmp(m->rank, r->rank, (size_t)m->ranks * sizeof *m->rank))
        return 0;
    char is[512], wanted[512];
    row_text(m, is, sizeof is);
    row_text(r, wanted, sizeof wanted);
    return kolo_fail(KOLO_ECONFIG, "%s: %s: [%s] does not go with the other lines; with them it is [%s]",
                     r->where, r->name, wanted, is);
}

int kolo_strategy_check(const kolo_strategy *s, const char *path, const kolo_session *session)
{
    kolo_strategy *made = NULL;
    if (!s) return 0;
    int rc = describe(session, &made);
    for (int64_t i = 0; rc == 0 && i < s->rows; i++) rc = check_line(&s->row[i], made);
    for (int64_t i = 0; rc == 0 && i < made->rows; i++)
        if (!find_row(s, made->row[i].name))
            rc = kolo_fail(KOLO_ECONFIG, "%s: no line for %s, an operation of the network", path,
                           made->row[i].name);
    kolo_strategy_destroy(&made);
    return rc;
}
