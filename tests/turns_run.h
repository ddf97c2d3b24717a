/* The turns of a run: a late order's steps as one list, for a simulation or a count. */
#ifndef TESTS_TURNS_RUN_H
#define TESTS_TURNS_RUN_H

#include "plan/order.h"
#include "tap.h"

/* The turns of the first `steps` steps of a late order and of those before, in which forward turns alone are
 * done, slots counted through all batches. Returns how many; *turn is the caller's (free). */
static inline int turns_of_run(enum kolo_pipeline order, int stages, int stage, int slots, int steps,
                               kolo_turn **turn)
{
    kolo_turn *step = NULL;
    int n = 0, ahead = 0, turns = 0;
    kolo_turns_create(order, stages, stage, 1, slots, &step, &n);
    for (int i = 0; i < n; i++)
        if (step[i].ahead > ahead) ahead = step[i].ahead;
    *turn = calloc((size_t)n * (size_t)(steps + ahead) + 1, sizeof **turn);
    for (int t = -ahead; t < steps; t++)
        for (int i = 0; i < n; i++) {
            const int batch = t + step[i].ahead;
            if (batch >= 0 && batch < steps)
                (*turn)[turns++] = (kolo_turn){step[i].pass, 0, batch * slots + step[i].slot, 0};
        }
    free(step);
    return turns;
}

#endif
