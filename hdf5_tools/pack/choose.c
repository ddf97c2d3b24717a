/* Which samples of the source are packed, and in which order: --classes, --subset, --holdout, --limit,
 * --shuffle-seed, one after the other. Every rank comes to the same answer from the same list. */
#include <inttypes.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/philox.h"
#include "data/sampler.h"
#include "kolo/error.h"
#include "pack/pack.h"

/* ---- --subset: a file of paths ------------------------------------------------------------------------- */

typedef struct path_set { /* hash table of the lines of a text */
    const char **line;
    size_t *length;
    bool *found;
    int64_t room;
} path_set;

static int64_t path_place(const path_set *s, const char *path, size_t length)
{
    uint64_t hash[2] = {0, 0};
    source_mix(hash, path, length);
    int64_t at = (int64_t)(hash[0] & (uint64_t)(s->room - 1));
    while (s->line[at] && !(s->length[at] == length && memcmp(s->line[at], path, length) == 0))
        at = (at + 1) & (s->room - 1);
    return at;
}

static void free_paths(path_set *s)
{
    free(s->line);
    free(s->length);
    free(s->found);
}

static int read_paths(path_set *s, char *text)
{
    int64_t lines = 1;
    for (const char *at = text; (at = strchr(at, '\n')); at++) lines++;
    for (s->room = 64; s->room < 2 * lines; s->room *= 2) {
    }
    s->line = kolo_alloc(sizeof *s->line * (size_t)s->room);
    s->length = kolo_alloc(sizeof *s->length * (size_t)s->room);
    s->found = kolo_alloc(sizeof *s->found * (size_t)s->room);
    if (!s->line || !s->length || !s->found) return KOLO_ENOMEM;
    for (const char *at = text; *at;) {
        const size_t length = strcspn(at, "\n"),
                     word = length && at[length - 1] == '\r' ? length - 1 : length;
        if (word) {
            const int64_t place = path_place(s, at, word);
            s->line[place] = at;
            s->length[place] = word;
        }
        at += length + (at[length] == '\n');
    }
    return 0;
}

static int choose_subset(const packing *p, uint8_t *chosen)
{
    const source *src = &p->source;
    path_set set = {0};
    char *text = NULL;
    if (!p->options.subset) return 0;
    int rc = kolo_file_read(p->options.subset, &text, NULL);
    if (rc == 0) rc = read_paths(&set, text);
    for (int64_t i = 0; i < src->count && rc == 0; i++) {
        const int64_t at = path_place(&set, src->paths + src->path_offsets[i],
                                      src->path_offsets[i + 1] - src->path_offsets[i]);
        chosen[i] &= set.line[at] != NULL;
        set.found[at] |= set.line[at] != NULL;
    }
    for (int64_t at = 0; at < set.room && rc == 0; at++)
        if (set.line[at] && !set.found[at])
            rc = kolo_fail(KOLO_EINPUT,
                           "--subset %s: the source has no image `%.*s`; paths are as in /source, below --in",
                           p->options.subset, (int)set.length[at], set.line[at]);
    free_paths(&set);
    free(text);
    return rc;
}

/* ---- --holdout: a part of every class, whole groups ---------------------------------------------------- */

typedef struct member {
    uint64_t group[2]; /* hash of the group's name */
    int64_t sample;
    int32_t label;
} member;

typedef struct group {
    uint64_t draw, name;  /* draw: random, decides who is held out */
    int64_t first, count; /* members */
    int32_t label;        /* the most frequent one of its members */
} group;

static int by_group(const void *a, const void *b)
{
    const member *x = a, *y = b;
    for (int i = 0; i < 2; i++)
        if (x->group[i] != y->group[i]) return x->group[i] < y->group[i] ? -1 : 1;
    if (x->label != y->label) return x->label < y->label ? -1 : 1;
    return x->sample < y->sample ? -1 : x->sample > y->sample;
}

static int by_label(const void *a, const void *b)
{
    const group *x = a, *y = b;
    if (x->label != y->label) return x->label < y->label ? -1 : 1;
    if (x->draw != y->draw) return x->draw < y->draw ? -1 : 1;
    return x->name < y->name ? -1 : x->name > y->name;
}

/* The group's name is what the first parenthesis of the expression matches, or all that it matches. */
static int name_groups(const packing *p, const uint8_t *chosen, member *m, int64_t *count)
{
    regex_t expression;
    char path[4096], why[256];
    const char *wanted = p->options.group;
    int rc = wanted ? regcomp(&expression, wanted, REG_EXTENDED) : 0;
    if (rc != 0) {
        regerror(rc, &expression, why, sizeof why);
        return kolo_fail(KOLO_ECONFIG, "--group %s: %s", wanted, why);
    }
    for (int64_t i = 0; i < p->source.count && rc == 0; i++) {
        regmatch_t match[2] = {{0, 0}, {-1, -1}};
        if (!chosen[i]) continue;
        source_path(&p->source, i, path, sizeof path);
        match[0].rm_eo = (regoff_t)strlen(path);
        if (wanted && regexec(&expression, path, 2, match, 0) != 0)
            rc = kolo_fail(KOLO_EINPUT,
                           "--group %s does not match the path `%s`; every image must belong to a group",
                           wanted, path);
        const regmatch_t *name = match[1].rm_so >= 0 ? &match[1] : &match[0];
        member *to = &m[(*count)++];
        *to = (member){.sample = i, .label = p->source.labels[i]};
        source_mix(to->group, path + name->rm_so, (size_t)(name->rm_eo - name->rm_so));
    }
    if (wanted) regfree(&expression);
    return rc;
}

/* m is sorted. Returns how many groups there are. */
static int64_t make_groups(const packing *p, const member *m, int64_t count, group *groups)
{
    int64_t n = 0;
    for (int64_t i = 0; i < count;) {
        const member *head = &m[i];
        int64_t end = i, best = 0;
        group *g = &groups[n++];
        *g = (group){.first = i, .name = head->group[1]};
        while (end < count && memcmp(m[end].group, head->group, sizeof head->group) == 0) {
            int64_t run = end;
            while (run < count && memcmp(m[run].group, head->group, sizeof head->group) == 0 &&
                   m[run].label == m[end].label)
                run++;
            if (run - end > best) best = run - end, g->label = m[end].label;
            end = run;
        }
        g->count = end - i;
        const kolo_philox4 r =
            kolo_philox(kolo_random_key((uint64_t)p->options.holdout_seed, KOLO_RANDOM_PACK), head->group[0],
                        head->group[1]);
        g->draw = (uint64_t)r.v[0] << 32 | r.v[1];
        i = end;
    }
    return n;
}

/* Within a class groups are taken in random order as long as they bring the held part nearer to its share. */
static void hold_out(const packing *p, const member *m, group *groups, int64_t n, uint8_t *held)
{
    for (int64_t i = 0; i < n;) {
        int64_t end = i, total = 0, taken = 0;
        while (end < n && groups[end].label == groups[i].label) total += groups[end++].count;
        const double want = p->options.holdout_part * (double)total;
        for (; i < end; i++) {
            if ((double)taken + (double)groups[i].count / 2 > want) continue;
            for (int64_t k = 0; k < groups[i].count; k++) held[m[groups[i].first + k].sample] = 1;
            taken += groups[i].count;
        }
    }
}

static int choose_part(const packing *p, uint8_t *chosen)
{
    const pack_options *o = &p->options;
    const size_t n = (size_t)p->source.count;
    int64_t count = 0;
    if (!o->holdout[0]) return 0;
    member *m = kolo_alloc(sizeof *m * n);
    group *groups = kolo_alloc(sizeof *groups * n);
    uint8_t *held = kolo_alloc(n);
    int rc = m && groups && held ? name_groups(p, chosen, m, &count) : KOLO_ENOMEM;
    if (rc == 0) {
        qsort(m, (size_t)count, sizeof *m, by_group);
        const int64_t all = make_groups(p, m, count, groups);
        qsort(groups, (size_t)all, sizeof *groups, by_label);
        hold_out(p, m, groups, all, held);
        const uint8_t wanted = strcmp(o->out_split, o->holdout) == 0;
        for (int64_t i = 0; i < p->source.count; i++) chosen[i] &= held[i] == wanted;
    }
    free(m);
    free(groups);
    free(held);
    return rc;
}

/* ---- all together -------------------------------------------------------------------------------------- */

/* N spread evenly over the source's order, which mostly goes by classes: so every class keeps its share. */
static void limit_chosen(const packing *p, uint8_t *chosen, int64_t count)
{
    const int64_t limit = p->options.limit;
    if (!limit || limit >= count) return;
    for (int64_t i = 0, k = 0; i < p->source.count; i++) {
        if (!chosen[i]) continue;
        chosen[i] = (__int128)(k + 1) * limit / count > (__int128)k * limit / count;
        k++;
    }
}

static int64_t count_chosen(const packing *p, const uint8_t *chosen)
{
    int64_t count = 0;
    for (int64_t i = 0; i < p->source.count; i++) count += chosen[i];
    return count;
}

static int make_order(packing *p, const uint8_t *chosen)
{
    const int64_t n = p->slot_count = count_chosen(p, chosen), seed = p->options.shuffle_seed;
    int64_t *numbers = kolo_alloc(sizeof *numbers * (size_t)n + 8);
    p->order = kolo_alloc(sizeof *p->order * (size_t)n + 8);
    if (!numbers || !p->order) {
        free(numbers);
        return KOLO_ENOMEM;
    }
    for (int64_t i = 0, k = 0; i < p->source.count; i++)
        if (chosen[i]) numbers[k++] = i;
    for (int64_t i = 0; i < n; i++) p->order[i] = i;
    if (seed) kolo_shuffle(kolo_random_key((uint64_t)seed, KOLO_RANDOM_PACK), 0, n, p->order);
    for (int64_t i = 0; i < n; i++) p->order[i] = numbers[p->order[i]];
    free(numbers);
    if (n) return 0;
    return kolo_fail(KOLO_EINPUT, "nothing is left of %" PRId64 " images to pack for split %s",
                     p->source.count, p->options.out_split);
}

int pack_choose(packing *p)
{
    uint8_t *chosen = kolo_alloc((size_t)p->source.count + 1);
    if (!chosen) return KOLO_ENOMEM;
    for (int64_t i = 0; i < p->source.count; i++) chosen[i] = p->source.labels[i] != SOURCE_LEFT_OUT;
    int rc = choose_subset(p, chosen);
    if (rc == 0) rc = choose_part(p, chosen);
    if (rc == 0) limit_chosen(p, chosen, count_chosen(p, chosen));
    if (rc == 0) rc = make_order(p, chosen);
    free(chosen);
    return rc;
}
