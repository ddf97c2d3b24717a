/* Inside halo*.c: what parts read of each other's maps, as strips. */
#ifndef KOLO_GRAPH_HALO_H
#define KOLO_GRAPH_HALO_H

#include "graph/split.h"

/* What a part reads of a tensor of another one, in the tensor's own rows and columns; at = end: nothing. */
typedef struct strip {
    kolo_area area;
    int tensor; /* that has it, once it is made */
} strip;

/* What of a map is sent beyond borders: a tile of one input that only tiles of another part read. */
typedef struct halo {
    int node, home; /* home: of what reads it */
    int map;        /* number of the map */
} halo;

typedef struct widen {
    kolo_graph *g;
    int64_t nodes; /* that there were */
    int64_t tensors;
    int homes;
    double share;
    halo *halo;
    int halos;
    int *halo_of;    /* [nodes] its halo; -1: it is none */
    int *border;     /* [tensors] number of the map that a halo is of; -1 */
    int maps;        /* such maps, */
    bool *made;      /* [maps] whose halos are made */
    uint32_t *who;   /* [tensors] parts that read it, a bit each */
    int *copy;       /* [tensors] of a parameter: what other parts read in its place; -1 */
    strip *strip;    /* [tensors * homes] */
    int64_t *behind; /* [new nodes] the node that each belongs behind; -1: in front of all */
    int64_t made_nodes, room;
} widen;

static inline strip *halo_strip(const widen *w, int t, int home)
{
    return &w->strip[(int64_t)t * w->homes + home];
}
static inline bool halo_is_wanted(const strip *s) { return s->area.end[0] > s->area.at[0]; }

static inline int halo_home(const kolo_graph *g, int t)
{
    const kolo_tensor *x = &g->tensor[t];
    return x->producer >= 0 ? g->node[x->producer].part : x->part;
}

static inline kolo_area halo_whole(const kolo_tensor *t)
{
    const int axis = kolo_split_axis(t);
    return (kolo_area){{0, 0}, {t->dim[axis], t->dim[axis + 1]}};
}

/* halo.c. Moved by `by`, what of `a` lies in `within`; false: nothing. */
bool halo_common(const kolo_area *a, const int64_t by[2], const kolo_area *within, kolo_area *both);
/* Input k of a tile: the tensor that it is cut out of, whose first pixel is at `from` of the tile's map. */
int halo_source(const widen *w, const kolo_node *tile, int k, int64_t from[2]);
/* What part `home` reads in the place of an input that is no map; -1: it does not. */
int halo_read_at(const widen *w, int t, int home);
/* Whether a strip of t is sent. */
bool halo_is_sent(const widen *w, int t, int home);
/* The pixels of map x that `made` of the operation's result is made of; a: becomes the attributes for it. */
kolo_area halo_needed(const kolo_graph *g, const kolo_node *n, int x, const kolo_area *made,
                      kolo_attributes *a);

/* halo_strips.c: the strips that were found are sent, or made again; tiles read them in the place of halos
 * (dead: [nodes] halos that nobody reads any more), and every new node goes to its place. */
int halo_make_strips(widen *w);
void halo_read_strips(widen *w, bool *dead);
int halo_order_nodes(widen *w, const bool *dead);

#endif
