/* Who has a core: ranks that are more than their node has cores compute in turns, as comm/buckets/cores.c has
 * them do. Ranks of a stage ask together, and share evenly what they have. */
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

static bool others_lack(const game *g, const player *p)
{
    for (int s = 0; s < g->stages; s++)
        if (&g->player[s] != p && lacks(&g->player[s])) return true;
    return false;
}

static void give_back(game *g, player *p)
{
    g->free += p->held;
    p->held = 0;
}

bool game_take_cores(game *g, player *p)
{
    if (!g->turns) {
        p->held = p->here;
        return false;
    }
    if (p->held && (g->now - p->since < g->in->fabric->turn || !others_lack(g, p))) return false;
    give_back(g, p);
    p->ticket = g->asked++;
    give(g);
    return true;
}

void game_leave_cores(game *g, player *p)
{
    if (!g->turns || !p->held) return;
    give_back(g, p);
    give(g);
}
