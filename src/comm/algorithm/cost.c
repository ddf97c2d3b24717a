/* What each algorithm costs, in seconds, by the messages of its slowest member: alpha + bytes x beta, and
 * gamma a byte summed (Thakur, Rabenseifner, Gropp, IJHPCA 2005). Members of a node that send to other nodes
 * at the same time share its link, so the placement of members counts. */
#include <math.h>

#include "comm/algorithm/build.h"
#include "comm/algorithm/stages.h"

#define EXTRA .5 /* of alpha: each further message that is under way at the same time */

typedef int pattern; /* XOR, SHIFT, or the radix of a subgroup */
enum { XOR, SHIFT };

static double most(double a, double b) { return a > b ? a : b; }

static int node_at(const comm_problem *p, int i) { return p->node_of ? p->node_of[i] : 0; }

static int nodes_of(const comm_problem *p) { return comm_nodes(p->node_of, p->members); }

static int64_t partner(int64_t i, pattern how, int64_t d, int n)
{
    if (how == XOR) return i ^ d;
    if (how == SHIFT) return (i + d) % n;
    int64_t radix = how, digit = i / d % radix; /* the next one in a subgroup of `radix` members d apart */
    return i + ((digit + 1) % radix - digit) * d;
}

/* Seconds a byte from one to another in a node: as measured, or as all. Numbers are those of the
 * builder, a root's is 0. */
static double beta_of(const comm_problem *p, const comm_cost *c, int from, int to)
{
    int n = p->members, root = comm_rooted(p->what) ? p->root : 0;
    if (!p->links) return c->beta[0];
    return 1 / most(p->links[(from + root) % n * n + (to + root) % n] * 1e9, 1e6);
}

/* Of the slowest pair of partners. */
static double slowest(const comm_problem *p, const comm_cost *c, pattern how, int64_t d)
{
    double beta = p->links ? 0 : c->beta[0];
    for (int i = 0; p->links && i < p->members; i++) {
        int64_t to = partner(i, how, d, p->members);
        if (to < p->members && to != i) beta = most(beta, beta_of(p, c, i, (int)to));
    }
    return beta;
}

/* Every member sends `bytes` to its partner. */
static double step(const comm_problem *p, const comm_cost *c, pattern how, int64_t d, double bytes)
{
    int crossing = 0, n = p->members, nodes = nodes_of(p);
    for (int i = 0; i < n && nodes > 1; i++) {
        int64_t to = partner(i, how, d, n);
        crossing += to < n && node_at(p, (int)to) != node_at(p, i);
    }
    if (!crossing) return c->alpha[0] + bytes * slowest(p, c, how, d);
    int share = (crossing + nodes - 1) / nodes;
    return c->alpha[1] + bytes * c->beta[1] * share;
}

/* A byte from a member to each other one of its node: seconds of the slowest member. */
static double to_each(const comm_problem *p, const comm_cost *c, double each)
{
    double seconds = p->links ? 0 : (each - 1) * c->beta[0];
    for (int i = 0; p->links && i < p->members; i++) {
        double sum = 0;
        for (int to = 0; to < p->members; to++) sum += to == i ? 0 : beta_of(p, c, i, to);
        seconds = most(seconds, sum);
    }
    return seconds;
}

/* Every member sends `bytes` to each other one at once. */
static double all_to_all(const comm_problem *p, const comm_cost *c, double bytes)
{
    int n = p->members, nodes = nodes_of(p);
    double each = (double)n / nodes, out = each * (n - each) * bytes;
    if (n == 1) return 0;
    return c->alpha[nodes > 1] * (1 + EXTRA * (n - 2)) +
           most(out * (nodes > 1 ? c->beta[1] : 0), bytes * to_each(p, c, each));
}

static double vector(const comm_problem *p) { return (double)p->count * (double)p->width; }

/* Partial sums of 16-bit elements are twice as long. */
static double widths(const comm_problem *p) { return p->half ? 2 : 1; }

static double total(const comm_problem *p) /* of counts, in bytes */
{
    int64_t sum = 0;
    for (int i = 0; i < p->members; i++) sum += p->counts[i];
    return (double)sum * (double)p->width;
}

static double largest(const comm_problem *p)
{
    int64_t most_of_all = 0;
    for (int i = 0; i < p->members; i++)
        if (p->counts[i] > most_of_all) most_of_all = p->counts[i];
    return (double)most_of_all * (double)p->width;
}

static int log2_up(int n)
{
    int levels = 0;
    while ((INT64_C(1) << levels) < n) levels++;
    return levels;
}

/* ---- allreduce ----------------------------------------------------------------------------------------- */

/* Each reads its part of all vectors and writes it once: no message is cheaper. */
COMM_COST(push)
{
    double part = vector(p) / p->members;
    return c->alpha[0] + part * c->beta[0] + (p->members - 1) * part * c->gamma;
}

/* Whole vectors within groups of k; a short last group serves several members each. */
static double by_groups_of(const comm_problem *p, const comm_cost *c, const comm_radices *radices)
{
    int radix[COMM_STAGES], steps = comm_radices_of(COMM_POWERS, p->members, radices, radix);
    double seconds = 0;
    int64_t d = 1;
    for (int s = 0; s < steps && d < p->members; d *= radix[s++]) {
        const int64_t k = radix[s];
        const double bytes = vector(p) * (s ? widths(p) : 1);
        int64_t groups = (p->members + d - 1) / d < k ? (p->members + d - 1) / d : k, rest = p->members % d;
        double serves = rest && d * k >= p->members ? (double)((d + rest - 1) / rest) : 1;
        double one = 0, all = 0;
        for (int64_t j = 1; j < groups; j++) {
            double t = step(p, c, XOR, j * d, bytes);
            one = most(one, t);
            all += j > 1 ? t - c->alpha[0] * (1 - EXTRA) : t;
        }
        seconds += most(one, all) + (serves - 1) * bytes * c->beta[p->node_of != NULL] +
                   (double)(groups - 1) * bytes * c->gamma;
    }
    return seconds;
}

COMM_COST(doubling) { return by_groups_of(p, c, &(comm_radices){{2}}); }

COMM_COST(multiplying) { return by_groups_of(p, c, &p->radix); }

COMM_COST(one_shot) { return all_to_all(p, c, vector(p)) + (p->members - 1) * vector(p) * c->gamma; }

/* Steps of halving; where a right half of m < d is short, its holders send all that they have to d / m
 * members, and get it back. */
static double halving_steps(const comm_problem *p, const comm_cost *c, double bytes, bool back)
{
    double seconds = 0, held = bytes, wide = 1;
    for (int64_t d = 1; d < p->members; d *= 2, wide = widths(p)) {
        int64_t right = p->members % (2 * d) - d, holders = 1;
        while (right > 0 && holders * 2 <= right) holders *= 2;
        if (2 * d <= p->members) {
            seconds += step(p, c, XOR, d, held / 2 * wide) + (back ? step(p, c, XOR, d, held / 2) : 0) +
                       held / 2 * c->gamma;
            held /= 2;
        }
        if (right > 0) {
            double part = bytes / (double)holders;
            seconds +=
                step(p, c, SHIFT, d, part * wide) + (back ? step(p, c, SHIFT, d, part) : 0) + held * c->gamma;
        }
    }
    return seconds;
}

COMM_COST(halving) { return halving_steps(p, c, vector(p), true); }

COMM_COST(halving_far)
{
    double seconds = 0, held = vector(p);
    int64_t d = 1, rest = p->members;
    while (d * 2 <= p->members) d *= 2;
    for (int64_t half = d / 2; half >= 1; half /= 2, held /= 2)
        seconds += step(p, c, XOR, half, held / 2 * widths(p)) + step(p, c, XOR, half, held / 2) +
                   held / 2 * c->gamma;
    for (rest -= d; rest > 0; rest -= d) { /* a smaller block hands over */
        while (d > rest) d /= 2;
        seconds += 2 * step(p, c, SHIFT, d, vector(p) / (double)d) + held * c->gamma;
    }
    return seconds;
}

COMM_COST(direct_allreduce)
{
    double part = vector(p) / p->members;
    return 2 * all_to_all(p, c, part) + (p->members - 1) * part * c->gamma;
}

/* Circles of `radix` members `stride` apart, of which each gets and sums its part, and gives it
 * back: there and back. */
static double subgroups(const comm_problem *p, const comm_cost *c, int radix, int stride, double part)
{
    if (radix < 2) return 0;
    double bytes = part * (radix - 1), up = bytes * (stride > 1 ? widths(p) : 1);
    return step(p, c, radix, stride, up) + step(p, c, radix, stride, bytes) + bytes * c->gamma +
           2 * EXTRA * (radix - 2) * step(p, c, radix, stride, 0);
}

/* Stage after stage, each in subgroups of what the ones before left; *stride, *held: behind them. */
static double in_stages(const comm_problem *p, const comm_cost *c, const int *radix, int stages, int *stride,
                        double *held)
{
    double seconds = 0;
    for (int i = 0; i < stages; *stride *= radix[i++]) {
        *held /= radix[i];
        seconds += subgroups(p, c, radix[i], *stride, *held);
    }
    return seconds;
}

/* Allreduces of `bytes` among `size` members `stride` apart each, as by_groups does them (stages.c). */
static double rails(const comm_problem *p, const comm_cost *c, int size, int stride, double bytes)
{
    double seconds = 0, held = bytes;
    bool small = bytes <= COMM_RAIL_SMALL;
    for (int64_t d = 1; d < size; d *= 2) {
        if (!small) held /= 2;
        double up = held * (d * stride > 1 ? widths(p) : 1);
        seconds += step(p, c, SHIFT, d * stride, up) + (small ? 0 : step(p, c, SHIFT, d * stride, held)) +
                   held * c->gamma;
    }
    return seconds;
}

COMM_COST(two_level)
{
    int radix[COMM_STAGES], steps = comm_radices_of(COMM_LEVELS, p->members, &p->radix, radix),
                            nodes = nodes_of(p), stride = 1;
    double held = vector(p);
    if (!steps) {
        radix[0] = (p->members + nodes - 1) / nodes;
        radix[1] = nodes;
        steps = 2;
    }
    const double seconds = in_stages(p, c, radix, steps - 1, &stride, &held);
    return seconds + rails(p, c, radix[steps - 1], stride, held);
}

COMM_COST(butterfly)
{
    int radix[COMM_STAGES], stages = comm_radices_of(COMM_FACTORS, p->members, &p->radix, radix), stride = 1;
    double held = vector(p);
    return in_stages(p, c, radix, stages, &stride, &held);
}

COMM_COST(elimination)
{
    comm_problem pairs = *p;
    pairs.members = 1;
    while (pairs.members * 2 <= p->members) pairs.members *= 2;
    double extra = p->members > pairs.members ? 2 * step(p, c, SHIFT, 2, vector(p) / 2) : 0;
    return halving_steps(&pairs, c, vector(p), true) + extra;
}

static double along_ring(const comm_problem *p, const comm_cost *c, double part)
{
    return (p->members - 1) * step(p, c, SHIFT, 1, part);
}

COMM_COST(ring_allreduce)
{
    double part = vector(p) / p->members;
    return (1 + widths(p)) * along_ring(p, c, part) + (p->members - 1) * part * c->gamma;
}

COMM_COST(segmented_ring)
{
    double part = vector(p) / p->members, move = along_ring(p, c, part * (1 + widths(p)) / 2),
           sum = (p->members - 1) * part * c->gamma;
    double segments = part / (4. * 65536);
    return move + most(move, sum) + (p->members - 1) * segments * c->alpha[0];
}

COMM_COST(double_tree)
{
    const double segment = 131072;
    double bytes = vector(p), first = bytes < segment ? bytes : segment;
    return 2 * log2_up(p->members) * step(p, c, SHIFT, 1, first) +
           (1 + widths(p)) * (step(p, c, SHIFT, 1, bytes) - c->alpha[0]) + bytes / segment * 2 * c->alpha[0] +
           bytes * c->gamma;
}

#define ALIKE 1.5 /* links that differ by less are alike: as good as measurements are */

static bool links_alike(const comm_problem *p)
{
    double least = INFINITY, largest = 0;
    for (int i = 0; i < p->members * p->members; i++) {
        if (i % (p->members + 1) == 0) continue;
        largest = most(largest, p->links[i]);
        least = p->links[i] < least ? p->links[i] : least;
    }
    return largest < ALIKE * least;
}

/* Over links alike any tree does. A rank sends over one link after the other; the first segment goes
 * through the deepest tree. */
COMM_COST(packed)
{
    const double segment = 131072;
    bool both = p->what == KOLO_ALLREDUCE;
    double bytes = vector(p), first = bytes < segment ? bytes : segment;
    int deepest, n = p->members;
    if (links_alike(p)) return INFINITY;
    double seconds = comm_pack_seconds(p->links, n, both ? 0 : p->root, both,
                                       both ? bytes * (1 + widths(p)) / 2 : bytes, &deepest);
    if (seconds < 0) return INFINITY;
    double rate = bytes > 0 ? seconds / bytes : 0, rounds = deepest + bytes / segment / 2;
    return seconds + (both ? 2 : 1) * (rounds * 2 * c->alpha[0] + deepest * first * rate / 2) +
           (both ? bytes * c->gamma : 0);
}

/* ---- halves of it, and moves --------------------------------------------------------------------------- */

COMM_COST(direct_half) { return all_to_all(p, c, largest(p)) + (p->members - 1) * largest(p) * c->gamma; }

COMM_COST(halving_half)
{
    return halving_steps(p, c, total(p), false) +
           (p->members > 1 ? step(p, c, SHIFT, p->members / 2, largest(p)) : 0);
}

COMM_COST(ring_half) { return along_ring(p, c, largest(p)) + (p->members - 1) * largest(p) * c->gamma; }

COMM_COST(ring_gather) { return along_ring(p, c, largest(p)); }

/* Members in turns: a step of whole turns stays within the nodes. Then parts are put where they belong. */
COMM_COST(bruck_gather)
{
    int n = p->members, nodes = nodes_of(p), share = (n + nodes - 1) / nodes;
    double seconds = nodes > 1 ? total(p) * c->gamma : 0, part = total(p) / n;
    for (int64_t d = 1; d < n; d *= 2) {
        double bytes = part * (double)(d < n - d ? d : n - d);
        seconds += d % nodes ? c->alpha[1] + bytes * c->beta[1] * share : c->alpha[0] + bytes * c->beta[0];
    }
    return seconds;
}

COMM_COST(direct_gather) { return all_to_all(p, c, largest(p)); }

static double tree_steps(const comm_problem *p, const comm_cost *c, const comm_radices *radices)
{
    int radix[COMM_STAGES], steps = comm_radices_of(COMM_DIGITS, p->members, radices, radix), k;
    double seconds = 0;
    int64_t d = 1;
    for (int i = 0; i < steps && d < p->members; d *= radix[i++]) {
        k = radix[i];
        seconds += step(p, c, SHIFT, d, 0) +
                   (k - 1) * (step(p, c, SHIFT, d, vector(p)) - step(p, c, SHIFT, d, 0)) +
                   (k - 2) * EXTRA * c->alpha[0];
    }
    return seconds;
}

COMM_COST(binomial) { return tree_steps(p, c, &(comm_radices){{2}}); }
COMM_COST(knomial) { return tree_steps(p, c, &p->radix); }

COMM_COST(scatter_allgather)
{
    double seconds = along_ring(p, c, vector(p) / p->members), bytes = vector(p) / 2;
    for (int64_t d = 1; d < p->members; d *= 2, bytes /= 2)
        seconds += step(p, c, SHIFT, p->members / (d * 2) + 1, bytes);
    return seconds;
}

/* The steps of an allreduce by halving, but for the sums; where a half is short it only
 * gets, which costs less. */
COMM_COST(scatter_doubling)
{
    comm_cost moved = *c;
    moved.gamma = 0;
    return halving_steps(p, &moved, vector(p), true);
}

/* Two binary trees, half of the vector each: a segment goes to two children one after the other at every
 * level. A member hands on each byte once; a node, whose members are inner ones of either tree, twice. */
COMM_COST(pipelined)
{
    const double segment = 131072;
    double bytes = vector(p), first = bytes < segment ? bytes : segment, out = nodes_of(p) > 1 ? 2 : 1;
    return 2 * (log2_up(p->members) + 1) * step(p, c, SHIFT, 1, first) + step(p, c, SHIFT, 1, out * bytes) +
           bytes / segment * c->alpha[0];
}

COMM_COST(binomial_gather)
{
    int levels = log2_up(p->members);
    bool far = nodes_of(p) > 1;
    /* what inner members forward is moved again */
    return levels * c->alpha[far] + 2 * total(p) * c->beta[far];
}

COMM_COST(direct_rooted)
{
    bool far = nodes_of(p) > 1;
    return c->alpha[far] * (1 + EXTRA * (p->members - 1)) + total(p) * c->beta[far];
}

/* Of uneven exchanges each member knows its own part only, so only the number of messages counts. */
COMM_COST(direct_alltoall) { return all_to_all(p, c, vector(p)); }

COMM_COST(pairwise) { return (p->members - 1) * step(p, c, SHIFT, p->members / 2, vector(p)); }

COMM_COST(bruck_alltoall)
{
    double seconds = 0, half = vector(p) * p->members / 2;
    for (int64_t d = 1; d < p->members; d *= 2) seconds += step(p, c, SHIFT, d, half) + 2 * half * c->gamma;
    return seconds;
}

COMM_COST(dissemination)
{
    double seconds = 0;
    for (int64_t d = 1; d < p->members; d *= 2) seconds += step(p, c, SHIFT, d, 1);
    return seconds;
}
