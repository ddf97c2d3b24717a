/* Operations of the CUDA backend that move numbers and compute none, against the CPU
 * backend's: the same bits. */
#include "cuda_pair.h"

typedef int mover(rig *r, const int *x, const int64_t *number);

static int pad(rig *r, const int *x, const int64_t *n) { return kolo_pad(r->g, "y", x[0], n[0], n[1]); }
static int crop(rig *r, const int *x, const int64_t *n) { return kolo_crop(r->g, "y", x[0], n[0], n[1]); }
static int depth(rig *r, const int *x, const int64_t *n)
{
    (void)n;
    return kolo_space_to_depth(r->g, "y", x[0]);
}
static int upsample(rig *r, const int *x, const int64_t *n) { return kolo_upsample(r->g, "y", x[0], n[0]); }
static int slice(rig *r, const int *x, const int64_t *n)
{
    return kolo_slice_channels(r->g, "y", x[0], n[0], n[1]);
}
static int concat(rig *r, const int *x, const int64_t *n) { return kolo_concat(r->g, "y", (int)n[0], x); }

static const struct {
    const char *what;
    mover *make;
    int rank;
    int64_t dim[4], number[2], more; /* more: channels of the second input */
} cases[] = {
    {"pad", pad, 4, {2, 5, 6, 7}, {1, 0}, 0},
    {"pad", pad, 4, {2, 16, 6, 7}, {3, 2}, 0},
    {"crop", crop, 4, {2, 16, 6, 7}, {1, 2}, 0},
    {"crop", crop, 4, {3, 3, 4, 4}, {0, 3}, 0},
    {"space_to_depth", depth, 4, {2, 3, 8, 6}, {0}, 0},
    {"space_to_depth", depth, 4, {2, 16, 7, 9}, {0}, 0},
    {"space_to_depth", depth, 4, {1, 6, 5, 4}, {0}, 0},
    {"upsample", upsample, 4, {2, 10, 3, 5}, {2}, 0},
    {"upsample", upsample, 4, {2, 8, 4, 4}, {3}, 0},
    {"slice", slice, 4, {2, 32, 3, 3}, {8, 16}, 0},
    {"slice", slice, 4, {2, 21, 3, 3}, {5, 11}, 0},
    {"slice", slice, 2, {6, 30}, {6, 16}, 0},
    {"slice", slice, 2, {6, 32}, {8, 16}, 0},
    {"slice", slice, 2, {3, 7}, {6, 1}, 0},
    {"concat", concat, 4, {2, 16, 4, 5}, {2}, 8},
    {"concat", concat, 4, {2, 4, 3, 5}, {3}, 1},
    {"concat", concat, 4, {1, 5, 2, 2}, {8}, 11},
    {"concat", concat, 2, {5, 16}, {3}, 32},
    {"concat", concat, 2, {5, 7}, {2}, 4},
};

static void check(enum kolo_dtype dtype, size_t k)
{
    pair p = pair_open(dtype, cases[k].what);
    for (int i = 0; i < 2; i++) {
        rig *r = &p.side[i];
        int x[8];
        for (int j = 0; j < 8; j++) {
            int64_t dim[4];
            char name[8];
            memcpy(dim, cases[k].dim, sizeof dim);
            if (j % 2) dim[1] = cases[k].more;
            snprintf(name, sizeof name, "x%d", j);
            if (j < (cases[k].make == concat ? cases[k].number[0] : 1))
                x[j] = rig_input(r, name, cases[k].rank, dim);
        }
        int y = cases[k].make(r, x, cases[k].number);
        rig_check(y, cases[k].what);
        rig_backward(r, y);
        rig_layout(r);
    }
    snprintf(p.shape, sizeof p.shape, "case %zu", k);
    for (int t = 0; t < (int)p.side[0].g->tensors; t++)
        if (p.side[0].g->tensor[t].producer < 0)
            pair_fill(&p, t, cases[k].make == upsample ? SMOOTH : STRANGE);
    /* the GPU rounds a sum of 16-bit numbers once, as the CPU does; in f32 both add in rows */
    pair_check_above(&p, cases[k].make == upsample ? ulp(dtype) : 0, 1);
}

int main(void)
{
    cuda_rig();
    pair_backends();
    for (int i = 0; i < 3; i++) {
        failures = 0;
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) check(types[i], k);
        is_int(failures, 0,
               "%s: pad, crop, space_to_depth, upsample, slice, concat and the ways back, %zu cases, "
               "infinities and "
               "NaN too",
               kolo_dtype_name(types[i]), sizeof cases / sizeof *cases);
    }
    pair_backends_close();
    return done_testing();
}
