#include "plan/servers.h"

#include <stdlib.h>

#include "base/memory.h"
#include "optim/optim.h"

static int64_t elements(const kolo_plan *p) { return (int64_t)(p->trained_bytes / sizeof(float)); }

/* The border between two tensors that is next to an element. */
static int64_t border(const kolo_plan *p, int64_t at)
{
    int64_t best = 0;
    for (int s = 0; s < p->segments; s++) {
        const int64_t begin = p->segment[s].begin, end = begin + p->segment[s].count;
        if (llabs(begin - at) < llabs(best - at)) best = begin;
        if (s == p->segments - 1 && llabs(end - at) < llabs(best - at)) best = elements(p);
    }
    return best;
}

int64_t kolo_plan_served(const kolo_plan *p, int rank)
{
    const int64_t all = elements(p), line = KOLO_ALIGN / sizeof(float);
    const int part = rank - p->config.first_server;
    if (part >= p->config.servers) return all;
    const int64_t at = all / p->config.servers * part;
    return part <= 0 ? 0 : kolo_is_layerwise(p->config.optimizer) ? border(p, at) : at / line * line;
}

size_t kolo_plan_pushed(const kolo_plan *p, int rank, size_t *from)
{
    const int64_t begin = kolo_plan_served(p, rank), end = kolo_plan_served(p, rank + 1);
    *from = rank == p->config.first_server ? 0 : p->reduced_front + (size_t)begin * sizeof(float);
    return p->reduced_front + (size_t)end * sizeof(float);
}

static size_t take(size_t *at, size_t bytes)
{
    const size_t begin = *at;
    *at = kolo_round_up(begin + bytes, KOLO_ALIGN);
    return begin;
}

kolo_servers kolo_plan_servers(const kolo_plan *p)
{
    const int first = p->config.first_server, end = first + p->config.servers;
    const size_t n = (size_t)kolo_workers(&p->config);
    kolo_servers s = {0};
    for (int r = first; r < end; r++) {
        size_t from;
        const size_t pushed = kolo_plan_pushed(p, r, &from) - from;
        const size_t weights = (size_t)(kolo_plan_served(p, r + 1) - kolo_plan_served(p, r)) * sizeof(float);
        if (pushed > s.gradient_stride) s.gradient_stride = kolo_round_up(pushed, KOLO_ALIGN);
        if (weights > s.weight_stride) s.weight_stride = kolo_round_up(weights, KOLO_ALIGN);
    }
    s.heads = take(&s.bytes, (size_t)end * KOLO_MESSAGE_BYTES);
    s.headed = take(&s.bytes, n * KOLO_MESSAGE_BYTES);
    s.replies = take(&s.bytes, n * KOLO_MESSAGE_BYTES);
    s.reply = take(&s.bytes, KOLO_MESSAGE_BYTES);
    s.gradients = take(&s.bytes, n * s.gradient_stride);
    s.weights = take(&s.bytes, n * s.weight_stride);
    s.own = take(&s.bytes, s.weight_stride);
    return s;
}

size_t kolo_plan_spared(const kolo_plan *p, int rank)
{
    if (rank >= p->config.first_server) return 0;
    const kolo_servers at = kolo_plan_servers(p);
    return at.bytes - at.gradients;
}
