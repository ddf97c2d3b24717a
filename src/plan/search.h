/* Search: of a grid of choices the point with the least price, by branch and bound. Bounds are the caller's:
 * no price of a point may be below that of any of its beginnings. What comes first is what is guessed to take
 * least, so that where time is short something good is found; what is found with enough of it does not depend
 * on guesses. */
#ifndef KOLO_PLAN_SEARCH_H
#define KOLO_PLAN_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

enum { KOLO_SEARCH_AXES = 12 };

typedef struct kolo_search_space {
    int axes;
    int choices[KOLO_SEARCH_AXES];
    void *of; /* the caller's, handed to all */
    /* the least that any point takes whose first `set` choices these are; INFINITY: there is none */
    int (*bound)(void *of, const int *point, int set, double *bound);
    double (*guess)(void *of, const int *point, int set);    /* what it may take; NULL: its bound */
    int (*price)(void *of, const int *point, double *price); /* INFINITY: it cannot be */
    bool (*over)(void *of);                                  /* no more is to be priced; NULL: never */
} kolo_search_space;

typedef struct kolo_search_result {
    int point[KOLO_SEARCH_AXES]; /* the first of equals, as points are numbered */
    double price;                /* INFINITY: no point can be */
    double bound;                /* no point takes less; the price where it is proved to be the least */
    int64_t priced;
} kolo_search_result;

/* 0; or a negative status of the caller's functions. */
int kolo_search_run(const kolo_search_space *space, kolo_search_result *result);

#endif
