/* Files of weights, whatever wrote them, as one list of named tensors. What a file is its first bytes
 * say, never its name:
 *
 *   safetensors   the format of Hugging Face: u64 header length, JSON header, data
 *   PyTorch       .pth, .pt, .th of torch.save: a zip archive, or the older form, with a pickle.
 *                 Nothing is executed: only what a dict of tensors needs is understood, everything else
 *                 is refused by its name
 *   darknet       .weights: numbers without names, in the order of the network's layers
 *
 * Files are taken for hostile: nothing in them is used before it is checked, and no more memory is asked for
 * than a file can justify. */
#ifndef KOLO_CKPT_WEIGHTS_H
#define KOLO_CKPT_WEIGHTS_H

#include "graph/graph.h"

const char *kolo_weight_type_name(enum kolo_dtype type); /* "F32", as safetensors calls it */

typedef struct kolo_weight {
    const char *name;
    enum kolo_dtype type;
    int rank; /* 0: one number */
    int64_t dim[KOLO_MAX_DIM];
    const void *data;      /* little-endian; in a file perhaps unaligned: copy, do not cast */
    size_t bytes;          /* of all elements */
    const int64_t *stride; /* [rank], in elements; NULL: row-major without gaps */
} kolo_weight;

typedef struct kolo_weights kolo_weights;

/* Maps FILE, or of a file of several sets of tensors (weights and their average) the one under KEY: FILE:KEY.
 * graph: whose layers a darknet file is cut by; NULL: such files are refused. A prefix that wrappers of
 * models put before all names ("module.") is dropped. KOLO_EINPUT: not a file, of no known kind, damaged,
 * hostile, or of element types that are not read (by name). */
int kolo_weights_open(kolo_weights **weights, const char *path, const kolo_graph *graph);
void kolo_weights_close(kolo_weights **weights);
/* FILE of FILE:KEY, which the caller frees; *key: within word, or NULL where it is no more than a file's
 * name. Of the folder of a run its newest checkpoint's tensors, of RUN:WHICH those of the checkpoint that
 * checkpoint=WHICH takes. NULL: error text set (KOLO_EINPUT: a folder without a checkpoint). */
char *kolo_weights_file(const char *word, const char **key);
/* Of several sets: the one that was taken, and another; NULL: the file has one. */
const char *kolo_weights_chosen_set(const kolo_weights *weights);
const char *kolo_weights_other_set(const kolo_weights *weights);
const char *kolo_weights_kind(const kolo_weights *weights); /* "safetensors", "PyTorch", "darknet" */
/* darknet: it ends at the border of an earlier layer than the network's last */
bool kolo_weights_partial(const kolo_weights *weights);
int kolo_weights_count(const kolo_weights *weights);
const kolo_weight *kolo_weights_at(const kolo_weights *weights, int i); /* in the file's order */
const kolo_weight *kolo_weights_find(const kolo_weights *weights, const char *name);
/* count = product of dim: the elements in row-major order as f32. */
void kolo_weight_to_f32(const kolo_weight *weight, float *to, int64_t count);

/* Writes safetensors atomically, the same bytes for the same tensors (row-major ones). The header lists them
 * in the order given; their data lies widest type first, because the format wants every tensor aligned and no
 * hole. metadata: NULL-terminated key, value, ... or NULL. */
int kolo_weights_write(const char *path, const kolo_weight *weight, int n, const char *const *metadata);

#endif
