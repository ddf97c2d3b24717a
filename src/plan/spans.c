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

/* Of cuts that keep and take the same that with the shortest last span. */
static bool comes_first(const cut *a, const cut *b)
{
    if (a->kept != b->kept) return a->kept < b->kept;
    if (a->seconds != b->seconds) return a->seconds < b->seconds;
    return a->begin >= b->begin;
}

/* Adds the cuts of `from`, each with one span more that begins where they end. Both lists are in order: what
 * keeps more takes less; so is what is left of both, in *spare, which changes place with *to. */
static int extend(const cuts *from, int begin, const kolo_span_cost *span, bool stored, int64_t budget,
                  cuts *to, cuts *spare)
{
    int64_t count = from->n, i = 0, k = 0, n = 0;
    while (count && from->of[count - 1].kept + span->peak > budget) count--; /* they keep more from here on */
    if (!count) return 0;
    KOLO_TRY(kolo_grow(&spare->of, &spare->capacity, to->n + count, sizeof *spare->of));
    while (i < to->n || k < count) {
        cut next = {0};
        if (k < count)
            next = (cut){.kept = from->of[k].kept + span->kept,
                         .seconds = from->of[k].seconds + span->seconds,
                         .begin = begin,
                         .before = (int)k,
                         .stored = stored};
        const bool old = k == count || (i < to->n && comes_first(&to->of[i], &next));
        if (old) next = to->of[i++];
        else k++;
        if (n == 0 || next.seconds < spare->of[n - 1].seconds) spare->of[n++] = next;
    }
    const cuts swap = *to;
    *to = (cuts){.of = spare->of, .n = n, .capacity = spare->capacity};
    *spare = swap;
    return 0;
}

/* Of too many, the fastest of each of MOST ranges of bytes. False: some went. */
static bool prune(cuts *c)
{
    const int64_t n = c->n;
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

static int search(const kolo_spans *chain, int64_t budget, cuts *at, cuts *spare, bool *exact)
{
    const int n = chain->steps;
    KOLO_TRY(kolo_grow(&at[0].of, &at[0].capacity, 0, sizeof *at[0].of));
    at[0].of[0] = (cut){.begin = -1};
    at[0].n = 1;
    for (int end = 1; end <= n; end++) {
        KOLO_TRY(extend(&at[end - 1], end - 1, &chain->stored[end - 1], true, budget, &at[end], spare));
        for (int begin = earliest(chain, end); begin < end; begin++)
            KOLO_TRY(extend(&at[begin], begin, kolo_span_again(chain, begin, end), false, budget, &at[end],
                            spare));
        if (at[end].n && !prune(&at[end])) *exact = false;
    }
    return 0;
}

int kolo_spans_solve(const kolo_spans *chain, int64_t budget, int *first, double *seconds, bool *exact)
{
    const int n = chain->steps;
    cuts *at = kolo_alloc((size_t)(n + 1) * sizeof *at), spare = {0};
    int rc = at ? 0 : KOLO_ENOMEM;
    *exact = chain->longest >= n;
    if (rc == 0) rc = search(chain, budget, at, &spare, exact);
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
    free(spare.of);
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
