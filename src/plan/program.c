#include "plan/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "kolo/error.h"

/* ---- the grid ----------------------------------------------------------------------------------------- */

/* Number of this rank when ranks are counted node by node. */
static int node_major(const kolo_launch *l, int rank)
{
    int before = 0;
    for (int r = 0; r < l->size; r++)
        before += l->node_of[r] < l->node_of[rank] ||
                  (l->node_of[r] == l->node_of[rank] && l->local_of[r] < l->local_of[rank]);
    return before;
}

static int check_grid(const kolo_launch *l, int stages, bool within)
{
    if (l->size % stages)
        return kolo_fail(
            KOLO_ECONFIG,
            "stages=%d does not divide %d ranks; start a multiple of %d, or give stages= that divides %d",
            stages, l->size, stages, l->size);
    for (int node = 0; within && node < l->nodes; node++) {
        int ranks = 0;
        for (int r = 0; r < l->size; r++) ranks += l->node_of[r] == node;
        if (ranks % stages)
            return kolo_fail(
                KOLO_ECONFIG,
                "stages_in_node=true: node %d has %d ranks, which is no multiple of stages=%d; set "
                "--ntasks-per-node to a multiple, or stages_in_node=false",
                node, ranks, stages);
    }
    return 0;
}

/* The stage of a rank within its node. in_turn: ranks go round the stages (0 1 0 1); else each stage has
 * consecutive ranks (0 0 1 1). */
static int stage_within(const kolo_launch *l, int rank, int stages, bool in_turn)
{
    int ranks = 0;
    for (int r = 0; r < l->size; r++) ranks += l->node_of[r] == l->node_of[rank];
    return in_turn ? l->local_of[rank] % stages : l->local_of[rank] / (ranks / stages);
}

/* stage: [l->size] of every rank. filled: [stages] scratch. */
static void fill_grid(kolo_grid *grid, const kolo_launch *l, const int *stage, int *filled)
{
    memset(filled, 0, (size_t)grid->stages * sizeof *filled);
    for (int r = 0; r < l->size; r++) {
        if (r == l->rank) grid->stage = stage[r], grid->replica = filled[stage[r]];
        grid->rank[stage[r] * grid->replicas + filled[stage[r]]++] = r;
    }
}

/* Two ranks of one pipeline that are on different nodes: the first of them, or -1. */
static int apart(const kolo_grid *grid, const kolo_launch *l, int *other)
{
    for (int i = 0; i < grid->stages * grid->replicas; i++) {
        *other = grid->rank[i];
        const int first = grid->rank[i % grid->replicas];
        if (l->node_of[*other] != l->node_of[first]) return first;
    }
    return -1;
}

/* Which rank of a node is of which stage is free, but replicas are in the order of ranks, and so not every
 * order of nodes has its pipelines within them. */
static int fill_within(kolo_grid *grid, const kolo_launch *l, int *stage, int *filled)
{
    int first = 0, other = 0;
    for (int way = 0; way < 2 && first >= 0; way++) {
        for (int r = 0; r < l->size; r++) stage[r] = stage_within(l, r, grid->stages, way == 0);
        fill_grid(grid, l, stage, filled);
        first = apart(grid, l, &other);
    }
    if (first < 0) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "stages_in_node=true: the ranks are spread over the nodes so that ranks %d and %d, on "
                     "nodes %d and %d, would be of one pipeline; start them node by node (srun "
                     "--distribution=block) or in turn (cyclic), or set stages_in_node=false",
                     first, other, l->node_of[first], l->node_of[other]);
}

int kolo_grid_create(kolo_grid *grid, const kolo_launch *l, int stages, bool within)
{
    KOLO_TRY(check_grid(l, stages, within));
    *grid = (kolo_grid){.stages = stages, .replicas = l->size / stages};
    int *filled = kolo_alloc((size_t)stages * sizeof *filled);
    int *stage = kolo_alloc((size_t)l->size * sizeof *stage);
    grid->rank = kolo_alloc((size_t)l->size * sizeof *grid->rank);
    int rc = filled && stage && grid->rank ? 0 : KOLO_ENOMEM;
    if (rc == 0 && within) rc = fill_within(grid, l, stage, filled);
    else if (rc == 0) {
        for (int r = 0; r < l->size; r++) stage[r] = node_major(l, r) / grid->replicas;
        fill_grid(grid, l, stage, filled);
    }
    free(filled);
    free(stage);
    if (rc < 0) kolo_grid_free(grid);
    return rc;
}

void kolo_grid_free(kolo_grid *grid)
{
    free(grid->rank);
    *grid = (kolo_grid){0};
}

/* ---- the program -------------------------------------------------------------------------------------- */

int kolo_program_match(const kolo_program *p, int peer, int number)
{
    const kolo_transfer *t = &p->plan[peer]->transfer[number];
    const kolo_plan *other = p->plan[t->peer];
    for (int i = 0; i < other->transfers; i++)
        if (other->transfer[i].tensor == t->tensor && other->transfer[i].slot == t->slot &&
            other->transfer[i].peer == peer && other->transfer[i].sends != t->sends)
            return i;
    return -1;
}

static int check_matches(const kolo_program *p)
{
    for (int s = 0; s < p->grid->stages; s++)
        for (int i = 0; i < p->plan[s]->transfers; i++) {
            const kolo_transfer *t = &p->plan[s]->transfer[i];
            const int other = kolo_program_match(p, s, i);
            if (other < 0 || p->plan[t->peer]->transfer[other].bytes != t->bytes)
                return kolo_fail(KOLO_EINTERNAL,
                                 "program: stage %d %s %s, micro-batch %d, and stage %d does not %s it", s,
                                 t->sends ? "sends" : "receives", p->plan[s]->graph->tensor[t->tensor].name,
                                 t->slot, t->peer, t->sends ? "receive" : "send");
        }
    return 0;
}

/* ---- all stages together ----
 * Every stage by itself is kolo_plan_check's. Here all lists are played at once, with no buffer between
 * stages: what is sent has gone when the receiver has offered a place, what is received is there when the
 * sender has started. */

typedef struct game {
    const kolo_program *program;
    int64_t steps;  /* that are played; late pipelines several */
    int64_t *at;    /* [stages] next action */
    int64_t *step;  /* [stages] in the list of which step */
    char **started; /* [stages][transfers][steps] */
    /* [stages][stages][2] transfers from and to another stage that one has started, in their order */
    struct starts {
        int64_t n, capacity;
        int *tensor;
        int64_t *micro;
    } * begun;
} game;

static int program_breach(const game *g, int stage, const char *what)
{
    char text[256];
    kolo_plan_action_text(g->program->plan[stage], g->at[stage], text, sizeof text);
    return kolo_fail(KOLO_EINTERNAL, "program: stage %d, action %lld (%s): %s", stage,
                     (long long)g->at[stage], text, what);
}

static int64_t batch_of(const game *g, int stage, const kolo_action *a)
{
    return g->step[stage] + (g->program->plan[stage]->ring ? a->ahead : 0);
}

/* The next action, of a batch that is there; NULL: behind the last step. */
static const kolo_action *action_of(const game *g, int stage)
{
    const kolo_plan *p = g->program->plan[stage];
    const int64_t behind = p->ring ? g->steps : 0; /* lists in which what was sent is waited for */
    while (g->step[stage] < g->steps + behind) {
        for (; g->at[stage] < p->actions; g->at[stage]++) {
            const kolo_action *a = &p->action[g->at[stage]];
            const int64_t batch = batch_of(g, stage, a);
            if (batch >= 0 && batch < g->steps) return a;
        }
        g->at[stage] = 0;
        g->step[stage]++;
    }
    return NULL;
}

/* The next action of a stage needs nothing that another one has still to do. */
static bool can_go(const game *g, int stage)
{
    const kolo_action *a = action_of(g, stage);
    if (a->kind == KOLO_ACTION_TRANSFERRED) {
        const kolo_transfer *t = &g->program->plan[stage]->transfer[a->transfer];
        return g->started[t->peer][kolo_program_match(g->program, stage, a->transfer) * g->steps +
                                   batch_of(g, stage, a)];
    }
    for (int s = 0; kolo_plan_meets(g->program->plan[stage], a->kind) && s < g->program->grid->stages; s++) {
        const kolo_action *other = action_of(g, s);
        if (!other || other->kind != a->kind) return false;
    }
    return true;
}

static struct starts *begun_by(const game *g, int stage, int peer, bool sends)
{
    return &g->begun[(stage * g->program->grid->stages + peer) * 2 + sends];
}

/* Transfers from one stage to another begin in one order on both. */
static int program_start(game *g, int stage)
{
    const kolo_action *a = action_of(g, stage);
    const kolo_plan *p = g->program->plan[stage];
    const kolo_transfer *t = &p->transfer[a->transfer];
    if ((a->kind == KOLO_ACTION_SEND) != t->sends)
        return program_breach(g, stage, "is no action of its transfer");
    struct starts *own = begun_by(g, stage, t->peer, t->sends),
                  *other = begun_by(g, t->peer, stage, !t->sends);
    const int64_t batch = batch_of(g, stage, a), micro = batch * p->config.slots + t->slot, n = own->n;
    int64_t capacity = own->capacity;
    KOLO_TRY(kolo_grow(&own->tensor, &capacity, n, sizeof *own->tensor));
    KOLO_TRY(kolo_grow(&own->micro, &own->capacity, n, sizeof *own->micro));
    own->tensor[n] = t->tensor;
    own->micro[n] = micro;
    own->n++;
    if (n < other->n && (other->tensor[n] != t->tensor || other->micro[n] != micro))
        return program_breach(g, stage, "the other stage starts another transfer at this place of the order");
    g->started[stage][a->transfer * g->steps + batch] = 1;
    return 0;
}

static int program_play(game *g)
{
    const int stages = g->program->grid->stages;
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < stages; s++)
            while (action_of(g, s) && can_go(g, s)) {
                const kolo_action *a = action_of(g, s);
                if (a->kind == KOLO_ACTION_SEND || a->kind == KOLO_ACTION_RECEIVE)
                    KOLO_TRY(program_start(g, s));
                moved = true;
                if (kolo_plan_meets(g->program->plan[s], a->kind)) /* all at once */
                    for (int k = 0; k < stages; k++) g->at[k]++;
                else g->at[s]++;
            }
    }
    for (int s = 0; s < stages; s++)
        if (action_of(g, s))
            return program_breach(g, s, "waits for ever: the stages wait for each other in a circle");
    return 0;
}

/* Late pipelines: as many steps as any place is old, twice. */
static int64_t steps_of(const kolo_program *p)
{
    int64_t most = 0;
    for (int s = 0; s < p->grid->stages && p->plan[s]->ring; s++)
        for (int64_t i = 0; i < p->plan[s]->bindings; i++)
            if (p->plan[s]->ring[i].places > most) most = p->plan[s]->ring[i].places;
    return 2 * most + 1;
}

static int game_open(game *g, const kolo_program *p)
{
    const size_t stages = (size_t)p->grid->stages;
    *g = (game){.program = p, .steps = steps_of(p)};
    g->at = kolo_alloc(stages * sizeof *g->at);
    g->step = kolo_alloc(stages * sizeof *g->step);
    g->started = kolo_alloc(stages * sizeof *g->started);
    g->begun = kolo_alloc(2 * stages * stages * sizeof *g->begun);
    if (!g->at || !g->step || !g->started || !g->begun) return KOLO_ENOMEM;
    for (size_t s = 0; s < stages; s++) {
        if (!(g->started[s] = kolo_alloc((size_t)p->plan[s]->transfers * (size_t)g->steps + 1)))
            return KOLO_ENOMEM;
        g->step[s] = p->plan[s]->ring ? -g->steps : 0; /* the filling lies before the first */
    }
    return 0;
}

static void game_close(game *g)
{
    const int stages = g->program->grid->stages;
    for (int s = 0; g->started && s < stages; s++) free(g->started[s]);
    for (int i = 0; g->begun && i < 2 * stages * stages; i++) {
        free(g->begun[i].tensor);
        free(g->begun[i].micro);
    }
    free(g->started);
    free(g->at);
    free(g->step);
    free(g->begun);
}

int kolo_program_check(const kolo_program *p)
{
    game g;
    for (int s = 0; s < p->grid->stages; s++)
        if (kolo_plan_check(p->plan[s]) < 0) return kolo_fail_in(KOLO_EINTERNAL, "stage %d: ", s);
    KOLO_TRY(check_matches(p));
    int rc = game_open(&g, p);
    if (rc == 0) rc = program_play(&g);
    game_close(&g);
    return rc;
}

/* Elements of the longest sum of f64 over the ranks of a stage, or of a pipeline. */
static int64_t longest_sum(const kolo_plan *p)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < p->actions; i++) {
        const int64_t count = kolo_plan_sum_count(p, &p->action[i]);
        if (count > longest) longest = count;
    }
    return longest;
}

int64_t kolo_program_transfers(const kolo_program *p)
{
    int64_t sent = 0;
    for (int s = 0; s < p->grid->stages; s++)
        for (int i = 0; i < p->plan[s]->transfers; i++) sent += p->plan[s]->transfer[i].sends;
    return sent;
}

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

static void lay_out(kolo_program *const *program, int programs)
{
    size_t sums = 0, bytes = 0;
    for (int i = 0; i < programs; i++)
        for (int s = 0; s < program[i]->grid->stages; s++) {
            bytes = most(bytes, kolo_plan_comm_bytes(program[i]->plan[s]));
            sums = most(sums, (size_t)longest_sum(program[i]->plan[s]) * sizeof(double));
        }
    for (int i = 0; i < programs; i++) {
        kolo_program *p = program[i];
        p->sum_bytes = kolo_round_up(sums, KOLO_ALIGN);
        p->comm_bytes = p->sum_bytes + bytes;
        p->hash = kolo_hash_word(KOLO_HASH, p->comm_bytes);
        for (int s = 0; s < p->grid->stages; s++) p->hash = kolo_hash_word(p->hash, p->plan[s]->hash);
    }
}

static int create_plans(kolo_program *p, kolo_plan *own, const kolo_program *like)
{
    for (int s = 0; s < p->grid->stages; s++) {
        if (s == p->grid->stage) p->plan[s] = own;
        else
            KOLO_TRY(kolo_plan_create_stage(&p->plan[s], own, own->config.placement, s,
                                            like ? like->plan[s] : NULL));
    }
    lay_out(&p, 1);
    own->program = p;
    return check_matches(p);
}

int kolo_program_share(kolo_program *const *program, int programs)
{
    kolo_plan **plan = kolo_alloc((size_t)programs * sizeof *plan);
    int rc = plan ? 0 : KOLO_ENOMEM;
    for (int s = 0; rc == 0 && s < program[0]->grid->stages; s++) {
        for (int i = 0; i < programs; i++) plan[i] = program[i]->plan[s];
        rc = kolo_plan_share(plan, programs);
    }
    free(plan);
    if (rc == 0) lay_out(program, programs);
    return rc;
}

int kolo_program_create(kolo_program **program, const kolo_grid *grid, kolo_plan *own,
                        const kolo_program *like)
{
    kolo_program *p = *program = kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    p->grid = grid;
    p->plan = kolo_alloc((size_t)grid->stages * sizeof *p->plan);
    const int rc = p->plan ? create_plans(p, own, like) : KOLO_ENOMEM;
    if (rc < 0) kolo_program_destroy(program);
    return rc;
}

void kolo_program_destroy(kolo_program **program)
{
    kolo_program *p = *program;
    if (!p) return;
    for (int s = 0; p->plan && s < p->grid->stages; s++)
        if (s != p->grid->stage) kolo_plan_destroy(&p->plan[s]);
    free(p->plan);
    free(p);
    *program = NULL;
}
