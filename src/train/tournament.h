/* Tournaments (LBANN's LTFB, Jacobs et al. 2017, "Towards scalable parallel training of deep neural
 * networks"): every member, a rank or a group of ranks that step together, trains a network of its own, by
 * hyper-parameters of its own; every so many steps members meet in pairs, and the better network of two goes
 * on on both. With tournament_vary= the loser goes on with another learning rate than the winner's
 * (population based training, Jaderberg et al., arXiv 1711.09846). */
#ifndef KOLO_TRAIN_TOURNAMENT_H
#define KOLO_TRAIN_TOURNAMENT_H

#include "train/session.h"

/* What a member trains by; of lr its peak, before schedule and lr_scaling. */
typedef struct kolo_own_values {
    double lr, momentum, decay;
} kolo_own_values;

typedef struct kolo_tournament {
    int ranks, members, group; /* ranks = members x group */
    int *rank;                 /* [members][group] */
    int member, place;         /* this rank is number `place` of its member */
    kolo_own_values *own;      /* [members] */
    int *share; /* [ranks] with shuffle=local: which part of the training images is its own, in its node's */
    int best;   /* the member whose loss was lowest in the last meeting; 0 before the first */
    int *order; /* [members] of a meeting: pairs, and who sits out */
    double *loss;        /* [members] of the last meeting */
    double *sum;         /* [ranks][2] of losses, and of images that they are of */
    kolo_dataset *set;   /* of tournament_data=; NULL: validation's */
    kolo_loader *loader; /* this rank's part of it: all, where members are ranks */
} kolo_tournament;

static inline int kolo_tournament_rank(const kolo_tournament *t, int member, int place)
{
    return t->rank[member * t->group + place];
}

/* KOLO_ECONFIG: no images to compare networks by, a network that has no loss, lists that are none. */
int session_check_tournament(const kolo_session *session);
/* session->tournament, with its data, once the session's is open; then its loader. Nothing without
 * tournament=. */
int session_open_tournament(kolo_session *session);
int session_make_tournament_loader(kolo_session *session);
void session_close_tournament(kolo_session *session);

/* Members meet behind step number `step` (1, 2, ...) of `steps`: with the last one to choose the best. */
static inline bool kolo_meets(const kolo_options *o, int64_t step, int64_t steps)
{
    return o->tournament && (step == steps || step % o->tournament == 0);
}
/* Of a pair of the last meeting, order[i] and order[i + 1], who won: of two with the same loss the first
 * member. */
int kolo_tournament_winner(const kolo_tournament *tournament, int i);

/* Between steps, all reported, after `step` of them: losses are formed and compared; but in the end losers
 * take over the network and values of winners. Collective. */
int kolo_tournament_meet(kolo_session *session, int64_t step);
/* The step as this rank takes it. */
void kolo_tournament_apply(const kolo_session *session, kolo_step *step);

/* What a checkpoint keeps of this rank, so many bytes; 0 without a tournament. */
size_t kolo_tournament_bytes(const kolo_session *session);
void kolo_tournament_save(const kolo_session *session, void *to);
void kolo_tournament_load(kolo_session *session, const void *from);
int kolo_tournament_exchange(kolo_session *session); /* its member's values to all others; collective */

#endif
