/* Which ranks of one machine share which processors; pure, for bind.c and its test. */
#ifndef KOLO_LAUNCH_BIND_H
#define KOLO_LAUNCH_BIND_H

#include <stdbool.h>
#include <stdint.h>

enum { KOLO_MASK_WORDS = 64 }; /* 4096 processors */

typedef struct kolo_cpuset {
    char machine[40];               /* boot id: the same for all nodes of a private cluster on one machine */
    uint64_t mask[KOLO_MASK_WORDS]; /* processors given to this process */
} kolo_cpuset;

/* Of the ranks that were given exactly the processors of `rank`: how many, and which of them `rank` is,
 * in rank order. False where another rank of this machine was given some but not all of them: then
 * nothing may be bound there. */
bool kolo_cpuset_share(const kolo_cpuset *all, int rank, int size, int *index, int *sharers);

/* Processors that the ranks on the machine of `rank` were given, all together. */
int kolo_cpuset_count(const kolo_cpuset *all, int rank, int size);

#endif
