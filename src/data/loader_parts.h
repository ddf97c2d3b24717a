/* What the files of the loader share: its state. */
#ifndef KOLO_DATA_LOADER_PARTS_H
#define KOLO_DATA_LOADER_PARTS_H

#include <pthread.h>

#include "base/failure.h"
#include "data/loader.h"
#include "data/order.h"
#include "data/worker.h"

/* A slot goes free -> filling (readers take rows of it) -> ready (all rows done) -> held (by
 * the consumer) -> free. */
enum loader_slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY, SLOT_HELD };

typedef struct loader_slot {
    const kolo_recipe *recipe; /* of the images in it: their size */
    uint8_t *pixels;
    int32_t *labels; /* (rows, words) */
    int64_t *samples;
    int64_t epoch, step, valid, valid_global;
    int rank;            /* whose rows of the global batch they are */
    float unit;          /* with class_weight: 1 / the mean weight of the global batch's rows */
    int64_t taken, done; /* rows given to readers, rows finished */
    enum loader_slot_state state;
    int status; /* of the failed row with the lowest number */
    int64_t failed_row;
    kolo_failure failure;
    kolo_loader_stats stats; /* of its making */
} loader_slot;

/* A batch that was assigned. */
typedef struct loader_task {
    int64_t epoch, step;
    int rank;
} loader_task;

/* Where the arrays of a slot begin, bytes behind its pixels, and where the next slot does. */
typedef struct loader_layout {
    size_t labels, samples, bytes;
} loader_layout;

typedef struct kolo_client kolo_client;

struct kolo_loader {
    kolo_recipe recipe; /* of images of the largest size */
    kolo_recipe *sized; /* [sides] the same, for every side; NULL: all images have one size */
    int64_t count, rows, steps, chunk;
    int readers, slots;
    loader_slot *slot;
    uint8_t *memory; /* all slots; the caller's if the configuration says so */
    size_t memory_bytes, noise_bytes;
    uint8_t *noise;      /* synthetic: the pixels of every batch */
    bool shared_pixels;  /* all slots show the noise itself: no batch is short */
    kolo_order *sampler; /* NULL: source order */
    kolo_client *client; /* NULL: no server is asked */

    pthread_mutex_t lock; /* everything below */
    pthread_cond_t work, ready;
    /* of epoch e in [e % 2]; the next one is made while this one is read */
    int64_t *order[2], order_epoch[2];
    bool ordering; /* a reader makes an order, without the lock */
    /* samples that will soon be read; their number. NULL: none are announced */
    int64_t *advice, advised;
    bool advising;                          /* a reader announces them, without the lock */
    int64_t epoch, step;                    /* of the batch that is opened next */
    int rank;                               /* likewise: whose rows */
    loader_task task[KOLO_LOADER_ASSIGNED]; /* with `assigned`: batch i of those since seek in [i % size] */
    int64_t tasks;
    int64_t opened, consumed;   /* batches since seek; batch i lives in slot i % slots */
    int busy;                   /* readers at work on a chunk */
    bool stop, pause, finished; /* finished: no batch is left to open (validation) */
    int64_t *bad, bad_count;    /* [max_bad] samples that were replaced */
    kolo_loader_stats stats;
    pthread_t *threads;
    int started;
};

/* What became of a chunk of rows. */
typedef struct loader_result {
    int status;
    int64_t row; /* where it failed */
    kolo_loader_stats stats;
} loader_result;

int loader_check(const kolo_loader_config *config, int64_t count);
int loader_make_recipe(kolo_recipe *recipe, const kolo_loader_config *config);
int loader_make_sized(kolo_loader *loader, const kolo_loader_config *config);
int loader_choose_readers(const kolo_loader_config *config);
int64_t loader_choose_chunk(const kolo_loader *loader);
/* one more than prefetch: the one that the consumer holds */
int loader_choose_slots(const kolo_loader_config *config);
/* words: of a row's label; pixels: bytes of them in a slot. */
void loader_lay_slot(loader_layout *layout, int64_t rows, int64_t words, size_t pixels);
/* The arrays of the slot that begins at `base`. */
void loader_point_slot(loader_slot *slot, const loader_layout *layout, uint8_t *base);
/* Labels of the rows first .. first + count - 1 as their samples have them, nothing mixed. */
void loader_label(loader_slot *slot, int64_t first, int64_t count);
/* Validation: samples and labels of all rows, as readers would leave them; of boxes none. */
void loader_describe(const kolo_loader *loader, loader_slot *slot);
/* By a reader, without the lock; nobody else touches these rows. */
void loader_fill(kolo_loader *loader, kolo_worker *worker, loader_slot *slot, int64_t first, int64_t count,
                 loader_result *result);

#endif
