/* The checker finds every single damage done to a program of a random network. */
#include "program_rig.h"

enum damage_kind {
    DROP_TRANSFER,
    DOUBLE_TRANSFER,
    SWAP_TRANSFER,
    OTHER_TRANSFER,
    OTHER_SLOT,
    OTHER_PLACE,
    OTHER_KIND,
    RESIZE,
    MOVE,
    OTHER_TENSOR,
    OTHER_MICRO_BATCH,
    OTHER_PEER,
    OTHER_DIRECTION,
    DROP_RUN,
    DROP_OTHER,
    DOUBLE_OTHER,
    DAMAGES
};
static const char *const damage_name[DAMAGES] = {
    "a send, receive or wait left out",
    "one done twice",
    "one in front of what it must follow",
    "one of another transfer",
    "one of another micro-batch",
    "one at another place",
    "one that is another kind",
    "a transfer of another size",
    "a transfer at another place",
    "a transfer of another tensor",
    "a transfer of another micro-batch",
    "a transfer with another stage",
    "a transfer the other way",
    "an operation left out",
    "a load, fold, reduction, wait or update left out",
    "one of those done twice",
};

typedef struct campaign {
    kolo_program *program;
    int stage; /* that is being damaged */
    kolo_plan *plan;
    char what[256]; /* is damaged */
    int made[DAMAGES], missed[DAMAGES];
} campaign;

static void expect_found(campaign *c, enum damage_kind kind)
{
    c->made[kind]++;
    const int rc = kolo_program_check(c->program);
    if (rc == KOLO_EINTERNAL) return;
    if (c->missed[kind]++ >= 3) return; /* that many are reported */
    diag("missed: %s: stage %d of %d, %s, %s: %d", damage_name[kind], c->stage, c->program->grid->stages,
         kolo_pipeline[c->plan->config.placement->order].name, c->what, rc);
}

static void with_swapped(campaign *c, enum damage_kind kind, int64_t i, int64_t k)
{
    if (i < 0 || k < 0) return;
    const kolo_action a = c->plan->action[i];
    c->plan->action[i] = c->plan->action[k];
    c->plan->action[k] = a;
    expect_found(c, kind);
    c->plan->action[k] = c->plan->action[i];
    c->plan->action[i] = a;
}

static void with_dropped(campaign *c, enum damage_kind kind, int64_t i)
{
    kolo_plan *p = c->plan;
    const kolo_action a = p->action[i];
    const size_t behind = (size_t)(p->actions - i - 1) * sizeof a;
    memmove(&p->action[i], &p->action[i + 1], behind);
    p->actions--;
    expect_found(c, kind);
    p->actions++;
    memmove(&p->action[i + 1], &p->action[i], behind);
    p->action[i] = a;
}

static void with_doubled(campaign *c, enum damage_kind kind, int64_t i)
{
    kolo_plan *p = c->plan;
    kolo_action *before = p->action, *longer = malloc((size_t)(p->actions + 1) * sizeof *longer);
    memcpy(longer, before, (size_t)(i + 1) * sizeof *longer);
    memcpy(longer + i + 1, before + i, (size_t)(p->actions - i) * sizeof *longer);
    p->action = longer;
    p->actions++;
    expect_found(c, kind);
    p->actions--;
    p->action = before;
    free(longer);
}

static void with_action(campaign *c, enum damage_kind kind, int64_t i, kolo_action changed)
{
    const kolo_action a = c->plan->action[i];
    c->plan->action[i] = changed;
    expect_found(c, kind);
    c->plan->action[i] = a;
}

static void with_transfer(campaign *c, enum damage_kind kind, int i, kolo_transfer changed)
{
    const kolo_transfer t = c->plan->transfer[i];
    c->plan->transfer[i] = changed;
    expect_found(c, kind);
    c->plan->transfer[i] = t;
}

/* The action of this kind of a transfer; -1: none. */
static int64_t action_of(const kolo_plan *p, enum kolo_action_kind kind, int transfer)
{
    for (int64_t i = 0; i < p->actions; i++)
        if (p->action[i].kind == kind && p->action[i].transfer == transfer) return i;
    return -1;
}

static bool has(const kolo_plan *p, const kolo_action *a, int tensor, bool makes)
{
    if (a->kind == KOLO_ACTION_LOAD) {
        int loaded[KOLO_MAX_LOADED], n = makes ? kolo_plan_loaded(p, loaded) : 0;
        for (int k = 0; k < n; k++)
            if (loaded[k] == tensor) return true;
        return false;
    }
    if (a->kind != KOLO_ACTION_RUN) return false;
    const kolo_node *n = &p->graph->node[a->node];
    for (int k = 0; k < (makes ? n->n_out : n->n_in); k++)
        if ((makes ? n->out[k] : n->in[k]) == tensor) return true;
    return false;
}

/* The action of this stage that makes or first reads the tensor of a transfer. */
static int64_t partner_of(const kolo_plan *p, const kolo_transfer *t)
{
    for (int64_t i = 0; i < p->actions; i++)
        if (p->action[i].slot == t->slot && has(p, &p->action[i], t->tensor, t->sends)) return i;
    return -1;
}

/* The next start of a transfer in the same direction with the same stage. */
static int64_t next_like(const kolo_plan *p, int64_t i)
{
    const kolo_action *a = &p->action[i];
    for (int64_t k = i + 1; k < p->actions; k++)
        if (p->action[k].kind == a->kind &&
            p->transfer[p->action[k].transfer].peer == p->transfer[a->transfer].peer)
            return k;
    return -1;
}

static void swap_transfer(campaign *c, int64_t i)
{
    const kolo_plan *p = c->plan;
    const kolo_action *a = &p->action[i];
    const kolo_transfer *t = &p->transfer[a->transfer];
    if (a->kind == KOLO_ACTION_TRANSFERRED) {
        if (!t->sends) with_swapped(c, SWAP_TRANSFER, i, partner_of(p, t));
        return;
    }
    with_swapped(c, SWAP_TRANSFER, i, action_of(p, KOLO_ACTION_TRANSFERRED, a->transfer));
    with_swapped(c, SWAP_TRANSFER, i, next_like(p, i));
    if (t->sends) with_swapped(c, SWAP_TRANSFER, i, partner_of(p, t));
}

static void damage_action(campaign *c, int64_t i)
{
    const kolo_plan *p = c->plan;
    const kolo_action a = p->action[i];
    kolo_action changed = a;
    with_dropped(c, DROP_TRANSFER, i);
    with_doubled(c, DOUBLE_TRANSFER, i);
    swap_transfer(c, i);
    for (int k = 1; k < 3; k++) {
        changed.transfer = k == 1 ? (a.transfer + 1) % p->transfers : draw(p->transfers);
        if (changed.transfer != a.transfer) with_action(c, OTHER_TRANSFER, i, changed);
    }
    changed = a;
    changed.transfer = p->transfers;
    with_action(c, OTHER_TRANSFER, i, changed);
    changed = a;
    changed.slot = a.slot + 1;
    with_action(c, OTHER_SLOT, i, changed);
    changed = a;
    changed.binding = draw((int)p->bindings);
    if (p->binding[changed.binding].arena != p->binding[a.binding].arena ||
        p->binding[changed.binding].offset != p->binding[a.binding].offset)
        with_action(c, OTHER_PLACE, i, changed);
    static const enum kolo_action_kind kinds[] = {KOLO_ACTION_SEND, KOLO_ACTION_RECEIVE,
                                                  KOLO_ACTION_TRANSFERRED};
    for (int k = 0; k < 3; k++) {
        changed = a;
        changed.kind = kinds[k];
        if (changed.kind != a.kind) with_action(c, OTHER_KIND, i, changed);
    }
}

static void damage_transfer(campaign *c, int i)
{
    const kolo_transfer t = c->plan->transfer[i];
    kolo_transfer x = t;
    for (int sign = 0; sign < 2; sign++) {
        x.bytes = sign ? t.bytes - 4 : t.bytes + KOLO_ALIGN;
        with_transfer(c, RESIZE, i, x);
    }
    x = t;
    for (int sign = 0; sign < 2; sign++) {
        x.offset = sign ? t.offset - KOLO_ALIGN : t.offset + KOLO_ALIGN;
        with_transfer(c, MOVE, i, x);
    }
    x = t;
    x.tensor = (t.tensor + 1 + draw((int)c->plan->graph->tensors - 1)) % (int)c->plan->graph->tensors;
    with_transfer(c, OTHER_TENSOR, i, x);
    x = t;
    x.slot = t.slot ? t.slot - 1 : t.slot + 1;
    with_transfer(c, OTHER_MICRO_BATCH, i, x);
    x = t;
    for (x.peer = -1; x.peer <= c->program->grid->stages; x.peer++)
        if (x.peer != t.peer) with_transfer(c, OTHER_PEER, i, x);
    x = t;
    x.sends = !t.sends;
    with_transfer(c, OTHER_DIRECTION, i, x);
}

static void damage_stage(campaign *c)
{
    const kolo_plan *p = c->plan;
    for (int64_t i = 0; i < p->actions; i++) {
        const enum kolo_action_kind kind = p->action[i].kind;
        kolo_plan_action_text(p, i, c->what, sizeof c->what);
        if (kolo_action_transfers(kind)) damage_action(c, i);
        else {
            with_dropped(c, kind == KOLO_ACTION_RUN ? DROP_RUN : DROP_OTHER, i);
            if (kind != KOLO_ACTION_RUN && kind != KOLO_ACTION_LOAD) with_doubled(c, DOUBLE_OTHER, i);
        }
    }
    for (int i = 0; i < p->transfers; i++) {
        snprintf(c->what, sizeof c->what, "transfer %d", i);
        damage_transfer(c, i);
    }
}

static void test_damage(void)
{
    enum { PROGRAMS = 100 };
    campaign c = {0};
    int programs = 0, whole = 0;
    for (int i = 0; programs < PROGRAMS && i < 10 * PROGRAMS; i++) {
        drawn = (1ULL << 32) + 100000 * (uint64_t)i;
        trial t = {.stages = 2 + draw(3), .slots = 1 + draw(4), .chunks = 1, .replicas = 1 + draw(2)};
        t.order = (enum kolo_pipeline)(i % KOLO_PIPELINE_PIPEDREAM);
        if (kolo_pipeline[t.order].takes_chunks) t.chunks = 1 + draw(2);
        t.blocks = 1 + draw(4);
        rig r;
        if (rig_open(&r, &t) == 0 && r.program) {
            programs++;
            c.program = r.program;
            for (c.stage = 0; c.stage < t.stages; c.stage++) {
                c.plan = r.program->plan[c.stage];
                damage_stage(&c);
            }
            whole += kolo_program_check(r.program) == 0;
        }
        rig_close(&r);
    }
    is_int(whole, PROGRAMS, "programs that are damaged, and made whole again");
    for (int k = 0; k < DAMAGES; k++)
        ok(c.made[k] >= PROGRAMS && !c.missed[k], "%s: %d of %d found", damage_name[k],
           c.made[k] - c.missed[k], c.made[k]);
}

/* Late pipelines, in which a wait may stand in front of the send that a later batch's list begins. Whether
 * each version, each copy of statistics is missed shows in the plan of its stage alone. */
static void test_damage_late(void)
{
    enum { PROGRAMS = 6 };
    campaign c = {0};
    int programs = 0, made = 0, missed = 0;
    for (int i = 0; programs < PROGRAMS && i < 10 * PROGRAMS; i++) {
        drawn = (2ULL << 32) + 100000 * (uint64_t)i;
        const trial t = {.stages = 2 + draw(2),
                         .slots = 1 + draw(2),
                         .chunks = 1,
                         .replicas = 1,
                         .order = (enum kolo_pipeline)(KOLO_PIPELINE_PIPEDREAM +
                                                       i % (KOLO_PIPELINES - KOLO_PIPELINE_PIPEDREAM)),
                         .blocks = 1};
        rig r;
        if (rig_open(&r, &t) == 0 && r.program) {
            programs++;
            c.program = r.program;
            for (c.stage = 0; c.stage < t.stages; c.stage++) {
                const kolo_plan *p = c.plan = r.program->plan[c.stage];
                for (int64_t k = 0; k < p->actions; k++) {
                    const bool runs = p->action[k].kind == KOLO_ACTION_RUN;
                    kolo_plan_action_text(p, k, c.what, sizeof c.what);
                    with_dropped(&c, runs ? DROP_RUN : DROP_OTHER, k);
                    if (!runs && p->action[k].kind != KOLO_ACTION_LOAD) with_doubled(&c, DOUBLE_OTHER, k);
                    kolo_action changed = p->action[k];
                    changed.ahead++;
                    /* to wait sooner for what was sent is no mistake */
                    if (changed.kind == KOLO_ACTION_TRANSFERRED && p->transfer[changed.transfer].sends)
                        continue;
                    with_action(&c, OTHER_SLOT, k, changed);
                }
            }
        }
        rig_close(&r);
    }
    for (int k = 0; k < DAMAGES; k++) made += c.made[k], missed += c.missed[k];
    is_int(programs, PROGRAMS, "late pipelines that are damaged");
    ok(made > 100 * PROGRAMS && missed == 0,
       "late pipelines: an action left out, done twice, of another batch: %d of %d found", made - missed,
       made);
}

/* Images in parts: stages side by side do the same layers, and share parameters once a step. Some of the
 * actions, as these lists are long. */
static void test_damage_parts(void)
{
    enum { PROGRAMS = 12 };
    campaign c = {0};
    int programs = 0, made = 0, missed = 0;
    for (int i = 0; programs < PROGRAMS && i < 10 * PROGRAMS; i++) {
        drawn = (3ULL << 32) + 100000 * (uint64_t)i;
        trial t = {.slots = 1 + draw(3), .chunks = 1, .replicas = 1, .blocks = 1 + draw(2)};
        t.parts = 2 + draw(2);
        t.stages = t.parts * (1 + draw(2));
        t.order = (enum kolo_pipeline)(i % KOLO_PIPELINE_PIPEDREAM);
        rig r;
        if (t.stages <= MOST_STAGES && rig_open(&r, &t) == 0 && r.program) {
            programs += kolo_program_check(r.program) == 0;
            c.program = r.program;
            for (c.stage = 0; c.stage < t.stages; c.stage++) {
                const kolo_plan *p = c.plan = r.program->plan[c.stage];
                for (int64_t k = draw(13); k < p->actions; k += 1 + draw(13)) {
                    kolo_plan_action_text(p, k, c.what, sizeof c.what);
                    if (kolo_action_transfers(p->action[k].kind)) damage_action(&c, k);
                    else with_dropped(&c, p->action[k].kind == KOLO_ACTION_RUN ? DROP_RUN : DROP_OTHER, k);
                }
            }
            rig_close(&r);
        }
    }
    for (int k = 0; k < DAMAGES; k++) made += c.made[k], missed += c.missed[k];
    is_int(programs, PROGRAMS, "programs of images in parts pass");
    ok(made > 50 * PROGRAMS && missed == 0, "images in parts: %d of %d damages found", made - missed, made);
}

int main(void)
{
    if (!rig_begin()) return 1;
    test_damage();
    test_damage_parts();
    test_damage_late();
    return rig_end();
}
