/* Partition: a chain of layers cut into the parts of a pipeline so that the slowest part or link is as fast
 * as any cut allows (an exact optimum), within the memory of every stage. Part k is chunk k / stages of stage
 * k % stages (order.h). */
#ifndef KOLO_PLAN_PARTITION_H
#define KOLO_PLAN_PARTITION_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/order.h"

/* One layer, and the place behind it. */
typedef struct kolo_chain_layer {
    /* for errors; may be NULL */
    const char *name;
    /* seconds on one slot; backward: gradients of inputs and weights */
    double forward, backward;
    /* bytes held once: parameters, gradients, state of the optimizer */
    int64_t weights;
    /* bytes held for every slot in flight */
    int64_t activations;
    /* whether a cut may be behind it, and the bytes of a slot that cross there, forward and back together */
    bool cut;
    int64_t crossing;
} kolo_chain_layer;

/* From one stage to the next: seconds each way, bytes a second (0: any number). */
typedef struct kolo_link {
    double latency, bandwidth;
} kolo_link;

/* Of links that nobody has measured: a fraction of what shared memory and networks of clusters reach. Stated
 * beside what follows from it. */
static const kolo_link kolo_link_assumed = {2e-5, 5e9};

/* What was found to need more than a stage may hold: layers [first, end) together in a part. */
typedef struct kolo_overfull {
    int part, first, end;
} kolo_overfull;

typedef struct kolo_partition_input {
    const kolo_chain_layer *layer; /* [layers] */
    int layers;
    int stages, chunks, slots;
    /* how many slots a stage holds */
    enum kolo_pipeline order;
    /* [stages]: from stage s to the next, from the last to the first where there are chunks; NULL: no link
     * costs anything */
    const kolo_link *link;
    /* bytes of a stage: what every one holds beside its layers, and what it may hold; limit 0: any number */
    int64_t fixed, limit;
    /* [overfulls]: no part may hold what one of them says */
    const kolo_overfull *overfull;
    int overfulls;
    /* the most stages that an error may offer; 0: 256 */
    int most_stages;
} kolo_partition_input;

typedef struct kolo_partition {
    int stages, parts;
    /* [parts + 1]: part k holds layers [first[k], first[k + 1]), at least one */
    int *first;
    /* [parts]: seconds of a slot, forward and backward; and of the link behind it, there and back (the last
     * part's: 0) */
    double *seconds, *link_seconds;
    /* [parts]: bytes of a slot that cross behind it (the last part's: 0) */
    int64_t *crossing;
    /* [parts]: slots that it holds at most */
    int *in_flight;
    /* [stages]: fixed, and of each chunk its weights and its activations times its slots in flight. Chunks
     * need not hold their most at one time: with several this is an upper bound. */
    int64_t *bytes;
    /* the largest of seconds and link_seconds; all of crossing */
    double bottleneck;
    int64_t all_crossing;
} kolo_partition;

/* Why nothing fits. */
typedef struct kolo_misfit {
    /* bytes by which the limit of a stage would have to be higher; 0: it does not lack memory. Where a search
     * gave up (several chunks) they are enough, but fewer may be too. */
    int64_t shortfall;
    /* the smallest number of stages that fits, as far as most_stages; 0: none */
    int stages;
} kolo_misfit;

/* The cut with the least bottleneck; among those the one with the fewest bytes crossing; among those the one
 * with the earliest cuts. Times are compared in picoseconds, so that equal ones are equal. With one chunk a
 * stage O(parts * layers^2) at most. Several chunks share the memory of their stage, and a cut that just fits
 * may be missed where a search among very many gives up. KOLO_ECONFIG: more parts than the layers can be cut
 * into; nothing fits (*misfit, which may be NULL, says by how much). 1: nothing is left beside what is said
 * to be overfull. */
int kolo_partition_create(kolo_partition **partition, const kolo_partition_input *input, kolo_misfit *misfit);

/* The same for stated cuts: first[parts - 1], the first layer of every part but the first, ascending.
 * KOLO_ECONFIG names a cut that cannot be there and the nearest that can, or the stage that does not fit. */
int kolo_partition_create_at(kolo_partition **partition, const kolo_partition_input *input, const int *first,
                             kolo_misfit *misfit);

void kolo_partition_destroy(kolo_partition **partition);

#endif
