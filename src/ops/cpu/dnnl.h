/* oneDNN behind a few nouns: only dnnl.c knows it, and dnnl_version.h what differs between 2.x and 3.x. A
 * descriptor says how a tensor lies in memory; equal ones are one object, owned by the engine. A primitive is
 * one prepared computation, whose pointers are given anew at each run, in a fixed order. */
#ifndef KOLO_OPS_CPU_DNNL_H
#define KOLO_OPS_CPU_DNNL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/graph.h"

typedef struct dnnl_engine_of_kolo kolo_dnnl;
typedef struct kolo_dnnl_desc kolo_dnnl_desc;
typedef struct kolo_dnnl_primitive kolo_dnnl_primitive;

int kolo_dnnl_open(kolo_dnnl **dnnl);
void kolo_dnnl_close(kolo_dnnl **dnnl);
const char *kolo_dnnl_version(void);
bool kolo_dnnl_has_bf16(void);  /* bf16 by vector instructions at least */
bool kolo_dnnl_has_tiles(void); /* bf16 by matrix instructions (AMX) */

/* NULL: error text set. */
const kolo_dnnl_desc *kolo_dnnl_plain(kolo_dnnl *dnnl, enum kolo_dtype dtype, int rank, const int64_t *dim);
/* (N, C, H, W) in channel blocks of 1, 8 or 16, or, with nhwc, all channels together. */
const kolo_dnnl_desc *kolo_dnnl_map(kolo_dnnl *dnnl, enum kolo_dtype dtype, const int64_t *dim, int64_t block,
                                    bool nhwc);
/* Layout for the primitive to choose. */
const kolo_dnnl_desc *kolo_dnnl_any(kolo_dnnl *dnnl, enum kolo_dtype dtype, int rank, const int64_t *dim);
/* f32 (O, C, KH, KW) as (O/16, C/16, KH, KW, 16 C, 16 O). */
const kolo_dnnl_desc *kolo_dnnl_blocked_weight(kolo_dnnl *dnnl, const int64_t *dim);
/* The same arrangement of elements of another type. */
const kolo_dnnl_desc *kolo_dnnl_as(kolo_dnnl *dnnl, const kolo_dnnl_desc *desc, enum kolo_dtype dtype);
/* f32 of the same logical shape in row-major order. */
const kolo_dnnl_desc *kolo_dnnl_rows_of(kolo_dnnl *dnnl, const kolo_dnnl_desc *desc);
size_t kolo_dnnl_bytes(const kolo_dnnl_desc *desc);
uint64_t kolo_dnnl_hash(const kolo_dnnl_desc *desc);
/* Whether memory of this kind may hold a parameter between operations: strided or blocked,
 * without hidden parts. */
bool kolo_dnnl_is_plain_memory(const kolo_dnnl_desc *desc);

enum kolo_dnnl_pass { KOLO_DNNL_FORWARD, KOLO_DNNL_DATA, KOLO_DNNL_WEIGHT };
typedef struct kolo_dnnl_conv {
    enum kolo_dnnl_pass pass;
    bool winograd;
    /* of the tensors or of their gradients; bias NULL: none; w of rank 5 if grouped */
    const kolo_dnnl_desc *x, *w, *bias, *y;
    int64_t stride[2], pad[2], dilation[2];
} kolo_dnnl_conv;

/* Make a primitive. 0; 1: oneDNN has none for this (nothing set); negative: error.
 * Its pointers, in order: convolution and linear x, w, y, then bias if there is one; reorder from, to. */
int kolo_dnnl_make_conv(kolo_dnnl *dnnl, const kolo_dnnl_conv *conv, kolo_dnnl_primitive **primitive);
int kolo_dnnl_make_linear(kolo_dnnl *dnnl, enum kolo_dnnl_pass pass, const kolo_dnnl_desc *x,
                          const kolo_dnnl_desc *w, const kolo_dnnl_desc *bias, const kolo_dnnl_desc *y,
                          kolo_dnnl_primitive **primitive);
int kolo_dnnl_make_reorder(kolo_dnnl *dnnl, const kolo_dnnl_desc *from, const kolo_dnnl_desc *to,
                           kolo_dnnl_primitive **primitive);
void kolo_dnnl_destroy(kolo_dnnl_primitive **primitive);

const kolo_dnnl_desc *kolo_dnnl_weight_of(const kolo_dnnl_primitive *primitive); /* the layout it chose */
size_t kolo_dnnl_scratch(const kolo_dnnl_primitive *primitive);
const char *kolo_dnnl_name(const kolo_dnnl_primitive *primitive); /* "jit:avx512_core" */
/* Has oneDNN generate, once a type, the code that primitives made of matrix products share, which it would do
 * when the first of them runs: so it counts to what is there before the first step. dtype: of its tensors. */
int kolo_dnnl_warm(const kolo_dnnl_primitive *primitive, enum kolo_dtype dtype);
/* Makes no object. Not for two threads at once on one primitive. */
int kolo_dnnl_run(kolo_dnnl_primitive *primitive, void *const *pointer, void *scratch);

#endif
