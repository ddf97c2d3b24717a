#include "comm/library/negotiate.h"

#include <math.h>

static const double fusion_of[] = {1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 25, 1 << 26, 1 << 27, 1 << 28};
static const double cycle_of[] = {0, 100e-6, 300e-6, 1e-3, 2e-3, 5e-3};

enum {
    FUSIONS = sizeof fusion_of / sizeof *fusion_of,
    CYCLES = sizeof cycle_of / sizeof *cycle_of,
    WINDOWS = 3, /* the median counts; one more comes before, while the new setting takes hold */
    WINDOW_STEPS = 5,
    WAYS = 4,
};
static const double window_seconds = 0.05, worth = 1.02; /* less is noise */

static int nearest(const double *list, int count, double value)
{
    int best = 0;
    for (int i = 1; i < count; i++)
        if (fabs(list[i] - value) < fabs(list[best] - value)) best = i;
    return best;
}

void lib_tune_begin(lib_tune *tune, size_t fusion_bytes, double cycle)
{
    *tune = (lib_tune){.windows = -1, .begin = -1};
    tune->at[0] = tune->best[0] = nearest(fusion_of, FUSIONS, (double)fusion_bytes);
    tune->at[1] = tune->best[1] = nearest(cycle_of, CYCLES, cycle);
}

size_t lib_tune_fusion(const lib_tune *tune) { return (size_t)fusion_of[tune->at[0]]; }
double lib_tune_cycle(const lib_tune *tune) { return cycle_of[tune->at[1]]; }

/* To the next neighbour of the best, in the order up and down of the one list, then of the other; settled
 * when none of them is better. */
static void move(lib_tune *tune)
{
    for (;; tune->way = (tune->way + 1) % WAYS, tune->vain++) {
        const int axis = tune->way / 2, next = tune->best[axis] + (tune->way % 2 ? -1 : 1);
        tune->settled = tune->vain >= WAYS;
        tune->at[0] = tune->best[0];
        tune->at[1] = tune->best[1];
        if (tune->settled) return;
        if (next < 0 || next >= (axis ? CYCLES : FUSIONS)) continue;
        tune->at[axis] = next;
        return;
    }
}

static int median(const double *score)
{
    for (int i = 0; i < WINDOWS; i++) {
        int below = 0;
        for (int j = 0; j < WINDOWS; j++) below += score[j] < score[i] || (score[j] == score[i] && j < i);
        if (below == WINDOWS / 2) return i;
    }
    return 0;
}

static void tune_compare(lib_tune *tune)
{
    int middle = median(tune->score);
    if (!tune->based || tune->score[middle] > tune->best_score * worth) {
        tune->vain = 0;
        tune->best[0] = tune->at[0];
        tune->best[1] = tune->at[1];
        tune->best_score = tune->score[middle];
        tune->best_step = tune->time[middle];
    } else {
        tune->way = (tune->way + 1) % WAYS;
        tune->vain++;
    }
    tune->based = true;
    move(tune);
}

bool lib_tune_note(lib_tune *tune, int64_t bytes, bool step, double now)
{
    if (step && tune->begin < 0) { /* the first step begins */
        tune->begin = now;
        tune->steps = 0;
        tune->bytes = bytes;
        return false;
    }
    if (step) tune->steps++;
    if (!step || tune->steps < WINDOW_STEPS || now - tune->begin < window_seconds) {
        tune->bytes += bytes;
        return false;
    }
    if (tune->windows >= 0) {
        tune->score[tune->windows] = (double)tune->bytes / (now - tune->begin);
        tune->time[tune->windows] = (now - tune->begin) / tune->steps;
    }
    tune->begin = now;
    tune->steps = 0;
    tune->bytes = bytes;
    if (++tune->windows < WINDOWS) return false;
    tune->windows = -1;
    tune_compare(tune);
    return true;
}
