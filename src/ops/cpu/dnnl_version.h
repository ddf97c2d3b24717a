/* What differs between oneDNN 2 and 3: there a description of memory is a struct and an operation is
 * described before its implementations are gone through; here both are opaque. For dnnl.c alone. */
#ifndef KOLO_OPS_CPU_DNNL_VERSION_H
#define KOLO_OPS_CPU_DNNL_VERSION_H

#include <stdlib.h>

#include <oneapi/dnnl/dnnl.h>

#include "ops/cpu/dnnl.h"

/* A description of memory, as it is looked at and as it is owned. */
#if DNNL_VERSION_MAJOR == 2
typedef const dnnl_memory_desc_t *md_view;
typedef dnnl_memory_desc_t *md_owned;
#elif DNNL_VERSION_MAJOR == 3
typedef const_dnnl_memory_desc_t md_view;
typedef dnnl_memory_desc_t md_owned;
#else
#error "Kolo knows oneDNN 2 and 3"
#endif

/* Parts of a description; strides and blocks of kind dnnl_blocked only. */
typedef struct md_parts {
    int rank, type, kind, extra, inner;
    const dnnl_dim_t *dims, *padded, *strides, *blocks, *indices;
} md_parts;

/* A convolution, or with `linear` an inner product; tensors or their gradients, bias NULL: none. */
typedef struct operation {
    enum kolo_dnnl_pass pass;
    bool linear;
    dnnl_alg_kind_t kind;
    md_view x, w, bias, y;
    dnnl_dims_t stride, pad, dilate;
} operation;

/* Implementations of an operation, one after the other. */
typedef struct implementations {
    dnnl_primitive_desc_t current;
#if DNNL_VERSION_MAJOR == 2
    dnnl_primitive_desc_iterator_t iterator;
    union {
        dnnl_convolution_desc_t conv;
        dnnl_inner_product_desc_t linear;
    } op; /* the iterator reads it again for each */
#endif
} implementations;

#if DNNL_VERSION_MAJOR == 2
static const dnnl_status_t no_more_implementations = dnnl_iterator_ends;

static void md_destroy(md_owned m) { free(m); }

static dnnl_status_t md_clone(md_owned *to, md_view m)
{
    *to = malloc(sizeof **to);
    if (!*to) return dnnl_out_of_memory;
    **to = *m;
    return dnnl_success;
}

static dnnl_status_t md_by_tag(md_owned *to, int rank, const int64_t *dim, dnnl_data_type_t type,
                               dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t m;
    const dnnl_status_t s = dnnl_memory_desc_init_by_tag(&m, rank, dim, type, tag);
    return s == dnnl_success ? md_clone(to, &m) : s;
}

static dnnl_status_t md_as(md_owned *to, md_view m, dnnl_data_type_t type)
{
    const dnnl_status_t s = md_clone(to, m);
    if (s == dnnl_success) (*to)->data_type = type;
    return s;
}

static md_parts md_parts_of(md_view m)
{
    const dnnl_blocking_desc_t *b = &m->format_desc.blocking;
    return (md_parts){m->ndims, (int)m->data_type, (int)m->format_kind, (int)m->extra.flags, b->inner_nblks,
                      m->dims,  m->padded_dims,    b->strides,          b->inner_blks,       b->inner_idxs};
}

static dnnl_status_t convolution_init(const operation *o, dnnl_convolution_desc_t *op)
{
    if (o->pass == KOLO_DNNL_FORWARD)
        return dnnl_dilated_convolution_forward_desc_init(op, dnnl_forward_training, o->kind, o->x, o->w,
                                                          o->bias, o->y, o->stride, o->dilate, o->pad,
                                                          o->pad);
    if (o->pass == KOLO_DNNL_DATA)
        return dnnl_dilated_convolution_backward_data_desc_init(op, o->kind, o->x, o->w, o->y, o->stride,
                                                                o->dilate, o->pad, o->pad);
    return dnnl_dilated_convolution_backward_weights_desc_init(op, o->kind, o->x, o->w, o->bias, o->y,
                                                               o->stride, o->dilate, o->pad, o->pad);
}

static dnnl_status_t linear_init(const operation *o, dnnl_inner_product_desc_t *op)
{
    if (o->pass == KOLO_DNNL_FORWARD)
        return dnnl_inner_product_forward_desc_init(op, dnnl_forward_training, o->x, o->w, o->bias, o->y);
    if (o->pass == KOLO_DNNL_DATA) return dnnl_inner_product_backward_data_desc_init(op, o->x, o->w, o->y);
    return dnnl_inner_product_backward_weights_desc_init(op, o->x, o->w, o->bias, o->y);
}

static dnnl_status_t implementations_fetch(implementations *all)
{
    all->current = dnnl_primitive_desc_iterator_fetch(all->iterator);
    return all->current ? dnnl_success : dnnl_out_of_memory;
}

static dnnl_status_t implementations_open(implementations *all, const operation *o,
                                          dnnl_primitive_desc_t hint, dnnl_engine_t engine,
                                          const_dnnl_primitive_attr_t attr)
{
    dnnl_status_t s = o->linear ? linear_init(o, &all->op.linear) : convolution_init(o, &all->op.conv);
    if (s == dnnl_success)
        s = dnnl_primitive_desc_iterator_create(&all->iterator, &all->op, attr, engine, hint);
    return s == dnnl_success ? implementations_fetch(all) : s;
}

static dnnl_status_t implementations_next(implementations *all)
{
    dnnl_primitive_desc_destroy(all->current);
    all->current = NULL;
    const dnnl_status_t s = dnnl_primitive_desc_iterator_next(all->iterator);
    return s == dnnl_success ? implementations_fetch(all) : s;
}

static void implementations_close(implementations *all)
{
    if (all->iterator) dnnl_primitive_desc_iterator_destroy(all->iterator);
}
#else
static const dnnl_status_t no_more_implementations = dnnl_last_impl_reached;

static void md_destroy(md_owned m) { dnnl_memory_desc_destroy(m); }
static dnnl_status_t md_clone(md_owned *to, md_view m) { return dnnl_memory_desc_clone(to, m); }

static dnnl_status_t md_by_tag(md_owned *to, int rank, const int64_t *dim, dnnl_data_type_t type,
                               dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_create_with_tag(to, rank, dim, type, tag);
}

static md_parts md_parts_of(md_view m)
{
    md_parts p = {0};
    const dnnl_dims_t *dims = NULL, *padded = NULL, *strides = NULL, *blocks = NULL, *indices = NULL;
    dnnl_data_type_t type = dnnl_data_type_undef;
    dnnl_format_kind_t kind = dnnl_format_kind_undef;
    dnnl_memory_desc_query(m, dnnl_query_ndims_s32, &p.rank);
    dnnl_memory_desc_query(m, dnnl_query_data_type, &type);
    dnnl_memory_desc_query(m, dnnl_query_format_kind, &kind);
    dnnl_memory_desc_query(m, dnnl_query_dims, &dims);
    dnnl_memory_desc_query(m, dnnl_query_padded_dims, &padded);
    p.type = (int)type;
    p.kind = (int)kind;
    p.dims = dims ? *dims : NULL;
    p.padded = padded ? *padded : NULL;
    if (kind != dnnl_blocked) return p;
    dnnl_memory_desc_query(m, dnnl_query_strides, &strides);
    dnnl_memory_desc_query(m, dnnl_query_inner_nblks_s32, &p.inner);
    dnnl_memory_desc_query(m, dnnl_query_inner_blks, &blocks);
    dnnl_memory_desc_query(m, dnnl_query_inner_idxs, &indices);
    p.strides = strides ? *strides : NULL;
    p.blocks = blocks ? *blocks : NULL;
    p.indices = indices ? *indices : NULL;
    return p;
}

/* A type cannot be set, so the arrangement is looked for among all that have a name. */
static dnnl_status_t md_as(md_owned *to, md_view m, dnnl_data_type_t type)
{
    const md_parts p = md_parts_of(m);
    for (int tag = dnnl_format_tag_any; tag < dnnl_format_tag_last; tag++) {
        md_owned tried;
        if (md_by_tag(&tried, p.rank, p.dims, (dnnl_data_type_t)p.type, (dnnl_format_tag_t)tag) !=
            dnnl_success)
            continue;
        const bool same = dnnl_memory_desc_equal(tried, m);
        md_destroy(tried);
        if (same) return md_by_tag(to, p.rank, p.dims, type, (dnnl_format_tag_t)tag);
    }
    return dnnl_unimplemented;
}

static dnnl_status_t implementations_open(implementations *all, const operation *o,
                                          dnnl_primitive_desc_t hint, dnnl_engine_t engine,
                                          const_dnnl_primitive_attr_t attr)
{
    dnnl_primitive_desc_t *pd = &all->current;
    if (o->linear && o->pass == KOLO_DNNL_FORWARD)
        return dnnl_inner_product_forward_primitive_desc_create(pd, engine, dnnl_forward_training, o->x, o->w,
                                                                o->bias, o->y, attr);
    if (o->linear && o->pass == KOLO_DNNL_DATA)
        return dnnl_inner_product_backward_data_primitive_desc_create(pd, engine, o->x, o->w, o->y, hint,
                                                                      attr);
    if (o->linear)
        return dnnl_inner_product_backward_weights_primitive_desc_create(pd, engine, o->x, o->w, o->bias,
                                                                         o->y, hint, attr);
    if (o->pass == KOLO_DNNL_FORWARD)
        return dnnl_convolution_forward_primitive_desc_create(pd, engine, dnnl_forward_training, o->kind,
                                                              o->x, o->w, o->bias, o->y, o->stride, o->dilate,
                                                              o->pad, o->pad, attr);
    if (o->pass == KOLO_DNNL_DATA)
        return dnnl_convolution_backward_data_primitive_desc_create(
            pd, engine, o->kind, o->x, o->w, o->y, o->stride, o->dilate, o->pad, o->pad, hint, attr);
    return dnnl_convolution_backward_weights_primitive_desc_create(
        pd, engine, o->kind, o->x, o->w, o->bias, o->y, o->stride, o->dilate, o->pad, o->pad, hint, attr);
}

static dnnl_status_t implementations_next(implementations *all)
{
    const dnnl_status_t s = dnnl_primitive_desc_next_impl(all->current);
    if (s == dnnl_success) return s;
    dnnl_primitive_desc_destroy(all->current);
    all->current = NULL;
    return s;
}

static void implementations_close(implementations *all) { (void)all; }
#endif

#endif
