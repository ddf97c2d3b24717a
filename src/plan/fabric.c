#include "plan/fabric.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/numbers.h"
#include "base/yaml.h"
#include "kolo/error.h"

static const kolo_number_key keys[] = {
#define KEY(name, least, most, wanted, whole, what) \
    {#name, offsetof(kolo_fabric, name), least, most, what, wanted, whole},
    KOLO_FABRIC(KEY)
#undef KEY
};
static const kolo_numbers table = {"cluster", "share/clusters", keys, sizeof keys / sizeof *keys, "gpu"};

static int set_gpu(kolo_fabric *f, const char *text, const char *where)
{
    if (!*text || strlen(text) >= sizeof f->gpu)
        return kolo_fail(KOLO_ECONFIG, "%s: gpu: \"%s\" is no name of a table in share/gpus, such as h100",
                         where, text);
    snprintf(f->gpu, sizeof f->gpu, "%s", text);
    return 0;
}

static int fabric_set(void *fabric, const char *name, const char *text, const char *where)
{
    return strcmp(name, "gpu") ? kolo_numbers_set(&table, fabric, name, text, where)
                               : set_gpu(fabric, text, where);
}

int kolo_fabric_read(kolo_fabric *f, const char *path)
{
    static const kolo_yaml_form form = {"table of a cluster", fabric_set};
    *f = (kolo_fabric){.share = 1};
    kolo_numbers_begin(&table, f);
    KOLO_TRY(kolo_yaml_read(path, &form, f));
    if (!*f->gpu)
        return kolo_fail(KOLO_ECONFIG, "%s: gpu is missing (the name of a table in share/gpus, such as h100)",
                         path);
    return kolo_numbers_check(&table, f, path);
}

void kolo_fabric_rates(const kolo_fabric *f, kolo_rates *rates)
{
    if (f->memory > 0) rates->memory = f->memory;
    if (f->bandwidth > 0) rates->bandwidth = f->bandwidth;
    rates->gpus = f->gpus;
    rates->link = f->link;
    rates->network = f->network / f->gpus;
    rates->latency = f->start;
}

kolo_fabric kolo_fabric_node(const kolo_fabric_host *h)
{
    const double latency = h->latency * 1e6;
    return (kolo_fabric){.nodes = 1,
                         .gpus = INT_MAX,
                         .link_latency = latency,
                         .network_latency = latency,
                         .share = 1,
                         .cores = h->cores,
                         .threads = h->threads,
                         .copy = h->copy,
                         .add = h->add,
                         .crowd = h->crowd,
                         .turn = h->turn,
                         .handover = h->handover,
                         .poll = h->poll};
}

/* ---- messages ---- */

static int halvings(int n)
{
    int k = 0;
    while ((1L << k) < n) k++;
    return k;
}

/* In a node's memory every rank adds its part of all others' and copies it to them. */
static kolo_fabric_load sum_in_memory(const kolo_fabric *f, const kolo_fabric_group *g, double sent,
                                      bool whole)
{
    const double part = sent / (whole ? 2 : 1); /* (n-1)/n of all: what others have of a rank's part */
    const double at_once = (double)g->ranks * g->beside,
                 others = f->cores > 1 ? fmin((at_once - 1) / (f->cores - 1), 1) : 0,
                 crowd = 1 + (f->crowd > 1 ? f->crowd - 1 : 0) * others;
    return (kolo_fabric_load){.latency = f->link_latency * 1e-6,
                              .seconds = part * (f->add + (whole ? f->copy : 0)) * crowd,
                              .cores = at_once};
}

kolo_fabric_load kolo_fabric_sum(const kolo_fabric *f, const kolo_fabric_group *g, double sent, bool whole)
{
    if (g->ranks < 2) return (kolo_fabric_load){0};
    if (f->cores > 0) return sum_in_memory(f, g, sent, whole);
    /* of a node's ports those of its ranks of the group */
    const double ways = whole ? 2 : 1, n = g->ranks, far = g->nodes > 1 ? g->nodes - 1 : 0;
    const double ports = n / g->nodes < f->gpus ? f->network * (n / g->nodes) / f->gpus : f->network;
    const double one = ports < f->link && far > 0 ? ports : f->link, rate = one * 1e9 * f->share;
    double latency = ways * (far * f->network_latency + (n - 1 - far) * f->link_latency), bytes = sent;
    if (whole) {
        const double all = sent * n / (n - 1); /* a tree passes everything, up and down */
        const double chain = (n / g->nodes - 1) * f->link_latency;
        const double tree = 2 * (halvings(g->nodes) * f->network_latency + (chain > 0 ? chain : 0));
        if (tree * 1e-6 + all / rate < latency * 1e-6 + sent / rate) latency = tree, bytes = all;
    }
    return (kolo_fabric_load){.latency = (f->start + latency) * 1e-6,
                              .seconds = bytes / rate,
                              .network = far > 0 ? one / f->network * g->beside : 0};
}

kolo_fabric_load kolo_fabric_send(const kolo_fabric *f, bool same_node, int senders, double bytes)
{
    if (f->cores > 0)
        return (kolo_fabric_load){
            .latency = f->link_latency * 1e-6, .seconds = bytes * f->copy, .cores = senders};
    const double port = f->network / f->gpus, rate = (same_node ? f->link : port) * 1e9 * f->share;
    return (kolo_fabric_load){.latency = (same_node ? f->link_latency : f->network_latency) * 1e-6,
                              .seconds = bytes / rate,
                              .network = same_node ? 0 : senders / f->gpus};
}
