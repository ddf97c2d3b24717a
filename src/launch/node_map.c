/* From the published names to nodes and local ranks, and to MPICH's description of the same. */
#include "launch/method.h"

#include "base/memory.h"
#include "kolo/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool same_node(const kolo_identity *a, const kolo_identity *b)
{
    return a->group == b->group && strcmp(a->name, b->name) == 0;
}

/* Node of every rank by first appearance; first[node] is its first rank. Returns the number of nodes. */
static int number_nodes(const kolo_identity *all, int size, int *node_of, int *first)
{
    int nodes = 0;
    for (int r = 0; r < size; r++) {
        /* neighbours in rank order mostly share a node, or (cyclic) follow each other: look there first */
        int guess = r > 0 ? node_of[r - 1] : 0, found = -1;
        for (int k = 0; k < nodes && found < 0; k++) {
            int node = (guess + k) % nodes;
            if (same_node(&all[first[node]], &all[r])) found = node;
        }
        if (found < 0) {
            found = nodes++;
            first[found] = r;
        }
        node_of[r] = found;
    }
    return nodes;
}

static int name_nodes(kolo_launch *launch, const kolo_identity *all, const int *first)
{
    launch->host_of = kolo_alloc((size_t)launch->nodes * sizeof *launch->host_of);
    if (!launch->host_of) return KOLO_ENOMEM;
    for (int n = 0; n < launch->nodes; n++)
        if (!(launch->host_of[n] = kolo_strdup(all[first[n]].name))) return KOLO_ENOMEM;
    return 0;
}

int kolo_node_map(kolo_launch *launch, const kolo_identity *all)
{
    int rc = KOLO_ENOMEM, size = launch->size;
    int *first = kolo_alloc((size_t)size * sizeof *first), *count = kolo_alloc((size_t)size * sizeof *count);
    launch->node_of = kolo_alloc((size_t)size * sizeof *launch->node_of);
    launch->local_of = kolo_alloc((size_t)size * sizeof *launch->local_of);
    if (!first || !count || !launch->node_of || !launch->local_of) goto fail;
    launch->nodes = number_nodes(all, size, launch->node_of, first);
    for (int r = 0; r < size; r++) launch->local_of[r] = count[launch->node_of[r]]++;
    launch->node = launch->node_of[launch->rank];
    launch->local_rank = launch->local_of[launch->rank];
    launch->local_size = count[launch->node];
    snprintf(launch->host, sizeof launch->host, "%s", all[launch->rank].name);
    rc = name_nodes(launch, all, first);
fail:
    free(first);
    free(count);
    if (rc < 0) kolo_node_map_free(launch);
    return rc;
}

int kolo_launch_part(kolo_launch *part, const kolo_launch *of, const int *rank, int count, const char *job)
{
    kolo_identity *all = kolo_alloc((size_t)count * sizeof *all);
    if (!all) return KOLO_ENOMEM;
    memset(part, 0, sizeof *part);
    part->method = "part";
    part->size = count;
    snprintf(part->job, sizeof part->job, "%s", job);
    for (int i = 0; i < count; i++) {
        int node = of->node_of[rank[i]];
        snprintf(all[i].name, sizeof all[i].name, "%s", of->host_of ? of->host_of[node] : of->host);
        all[i].group = node; /* nodes stay apart, whatever their names */
        if (rank[i] == of->rank) part->rank = i;
    }
    int rc = kolo_node_map(part, all);
    free(all);
    return rc;
}

void kolo_node_map_free(kolo_launch *launch)
{
    for (int n = 0; launch->host_of && n < launch->nodes; n++) free(launch->host_of[n]);
    free(launch->host_of);
    free(launch->node_of);
    free(launch->local_of);
    launch->host_of = NULL;
    launch->node_of = launch->local_of = NULL;
}

/* A block (s, n, c) puts c ranks on each of the nodes s .. s+n-1. */
char *kolo_node_vector(const int *node_of, int size, size_t longest)
{
    char *text = kolo_alloc(longest + 1);
    if (!text) return NULL;
    size_t used = (size_t)snprintf(text, longest + 1, "(vector");
    for (int r = 0; r < size && used <= longest;) {
        int start = node_of[r], per_node = 0, nodes = 0;
        while (r + per_node < size && node_of[r + per_node] == start) per_node++;
        for (bool fits = true; fits;) {
            int next = start + ++nodes, run = 0;
            r += per_node;
            while (run < per_node && r + run < size && node_of[r + run] == next) run++;
            fits = run == per_node && (r + run == size || node_of[r + run] != next);
        }
        used += (size_t)snprintf(text + used, longest + 1 - used, ",(%d,%d,%d)", start, nodes, per_node);
    }
    if (used < longest) {
        memcpy(text + used, ")", 2);
        return text;
    }
    free(text);
    return NULL;
}

int kolo_launch_by_node(const kolo_launch *l, int rank)
{
    int before = 0;
    for (int r = 0; r < l->size; r++)
        before += l->node_of[r] < l->node_of[rank] || (l->node_of[r] == l->node_of[rank] && r < rank);
    return before;
}
