#include "plan/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

/* A beginning of points. */
typedef struct node {
    double bound, guess;
    int set;
    int point[KOLO_SEARCH_AXES];
} node;

typedef struct search {
    const kolo_search_space *space;
    kolo_search_result *best;
    node *heap; /* the least first */
    int64_t nodes, room;
} search;

static int compare_points(const int *a, const int *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    return 0;
}

/* The least guess first; of equals what is further on, so that a point is found soon, and in their order. */
static bool is_before(const node *a, const node *b)
{
    if (a->guess < b->guess || a->guess > b->guess) return a->guess < b->guess;
    if (a->set != b->set) return a->set > b->set;
    return compare_points(a->point, b->point, a->set) < 0;
}

static int push(search *s, const node *n)
{
    KOLO_TRY(kolo_grow(&s->heap, &s->room, s->nodes, sizeof *s->heap));
    int64_t i = s->nodes++;
    for (int64_t up; i > 0 && is_before(n, &s->heap[up = (i - 1) / 2]); i = up) s->heap[i] = s->heap[up];
    s->heap[i] = *n;
    return 0;
}

static node pop(search *s)
{
    const node top = s->heap[0], last = s->heap[--s->nodes];
    int64_t i = 0;
    for (int64_t next; (next = 2 * i + 1) < s->nodes; i = next) {
        if (next + 1 < s->nodes && is_before(&s->heap[next + 1], &s->heap[next])) next++;
        if (!is_before(&s->heap[next], &last)) break;
        s->heap[i] = s->heap[next];
    }
    s->heap[i] = last;
    return top;
}

static int branch(search *s, const node *n)
{
    const kolo_search_space *space = s->space;
    for (int c = 0; c < space->choices[n->set]; c++) {
        node child = *n;
        double bound;
        child.point[child.set++] = c;
        KOLO_TRY(space->bound(space->of, child.point, child.set, &bound));
        child.bound = bound > n->bound ? bound : n->bound;
        child.guess = space->guess ? space->guess(space->of, child.point, child.set) : child.bound;
        if (child.bound <= s->best->price && isfinite(child.bound)) KOLO_TRY(push(s, &child));
    }
    return 0;
}

static int price(search *s, const node *n)
{
    const kolo_search_space *space = s->space;
    kolo_search_result *best = s->best;
    double seconds;
    KOLO_TRY(space->price(space->of, n->point, &seconds));
    best->priced++;
    const bool equal = !(seconds < best->price) && !(seconds > best->price);
    if (!isfinite(seconds) || seconds > best->price ||
        (equal && compare_points(n->point, best->point, space->axes) > 0))
        return 0;
    best->price = seconds;
    memcpy(best->point, n->point, sizeof best->point);
    return 0;
}

int kolo_search_run(const kolo_search_space *space, kolo_search_result *best)
{
    search s = {.space = space, .best = best};
    *best = (kolo_search_result){.price = INFINITY, .bound = INFINITY};
    const node root = {.bound = 0};
    int rc = push(&s, &root);
    while (rc == 0 && s.nodes) {
        if (space->over && space->over(space->of)) break;
        const node n = pop(&s);
        if (n.bound > best->price) continue;
        rc = n.set == space->axes ? price(&s, &n) : branch(&s, &n);
    }
    best->bound = best->price;
    for (int64_t i = 0; i < s.nodes; i++)
        if (s.heap[i].bound < best->bound) best->bound = s.heap[i].bound;
    free(s.heap);
    return rc;
}
