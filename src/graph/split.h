/* What the files of the pass that cuts maps share: split.c goes through the operations, split_piece.c puts
 * together what they read, split_legal.c says which parts are possible. */
#ifndef KOLO_GRAPH_SPLIT_H
#define KOLO_GRAPH_SPLIT_H

#include "graph/rules.h"

/* Rows and columns of a map. */
typedef struct kolo_area {
    int64_t at[2], end[2];
} kolo_area;

/* Where a tensor of the graph is in the one that is made. */
typedef struct kolo_spread {
    int parts; /* 1: whole */
    int of[KOLO_MAX_ARGS];
    int home[KOLO_MAX_ARGS]; /* the part, of image and channels, beside which each is computed */
    /* of maps: what each has. Together they are the map, after `roll` rows and columns went from its top
     * and left to its end (window attention); else 0 */
    kolo_area area[KOLO_MAX_ARGS];
    int64_t roll[2];
} kolo_spread;

/* What of a map was put together beside a part of the image (kolo_split_piece). */
typedef struct kolo_piece_made {
    int map, home, tensor;
    kolo_area area;
    int64_t roll[2];
} kolo_piece_made;

typedef struct kolo_split {
    const kolo_graph *from;
    kolo_graph *to;
    const kolo_cuts *cuts;
    int *range;   /* [from->nodes] of cuts->range, that each operation is of; -1: as the image is cut */
    int64_t late; /* the first operation of ranges whose channels are cut */
    /* maps with no more rows and columns stay whole: attention cannot be cut there */
    int64_t whole[2];
    kolo_spread *spread; /* [from->tensors] */
    /* of parameters, where parts are apart: whether a part has each, and the copy that the others read */
    bool *owned;
    int *copy;
    double load[KOLO_MAX_ARGS]; /* elements of parameters that a part has */
    kolo_piece_made *piece;     /* [pieces] */
    int64_t pieces, piece_capacity;
} kolo_split;

static inline bool kolo_split_is_image(const kolo_tensor *t)
{
    return t->role == KOLO_ROLE_INPUT && t->dtype == KOLO_U8;
}
static inline bool kolo_split_is_map(const kolo_tensor *t)
{
    return t->rank == 4 && (t->role == KOLO_ROLE_ACTIVATION || t->role == KOLO_ROLE_INPUT);
}
/* Parts of the channels beside each part of the image. */
static inline int kolo_split_channel_parts(const kolo_split *s)
{
    if (kolo_cuts_late(s->cuts)) return 1; /* where maps are whole */
    return s->from->parts[2] > 1 ? s->from->parts[2] : 1;
}
/* The first of the two dimensions of pixels. */
static inline int kolo_split_axis(const kolo_tensor *t) { return kolo_split_is_image(t) ? 1 : 2; }

/* Rows and columns of parts that operation `node` is cut into, where it is. */
static inline const int *kolo_split_grid(const kolo_split *s, int64_t node)
{
    return s->range[node] >= 0 ? s->cuts->range[s->range[node]].parts : s->cuts->parts;
}

/* split_piece.c. Pixels of map t of part `part` of a grid; of all of it. */
kolo_area kolo_split_area(const kolo_tensor *t, const int grid[2], int part);
/* What `want` holds of map t, after it is rolled by `roll`, beside part `home` of the image: what is beside
 * other parts goes there as it is cut. Beyond a map that is not rolled are zeros. name: of the new tensors.
 * Returns the tensor; operations that want the same share one. */
int kolo_split_piece(kolo_split *s, int t, int home, const kolo_area *want, const int64_t roll[2],
                     const char *name);
/* A new tensor like `t`, but of the pixels of `where`. */
int kolo_split_map(kolo_split *s, const char *name, const kolo_tensor *t, const kolo_area *where);

/* split_legal.c */
/* Pixel o of y is made of o stride - pad .. o stride - pad + reach - 1 of x. */
typedef struct kolo_window {
    int64_t reach, stride, pad;
} kolo_window;
kolo_window kolo_split_window(const kolo_node *node, int axis);
/* Whether each of so many parts along an axis of what an operation makes has something to make. */
bool kolo_split_can_cut(const kolo_graph *graph, const kolo_node *node, int axis, int parts);
/* KOLO_ECONFIG: the image, or what a range begins with, cannot be cut so; the message has the legal numbers.
 * Fills range. */
int kolo_split_check(kolo_split *s);

#endif
