/* Modules by name: a network's layers as its parameters and tensors are called. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/option.h"
#include "graph/graph.h"
#include "kolo/error.h"

const char *kolo_graph_node_name(const kolo_graph *g, int64_t node)
{
    const kolo_node *n = &g->node[node];
    return n->out[0] >= 0 ? g->tensor[n->out[0]].name : "";
}

/* Is `name` the module, or of it? A norm's sums are "bn1:sums". */
static bool is_of(const char *name, const char *module, size_t length)
{
    return !strncmp(name, module, length) && (!name[length] || name[length] == '.' || name[length] == ':');
}

int64_t kolo_graph_module(const kolo_graph *g, int64_t nodes, const char *module)
{
    const size_t length = strlen(module);
    for (int64_t i = 0; i < nodes; i++) {
        if (is_of(kolo_graph_node_name(g, i), module, length)) return i;
        for (int k = 0; k < g->node[i].n_in; k++) {
            const int t = g->node[i].in[k];
            if (t >= 0 && g->tensor[t].role == KOLO_ROLE_PARAM && is_of(g->tensor[t].name, module, length))
                return i;
        }
    }
    return -1;
}

int kolo_graph_module_unknown(const kolo_graph *g, int64_t nodes, const char *key, const char *module)
{
    const char **names = kolo_alloc((size_t)(nodes + 1) * sizeof *names);
    if (!names) return KOLO_ENOMEM;
    for (int64_t i = 0; i < nodes; i++) names[i] = kolo_graph_node_name(g, i);
    const char *near = kolo_nearest(module, names, (int)nodes);
    const int rc = kolo_fail(KOLO_ECONFIG, "%s=: %s has no module %s%s%s", key, g->name, module,
                             near ? "; did you mean " : "", near ? near : "");
    free(names);
    return rc;
}
