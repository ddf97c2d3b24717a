/* Work that the processes of a node share. Items are claimed by locks on a file, which the kernel takes back
 * when a process ends in whatever way: what a killed one has begun, another one does. */
#ifndef KOLO_DATA_SHARE_H
#define KOLO_DATA_SHARE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct kolo_share {
    int fd; /* open for writing, the same file in all processes */
    int64_t items;
    int threads; /* of this process; 0: 1 */
    void *context;
    bool (*done)(void *context, int64_t item); /* asked before and under the claim */
    /* under the claim, by any thread; then done() is true, or negative */
    int (*work)(void *context, int64_t item);
    double timeout; /* seconds for which somebody else may hold an item without getting done with it; 0: any
                        time */
} kolo_share;

enum { KOLO_SHARE_STUCK = 1 };

/* Returns when all items are done, by whomever; or the error of one of this process's; or KOLO_SHARE_STUCK,
 * with an error's text. */
int kolo_share_run(const kolo_share *share);

/* A lock on byte `item` that belongs to the open file: 1 it is held now, 0 (without `wait`) somebody
 * else has it, negative. */
int kolo_share_claim(int fd, int64_t item, bool wait);
void kolo_share_release(int fd, int64_t item);

#endif
