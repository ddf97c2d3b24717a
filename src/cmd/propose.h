/* What a training of unknown data may begin with: looks at packed shards and proposes a network and the
 * options that matter, each with its reason. Rules of thumb from the recipes of share/recipes, no search. */
#ifndef KOLO_CMD_PROPOSE_H
#define KOLO_CMD_PROPOSE_H

#include "data/shard/shard.h"

typedef struct kolo_data_facts {
    kolo_dataset_info info;
    bool detection, tags;          /* boxes, or any number of classes a sample; else one label a sample */
    int side_low, side, side_high; /* short sides of stored images, pixels: 5 %, median, 95 % */
    /* samples (boxes, tags) of the rarest class that has any, and of the commonest; both 0: no class has */
    uint64_t fewest, most;
    int rarest, commonest; /* those classes; -1: no class has any */
    int empty;             /* classes without any */
    double boxes;          /* a sample, where detection */
} kolo_data_facts;

/* Reads tables of the split, no image. */
int kolo_data_facts_read(kolo_data_facts *facts, const kolo_dataset *dataset);

enum { KOLO_PROPOSALS = 40 };

/* Options in the order of a recipe, as its text has them. */
typedef struct kolo_proposal {
    int count;
    struct kolo_proposed {
        const char *key; /* static text */
        char value[64];
        char why[320]; /* empty: it goes with the one before */
    } of[KOLO_PROPOSALS];
} kolo_proposal;

/* What the user has chosen: the other options follow from it. */
typedef struct kolo_wishes {
    const char *model;     /* NULL: none chosen */
    int64_t batch, epochs; /* 0: none chosen */
} kolo_wishes;

void kolo_propose(const kolo_data_facts *facts, const kolo_wishes *wishes, kolo_proposal *proposal);

#endif
