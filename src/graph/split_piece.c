/* Pieces of maps that are cut: what an operation reads is put together from the parts that have it. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "graph/split.h"
#include "kolo/error.h"

kolo_area kolo_split_area(const kolo_tensor *t, const int grid[2], int part)
{
    kolo_area a = {0};
    const int place[] = {part / grid[1], part % grid[1]};
    for (int i = 0; i < 2; i++) {
        const int64_t size = t->dim[kolo_split_axis(t) + i];
        a.at[i] = kolo_part_start(size, grid[i], place[i]);
        a.end[i] = kolo_part_start(size, grid[i], place[i] + 1);
    }
    return a;
}

static bool equal(const kolo_area *a, const kolo_area *b) { return !memcmp(a, b, sizeof *a); }

/* Whether there is any. */
static bool overlap(const kolo_area *a, const kolo_area *b, kolo_area *both)
{
    for (int i = 0; i < 2; i++) {
        both->at[i] = a->at[i] > b->at[i] ? a->at[i] : b->at[i];
        both->end[i] = a->end[i] < b->end[i] ? a->end[i] : b->end[i];
        if (both->at[i] >= both->end[i]) return false;
    }
    return true;
}

static kolo_area moved(const kolo_area *a, const int64_t by[2])
{
    return (kolo_area){{a->at[0] + by[0], a->at[1] + by[1]}, {a->end[0] + by[0], a->end[1] + by[1]}};
}

int kolo_split_map(kolo_split *s, const char *name, const kolo_tensor *t, const kolo_area *where)
{
    int64_t dim[KOLO_MAX_DIM];
    memcpy(dim, t->dim, sizeof dim);
    for (int i = 0; i < 2; i++) dim[kolo_split_axis(t) + i] = where->end[i] - where->at[i];
    return kolo_graph_tensor(s->to, name, t->role, t->dtype, t->rank, dim);
}

/* Tensors, and the pixels of each. */
typedef struct pieces {
    int n, of[KOLO_MAX_ARGS];
    kolo_area area[KOLO_MAX_ARGS];
} pieces;

static int make_tile(kolo_split *s, const char *name, const kolo_tensor *t, const kolo_area *where,
                     const pieces *p)
{
    kolo_node tile = {.op = KOLO_OP_tile, .n_in = p->n, .n_out = 1};
    for (int k = 0; k < p->n; k++) {
        tile.in[k] = p->of[k];
        memcpy(tile.a.from[k], p->area[k].at, sizeof tile.a.from[k]);
    }
    memcpy(tile.a.at, where->at, sizeof tile.a.at);
    if ((tile.out[0] = kolo_split_map(s, name, t, where)) < 0) return tile.out[0];
    KOLO_TRY(kolo_graph_node_as(s->to, &tile));
    return tile.out[0];
}

/* What part q of map t, moved by `by`, has of `want`. */
static int add_piece(kolo_split *s, int t, int q, int home, const kolo_area *want, const int64_t by[2],
                     const char *name, pieces *to)
{
    const kolo_tensor *map = &s->from->tensor[t];
    const kolo_spread *there = &s->spread[t];
    const kolo_area whole = moved(&there->area[q], by);
    kolo_area needed;
    if (!overlap(&whole, want, &needed)) return 0;
    if (to->n == KOLO_MAX_ARGS)
        return kolo_fail(KOLO_ECONFIG, "%s reads pixels of more than %d parts; use fewer (spatial=)",
                         map->name, KOLO_MAX_ARGS);
    pieces one = {1, {there->of[q]}, {whole}};
    if (there->home[q] != home && !equal(&needed, &whole)) {
        char text[400];
        snprintf(text, sizeof text, "%s:from%d", name, to->n);
        s->to->part = there->home[q];
        if ((one.of[0] = make_tile(s, text, map, &needed, &one)) < 0) return one.of[0];
        one.area[0] = needed;
    }
    to->of[to->n] = one.of[0];
    to->area[to->n++] = one.area[0];
    return 0;
}

static int find_piece(const kolo_split *s, int t, int home, const kolo_area *want, const int64_t roll[2])
{
    for (int64_t i = 0; i < s->pieces; i++) {
        const kolo_piece_made *p = &s->piece[i];
        if (p->map == t && p->home == home && equal(&p->area, want) && p->roll[0] == roll[0] &&
            p->roll[1] == roll[1])
            return p->tensor;
    }
    return -1;
}

static int make_piece(kolo_split *s, int t, int home, const kolo_area *want, const int64_t roll[2],
                      const char *name)
{
    const kolo_tensor *map = &s->from->tensor[t];
    const kolo_spread *there = &s->spread[t];
    pieces all = {0};
    int64_t size[2], round[2], by[2];
    for (int i = 0; i < 2; i++) {
        size[i] = map->dim[kolo_split_axis(map) + i];
        round[i] = roll[i] - there->roll[i]; /* from where they are to where they are wanted */
    }
    for (int q = 0; q < there->parts; q++)
        for (int i = round[0] ? -1 : 0; i <= (round[0] ? 1 : 0); i++)
            for (int j = round[1] ? -1 : 0; j <= (round[1] ? 1 : 0); j++) {
                by[0] = i * size[0] - round[0];
                by[1] = j * size[1] - round[1];
                KOLO_TRY(add_piece(s, t, q, home, want, by, name, &all));
            }
    s->to->part = home;
    return all.n == 1 && equal(&all.area[0], want) ? all.of[0] : make_tile(s, name, map, want, &all);
}

int kolo_split_piece(kolo_split *s, int t, int home, const kolo_area *want, const int64_t roll[2],
                     const char *name)
{
    int made = find_piece(s, t, home, want, roll);
    s->to->part = home;
    if (made >= 0) return made;
    if ((made = make_piece(s, t, home, want, roll, name)) < 0) return made;
    KOLO_TRY(kolo_grow(&s->piece, &s->piece_capacity, s->pieces, sizeof *s->piece));
    s->piece[s->pieces++] =
        (kolo_piece_made){.map = t, .home = home, .tensor = made, .area = *want, .roll = {roll[0], roll[1]}};
    return made;
}
