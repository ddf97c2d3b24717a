/* Strategies: a plan as a table of operations, each with the degrees to which its samples, rows, columns and
 * channels are divided, and the ranks that do it: what FlexFlow exports and imports (Jia et al.,
 * arXiv:1807.05358). A file is flat YAML as a plan file is, with a line for each forward operation:
 * `conv1: [2, 1, 1, 1, 0, 2]`. Read, it says stages, cut, chunks, spatial and tensor; what cannot be carried
 * out is named by its line. */
#ifndef KOLO_TRAIN_STRATEGY_H
#define KOLO_TRAIN_STRATEGY_H

#include "train/session.h"

typedef struct kolo_strategy kolo_strategy;

/* A line: degrees and ranks, joined by commas. where: file:line:column. KOLO_ECONFIG. */
int kolo_strategy_add(kolo_strategy **strategy, int ranks, const char *name, const char *value,
                      const char *where);
/* Which options follow from it: give(context, key, value, where) sets one. */
int kolo_strategy_apply(const kolo_strategy *strategy, const char *path,
                        int (*give)(void *context, const char *key, const char *value, const char *where),
                        void *context);
/* With the session's plans made: they do each operation as its line says, and every operation has one. */
int kolo_strategy_check(const kolo_strategy *strategy, const char *path, const kolo_session *session);
void kolo_strategy_destroy(kolo_strategy **strategy);

/* The network's operation that a node is, or is a part of; false: it is none, but what parts send each other
 * and put together. */
enum { KOLO_OPERATION_NAME = 128 };
bool kolo_operation_name(const kolo_graph *graph, int64_t node, char name[KOLO_OPERATION_NAME]);
/* That of a session. KOLO_ECONFIG: it cannot be said as one. KOLO_EIO. */
int kolo_strategy_write(const kolo_session *session, const char *path);

#endif
