/* Who has a core: ranks that are more than their node has cores compute in turns, as comm/buckets/cores.c has
 * them do. Ranks of a stage ask together, and share evenly what they have. */
#include <math.h>

#include "plan/play_game.h"

static bool lacks(const player *p) { return p->computes && p->held < p->here; }

/* In the order in which they asked. */
static void give(game *g)
{
    while (g->free > 0) {
        player *next = NULL;
        for (int s = 0; s < g->stages; s++) {
            player *p = &g->player[s];
            if (lacks(p) && (!next || p->ticket < next->ticket)) next = p;
        }
        if (!next) return;
        if (next->held++ == 0) next->since = g->now;
        g->free--;
    }
}

static bool any_lacks(const game *g)
{
    for (int s = 0; s < g->stages; s++)
        if (lacks(&g->player[s])) return true;
    return false;
}

static void give_back(game *g, player *p)
{
    g->free += p->held;
    p->held = 0;
}

double game_take_cores(game *g, player *p)
{
    const kolo_fabric *f = g->in->fabric;
    if (!g->turns) {
        p->held = p->here;
        return 0;
    }
    if (p->held && (g->now - p->since < f->turn || !any_lacks(g))) return 0;
    give_back(g, p);
    p->ticket = g->asked++;
    give(g);
    return f->handover * fmin(1, f->cores / p->here);
}

void game_leave_cores(game *g, player *p)
{
    if (!g->turns || !p->held) return;
    give_back(g, p);
    give(g);
}
