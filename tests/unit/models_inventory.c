/* Every network against figures and names that PyTorch gave: parameters, state dicts,
 * multiply-accumulates. */
#include "golden_file.h"
#include "models/models.h"

static cJSON *inventory;

/* NULL: a network not built here. */
static const kolo_model *known(const char *entry, char name[64], const char **shortcut)
{
    golden_network(entry, name, shortcut);
    for (int i = 0; i < kolo_model_count; i++)
        if (!strcmp(kolo_model_table[i].name, name)) return &kolo_model_table[i];
    return NULL;
}

static kolo_graph *build(const char *name, const char *shortcut, int64_t classes, bool train)
{
    kolo_model_config config = {.rows = 2,
                                .classes = classes,
                                .shortcut = shortcut,
                                .auxiliary = -1,
                                .std = {1, 1, 1, 1},
                                .train = train,
                                .dtype = KOLO_F32};
    kolo_graph *g = NULL;
    if (kolo_model_graph(&g, name, &config) < 0) diag("%s: %s", name, kolo_error_text());
    return g;
}

static int64_t number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return item ? (int64_t)item->valuedouble : 0;
}

static void counts(const cJSON *entry)
{
    char name[64];
    const char *shortcut;
    if (!ok(known(entry->string, name, &shortcut) != NULL, "%s is here", entry->string)) return;
    for (int train = 0; train < 2; train++) {
        kolo_graph *g = build(name, shortcut, number(entry, "classes"), train);
        if (!ok(g != NULL, "%s is built for %s", entry->string, train ? "training" : "evaluation")) continue;
        is_int(kolo_graph_parameters(g), number(entry, "parameters"), "%s: parameters", entry->string);
        if (g->auxiliary < 0) /* PyTorch's are of an evaluation, which has no such head */
            is_int(kolo_graph_macs(g), number(entry, "macs_total"), "%s: multiply-accumulates",
                   entry->string);
        int64_t parameters = 0, running = 0, vectors = 0, tables = 0;
        for (int64_t t = 0; t < g->tensors; t++) {
            tables += strstr(g->tensor[t].name, "relative_position_bias_table") &&
                      g->tensor[t].role == KOLO_ROLE_PARAM;
            parameters += g->tensor[t].role == KOLO_ROLE_PARAM;
            if (g->tensor[t].role != KOLO_ROLE_BUFFER) continue;
            running += kolo_tensor_count(&g->tensor[t]);
            vectors++;
        }
        is_int(parameters, number(entry, "parameter_tensors"), "%s: parameter tensors", entry->string);
        is_int(running, number(entry, "running_floats"), "%s: running statistics", entry->string);
        /* PyTorch counts batches beside each pair of running statistics, and has an index beside each
         * table */
        is_int(parameters + vectors + vectors / 2 + tables, number(entry, "state_entries"),
               "%s: state entries", entry->string);
        kolo_graph_destroy(&g);
    }
}

static int same_shape(const kolo_tensor *tensor, const cJSON *shape)
{
    int same = tensor->rank == cJSON_GetArraySize(shape);
    for (int i = 0; same && i < tensor->rank; i++)
        same = tensor->dim[i] == (int64_t)cJSON_GetArrayItem(shape, i)->valuedouble;
    return same;
}

/* What PyTorch keeps and this program does not: a counter, and a table of numbers that
 * follows from the window. */
static int derived(const char *name)
{
    return strstr(name, "num_batches_tracked") || strstr(name, "relative_position_index");
}

static void state_dict(const cJSON *names)
{
    char name[64];
    const char *shortcut;
    if (!known(names->string, name, &shortcut)) return;
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(inventory, "models"), names->string);
    kolo_graph *g = build(name, shortcut, number(entry, "classes"), true);
    if (!g) {
        ok(0, "%s is built", names->string);
        return;
    }
    int wrong = 0, theirs = 0, ours = 0;
    for (const cJSON *item = names->child; item; item = item->next) {
        if (derived(item->string)) continue;
        theirs++;
        int t = kolo_graph_find(g, item->string);
        if (t >= 0 && same_shape(&g->tensor[t], item)) continue;
        if (!wrong++) diag("%s: %s", item->string, t < 0 ? "is not here" : "has another shape here");
    }
    for (int64_t t = 0; t < g->tensors; t++)
        ours += g->tensor[t].role == KOLO_ROLE_PARAM || g->tensor[t].role == KOLO_ROLE_BUFFER;
    ok(!wrong && ours == theirs, "%s: names and shapes of the state dict", names->string);
    kolo_graph_destroy(&g);
}

/* golden/models/NAME.json: a gradient for every parameter, a tensor for every activation that fusion
 * leaves */
static void golden_names(const char *file, const char *name, const char *shortcut, const char *const *fused)
{
    char path[512];
    snprintf(path, sizeof path, GOLDEN_FOLDER "/models/%s", file);
    cJSON *golden = golden_read(path);
    if (!ok(golden != NULL, "%s can be read", path)) return;
    kolo_graph *g = build(name, shortcut, 10, true);
    int missing = g == NULL, gradients = 0;
    for (const cJSON *item = cJSON_GetObjectItem(golden, "grads")->child; g && item; item = item->next) {
        if (!strcmp(item->string, "input")) continue;
        int t = kolo_graph_find(g, item->string);
        if (t < 0 || g->grad[t] < 0) diag("no gradient of %s", item->string), missing++;
        gradients++;
    }
    for (const cJSON *item = cJSON_GetObjectItem(golden, "activations")->child; g && item;
         item = item->next) {
        int hidden = 0;
        for (int i = 0; fused[i]; i++) hidden |= !strcmp(fused[i], item->string);
        if (!hidden && kolo_graph_find(g, item->string) < 0)
            diag("no activation %s", item->string), missing++;
    }
    ok(!missing && gradients > 0, "%s: every golden gradient and activation has its tensor", file);
    cJSON_Delete(golden);
    kolo_graph_destroy(&g);
}

int main(void)
{
    inventory = golden_read(GOLDEN_FOLDER "/models/inventory.json");
    if (!ok(inventory != NULL, GOLDEN_FOLDER "/models/inventory.json can be read")) return done_testing();
    for (cJSON *entry = cJSON_GetObjectItem(inventory, "models")->child; entry; entry = entry->next)
        counts(entry);
    for (cJSON *names = cJSON_GetObjectItem(inventory, "names")->child; names; names = names->next)
        state_dict(names);
    const char *const bn1[] = {"bn1", NULL}; /* its output exists only after the relu */
    golden_names("resnet18_64.json", "resnet18", NULL, bn1);
    golden_names("resnet50_64_bias.json", "resnet50", NULL, bn1);
    golden_names("resnet20_cifar_a_16.json", "resnet20", "a", bn1);
    golden_names("resnet20_cifar_b_16.json", "resnet20", "b", bn1);
    golden_names("resnext50_32x4d_64_bias.json", "resnext50_32x4d", NULL, bn1);
    golden_names("lenet5.json", "lenet5", NULL, bn1 + 1);
    golden_names("mlp.json", "mlp", NULL, bn1 + 1);
    cJSON_Delete(inventory);
    return done_testing();
}
