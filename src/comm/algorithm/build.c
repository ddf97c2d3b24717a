#include "comm/algorithm/build.h"

#include "base/memory.h"
#include "comm/algorithm/stages.h"
#include "kolo/error.h"

void *comm_build_memory(comm_build *b, size_t bytes)
{
    comm_memory *made = kolo_alloc(sizeof *made + bytes);
    if (!made) return b->s->status = KOLO_ENOMEM, NULL;
    made->before = b->s->memory;
    b->s->memory = made;
    return made->data;
}

static void number(comm_build *b, const comm_problem *p, void (*how)(const comm_problem *p, int *order))
{
    int n = b->n, in_order = 0, *order = comm_build_memory(b, (size_t)(3 * n + 1) * sizeof *order);
    if (!order) return;
    how(p, order);
    while (in_order < n && order[in_order] == in_order) in_order++;
    b->member = in_order < n ? order : NULL;
    for (b->me = 0; order[b->me] != p->me; b->me++) continue;
}

void comm_build_deal(comm_build *b, const comm_problem *p)
{
    if (p->node_of) number(b, p, comm_deal_members);
}

comm_build comm_build_begin(comm_schedule *schedule, const comm_problem *problem)
{
    comm_build b = {.s = schedule,
                    .me = problem->me,
                    .n = problem->members,
                    .sum = comm_own(0),
                    .brought = !problem->in_place};
    if (problem->half) {
        b.half = b.brought = true;
        b.sum = comm_scratch(0);
        b.spare = problem->count;
    }
    comm_schedule_forget(schedule);
    schedule->half = b.half;
    schedule->actions = schedule->posts = schedule->scratch = 0;
    schedule->status = 0;
    int i = 1, n = problem->members;
    while (i < n && (!problem->node_of || problem->node_of[i] >= problem->node_of[i - 1])) i++;
    if (i < n || (comm_rooted(problem->what) && problem->root)) number(&b, problem, comm_number_members);
    return b;
}

comm_build comm_build_in_place(comm_schedule *schedule, int me, int members)
{
    const comm_problem problem = {.me = me, .members = members, .in_place = true};
    return comm_build_begin(schedule, &problem);
}

int comm_build_end(comm_build *b, comm_range r)
{
    if (b->brought) comm_build_copy(b, comm_build_sum(b, r.from), comm_input(r.from), comm_length(r));
    if (!b->settled) comm_build_settle(b, r);
    return b->s->status;
}

static void build_add(comm_build *b, comm_action action)
{
    comm_schedule *s = b->s;
    if (s->status < 0) return;
    if (kolo_grow(&s->action, &s->capacity, s->actions, sizeof action) < 0) {
        s->status = KOLO_ENOMEM;
        return;
    }
    s->action[s->actions++] = action;
}

static void need(comm_build *b, comm_place at, int64_t count)
{
    int64_t end = at.buffer == COMM_SCRATCH ? at.at + count
                  : at.buffer == COMM_RAW   ? (at.at + count + 1) / 2
                                            : 0;
    if (end > b->s->scratch) b->s->scratch = end;
}

static void build_post(comm_build *b, int kind, int peer, comm_place at, int64_t count)
{
    if (count > 0) need(b, at, count);
    for (int64_t done = 0; done < count; done += COMM_MESSAGE_MAX) {
        comm_action a = {.kind = kind, .peer = b->member ? b->member[peer] : peer};
        *(kind == COMM_SEND ? &a.left : &a.out) = comm_shift(at, done);
        a.count = count - done < COMM_MESSAGE_MAX ? count - done : COMM_MESSAGE_MAX;
        build_add(b, a);
        b->s->posts++;
    }
}

void comm_build_send(comm_build *b, int to, comm_place at, int64_t count)
{
    build_post(b, COMM_SEND, to, at, count);
}

void comm_build_receive(comm_build *b, int from, comm_place at, int64_t count)
{
    build_post(b, COMM_RECEIVE, from, at, count);
}

void comm_build_wait(comm_build *b, int64_t serial)
{
    const comm_schedule *s = b->s;
    const comm_action *last = s->actions ? &s->action[s->actions - 1] : NULL;
    if (serial < 0 || (last && last->kind == COMM_WAIT && last->count >= serial)) return;
    build_add(b, (comm_action){.kind = COMM_WAIT, .count = serial});
}

void comm_build_wait_all(comm_build *b) { comm_build_wait(b, b->s->posts - 1); }

void comm_build_combine(comm_build *b, comm_place out, comm_place left, comm_place right, int64_t count)
{
    if (count <= 0) return;
    need(b, out, count);
    build_add(b,
              (comm_action){.kind = COMM_COMBINE, .out = out, .left = left, .right = right, .count = count});
}

void comm_build_copy(comm_build *b, comm_place out, comm_place from, int64_t count)
{
    const comm_schedule *s = b->s;
    comm_action *last = s->actions ? &s->action[s->actions - 1] : NULL;
    if (count <= 0) return;
    need(b, out, count);
    if (last && last->kind == COMM_COPY && last->out.buffer == out.buffer &&
        last->left.buffer == from.buffer && last->out.at + last->count == out.at &&
        last->left.at + last->count == from.at)
        last->count += count;
    else build_add(b, (comm_action){.kind = COMM_COPY, .out = out, .left = from, .count = count});
}

void comm_build_call(comm_build *b, int what, int64_t argument)
{
    build_add(b, (comm_action){.kind = COMM_CALL, .peer = what, .count = argument});
}

comm_place comm_build_sum(const comm_build *b, int64_t at) { return comm_shift(b->sum, at); }

comm_place comm_build_mine(const comm_build *b, int64_t at)
{
    return b->brought ? comm_input(at) : comm_build_sum(b, at);
}

comm_place comm_build_result(const comm_build *b, int64_t at)
{
    return b->half ? comm_own(at) : comm_build_sum(b, at);
}

void comm_build_settle(comm_build *b, comm_range r)
{
    if (b->half) comm_build_copy(b, comm_own(r.from), comm_build_sum(b, r.from), comm_length(r));
    b->settled = true;
}

void comm_build_widen(comm_build *b, comm_range r)
{
    if (!comm_build_raw(b)) return;
    comm_build_copy(b, comm_build_sum(b, r.from), comm_input(r.from), comm_length(r));
    b->brought = false;
}

comm_place comm_build_slot(int64_t at, int64_t count, bool raw)
{
    return raw ? (comm_place){COMM_RAW, 2 * at + count} : comm_scratch(at);
}

void comm_build_add(comm_build *b, comm_range r, bool mine_left, comm_place other)
{
    comm_place mine = comm_build_mine(b, r.from);
    comm_build_combine(b, comm_build_sum(b, r.from), mine_left ? mine : other, mine_left ? other : mine,
                       comm_length(r));
    b->brought = false;
}

void comm_build_fold(comm_build *b, comm_place *place, int n, int mine, comm_place out, int64_t count)
{
    if (n == 1) return;
    int half = comm_power_until(n - 1);
    comm_build_fold(b, place, half, mine, out, count);
    comm_build_fold(b, place + half, n - half, mine - half, out, count);
    comm_place to = mine >= 0 && mine < n ? out : place[0];
    if (to.buffer == COMM_RAW) to = comm_scratch((to.at - count) / 2);
    comm_build_combine(b, to, place[0], place[half], count);
    place[0] = to;
}

static int in_circle(const comm_subgroup *c, int i) { return c->first + i * c->stride; }

/* What member i of the subgroup owns, maybe nothing. */
static comm_range owned(const comm_subgroup *c, comm_range r, int i)
{
    if (i >= c->owners) return (comm_range){r.from, r.from};
    return c->parts ? comm_part_range(c->parts, i) : comm_cut(r, c->owners, i);
}

comm_range comm_subgroup_reduce(comm_build *b, const comm_subgroup *c, comm_range r)
{
    comm_range mine = owned(c, r, c->me);
    comm_place *place = comm_build_memory(b, (size_t)c->size * sizeof *place);
    if (!place) return mine;
    int64_t slot = b->spare;
    bool raw = comm_build_raw(b);
    for (int i = 0; i < c->size; i++) {
        place[i] = i == c->me ? comm_build_mine(b, mine.from) : comm_build_slot(slot, comm_length(mine), raw);
        if (i == c->me) continue;
        comm_build_receive(b, in_circle(c, i), place[i], comm_length(mine));
        slot += comm_length(mine);
    }
    for (int k = 1; k < c->size; k++) { /* each begins with its neighbour */
        int to = (c->me + k) % c->size;
        comm_range theirs = owned(c, r, to);
        comm_build_send(b, in_circle(c, to), comm_build_mine(b, theirs.from), comm_length(theirs));
    }
    comm_build_wait_all(b);
    if (c->size > 1) {
        comm_build_fold(b, place, c->size, c->me, comm_build_sum(b, mine.from), comm_length(mine));
        b->brought = false;
    }
    return mine;
}

void comm_subgroup_spread(comm_build *b, const comm_subgroup *c, comm_range r)
{
    comm_range mine = owned(c, r, c->me);
    for (int k = 1; k < c->size; k++) {
        int to = (c->me + k) % c->size, of = (c->me + c->size - k) % c->size;
        comm_range theirs = owned(c, r, of);
        comm_build_receive(b, in_circle(c, of), comm_build_result(b, theirs.from), comm_length(theirs));
        comm_build_send(b, in_circle(c, to), comm_build_result(b, mine.from), comm_length(mine));
    }
    comm_build_wait_all(b);
}

int64_t *comm_offsets(comm_build *b, const int64_t *counts, int n)
{
    int64_t *offset = comm_build_memory(b, (size_t)(n + 1) * sizeof *offset);
    for (int i = 0; offset && i < n; i++) offset[i + 1] = offset[i] + counts[i];
    return offset;
}

comm_parts comm_parts_of(comm_build *b, const int64_t *counts)
{
    int64_t *offset = comm_offsets(b, counts, b->n),
            *memory = comm_build_memory(b, (size_t)(2 * b->n) * sizeof *memory);
    if (!offset || !memory) return (comm_parts){NULL, NULL};
    comm_parts parts = {memory, memory + b->n};
    for (int i = 0; i < b->n; i++) {
        parts.at[i] = offset[comm_member(b, i)];
        parts.count[i] = counts[comm_member(b, i)];
    }
    return parts;
}

comm_parts comm_parts_even(comm_build *b, int64_t count)
{
    int64_t *memory = comm_build_memory(b, (size_t)(2 * b->n + 1) * sizeof *memory);
    comm_parts parts = {memory, memory ? memory + b->n + 1 : NULL};
    for (int i = 0; memory && i < b->n; i++) {
        parts.at[i + 1] = comm_part(count, b->n, i + 1);
        parts.count[i] = parts.at[i + 1] - parts.at[i];
    }
    return parts;
}
