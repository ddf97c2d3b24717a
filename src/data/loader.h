/* Loader: shards to batches of u8 images, in an order and with an augmentation that depend on (seed,
 * epoch, sample) only: not on ranks, threads or restarts. Reader threads pread, decode, crop, flip
 * straight into the batch slot; normalisation to f32/bf16 is the graph's first operation (ops
 * `normalize`), so CPU and GPU share it. */
#ifndef KOLO_DATA_LOADER_H
#define KOLO_DATA_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/augment/detect.h"
#include "data/augment/mix.h"
#include "data/latency.h"
#include "data/shard/image_labels.h"
#include "data/shard/shard.h"
#include "data/sides.h"

typedef struct kolo_loader kolo_loader;
enum { KOLO_LOADER_PARTS = 16 };

typedef struct kolo_loader_config {
    /* NULL: synthetic (uniform noise images and labels, keyed by sample number) */
    const kolo_dataset *dataset;
    int64_t synthetic_count; /* samples of the synthetic set */
    /* of the batch; channels: 1 or 3 (a gray file is repeated, a colour file refused for 1) */
    int channels, height, width;
    /* train: the side of every step's images instead; height and width are then the largest, for
     * which there is memory */
    kolo_sides sides;
    int classes;
    bool train; /* permuted and augmented; else source order, validation transform */
    uint64_t seed;
    const char *shuffle; /* train: as kolo_order_parse takes it (data/order.h); NULL or "": full */
    const int *node_of;  /* [ranks] for shuffle=local, used by kolo_loader_create only; NULL: one node */
    /* train: so many different samples that are damaged are replaced by the next one, per rank */
    int64_t max_bad;
    int64_t batch; /* global batch */
    /* this rank takes rows [rank*batch/ranks, (rank+1)*batch/ranks) of each global batch */
    int rank, ranks;
    int tail;           /* KOLO_tail_drop or KOLO_tail_pad (validation: always pad) */
    int crop, crop_pad; /* KOLO_crop_*; train */
    double area_min, area_max;
    bool flip;
    const char *augment; /* entries as kolo_augment_parse takes them, in order; NULL or "": none */
    int interpolation;   /* KOLO_interpolation_* */
    int repeat;          /* train: so many views of a sample follow each other; 0: 1 */
    /* train: pairs of rows are mixed; then rows must be a multiple of 2 * repeat */
    kolo_mix_config mix;
    /* of a row's label (kolo_input of graph/graph.h); 0: 3 where rows are mixed, else 1; 1 + 5 M:
     * boxes, at most M. Then */
    int64_t words;
    /* is what is done to images, and crop, flip, augment, mix, resize are not looked at; validation fits */
    kolo_detect_config detect;
    /* them in and does no more, as training does from this epoch on but for colours and mirror */
    int64_t plain_epoch;
    /* NULL, or of the data set: then a row's label is [2 classes] f32, as kolo_image_labels_row has it */
    const kolo_image_labels *image_labels;
    const float *pos_weight; /* with them: [classes]; NULL: 1 */
    double smoothing;        /* with them: of the targets */
    /* train, NULL or [classes of the data set]: a row's label has a factor, too: the weight of its class by
     * the mean weight of the rows of the global batch that count, as torch's weighted mean has it; nothing is
     * mixed then */
    const float *class_weight;
    /* per channel, in [0, 1], for augmentations that fill or add noise; std 0: not known */
    float mean[4], std[4];
    int resize; /* validation: short side before the centre crop; 0: none */
    int readers, prefetch;
    /* train: batches are those that kolo_loader_assign names, of any rank's rows, instead of this rank's of
     * one step after the other. Not with `serve`, nor with an order in which nodes own samples */
    bool assigned;
    /* train: name of a server whose batches are taken (data/serve/serve.h); NULL or "": none */
    const char *serve;
    double serve_wait; /* seconds, as data/serve/serve.h has them */
    /* no image is read: a batch is how many rows there are and which of them count, in validation their
     * samples and labels too (boxes: none) */
    bool counts_only;
    /* parts > 0: of the images only those parts of grid[0] x grid[1] (rows, columns, as kolo_part_start cuts
     * them) are made, and a row of a batch has them one behind the other. Only where kolo_loader_cuts */
    int grid[2], parts, part[KOLO_LOADER_PARTS];
    /* [kolo_loader_memory_bytes] for the batches, zeroed, page aligned; NULL: the loader's own */
    void *memory;
} kolo_loader_config;

/* One batch of this rank, valid until kolo_loader_release. Rows >= valid are zero with
 * label -1; valid may be 0. */
typedef struct kolo_batch {
    const uint8_t *pixels; /* (rows, height, width, channels), or of the parts that are made */
    int height, width;     /* of whole images */
    /* (rows, words): a class; or one, and the factor on its loss as the bits of an f32; or two, and the
     * weight of the first likewise; or boxes; or bits of image labels' f32 */
    const int32_t *labels;
    const int64_t *samples; /* (rows) global sample numbers, -1 for padding */
    int64_t words;
    int64_t rows, valid;  /* of this rank; rows = batch / ranks */
    int64_t valid_global; /* over all ranks */
    int64_t first;        /* number of row 0 in the global batch */
    int64_t epoch, step;  /* step within the epoch */
    int slot;
} kolo_batch;

/* What a row's label is: its words distinguish a class, two mixed ones and boxes; image labels are named. */
static inline bool kolo_loader_has_boxes(const kolo_loader_config *c)
{
    return c->words > 3 && !c->image_labels;
}

/* Parts of images can be made by themselves: of a data set, in training, with crops and mirror images but
 * without augmentations, mixing, boxes or a server, which see whole images. */
bool kolo_loader_cuts(const kolo_loader_config *config);
int kolo_loader_create(kolo_loader **loader, const kolo_loader_config *config);
void kolo_loader_destroy(kolo_loader **loader);       /* also in the middle of an epoch */
int64_t kolo_loader_steps(const kolo_loader *loader); /* per epoch */

/* Starts reading at (epoch, step); discards what was prefetched. From the first seek on batches come from the
 * server of data_server=. After the last step of an epoch training goes on with the next epoch by itself;
 * validation ends (kolo_loader_next returns 1). */
int kolo_loader_seek(kolo_loader *loader, int64_t epoch, int64_t step);
/* 0: *batch is filled; 1: end of validation; negative: error (a reader's, with its text:
 * sample, file, cause). */
int kolo_loader_next(kolo_loader *loader, kolo_batch *batch);
void kolo_loader_release(kolo_loader *loader, const kolo_batch *batch);
/* With `assigned`: this rank reads the rows of rank `rank` of that global batch next; at most
 * KOLO_LOADER_ASSIGNED that kolo_loader_next has not given yet. A seek forgets them. */
enum { KOLO_LOADER_ASSIGNED = 4 };
int kolo_loader_assign(kolo_loader *loader, int64_t epoch, int64_t step, int rank);

/* Of the memory that batches of this configuration lie in. */
size_t kolo_loader_memory_bytes(const kolo_loader_config *config);

/* The page-backed pieces that batches lie in, number i = 0, 1, ...: 1 and *base, *bytes, or 0 behind the
 * last. For a GPU they are page-locked, so that they can be copied from while the host goes on; they stay
 * until the loader is destroyed. */
int kolo_loader_memory(const kolo_loader *loader, int i, void **base, size_t *bytes);

typedef struct kolo_loader_stats { /* of the batches that kolo_loader_next has given */
    double wait_seconds;           /* the consumer waited in kolo_loader_next */
    int64_t samples, bytes;        /* read */
    int64_t decoded;               /* pixels, of JPEG, by the decoder */
    int64_t hits;                  /* samples that came from the RAM cache */
    /* samples that came from a server; they count neither as bytes nor as hits */
    int64_t served;
    int64_t bad; /* samples that were replaced */
    /* of a read (not of hits), and of a sample from its read to its place in the batch; where samples are
     * below 16 KiB every eighth */
    kolo_latency read, sample;
} kolo_loader_stats;
void kolo_loader_get_stats(const kolo_loader *loader, kolo_loader_stats *stats); /* since create */

/* The permutation of an epoch: sample number at position `index`, for tests and tools. n samples. */
void kolo_permutation(uint64_t seed, int64_t epoch, int64_t n, int64_t *order); /* order: [n], filled */

#endif
