#include "train/tournament.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/philox.h"
#include "data/shard/dataset.h"
#include "kolo/error.h"
#include "train/parts.h"
#include "train/train.h"

/* Every pair of ranks has numbers of its own in comm. */
enum { MOST_RANKS = 128, MOST_VALUES = 1024 };

/* ---- options ---- */

/* The numbers of a list, at most MOST_VALUES, to value (or NULL); how many there are. */
static int read_values(const char *key, const char *text, double most, double *value)
{
    int n = 0;
    for (const char *p = text; *p && n < MOST_VALUES; n++) {
        char *end;
        const double v = strtod(p, &end);
        if (end == p || (*end && *end != ',') || (*end && !end[1]) || !(v >= 0) || v > most)
            return kolo_fail(KOLO_ECONFIG, "%s=%s: give numbers from 0 to %g, such as 0.05,0.1", key, text,
                             most);
        if (value) value[n] = v;
        p = *end ? end + 1 : end;
    }
    return n;
}

static int check_alone(const kolo_options *o)
{
    const char *idle = o->tournament_group > 1   ? "tournament_group"
                       : *o->tournament_data     ? "tournament_data"
                       : *o->tournament_lr       ? "tournament_lr"
                       : *o->tournament_momentum ? "tournament_momentum"
                       : *o->tournament_decay    ? "tournament_decay"
                       : o->tournament_vary > 1  ? "tournament_vary"
                                                 : NULL;
    if (!idle || o->tournament) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "%s= is of tournaments, and there are none: give tournament=STEPS, or leave %s= out",
                     idle, idle);
}

static int check_groups(const kolo_session *s)
{
    const int64_t group = s->options->tournament_group;
    if (group == 1) return 0;
    if (s->replicas % group)
        return kolo_fail(KOLO_ECONFIG,
                         "tournament_group=%ld does not divide %d ranks: give a number that does",
                         (long)group, s->replicas);
    if (group < s->replicas) return 0;
    return kolo_fail(
        KOLO_ECONFIG,
        "tournament_group=%ld of %d ranks: one group has nobody to meet; give a smaller one, or start "
        "more ranks",
        (long)group, s->replicas);
}

int session_check_tournament(const kolo_session *s)
{
    const kolo_options *o = s->options;
    if (!(s->parts & KOLO_SESSION_TRAIN)) return 0;
    KOLO_TRY(check_alone(o));
    if (!o->tournament) return 0;
    if (s->replicas > MOST_RANKS)
        return kolo_fail(KOLO_ECONFIG, "tournament=%ld: at most %d ranks can meet, these are %d",
                         (long)o->tournament, MOST_RANKS, s->replicas);
    KOLO_TRY(check_groups(s));
    if (s->detector)
        return kolo_fail(KOLO_ECONFIG,
                         "tournament=%ld compares the validation losses of classifiers, and model=%s has "
                         "none: leave one of them out",
                         (long)o->tournament, o->model);
    if (!(s->parts & KOLO_SESSION_NO_DATA) && !*o->tournament_data && (!*o->val || !strcmp(o->val, "none")))
        return kolo_fail(KOLO_ECONFIG,
                         "tournament=%ld: by which images are networks compared? give tournament_data=DIR "
                         "(held back from training, as by kolo-shards subset), or val=DIR",
                         (long)o->tournament);
    KOLO_TRY(read_values("tournament_lr", o->tournament_lr, 1e6, NULL));
    KOLO_TRY(read_values("tournament_momentum", o->tournament_momentum, 1, NULL));
    KOLO_TRY(read_values("tournament_decay", o->tournament_decay, 1e3, NULL));
    if (*o->tournament_lr && !(o->lr > 0))
        return kolo_fail(KOLO_ECONFIG, "tournament_lr=%s with lr=0: the schedule is of lr; give lr=0.1",
                         o->tournament_lr);
    return 0;
}

/* ---- its parts ---- */

static void set_own(kolo_own_values *own, int members, const kolo_options *o, const double *lr, int lrs,
                    const double *momentum, int momenta, const double *decay, int decays)
{
    for (int r = 0; r < members; r++)
        own[r] = (kolo_own_values){.lr = lrs ? lr[r % lrs] : o->lr,
                                   .momentum = momenta ? momentum[r % momenta] : o->momentum,
                                   .decay = decays ? decay[r % decays] : o->weight_decay};
}

static int begin_values(kolo_tournament *t, const kolo_options *o)
{
    double *value = kolo_alloc(3 * MOST_VALUES * sizeof *value);
    double *lr = value, *momentum = lr + MOST_VALUES, *decay = momentum + MOST_VALUES;
    if (!value) return KOLO_ENOMEM;
    const int lrs = read_values("tournament_lr", o->tournament_lr, 1e6, lr),
              momenta = read_values("tournament_momentum", o->tournament_momentum, 1, momentum),
              decays = read_values("tournament_decay", o->tournament_decay, 1e3, decay);
    set_own(t->own, t->members, o, lr, lrs, momentum, momenta, decay, decays);
    free(value);
    return 0;
}

/* Ranks are counted node by node, so that the parts of a node's ranks are the node's share, and members lie
 * on few nodes. */
static void divide_ranks(kolo_tournament *t, const kolo_launch *l)
{
    int *left = t->order; /* places that a member has left */
    const bool here = l->size == t->ranks;
    for (int r = 0; r < t->ranks; r++) t->share[r] = here ? kolo_launch_by_node(l, r) : r;
    for (int m = 0; m < t->members; m++) left[m] = t->group;
    for (int r = 0; r < t->ranks; r++) {
        const int m = t->share[r] / t->group, place = t->group - left[m]--;
        t->rank[m * t->group + place] = r;
        if (here && r == l->rank) t->member = m, t->place = place;
    }
}

/* The classes are those of training. */
static int check_set(const kolo_session *s, const kolo_dataset *set)
{
    const kolo_dataset_info *is = kolo_dataset_get_info(set),
                            *trained = s->train_set ? kolo_dataset_get_info(s->train_set) : is;
    if (is->classes == trained->classes && is->channels <= trained->channels && is->count) return 0;
    return kolo_fail(KOLO_EINPUT,
                     "tournament_data=%s has %ld images of %d classes and %d channels, training data %s has "
                     "%d and %d: take a part of one data set, as by kolo-shards subset",
                     s->options->tournament_data, (long)is->count, is->classes, is->channels,
                     s->options->data, trained->classes, trained->channels);
}

int session_open_tournament(kolo_session *s)
{
    const kolo_options *o = s->options;
    if (!o->tournament || !(s->parts & KOLO_SESSION_TRAIN)) return 0;
    kolo_tournament *t = s->tournament = kolo_alloc(sizeof *t);
    if (!t) return KOLO_ENOMEM;
    t->ranks = s->replicas;
    t->group = (int)o->tournament_group;
    t->members = t->ranks / t->group;
    t->rank = kolo_alloc((size_t)t->ranks * sizeof *t->rank);
    t->own = kolo_alloc((size_t)t->members * sizeof *t->own);
    t->order = kolo_alloc((size_t)t->members * sizeof *t->order);
    t->loss = kolo_alloc((size_t)t->members * sizeof *t->loss);
    t->sum = kolo_alloc(2 * (size_t)t->ranks * sizeof *t->sum);
    t->share = kolo_alloc((size_t)t->ranks * sizeof *t->share);
    if (!t->rank || !t->own || !t->order || !t->loss || !t->sum || !t->share) return KOLO_ENOMEM;
    divide_ranks(t, s->launch);
    KOLO_TRY(begin_values(t, o));
    if (!*o->tournament_data || (s->parts & KOLO_SESSION_NO_DATA)) return 0;
    KOLO_TRY(kolo_dataset_open(&t->set, o->tournament_data));
    return check_set(s, t->set);
}

int session_make_tournament_loader(kolo_session *s)
{
    kolo_tournament *t = s->tournament;
    if (!t) return 0;
    kolo_loader_config config = kolo_session_loader(s, false);
    if (t->set) config.dataset = t->set;
    config.batch = s->eval_rows * t->group;
    config.rank = t->place;
    config.ranks = t->group;
    return kolo_loader_create(&t->loader, &config);
}

void session_close_tournament(kolo_session *s)
{
    kolo_tournament *t = s->tournament;
    if (!t) return;
    kolo_loader_destroy(&t->loader);
    kolo_dataset_close(&t->set);
    free(t->rank);
    free(t->own);
    free(t->order);
    free(t->loss);
    free(t->sum);
    free(t->share);
    free(t);
    s->tournament = NULL;
}

/* ---- what is drawn ---- */

/* Who meets whom in meeting number `meeting` (1, 2, ...): order[2i] and order[2i + 1] are a pair, the last of
 * an odd number sits out. */
static void draw_pairs(uint64_t seed, int64_t meeting, int members, int *order)
{
    kolo_random random = kolo_random_at(kolo_random_key(seed, KOLO_RANDOM_TOURNAMENT), (uint64_t)meeting, 0);
    for (int r = 0; r < members; r++) order[r] = r;
    for (int i = members - 1; i > 0; i--) {
        const int k = (int)kolo_random_below(&random, (uint32_t)i + 1), member = order[i];
        order[i] = order[k];
        order[k] = member;
    }
}

/* What the learning rate of `member`, which lost in this meeting, is times the winner's. */
static double rate_factor(uint64_t seed, int64_t meeting, int member, double vary)
{
    kolo_random random = kolo_random_at(kolo_random_key(seed, KOLO_RANDOM_TOURNAMENT), (uint64_t)meeting,
                                        (uint64_t)member + 1);
    return kolo_random_below(&random, 2) ? vary : 1 / vary;
}

/* ---- a meeting ---- */

/* Every member's loss on all tournament images, by its own network. */
static int compare(kolo_session *s)
{
    kolo_tournament *t = s->tournament;
    double *own = t->sum + 2 * (size_t)s->grid.replica;
    memset(t->sum, 0, 2 * (size_t)t->ranks * sizeof *t->sum);
    KOLO_TRY(kolo_evaluate_alone(s, t->loader, &own[0], &own[1]));
    KOLO_TRY(kolo_comm_allreduce(s->comm, t->sum, 2 * (int64_t)t->ranks, KOLO_F64, KOLO_SUM));
    for (int m = 0; m < t->members; m++) {
        double loss = 0, images = 0;
        for (int i = 0; i < t->group; i++) {
            const double *sum = t->sum + 2 * (size_t)kolo_tournament_rank(t, m, i);
            loss += sum[0], images += sum[1];
        }
        t->loss[m] = loss / images;
    }
    t->best = 0;
    for (int m = 1; m < t->members; m++)
        if (t->loss[m] < t->loss[t->best]) t->best = m;
    return 0;
}

int kolo_tournament_winner(const kolo_tournament *t, int i)
{
    const int a = t->order[i], b = t->order[i + 1], first = a < b ? a : b, second = a < b ? b : a;
    return t->loss[second] < t->loss[first] ? second : first;
}

static int settle_pair(kolo_session *s, int64_t meeting, int i)
{
    kolo_tournament *t = s->tournament;
    const kolo_options *o = s->options;
    const int own = t->member, winner = kolo_tournament_winner(t, i),
              loser = t->order[i] + t->order[i + 1] - winner;
    t->own[loser] = t->own[winner];
    if (o->tournament_vary > 1)
        t->own[loser].lr *= rate_factor((uint64_t)o->seed, meeting, loser, o->tournament_vary);
    if (own != winner && own != loser) return 0;
    return kolo_exec_transfer_state(s->exec, kolo_tournament_rank(t, winner, t->place),
                                    kolo_tournament_rank(t, loser, t->place));
}

int kolo_tournament_meet(kolo_session *s, int64_t step)
{
    kolo_tournament *t = s->tournament;
    const int64_t meeting = step / s->options->tournament;
    KOLO_TRY(compare(s));
    if (step == s->steps) return 0;
    draw_pairs((uint64_t)s->options->seed, meeting, t->members, t->order);
    for (int i = 0; i + 1 < t->members; i += 2) KOLO_TRY(settle_pair(s, meeting, i));
    return 0;
}

void kolo_tournament_apply(const kolo_session *s, kolo_step *step)
{
    const kolo_options *o = s->options;
    if (!s->tournament) return;
    const kolo_own_values *own = &s->tournament->own[s->tournament->member];
    if (own->lr != o->lr) step->lr = (float)((double)step->lr * (own->lr / o->lr));
    if (own->momentum != o->momentum) step->momentum = (float)own->momentum;
    step->weight_decay = (float)own->decay;
}

/* ---- in a checkpoint ---- */

typedef struct kept {
    kolo_own_values own;
    double best;
} kept;

size_t kolo_tournament_bytes(const kolo_session *s) { return s->tournament ? sizeof(kept) : 0; }

void kolo_tournament_save(const kolo_session *s, void *to)
{
    const kolo_tournament *t = s->tournament;
    if (!t) return;
    const kept k = {t->own[t->member], t->best};
    memcpy(to, &k, sizeof k);
}

void kolo_tournament_load(kolo_session *s, const void *from)
{
    kolo_tournament *t = s->tournament;
    kept k;
    if (!t) return;
    memcpy(&k, from, sizeof k);
    t->best = (int)k.best;
    t->own[t->member] = k.own;
}

int kolo_tournament_exchange(kolo_session *s)
{
    kolo_tournament *t = s->tournament;
    enum { NUMBERS = sizeof *t->own / sizeof(double) };
    if (!t) return 0;
    for (int m = 0; m < t->members; m++)
        if (m != t->member || t->place) t->own[m] = (kolo_own_values){0};
    return kolo_comm_allreduce(s->comm, t->own, (int64_t)t->members * NUMBERS, KOLO_F64, KOLO_SUM);
}
