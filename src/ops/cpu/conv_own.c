#include "ops/cpu/conv_own.h"

#include <string.h>

static bool small_fits(const kolo_conv_shape *s, kolo_conv_small *small)
{
    const kolo_attributes *a = s->a;
    const int64_t *x = s->x->dim, *y = s->y->dim;
    *small = (kolo_conv_small){
        x[0],      x[1], y[1], x[2], x[3], y[2], y[3], {a->kernel[0], a->kernel[1]}, {a->pad[0], a->pad[1]},
        s->threads};
    bool plain = s->lx->block == 1 && s->ly->block == 1 && s->x->dtype == KOLO_F32 && a->groups == 1;
    bool unit = a->stride[0] == 1 && a->stride[1] == 1 && a->dilation[0] == 1 && a->dilation[1] == 1;
    return plain && unit && kolo_conv_small_fits(small);
}

static bool depthwise_fits(const kolo_conv_shape *s, kolo_conv_depthwise *d)
{
    const kolo_attributes *a = s->a;
    *d = (kolo_conv_depthwise){
        .x = kolo_cpu_view(s->x, s->lx), .y = kolo_cpu_view(s->y, s->ly), .threads = s->threads};
    memcpy(d->kernel, a->kernel, sizeof d->kernel);
    memcpy(d->stride, a->stride, sizeof d->stride);
    memcpy(d->pad, a->pad, sizeof d->pad);
    memcpy(d->dilation, a->dilation, sizeof d->dilation);
    return a->groups == s->x->dim[1] && kolo_conv_depthwise_fits(d);
}

static bool winograd_fits(const kolo_conv_shape *s, kolo_conv_winograd *w)
{
    const kolo_attributes *a = s->a;
    *w = (kolo_conv_winograd){
        kolo_cpu_view(s->x, s->lx), kolo_cpu_view(s->y, s->ly), {a->pad[0], a->pad[1]}, s->threads};
    const bool three = a->kernel[0] == 3 && a->kernel[1] == 3 && a->groups == 1;
    const bool unit = a->stride[0] == 1 && a->stride[1] == 1 && a->dilation[0] == 1 && a->dilation[1] == 1;
    return three && unit && kolo_conv_winograd_fits(w);
}

static bool pointwise_fits(const kolo_conv_shape *s, kolo_conv_pointwise *p)
{
    const kolo_attributes *a = s->a;
    *p = (kolo_conv_pointwise){kolo_cpu_view(s->x, s->lx), kolo_cpu_view(s->y, s->ly), s->threads};
    const bool one = a->kernel[0] == 1 && a->kernel[1] == 1 && a->groups == 1 && !a->pad[0] && !a->pad[1];
    return one && a->stride[0] == 1 && a->stride[1] == 1 && kolo_conv_pointwise_fits(p, s->pass);
}

static bool direct_fits(const kolo_conv_shape *s, kolo_conv_direct *d)
{
    const kolo_attributes *a = s->a;
    *d = (kolo_conv_direct){.x = kolo_cpu_view(s->x, s->lx),
                            .y = kolo_cpu_view(s->y, s->ly),
                            .stride = a->stride[0],
                            .threads = s->threads};
    memcpy(d->kernel, a->kernel, sizeof d->kernel);
    memcpy(d->pad, a->pad, sizeof d->pad);
    const bool plain = a->groups == 1 && a->dilation[0] == 1 && a->dilation[1] == 1;
    return plain && a->stride[0] == 2 && a->stride[1] == 2 && kolo_conv_direct_fits(d, s->pass);
}

bool kolo_conv_own_blocks(enum kolo_conv_own_kind kind)
{
    return kind == KOLO_CONV_POINTWISE || kind == KOLO_CONV_DIRECT || kind == KOLO_CONV_WINOGRAD;
}

bool kolo_conv_own_adds(enum kolo_conv_own_kind kind)
{
    return kind == KOLO_CONV_POINTWISE || kind == KOLO_CONV_DIRECT;
}

bool kolo_conv_own_fits(const kolo_conv_shape *s, enum kolo_conv_own_kind kind, kolo_conv_own *own)
{
    own->kind = kind;
    own->pass = s->pass;
    if (kind == KOLO_CONV_WINOGRAD) return winograd_fits(s, &own->winograd);
    if (kind == KOLO_CONV_POINTWISE) return pointwise_fits(s, &own->pointwise);
    if (kind == KOLO_CONV_DIRECT) return direct_fits(s, &own->direct);
    return kind == KOLO_CONV_SMALL ? small_fits(s, &own->small) : depthwise_fits(s, &own->depthwise);
}

size_t kolo_conv_own_bytes(const kolo_conv_own *o)
{
    if (o->kind == KOLO_CONV_WINOGRAD) return kolo_conv_winograd_bytes(&o->winograd, o->pass);
    if (o->kind == KOLO_CONV_POINTWISE) return kolo_conv_pointwise_bytes(&o->pointwise, o->pass);
    if (o->kind == KOLO_CONV_DIRECT) return kolo_conv_direct_bytes(&o->direct, o->pass);
    if (o->kind == KOLO_CONV_DEPTHWISE) return kolo_conv_depthwise_bytes(&o->depthwise, o->pass);
    return o->pass == KOLO_DNNL_FORWARD ? kolo_conv_small_forward_bytes(&o->small)
           : o->pass == KOLO_DNNL_DATA  ? kolo_conv_small_data_bytes(&o->small)
                                        : kolo_conv_small_weight_bytes(&o->small);
}

enum { X, W, Y, BIAS };

static void run_small(const kolo_conv_own *o, void *const *p, void *workspace)
{
    if (o->pass == KOLO_DNNL_FORWARD)
        kolo_conv_small_forward(&o->small, p[X], p[W], p[BIAS], p[Y], workspace);
    else if (o->pass == KOLO_DNNL_DATA) kolo_conv_small_data(&o->small, p[X], p[W], p[Y], workspace);
    else kolo_conv_small_weight(&o->small, p[X], p[W], p[BIAS], p[Y], workspace);
}

static void run_pointwise(const kolo_conv_own *o, void *const *p, void *workspace, bool arranged)
{
    const kolo_conv_pointwise *s = &o->pointwise;
    if (o->pass == KOLO_DNNL_FORWARD) kolo_conv_pointwise_forward(s, p[X], p[W], p[BIAS], p[Y]);
    else if (o->pass == KOLO_DNNL_DATA)
        kolo_conv_pointwise_data(s, p[X], p[W], p[Y], p[BIAS], workspace, arranged);
    else kolo_conv_pointwise_weight(s, p[X], p[W], p[BIAS], p[Y]);
}

static void run_direct(const kolo_conv_own *o, void *const *p, void *workspace, bool arranged)
{
    const kolo_conv_direct *s = &o->direct;
    if (o->pass == KOLO_DNNL_FORWARD) kolo_conv_direct_forward(s, p[X], p[W], p[BIAS], p[Y], workspace);
    else if (o->pass == KOLO_DNNL_DATA)
        kolo_conv_direct_data(s, p[X], p[W], p[Y], p[BIAS], workspace, arranged);
    else kolo_conv_direct_weight(s, p[X], p[W], p[BIAS], p[Y], workspace);
}

static void run_winograd(const kolo_conv_own *o, void *const *p, void *workspace, bool arranged)
{
    const kolo_conv_winograd *w = &o->winograd;
    if (o->pass == KOLO_DNNL_FORWARD)
        kolo_conv_winograd_forward(w, p[X], p[W], p[BIAS], p[Y], workspace, arranged);
    else if (o->pass == KOLO_DNNL_DATA) kolo_conv_winograd_data(w, p[X], p[W], p[Y], workspace, arranged);
    else kolo_conv_winograd_weight(w, p[X], p[W], p[BIAS], p[Y], workspace);
}

void kolo_conv_own_run(const kolo_conv_own *o, void *const p[4], void *workspace, bool arranged)
{
    if (o->kind == KOLO_CONV_SMALL) run_small(o, p, workspace);
    else if (o->kind == KOLO_CONV_POINTWISE) run_pointwise(o, p, workspace, arranged);
    else if (o->kind == KOLO_CONV_DIRECT) run_direct(o, p, workspace, arranged);
    else if (o->kind == KOLO_CONV_WINOGRAD) run_winograd(o, p, workspace, arranged);
    else if (o->pass == KOLO_DNNL_FORWARD)
        kolo_conv_depthwise_forward(&o->depthwise, p[X], p[W], p[BIAS], p[Y], workspace);
    else if (o->pass == KOLO_DNNL_DATA) kolo_conv_depthwise_data(&o->depthwise, p[X], p[W], p[Y], workspace);
    else kolo_conv_depthwise_weight(&o->depthwise, p[X], p[W], p[BIAS], p[Y], workspace);
}

const char *kolo_conv_own_name(enum kolo_conv_own_kind kind)
{
    return kind == KOLO_CONV_SMALL       ? "own small"
           : kind == KOLO_CONV_POINTWISE ? "own pointwise"
           : kind == KOLO_CONV_DIRECT    ? "own direct"
           : kind == KOLO_CONV_WINOGRAD  ? "own winograd"
                                         : "own depthwise";
}
