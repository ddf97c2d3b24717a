/* sync=async, the order of gradients, played on a clock with paces that are drawn: every block is given
 * once, updates are in a row, no gradient is staler than the bound, all come to an end, and a slow rank
 * does less. */
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "exec/async_order.h"
#include "tap.h"

enum { RANKS = 7, BLOCKS = 420 };

typedef struct game {
    async_order order;
    int ranks, pace[RANKS];
    int64_t ends[RANKS]; /* moment at which the rank has computed; -1: it does not compute */
    int given[BLOCKS], done[RANKS], pushed;
    int64_t most;       /* staleness */
    int64_t last, late; /* moment of the last push of a rank but the slow one; from then to the end */
    bool right;
} game;

static uint32_t draw(uint64_t seed, uint64_t i, uint32_t below)
{
    return kolo_philox(seed, 11, i).v[0] % below;
}

static void take(game *g, int rank)
{
    int64_t block[ASYNC_BLOCKS];
    const int n = async_order_give(&g->order, rank, block);
    for (int i = 0; i < n; i++) g->right = g->right && block[i] < g->order.end && !g->given[block[i]]++;
}

static void begin(game *g, int rank, int64_t now)
{
    if (async_order_begin(&g->order, rank, (double)now)) g->ends[rank] = now + g->pace[rank];
}

static void push(game *g, int rank, int64_t now)
{
    int64_t update, staleness;
    if (!async_order_push(&g->order, rank, (double)now, &update, &staleness)) return;
    g->right = g->right && update == g->pushed++;
    if (staleness > g->most) g->most = staleness;
    g->ends[rank] = -1;
    g->done[rank]++;
    if (rank < g->ranks - 1) g->last = now;
    take(g, rank);
    if (g->order.of[rank].held > 0) async_order_ask(&g->order, rank);
}

/* A phase of the game; false: it does not end. */
static bool play(game *g, int64_t first, int64_t end, uint64_t seed)
{
    int64_t now = 0;
    async_order_open(&g->order, first, end);
    for (int r = 0; r < g->ranks; r++) g->ends[r] = -1;
    for (int i = 0; i < g->ranks; i++) {
        const int r = (i + (int)seed) % g->ranks;
        take(g, r);
        if (g->order.of[r].held > 0) async_order_ask(&g->order, r);
    }
    for (; g->order.updates < g->order.end && now < 100000; now++)
        for (int i = 0; i < g->ranks; i++) {
            const int r = (int)draw(seed + (uint64_t)now, (uint64_t)i, (uint32_t)g->ranks);
            if (g->ends[r] >= 0 && g->ends[r] <= now) push(g, r, now);
            else if (g->order.of[r].begins) begin(g, r, now);
        }
    g->late = now - g->last;
    return g->order.updates == g->order.end;
}

static void test(int ranks, int64_t bound, int slow)
{
    static game g;
    bool ended = true, once = true;
    int64_t most = 0;
    int64_t late = 0;
    int least = BLOCKS, fast = 0;
    for (uint64_t seed = 0; seed < 20 && ended; seed++) {
        memset(&g, 0, sizeof g);
        g.ranks = ranks;
        g.right = async_order_create(&g.order, ranks, bound) == 0;
        for (int r = 0; r < ranks; r++) g.pace[r] = 1 + (int)draw(seed, (uint64_t)r, slow ? 3 : 40);
        if (slow) g.pace[ranks - 1] = 10 * slow;
        ended = play(&g, 0, BLOCKS / 2, seed) && play(&g, BLOCKS / 2, BLOCKS, seed);
        for (int b = 0; b < BLOCKS; b++) once = once && g.given[b] == 1;
        once = once && g.right && g.pushed == BLOCKS;
        if (g.most > most) most = g.most;
        if (g.late > late) late = g.late;
        if (g.done[ranks - 1] < least) least = g.done[ranks - 1], fast = g.done[0];
        async_order_destroy(&g.order);
    }
    ok(ended && once, "%d ranks, bound %ld: all blocks are given and pushed once, updates in a row", ranks,
       (long)bound);
    ok(!bound || most <= bound, "the stalest gradient lacks %ld", (long)most);
    if (slow && !bound)
        ok(late < 10 * slow, "the slow one keeps nobody waiting in the end: %ld of %d", (long)late,
           10 * slow);
    if (slow && !bound) ok(least * 3 < fast, "a slow rank did %d blocks, another %d", least, fast);
    if (ranks > 1 && !bound) ok(most >= ranks - 1, "without a bound ranks go on");
}

int main(void)
{
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        test(ranks, 0, 0);
        for (int64_t bound = 1; bound <= 2 * ranks; bound += ranks / 2 + 1) test(ranks, bound, ranks % 3);
    }
    test(4, 0, 2);
    return done_testing();
}
