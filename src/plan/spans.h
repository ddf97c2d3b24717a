/* Which steps of a chain leave their results until the chain is walked back, and which are done again then.
 * The chain is cut into spans: one step whose results are stored, or several steps that keep only what later
 * ones read; on the way back such a span is done again from there, once. */
#ifndef KOLO_PLAN_SPANS_H
#define KOLO_PLAN_SPANS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct kolo_span_cost {
    int64_t kept;   /* bytes that stay from it until its way back */
    int64_t peak;   /* most bytes while it is worked on, either way, beside what spans before it keep */
    double seconds; /* to do again */
} kolo_span_cost;

typedef struct kolo_spans {
    int steps, longest;           /* spans that are done again have so many steps at most */
    const kolo_span_cost *stored; /* [steps] */
    const kolo_span_cost *again;  /* [steps][longest] from a step on, of 1, 2, ... steps */
} kolo_spans;

/* Of steps [begin, end), at most `longest`. */
static inline const kolo_span_cost *kolo_span_again(const kolo_spans *chain, int begin, int end)
{
    return &chain->again[(int64_t)begin * chain->longest + end - begin - 1];
}

/* The cut of least seconds in which no span's peak, with what those before it keep, is beyond `budget`:
 * first[steps]: with which step the span begins that is done again with step i; -1: it is stored.
 * 1: none fits. *exact: none takes less; else more cuts were of use than are compared, or spans longer than
 * `longest` were left out. Dynamic programming over the ends of spans: of those that end at one step a cut is
 * out if another keeps no more and takes no more. */
int kolo_spans_solve(const kolo_spans *chain, int64_t budget, int *first, double *seconds, bool *exact);

/* The least budget that some cut fits in; INT64_MAX: the chain is empty of cuts. */
int64_t kolo_spans_least(const kolo_spans *chain);

#endif
