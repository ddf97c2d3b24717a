#include "models/darknet.h"

#include "kolo/error.h"

static int previous(const kolo_darknet *d) { return d->layers ? d->out[d->layers - 1] : d->input; }

static kolo_part name_of(const kolo_darknet *d) { return kolo_numbered("module_list", d->layers); }

static int darknet_append(kolo_darknet *d, int tensor)
{
    if (d->layers == KOLO_DARKNET_LAYERS)
        return kolo_fail(KOLO_ECONFIG, "more than %d layers", KOLO_DARKNET_LAYERS);
    return d->out[d->layers++] = tensor;
}

/* Output of a layer that one before it is asked for by. */
static int at(const kolo_darknet *d, int from)
{
    const int layer = from < 0 ? d->layers + from : from;
    if (layer >= 0 && layer < d->layers) return d->out[layer];
    if (!d->layers)
        return kolo_fail(KOLO_ECONFIG, "layer 0 refers to layer %d; there is no layer before it", from);
    return kolo_fail(KOLO_ECONFIG, "layer %d refers to layer %d; the layers before it are 0 to %d", d->layers,
                     from, d->layers - 1);
}

/* Batch norm as on darknet's GPUs: epsilon inside of the root, 0.99 of the old statistics kept. */
int kolo_darknet_convolution(kolo_darknet *d, const kolo_darknet_conv *c)
{
    const kolo_part name = name_of(d), conv = kolo_part_of(name.text, "conv");
    int x = previous(d);
    const bool pixel = x >= 0 && d->g->tensor[x].rank == 2; /* behind an average pool */
    const int64_t groups = c->groups ? c->groups : 1;
    const kolo_init weight = kolo_kaiming_normal(c->kernel * c->kernel * kolo_channels(d->g, x) / groups);
    if (pixel && (c->kernel != 1 || groups != 1))
        return darknet_append(d,
                              kolo_fail(KOLO_ECONFIG, "a convolution of one pixel is 1 x 1, in one group"));
    const kolo_conv_spec spec = {.out = c->out,
                                 .kernel = {c->kernel, c->kernel},
                                 .stride = {c->stride, c->stride},
                                 .pad = {c->pad, c->pad},
                                 .groups = groups,
                                 .bias = !c->norm,
                                 .weight = weight,
                                 .bias_init = kolo_constant(0)};
    x = pixel ? kolo_pointwise(d->g, conv.text, x, c->out, !c->norm, weight, kolo_constant(0))
              : kolo_conv(d->g, conv.text, x, &spec);
    if (c->norm) x = kolo_batch_norm(d->g, kolo_part_of(name.text, "bn").text, x, 1e-5, 0.01, 1);
    if (!c->linear) x = kolo_activate(d->g, name.text, x, c->activation, 0.1);
    return darknet_append(d, x);
}

int kolo_darknet_shortcut(kolo_darknet *d, int from)
{
    return darknet_append(d, kolo_add(d->g, name_of(d).text, previous(d), at(d, from)));
}

int kolo_darknet_route(kolo_darknet *d, int n, const int *from, int groups, int group)
{
    int part[KOLO_MAX_ARGS];
    for (int i = 0; i < n; i++) {
        part[i] = at(d, from[i]);
        if (part[i] < 0) return darknet_append(d, part[i]);
        const int64_t channels = kolo_channels(d->g, part[i]);
        if (groups < 1 || channels % groups || group < 0 || group >= groups)
            return darknet_append(d, kolo_fail(KOLO_ECONFIG, "%ld channels have no group %d of %d",
                                               (long)channels, group, groups));
        if (groups > 1)
            part[i] =
                kolo_slice_channels(d->g, kolo_numbered(kolo_part_of(name_of(d).text, "part").text, i).text,
                                    part[i], channels / groups * group, channels / groups);
    }
    return darknet_append(d, n == 1 ? part[0] : kolo_concat(d->g, name_of(d).text, n, part));
}

int kolo_darknet_maxpool(kolo_darknet *d, int64_t size, int64_t stride)
{
    return darknet_append(d, kolo_max_pool_same(d->g, name_of(d).text, previous(d), size, stride));
}

int kolo_darknet_upsample(kolo_darknet *d, int64_t times)
{
    return darknet_append(d, kolo_upsample(d->g, name_of(d).text, previous(d), times));
}

int kolo_darknet_avgpool(kolo_darknet *d)
{
    return darknet_append(d, kolo_global_avg_pool(d->g, name_of(d).text, previous(d)));
}

int kolo_darknet_softmax(kolo_darknet *d) { return darknet_append(d, previous(d)); }

int kolo_darknet_yolo(kolo_darknet *d, const int32_t mask[3])
{
    const int x = previous(d);
    const int64_t want = 3 * (5 + d->classes);
    if (x < 0) return darknet_append(d, x);
    if (d->heads == KOLO_MAX_HEADS)
        return darknet_append(d, kolo_fail(KOLO_ECONFIG, "more than %d heads", KOLO_MAX_HEADS));
    if (d->g->tensor[x].rank != 4 || kolo_channels(d->g, x) != want)
        return darknet_append(
            d, kolo_fail(KOLO_ECONFIG, "%ld channels are not a head's: three anchors of %ld classes need %ld",
                         (long)kolo_channels(d->g, x), (long)d->classes, (long)want));
    memcpy(d->mask[d->heads], mask, sizeof d->mask[0]);
    d->head[d->heads++] = x;
    return darknet_append(d, x);
}

static bool finer(const kolo_darknet *d, int a, int b)
{
    return d->g->tensor[d->head[b]].dim[2] < d->g->tensor[d->head[a]].dim[2];
}

static void exchange_heads(kolo_darknet *d, int a, int b)
{
    const int head = d->head[a];
    d->head[a] = d->head[b], d->head[b] = head;
    for (int i = 0; i < 3; i++) {
        const int32_t mask = d->mask[a][i];
        d->mask[a][i] = d->mask[b][i], d->mask[b][i] = mask;
    }
}

int kolo_darknet_finish(kolo_darknet *d)
{
    for (int i = 0; i < d->layers; i++)
        if (d->out[i] < 0) return d->out[i];
    const int last = previous(d);
    if (!d->heads && d->g->tensor[last].rank == 4)
        return kolo_fail(KOLO_ECONFIG,
                         "it ends with maps of %ld x %ld pixels, and neither finds boxes nor classifies: end "
                         "it with [yolo], or with [avgpool]",
                         (long)d->g->tensor[last].dim[2], (long)d->g->tensor[last].dim[3]);
    if (!d->heads) return last;
    for (int i = 1; i < d->heads; i++) /* by insertion; the order among equals stays */
        for (int k = i; k > 0 && finer(d, k, k - 1); k--) exchange_heads(d, k, k - 1);
    kolo_attributes a = {0};
    memcpy(a.anchor, d->anchor, sizeof a.anchor);
    memcpy(a.mask, d->mask, sizeof a.mask);
    return kolo_detect_loss(d->g, "yolov3", d->heads, d->head, 3, false, &a);
}
