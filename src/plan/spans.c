#include "plan/spans.h"

#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"

/* of cuts that end at one step; at most so many are distinguished */
enum { MOST = 1024 };

/* A cut of the steps before one. */
typedef struct cut {
    int64_t kept;
    double seconds;
    int begin;  /* step with which its last span begins */
    int before; /* which of the cuts that end there it goes on from */
    bool stored;
} cut;

typedef struct cuts {
    cut *of;
    int64_t n, capacity;
} cuts;

static int compare_cuts(const void *a, const void *b)
{
    const cut *x = a, *y = b;
    if (x->kept != y->kept) return x->kept < y->kept ? -1 : 1;
    if (x->seconds != y->seconds) return x->seconds < y->seconds ? -1 : 1;
    return x->begin > y->begin ? -1 : x->begin < y->begin;
}

static int extend(const cuts *from, int begin, const kolo_span_cost *span, bool stored, int64_t budget,
                  cuts *to)
{
    for (int64_t k = 0; k < from->n; k++) {
        const cut *c = &from->of[k];
        if (c->kept + span->peak > budget) break; /* they keep more from here on */
        KOLO_TRY(kolo_grow(&to->of, &to->capacity, to->n, sizeof *to->of));
        to->of[to->n++] = (cut){.kept = c->kept + span->kept,
                                .seconds = c->seconds + span->seconds,
                                .begin = begin,
                                .before = (int)k,
                                .stored = stored};
    }
    return 0;
}

/* What keeps more takes less; of too many, the fastest of each of MOST ranges of bytes. False: some went. */
static bool prune(cuts *c)
{
    int64_t n = 0;
    qsort(c->of, (size_t)c->n, sizeof *c->of, compare_cuts);
    for (int64_t k = 0; k < c->n; k++)
        if (n == 0 || c->of[k].seconds < c->of[n - 1].seconds) c->of[n++] = c->of[k];
    c->n = n;
    if (n <= MOST) return true;
    const double low = (double)c->of[0].kept, width = ((double)c->of[n - 1].kept - low) / (MOST - 1);
    int64_t left = 1;
    for (int64_t k = 1; k < n; k++) {
        const int64_t range = (int64_t)(((double)c->of[k].kept - low) / width),
                      last = (int64_t)(((double)c->of[left - 1].kept - low) / width);
        if (range != last || left == 1) left++; /* the first keeps least, and stays */
        c->of[left - 1] = c->of[k];
    }
    c->n = left;
    return false;
}

/* The first step with which a span that ends here may begin. */
static int earliest(const kolo_spans *chain, int end)
{
    return end > chain->longest ? end - chain->longest : 0;
}

static int search(const kolo_spans *chain, int64_t budget, cuts *at, bool *exact)
{
    const int n = chain->steps;
    KOLO_TRY(kolo_grow(&at[0].of, &at[0].capacity, 0, sizeof *at[0].of));
    at[0].of[0] = (cut){.begin = -1};
    at[0].n = 1;
    for (int end = 1; end <= n; end++) {
        KOLO_TRY(extend(&at[end - 1], end - 1, &chain->stored[end - 1], true, budget, &at[end]));
        for (int begin = earliest(chain, end); begin < end; begin++)
            KOLO_TRY(extend(&at[begin], begin, kolo_span_again(chain, begin, end), false, budget, &at[end]));
        if (at[end].n && !prune(&at[end])) *exact = false;
    }
    return 0;
}

int kolo_spans_solve(const kolo_spans *chain, int64_t budget, int *first, double *seconds, bool *exact)
{
    const int n = chain->steps;
    cuts *at = kolo_alloc((size_t)(n + 1) * sizeof *at);
    int rc = at ? 0 : KOLO_ENOMEM;
    *exact = chain->longest >= n;
    if (rc == 0) rc = search(chain, budget, at, exact);
    if (rc == 0 && at[n].n == 0) rc = 1;
    if (rc == 0) { /* the last keeps most and takes least */
        int64_t k = at[n].n - 1;
        *seconds = at[n].of[k].seconds;
        for (int end = n; end > 0;) {
            const cut *c = &at[end].of[k];
            for (int i = c->begin; i < end; i++) first[i] = c->stored ? -1 : c->begin;
            end = c->begin;
            k = c->before;
        }
    }
    for (int i = 0; at && i <= n; i++) free(at[i].of);
    free(at);
    return rc;
}

/* The least that the cuts within a budget keep; below 0: there is none. less: [steps + 1] */
static int64_t least_kept(const kolo_spans *chain, int64_t budget, int64_t *less)
{
    const int n = chain->steps;
    less[0] = 0;
    for (int end = 1; end <= n; end++) {
        less[end] = -1;
        const int early = earliest(chain, end);
        for (int begin = early - 1; begin < end; begin++) {
            const int from = begin < early ? end - 1 : begin;
            const kolo_span_cost *s =
                begin < early ? &chain->stored[from] : kolo_span_again(chain, from, end);
            if (less[from] < 0 || less[from] + s->peak > budget) continue;
            if (less[end] < 0 || less[from] + s->kept < less[end]) less[end] = less[from] + s->kept;
        }
    }
    return less[n];
}

int64_t kolo_spans_least(const kolo_spans *chain)
{
    int64_t *less = kolo_alloc((size_t)(chain->steps + 1) * sizeof *less), low = 0, high = INT64_MAX / 2;
    while (less && low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (least_kept(chain, middle, less) >= 0) high = middle;
        else low = middle + 1;
    }
    const bool found = less && least_kept(chain, low, less) >= 0;
    free(less);
    return found ? low : INT64_MAX;
}
