/* What the readers of weights share: the mapped file, the list that they fill, and what lives as long as
 * it. */
#ifndef KOLO_CKPT_READER_H
#define KOLO_CKPT_READER_H

#include "ckpt/weights.h"

struct kolo_weights {
    char *path;
    const char *kind;
    const unsigned char *map; /* the file, read only */
    size_t bytes;
    kolo_weight *weight;
    int64_t count, capacity;
    int *by_name; /* [count], once the list is complete */
    void *kept;   /* chain of blocks that go with the handle */
    bool partial;
    bool of_run;        /* a checkpoint's tensors: their average is the usual group, where there is one */
    const char *wanted; /* the group of tensors that is asked for; NULL: the usual one */
    /* the group that was taken, and another that the file holds; NULL: it has none */
    const char *taken, *beside;
};

/* Under what programs put tensors in a file that holds more than one set of them, the usual ones
 * first; NULL-terminated. */
extern const char *const kolo_weights_group[];

/* Zeroed memory that is freed with the handle. NULL: error text set. */
void *kolo_weights_keep(kolo_weights *w, size_t bytes);
/* At the end of the list; name (copied), type, rank, dim are set by the caller at once. NULL: error text
 * set. */
kolo_weight *kolo_weights_add(kolo_weights *w, const char *name, size_t length);
/* by_name anew, after names were set or changed; KOLO_EINPUT: two of one name. */
int kolo_weights_sort(kolo_weights *w);
/* KOLO_EINPUT: "PATH: not a whole KIND file: WHAT; copy or download it again". */
int kolo_weights_refuse(const kolo_weights *w, const char *what);
int kolo_weights_refuse_tensor(const kolo_weights *w, const char *name, const char *what);

int kolo_safetensors_read(kolo_weights *w);
int kolo_pth_read(kolo_weights *w);     /* the zip archive */
int kolo_pth_read_old(kolo_weights *w); /* pickles and data one behind the other, as until PyTorch 1.6 */
int kolo_darknet_read(kolo_weights *w, const kolo_graph *graph);

static inline uint64_t reader_number(const unsigned char *p, int bytes) /* little-endian */
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)p[i] << 8 * i;
    return value;
}

#endif
