/* Local steps: ranks that step by themselves and average their weights now and then. local_steps= is local
 * SGD (Stich, arXiv 1805.09767), with local_start= post-local and with local_nodes= hierarchical (Lin et al.,
 * 1808.07217); swap= averages once, at the end (Gupta et al., 2001.02312). */
#ifndef KOLO_TRAIN_LOCAL_H
#define KOLO_TRAIN_LOCAL_H

#include "train/session.h"

/* KOLO_ECONFIG: options that say how gradients of all ranks are summed, or that averages of other kinds are
 * kept, beside local steps; or options of local steps without any. */
int session_check_local(const kolo_session *session);
/* The plans of what else ranks exchange, of every shape. Nothing without local steps. */
int session_make_exchanges(kolo_session *session);

/* The first step that ranks do by themselves, of a run whose phases are laid; INT64_MAX: there is none. */
int64_t kolo_local_start(const kolo_session *session);
/* What ranks exchange in step number `step` (0, 1, ...) of `steps`, where `start` is the first that they do
 * by themselves. The weights of all are averaged in the last step in any case. */
enum kolo_exchange kolo_local_exchange(const kolo_options *options, int64_t start, int64_t step,
                                       int64_t steps);

#endif
