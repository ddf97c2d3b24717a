/* Which algorithm: forced, measured, or cheapest by the costs. The file is described in algorithm.h. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/option.h"
#include "comm/algorithm/algorithm.h"
#include "comm/algorithm/stages.h"
#include "kolo/error.h"

typedef struct rule {
    const comm_algorithm_row *row;
    int64_t members, nodes, bytes, segment; /* bytes: up to; INT64_MAX: any */
    comm_radices radix;
} rule;

struct comm_selector {
    comm_cost cost;
    char *forced;              /* its name */
    rule how;                  /* radix and segment of it */
    bool free_order, measured; /* measured: it has costs of its own */
    rule *rules;
    int64_t count, capacity;
    double *links;
    int linked, rows; /* links: [linked][linked], of which `rows` were read */
    uint32_t digest;
};

/* A node's memory, and a 100 Gb/s network; one core that sums. */
#define NETWORK_ALPHA 2.5e-6
#define NETWORK_BETA (1 / 12.5e9)
#define GAMMA (1 / 20e9)
static const comm_cost built_in = {{.5e-6, NETWORK_ALPHA}, {1 / 8e9, NETWORK_BETA}, GAMMA};
const comm_cost comm_cost_between = {{NETWORK_ALPHA, NETWORK_ALPHA}, {NETWORK_BETA, NETWORK_BETA}, GAMMA};

enum { WORDS = 32 };

typedef struct line {
    int number, words;
    char *word[WORDS];
} line;

#define BAD(...) kolo_fail(KOLO_EINPUT, __VA_ARGS__)

static void split(line *l, char *text)
{
    char *comment = strchr(text, '#');
    if (comment) *comment = 0;
    l->words = 0;
    for (char *rest, *word = strtok_r(text, " \t\r", &rest); word && l->words < WORDS;
         word = strtok_r(NULL, " \t\r", &rest))
        l->word[l->words++] = word;
}

static int read_number(const char *word, double least, double *value)
{
    char *end;
    *value = strtod(word, &end);
    const double greatest = 1e9; /* so that no sum of costs is infinite */
    if (end == word || *end || !(*value >= least && *value <= greatest))
        return BAD("\"%s\" is not a number from %g to %g", word, least, greatest);
    return 0;
}

static int read_whole(const char *word, int64_t least, int64_t *value)
{
    char *end;
    errno = 0;
    long long v = strtoll(word, &end, 10);
    if (end == word || *end || errno || v < least)
        return kolo_fail(KOLO_EINPUT, "\"%s\" is not a whole number from %lld on", word, (long long)least);
    *value = v;
    return 0;
}

static int read_cost(comm_selector *s, const line *l)
{
    bool reduce = l->words == 3 && strcmp(l->word[1], "reduce") == 0;
    int level = l->words == 4 && strcmp(l->word[1], "node") == 0      ? 0
                : l->words == 4 && strcmp(l->word[1], "network") == 0 ? 1
                                                                      : -1;
    if (reduce) return read_number(l->word[2], 0, &s->cost.gamma);
    if (level < 0) return BAD("cost wants: node ALPHA BETA, network ALPHA BETA, or reduce GAMMA");
    KOLO_TRY(read_number(l->word[2], 0, &s->cost.alpha[level]));
    return read_number(l->word[3], 0, &s->cost.beta[level]);
}

static int read_links(comm_selector *s, const line *l)
{
    int64_t n = 0;
    if (l->words != 2 || s->links) return BAD("links wants the number of ranks, once in a file");
    KOLO_TRY(read_whole(l->word[1], 1, &n));
    if (n > COMM_PACK_RANKS) return BAD("links of %lld ranks; %d is the most", (long long)n, COMM_PACK_RANKS);
    s->links = kolo_alloc((size_t)(n * n) * sizeof *s->links);
    s->linked = (int)n;
    return s->links ? 0 : KOLO_ENOMEM;
}

static int read_links_row(comm_selector *s, const line *l)
{
    if (l->words != s->linked)
        return BAD("%d numbers in a row of links between %d ranks", l->words, s->linked);
    for (int i = 0; i < l->words; i++)
        KOLO_TRY(read_number(l->word[i], 0, &s->links[s->rows * s->linked + i]));
    s->rows++;
    return 0;
}

/* Whether an algorithm of that name takes it: k, or segments. */
static bool takes(const char *name, bool k)
{
    for (const comm_algorithm_row *row = comm_algorithm_table; row->name; row++)
        if (strcmp(row->name, name) == 0 && (k ? row->radices != COMM_UNGROUPED : row->segments)) return true;
    return false;
}

/* k=4x8x16 or segment=1024, of the algorithm `name`. */
static int read_word(rule *r, const char *name, const char *word)
{
    bool k = strncmp(word, "k=", 2) == 0;
    if (!k && strncmp(word, "segment=", 8) != 0)
        return kolo_fail(KOLO_EINPUT, "\"%s\": known are k= and segment=", word);
    if (k) KOLO_TRY(comm_radices_read(&r->radix, word + 2));
    else KOLO_TRY(read_whole(word + 8, 1, &r->segment));
    return takes(name, k) ? 0 : kolo_fail(KOLO_EINPUT, "algorithm %s takes no %s", name, k ? "k" : "segment");
}

/* Whether k is one for so many members; if not, what would be. */
static int check_radices(const rule *r, const comm_algorithm_row *row, int members)
{
    const comm_problem p = {.members = members, .radix = r->radix};
    char k[COMM_RADICES_TEXT], list[512] = "";
    char text[COMM_RADICES_TEXT];
    comm_radices other;
    if (comm_radices_fit(row, &p)) return 0;
    for (int i = 0; comm_radices_try(members, i, &other) && strlen(list) + COMM_RADICES_TEXT < sizeof list;
         i++)
        kolo_append(list, sizeof list, ", %s", comm_radices_text(&other, text));
    return kolo_fail(
        KOLO_ECONFIG,
        "comm: algorithm %s: k=%s is not for %d members, which are to be its product; for them are k=%d%s",
        row->name, comm_radices_text(&r->radix, k), members, members, list);
}

static int read_use(comm_selector *s, const line *l)
{
    rule r = {.bytes = INT64_MAX};
    int what = 0;
    if (l->words < 6)
        return BAD("use wants: COLLECTIVE MEMBERS NODES BYTES NAME [k=RADIX[xRADIX...]] [segment=ELEMENTS]");
    while (what < KOLO_COLLECTIVE_COUNT && strcmp(comm_collective_name(what), l->word[1]) != 0) what++;
    if (what == KOLO_COLLECTIVE_COUNT) return BAD("no collective \"%s\"", l->word[1]);
    KOLO_TRY(read_whole(l->word[2], 1, &r.members));
    KOLO_TRY(read_whole(l->word[3], 1, &r.nodes));
    if (r.members > INT_MAX) return BAD("%s members are too many", l->word[2]);
    if (strcmp(l->word[4], "*") != 0) KOLO_TRY(read_whole(l->word[4], 0, &r.bytes));
    r.row = comm_algorithm_named(what, l->word[5]);
    if (!r.row) return KOLO_EINPUT;
    for (int i = 6; i < l->words; i++) KOLO_TRY(read_word(&r, r.row->name, l->word[i]));
    KOLO_TRY(check_radices(&r, r.row, (int)r.members));
    KOLO_TRY(kolo_grow(&s->rules, &s->capacity, s->count, sizeof r));
    s->rules[s->count++] = r;
    return 0;
}

static int read_line(comm_selector *s, const line *l, bool headed)
{
    const char *first = l->word[0];
    if (!headed && (l->words != 2 || strcmp(first, "kolo-comm-table") || strcmp(l->word[1], "1")))
        return BAD("not a table of measured costs: it must begin with \"kolo-comm-table 1\"; `kolo bench "
                   "--tune` writes one");
    if (!headed) return 0;
    if (s->rows < s->linked) return read_links_row(s, l);
    if (strcmp(first, "cost") == 0) {
        s->measured = true;
        return read_cost(s, l);
    }
    if (strcmp(first, "links") == 0) return read_links(s, l);
    if (strcmp(first, "use") == 0) return read_use(s, l);
    if (strcmp(first, "order") == 0 && l->words == 2) {
        s->free_order = strcmp(l->word[1], "free") == 0;
        if (s->free_order || strcmp(l->word[1], "fixed") == 0) return 0;
    }
    return BAD("\"%s\": known are cost, order fixed, order free, links, use", first);
}

static int read_lines(comm_selector *s, const char *path, char *text)
{
    line l = {.number = 0};
    bool headed = false;
    int rc = 0;
    while (text && rc == 0) {
        char *end = strchr(text, '\n');
        if (end) *end++ = 0;
        l.number++;
        split(&l, text);
        text = end;
        if (!l.words) continue;
        rc = read_line(s, &l, headed);
        headed = true;
    }
    if (!headed)
        return kolo_fail(KOLO_EINPUT, "%s: empty; `kolo bench --tune` writes a table of measured costs",
                         path);
    if (rc == 0 && s->rows < s->linked)
        rc = BAD("the file ends after %d of %d rows of links", s->rows, s->linked);
    return rc < 0 && rc != KOLO_ENOMEM ? kolo_fail_in(KOLO_EINPUT, "%s, line %d: ", path, l.number) : rc;
}

static int check_forced(const char *name)
{
    const char *known[128];
    int n = 0;
    for (const comm_algorithm_row *row = comm_algorithm_table; row->name; row++) {
        if (strcmp(row->name, name) == 0) return 0;
        known[n++] = row->name;
    }
    const char *near = kolo_nearest(name, known, n);
    return kolo_fail(KOLO_ECONFIG, "comm: no algorithm \"%s\"%s%s%s; `kolo bench --algorithms` lists them",
                     name, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

/* NAME[:WORD[,WORD]] */
static int read_forced(comm_selector *s, const char *forced)
{
    char *rest, *word;
    if (!(s->forced = kolo_strdup(forced))) return KOLO_ENOMEM;
    word = strchr(s->forced, ':');
    if (word) *word++ = 0;
    KOLO_TRY(check_forced(s->forced));
    for (word = word ? strtok_r(word, ",", &rest) : NULL; word; word = strtok_r(NULL, ",", &rest))
        if (read_word(&s->how, s->forced, word) < 0)
            return kolo_fail_in(KOLO_ECONFIG, "comm: algorithm \"%s\": ", forced);
    return 0;
}

int comm_selector_check(const comm_selector *s, int members)
{
    int rc = 0;
    if (!s->forced || members == 1) return 0;
    for (const comm_algorithm_row *row = comm_algorithm_table; row->name; row++) {
        if (strcmp(row->name, s->forced) != 0 || (!row->radices && s->how.radix.k[0])) continue;
        if ((rc = check_radices(&s->how, row, members)) == 0) return 0;
    }
    return rc;
}

static uint32_t digest_of(const comm_selector *s)
{
    uint32_t crc = kolo_crc32c(s->free_order, &s->cost, sizeof s->cost);
    if (s->forced)
        crc =
            kolo_crc32c(kolo_crc32c(crc, s->forced, strlen(s->forced)), &s->how.radix, sizeof s->how.radix) ^
            (uint32_t)s->how.segment;
    for (int64_t i = 0; i < s->count; i++) {
        const rule *r = &s->rules[i];
        const int64_t numbers[] = {r->members, r->nodes, r->bytes, r->segment, r->row - comm_algorithm_table};
        crc = kolo_crc32c(kolo_crc32c(crc, numbers, sizeof numbers), &r->radix, sizeof r->radix);
    }
    return kolo_crc32c(crc, s->links, (size_t)s->linked * (size_t)s->linked * sizeof *s->links);
}

static int open_selector(comm_selector *s, const char *path, const char *forced)
{
    char *text = NULL;
    s->cost = built_in;
    if (forced && *forced && strcmp(forced, "auto") != 0) KOLO_TRY(read_forced(s, forced));
    if (path && *path) {
        KOLO_TRY(kolo_file_read(path, &text, NULL));
        int rc = read_lines(s, path, text);
        free(text);
        KOLO_TRY(rc);
    }
    s->digest = digest_of(s);
    return 0;
}

int comm_selector_open(comm_selector **selector, const char *path, const char *forced)
{
    *selector = kolo_alloc(sizeof **selector);
    if (!*selector) return KOLO_ENOMEM;
    int rc = open_selector(*selector, path, forced);
    if (rc < 0) comm_selector_close(selector);
    return rc;
}

void comm_selector_close(comm_selector **selector)
{
    comm_selector *s = *selector;
    if (!s) return;
    free(s->forced);
    free(s->rules);
    free(s->links);
    free(s);
    *selector = NULL;
}

const comm_cost *comm_selector_costs(const comm_selector *selector) { return &selector->cost; }
bool comm_selector_is_measured(const comm_selector *selector) { return selector->measured; }
const double *comm_selector_links(const comm_selector *selector, int members)
{
    return members == selector->linked ? selector->links : NULL;
}
uint32_t comm_selector_digest(const comm_selector *selector) { return selector->digest; }

/* ---- the choice ---------------------------------------------------------------------------------------- */

static int64_t bytes_of(const comm_problem *p)
{
    int64_t count = p->count;
    bool counted = p->what == KOLO_REDUCE_SCATTER || p->what == KOLO_ALLGATHER || p->what == KOLO_GATHER ||
                   p->what == KOLO_SCATTER;
    if (counted) count = 0;
    for (int i = 0; counted && i < p->members; i++) count += p->counts[i];
    return count * (int64_t)p->width;
}

static bool may(const comm_selector *s, const comm_algorithm_row *row, const comm_problem *p)
{
    return row->what == p->what && comm_radices_fit(row, p) && row->fits(p) &&
           ((s->free_order && !p->fixed) || row->ordered(p));
}

/* The problem by what a rule says of radix and segment. */
static comm_problem ruled(const comm_problem *problem, const rule *r)
{
    comm_problem p = *problem;
    if (!p.radix.k[0]) p.radix = r->radix;
    if (!p.segment) p.segment = r->segment;
    return p;
}

/* The rule with the least bytes that reaches the problem, or NULL. */
static const rule *rule_for(const comm_selector *s, const comm_problem *p)
{
    const rule *best = NULL;
    int64_t bytes = bytes_of(p);
    int nodes = comm_nodes(p->node_of, p->members);
    for (int64_t i = 0; i < s->count; i++) {
        const rule *r = &s->rules[i];
        if (r->row->what != p->what || r->members != p->members || r->nodes != nodes || r->bytes < bytes)
            continue;
        const comm_problem with = ruled(p, r);
        if (may(s, r->row, &with) && (!best || r->bytes < best->bytes)) best = r;
    }
    return best;
}

bool comm_selector_asks(const comm_selector *s, enum kolo_collective what, int members, int nodes)
{
    for (const comm_algorithm_row *row = comm_algorithm_table; s->forced && row->name; row++)
        if (row->what == what && strcmp(row->name, s->forced) == 0) return true;
    for (int64_t i = 0; i < s->count; i++)
        if (s->rules[i].row->what == what && s->rules[i].members == members && s->rules[i].nodes == nodes)
            return true;
    return false;
}

/* Costs and order are those of the numbering that the builder gives members. */
static void number_by_nodes(comm_problem *p, int **memory)
{
    int n = p->members;
    *memory = p->node_of ? kolo_alloc((size_t)(4 * n + 1) * sizeof **memory) : NULL;
    if (!*memory) return; /* nothing to do; or out of memory, which the schedule will be, too */
    int *order = *memory, *node_of = order + 3 * n + 1;
    comm_number_members(p, order);
    for (int i = 0; i < n; i++) node_of[i] = p->node_of[order[i]];
    p->node_of = node_of;
}

/* What is forced or measured, which it then does by the rule; NULL: neither. */
static const comm_algorithm_row *selector_chosen(comm_problem *problem, const comm_selector *selector)
{
    const comm_problem as_forced = ruled(problem, &selector->how);
    for (const comm_algorithm_row *row = comm_algorithm_table; selector->forced && row->name; row++)
        if (row->what == problem->what && strcmp(row->name, selector->forced) == 0 &&
            comm_radices_fit(row, &as_forced) && row->fits(&as_forced))
            return *problem = as_forced, row;
    const rule *r = rule_for(selector, problem);
    if (r) *problem = ruled(problem, r);
    return r ? r->row : NULL;
}

static const comm_algorithm_row *selector_choose(comm_problem *problem, const comm_selector *selector)
{
    const comm_algorithm_row *best = selector_chosen(problem, selector);
    if (best) return best;
    comm_problem as_best = *problem;
    double least = INFINITY;
    for (const comm_algorithm_row *row = comm_algorithm_table; row->name; row++) {
        comm_problem p = *problem;
        if (row->what != p.what) continue;
        double seconds = comm_radices_cheapest(row, &p, &selector->cost, selector->free_order && !p.fixed);
        if (!(seconds < (least < INFINITY ? .98 : 1) * least)) continue; /* of equals the first */
        best = row;
        as_best = p;
        least = seconds;
    }
    *problem = as_best;
    return best;
}

const comm_algorithm_row *comm_algorithm_select(comm_problem *problem, const comm_selector *selector)
{
    int *memory;
    if (!problem->links && problem->members == selector->linked &&
        comm_nodes(problem->node_of, problem->members) == 1)
        problem->links = selector->links;
    comm_problem placed = *problem;
    number_by_nodes(&placed, &memory);
    const comm_algorithm_row *row = selector_choose(&placed, selector);
    problem->radix = placed.radix;
    problem->segment = placed.segment;
    free(memory);
    return row;
}
