/* Every program of random networks, trained or evaluated, passes the checker. */
#include "program_rig.h"

typedef struct tally {
    int all, good, sent;
} tally;

static void check_program(const trial *t, tally *n)
{
    rig r;
    const int rc = rig_open(&r, t);
    if (rc < 0 || r.program) {
        n->all++;
        for (int s = 0; r.program && s < t->stages; s++) n->sent += r.program->plan[s]->transfers;
        if (rc == 0 && kolo_program_check(r.program) == 0) n->good++;
        else
            diag("%d stages, %d chunks, %d micro-batches, %d replicas: %s", t->stages, t->chunks, t->slots,
                 t->replicas, kolo_error_text());
    }
    rig_close(&r);
}

/* Of every order, grid and number of micro-batches four programs that train, and one that does not. */
static void test_programs(void)
{
    enum { MOST_SLOTS = 8, ROUNDS = 5 };
    for (int order = 0; order < KOLO_PIPELINES; order++) {
        tally n = {0};
        for (int i = 0; i < MOST_STAGES * MOST_SLOTS * ROUNDS; i++) {
            drawn = 1000 * (uint64_t)(order * 1000 + i);
            const trial t = {.stages = 1 + i / ROUNDS / MOST_SLOTS,
                             .slots = 1 + i / ROUNDS % MOST_SLOTS,
                             .chunks = kolo_pipeline[order].takes_chunks ? 1 + draw(3) : 1,
                             .replicas = 1 + draw(2),
                             .blocks = 1 + draw(MOST_BLOCKS),
                             .order = (enum kolo_pipeline)order,
                             .evaluates = i % ROUNDS == 0};
            check_program(&t, &n);
        }
        ok(n.good == n.all && n.all > 150 && n.sent > n.all, "%s: %d programs of %d pass, %d transfers",
           kolo_pipeline[order].name, n.good, n.all, n.sent);
    }
}

/* ---- evaluations --------------------------------------------------------------------------------------- */

/* Of every parameter and buffer, one stage has memory for it, and that the owner. */
static bool held_once(const kolo_program *p, const kolo_graph *g)
{
    bool good = true;
    for (int t = 0; t < g->tensors; t++) {
        const enum kolo_role role = g->tensor[t].role;
        if (role != KOLO_ROLE_PARAM && role != KOLO_ROLE_BUFFER) continue;
        int holders = 0;
        for (int s = 0; s < p->grid->stages; s++) {
            holders += p->plan[s]->fixed[t].arena >= 0;
            good &= (p->plan[s]->fixed[t].arena >= 0) == kolo_plan_owns(p->plan[s], t);
        }
        good &= holders == 1;
    }
    return good;
}

/* As tensors in the last stage's memory that nothing else takes: no two at one place. */
static bool heads_are_last(const kolo_program *p, const kolo_graph *g)
{
    const kolo_plan *last = p->plan[p->grid->stages - 1];
    bool good = true;
    for (int i = 0; i < g->heads; i++) {
        const kolo_binding b = kolo_plan_binding(last, g->head[i], 0);
        good &= b.arena == KOLO_ARENA_ACTIVATION || b.arena == KOLO_ARENA_TRANSFER;
        for (int k = 0; k < i; k++) {
            const kolo_binding other = kolo_plan_binding(last, g->head[k], 0);
            good &= b.arena != other.arena || b.offset != other.offset;
        }
    }
    return good;
}

/* Cut into three at random, so that heads are made in one, two or three stages. */
static void test_evaluation(const char *name, const kolo_graph *g, const kolo_plan *whole)
{
    enum { STAGES = 3, CUTS = 40 };
    int good = 0, once = 0, last = 0, apart = 0, rank[STAGES] = {0, 1, 2};
    size_t params = 0;
    for (int i = 0; i < CUTS; i++) {
        kolo_grid grid = {.stages = STAGES, .replicas = 1, .rank = rank, .stage = draw(STAGES)};
        kolo_placement *placement = NULL;
        kolo_plan *own = NULL;
        kolo_program *p = NULL;
        int cut[STAGES];
        if (random_cut(g, STAGES, cut) &&
            kolo_placement_create(&placement, g, STAGES, 1, 1, KOLO_PIPELINE_1F1B, cut) == 0 &&
            kolo_plan_create_stage(&own, whole, placement, grid.stage, NULL) == 0 &&
            kolo_program_create(&p, &grid, own, NULL) == 0 && kolo_program_check(p) == 0) {
            good++;
            once += held_once(p, g);
            last += heads_are_last(p, g);
            for (int k = 0; k < g->heads; k++) apart += !kolo_plan_owns(p->plan[STAGES - 1], g->head[k]);
            params = 0;
            for (int s = 0; s < STAGES; s++) params += p->plan[s]->arena_bytes[KOLO_ARENA_PARAM];
        } else {
            diag("%s", kolo_error_text());
        }
        kolo_program_destroy(&p);
        kolo_plan_destroy(&own);
        kolo_placement_destroy(&placement);
    }
    is_int(good, CUTS, "%s, evaluated in three stages: programs pass", name);
    is_int(once, CUTS, "%s, evaluated: every weight is in the memory of one stage", name);
    is_int((int64_t)params, (int64_t)whole->arena_bytes[KOLO_ARENA_PARAM],
           "%s, evaluated: all stages' weights are as large as one rank's", name);
    if (!g->heads) return;
    is_int(last, CUTS, "%s, evaluated: all heads are in the last stage's memory", name);
    ok(apart > CUTS / 4, "%s, evaluated: %d of them made by another stage", name, apart);
}

static void test_evaluations(void)
{
    static const char *const net[] = {"resnet20", "yolox_nano", "yolov3_tiny"};
    for (size_t i = 0; i < sizeof net / sizeof *net; i++) {
        kolo_graph *g = NULL;
        kolo_plan *whole = NULL;
        const kolo_model_config c = {.rows = 2,
                                     .height = 64,
                                     .width = 64,
                                     .channels = 3,
                                     .classes = 10,
                                     .words = i ? 1 + 5 * 4 : 1,
                                     .std = {.25f, .25f, .25f}};
        const kolo_plan_config plan = {.ranks = 1, .slots = 1};
        if (kolo_model_graph(&g, net[i], &c) < 0 || kolo_plan_create(&whole, g, backend, &plan, NULL) < 0)
            ok(0, "%s: %s", net[i], kolo_error_text());
        else test_evaluation(net[i], g, whole);
        kolo_plan_destroy(&whole);
        kolo_graph_destroy(&g);
    }
}

int main(void)
{
    if (!rig_begin()) return 1;
    test_programs();
    test_evaluations();
    return rig_end();
}
