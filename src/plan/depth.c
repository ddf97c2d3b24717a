/* Depths of parameters, for learning rates that fall from layer to layer (BEiT's rule: embedding 0, a number
 * a block, head last). */
#include <ctype.h>
#include <string.h>

#include "plan/plan.h"

/* Characters of `name` that name its block; 0: it stands in none. A block's name goes through the first
 * part that ends in a digit and the numbers behind it: "layer1.0" of layer1.0.conv1.weight. Where that is
 * the module itself ("features.0.1" of features.0.1.weight), its parent, if that ends in a number too:
 * the parts of a stem. */
static size_t block_of(const char *name)
{
    const char *leaf = strrchr(name, '.');
    size_t module = leaf ? (size_t)(leaf - name) : strlen(name), end = 0, at = 0, before = 0;
    while (at < module) {
        size_t part = strcspn(name + at, "."), next = at + part < module ? at + part : module;
        bool number = strspn(name + at, "0123456789") >= next - at;
        if (end && !number) break;
        if (isdigit((unsigned char)name[next - 1])) {
            before = end;
            end = next;
        }
        at = next + 1;
    }
    /* else a parameter of the block itself */
    const size_t length = leaf ? strcspn(leaf, ":") : 0; /* without the part of a slab */
    bool layer = (length == 7 && !strncmp(leaf, ".weight", length)) ||
                 (length == 5 && !strncmp(leaf, ".bias", length));
    return end < module || !layer ? end : before;
}

/* In the order in which the forward half reads them. */
typedef struct walk {
    bool blocks; /* some parameter stands in one */
    const char *last;
    size_t length; /* of the block's name in it */
    int depths;
} walk;

static int visit(walk *w, const kolo_tensor *t)
{
    size_t own = block_of(t->name);
    bool other = w->blocks ? own != w->length || strncmp(t->name, w->last, own) : t->rank > 1;
    w->last = t->name;
    w->length = own;
    if (other || w->depths == 0) w->depths++;
    return w->depths - 1;
}

int kolo_plan_depths(const kolo_graph *g, int *depth)
{
    walk w = {.last = ""};
    for (int t = 0; t < g->tensors; t++) {
        depth[t] = -1;
        w.blocks |= g->tensor[t].role == KOLO_ROLE_PARAM && block_of(g->tensor[t].name) > 0;
    }
    for (int64_t i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].n_in && !g->node[i].backward; k++) {
            int t = g->node[i].in[k];
            if (t >= 0 && g->tensor[t].role == KOLO_ROLE_PARAM && depth[t] < 0)
                depth[t] = visit(&w, &g->tensor[t]);
        }
    return w.depths;
}
