/* Reductions: allreduce, alone or packed; reduce_scatter. On one node by the push, unless another algorithm
 * is forced or was measured to be faster; else by a schedule in the tree's order, 16 bits summed in f32 and
 * rounded once. Packed or not, the bits are the same: every element's sum has the same order. */
#include <string.h>

#include "comm/library/parts.h"

static bool rounds(enum kolo_reduce op) { return op != KOLO_MIN && op != KOLO_MAX; }
static enum kolo_reduce plain(enum kolo_reduce op) { return op == KOLO_AVERAGE ? KOLO_SUM : op; }

comm_folding lib_folding(const kolo_request *r, int64_t contributors)
{
    return (comm_folding){.type = r->type,
                          .op = plain(r->reduce),
                          .tree = true,
                          .divisor = r->reduce == KOLO_AVERAGE ? contributors : 1,
                          .prescale = r->prescale,
                          .postscale = r->postscale};
}

/* ---- packing ------------------------------------------------------------------------------------------- */

void lib_bring(const lib_execution *x, int i, int64_t from, int64_t count, char *out, enum kolo_dtype type,
               bool scaled)
{
    const kolo_request *r = lib_request(x, i);
    if (!x->batch.entry[i]) {
        comm_fill_neutral(out, count, type, r->reduce);
        return;
    }
    const char *in = (const char *)lib_input(r) + (size_t)from * kolo_dtype_size(r->type);
    if (type != r->type) comm_widen((float *)(void *)out, in, count, r->type);
    comm_scale(out, type != r->type ? out : in, count, type, 1, scaled ? r->prescale : 1);
}

void lib_deliver(const lib_execution *x, int i, char *out, char *in, int64_t count, enum kolo_dtype type,
                 bool scaled)
{
    const kolo_request *r = lib_request(x, i);
    comm_scale(type == r->type ? out : in, in, count, type,
               scaled && r->reduce == KOLO_AVERAGE ? x->batch.contributors : 1, scaled ? r->postscale : 1);
    if (type != r->type) comm_narrow(out, (const float *)(void *)in, count, r->type);
}

/* ---- allreduce ----------------------------------------------------------------------------------------- */

/* Of entry i, what goes to part m of so many: its first element, and how many. */
static int64_t piece(const lib_execution *x, int i, int parts, int m, int64_t *first)
{
    const kolo_request *r = lib_request(x, i);
    const int64_t rows = parts == 1 ? 1 : r->dim[0],
                  each = parts == 1 ? lib_elements(r, 0) : lib_row_elements(r);
    *first = lib_cut(rows, parts, m) * each;
    return lib_cut_rows(rows, parts, m) * each;
}

/* What stands in x->work is part m, whole but for the scaling that the schedule left, or is the push's (then
 * nothing is left). */
static int unpack(lib_execution *x, int parts, int m, bool scaled)
{
    char *at = x->work, *out;
    int64_t first;
    for (int i = 0; i < x->batch.entries; i++) {
        const int64_t count = piece(x, i, parts, m, &first);
        if (x->batch.entry[i]) {
            KOLO_TRY(lib_result(x, i, &out));
            lib_deliver(x, i, out, at, count, x->type, scaled);
        }
        at += (size_t)count * kolo_dtype_size(x->type);
    }
    return x->step = lib_finish, 1;
}
static int unpack_pushed(lib_execution *x) { return unpack(x, 1, 0, false); }
static int unpack_part(lib_execution *x) { return unpack(x, x->group->size, x->group->rank, true); }
int lib_unpack(lib_execution *x) { return unpack(x, 1, 0, true); }

/* Part after part, every part with its piece of every request; x->number: their elements. */
static int pack(lib_execution *x, int parts, enum kolo_dtype type, bool scaled)
{
    x->type = type;
    KOLO_TRY(lib_stage(x, (size_t)x->count * kolo_dtype_size(type)));
    char *at = x->work;
    int64_t first;
    for (int m = 0; m < parts; m++) {
        x->number[m] = 0;
        for (int i = 0; i < x->batch.entries; i++) {
            const int64_t count = piece(x, i, parts, m, &first);
            lib_bring(x, i, first, count, at, type, scaled);
            at += (size_t)count * kolo_dtype_size(type);
            x->number[m] += count;
        }
    }
    return 0;
}

int lib_pack(lib_execution *x, enum kolo_dtype type) { return pack(x, 1, type, true); }

static void count_all(lib_execution *x)
{
    x->count = 0;
    for (int i = 0; i < x->batch.entries; i++) x->count += lib_elements(lib_request(x, i), 0);
}

/* Neutral elements must not be scaled: where some have joined, every rank scales its own. */
static int by_push(lib_execution *x, bool alone)
{
    const kolo_request *r = lib_request(x, 0);
    comm_folding how = lib_folding(r, x->batch.contributors);
    bool joined = x->batch.contributors < x->group->size;
    uint64_t signature =
        x->stream == x->group->unnamed ? lib_signature(x->batch.entry[0]) : x->batch.number + 1;
    if (alone && !joined) {
        char *out;
        KOLO_TRY(lib_result_memory(x, 0, -1, &out));
        return lib_push(x, lib_input(r), out, x->count, &how, signature, lib_finish);
    }
    if (joined) how.prescale = 1;
    KOLO_TRY(pack(x, 1, r->type, joined));
    return lib_push(x, x->work, x->work, x->count, &how, signature, unpack_pushed);
}

/* Sums of 16 bits: partial ones are of f32. */
static comm_problem problem_of(const kolo_group *g, const kolo_request *r, int64_t count)
{
    comm_problem problem = lib_problem(g, KOLO_ALLREDUCE);
    problem.count = count;
    problem.width = kolo_dtype_size(r->type);
    problem.half = kolo_dtype_is_half(r->type) && rounds(r->reduce);
    return problem;
}

bool lib_takes_push(const kolo_group *group, const kolo_request *request, int64_t count)
{
    if (!group->one_node || group->size == 1) return false;
    if (!group->asks) return true; /* by the costs it always is the cheapest */
    comm_problem problem = problem_of(group, request, count);
    problem.shares = true;
    return comm_algorithm_pushes(comm_algorithm_select(&problem, group->world->selector));
}

/* Members that bring, and get, 16 bits. The run scales, but for neutral elements, which must not be. */
static int by_halves(lib_execution *x, bool alone, comm_problem *problem)
{
    const kolo_request *r = lib_request(x, 0);
    const void *in = NULL;
    x->type = r->type;
    x->half = lib_folding(r, x->batch.contributors);
    if (alone) KOLO_TRY(lib_result_memory(x, 0, -1, &x->work));
    else KOLO_TRY(pack(x, 1, r->type, false));
    in = alone ? lib_input(r) : x->work;
    problem->in_place = in == x->work;
    int rc = lib_run(x, problem, x->work, in, KOLO_F32, plain(r->reduce), alone ? lib_finish : unpack_pushed);
    if (rc == 1) x->run->half = &x->half;
    return rc;
}

static int by_schedule(lib_execution *x, bool alone)
{
    const kolo_request *r = lib_request(x, 0);
    comm_problem problem = problem_of(x->group, r, x->count);
    bool joined = x->batch.contributors < x->group->size;
    enum kolo_dtype type = problem.half ? KOLO_F32 : r->type;
    if (problem.half && !(joined && r->prescale != 1)) return by_halves(x, alone, &problem);
    problem.half = false;
    problem.width = kolo_dtype_size(type);
    if (alone && type == r->type && r->prescale == 1) {
        x->type = type;
        KOLO_TRY(lib_result_memory(x, 0, -1, &x->work));
        problem.in_place = lib_input(r) == x->work;
        return lib_run(x, &problem, x->work, lib_input(r), type, plain(r->reduce), lib_unpack);
    }
    KOLO_TRY(lib_pack(x, type));
    return lib_run_sum(x, x->work, x->count, type, plain(r->reduce), lib_unpack);
}

int lib_reduce_all(lib_execution *x)
{
    bool alone = x->batch.entries == 1 && x->batch.entry[0];
    count_all(x);
    if (!lib_pushes(lib_request(x, 0))) return lib_reduce_prepared(x);
    return lib_takes_push(x->group, lib_request(x, 0), x->count) ? by_push(x, alone) : by_schedule(x, alone);
}

/* ---- reduce_scatter ------------------------------------------------------------------------------------ */

/* The sum of part `me` stands at the beginning of the stage afterwards. */
int lib_reduce_scatter(lib_execution *x)
{
    const kolo_request *first = lib_request(x, 0);
    enum kolo_dtype type = kolo_dtype_is_half(first->type) && rounds(first->reduce) ? KOLO_F32 : first->type;
    comm_problem problem = lib_problem(x->group, KOLO_REDUCE_SCATTER);
    count_all(x);
    problem.in_place = true;
    problem.count = x->count;
    problem.counts = x->number;
    problem.width = kolo_dtype_size(type);
    KOLO_TRY(pack(x, x->group->size, type, true));
    return lib_run(x, &problem, x->work, x->work, type, plain(first->reduce), unpack_part);
}
