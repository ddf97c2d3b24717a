/* golden [device=cuda] [tensor=N] [spatial=RxC[,MODULE:tensor[=N]]] PATH...: checks every golden case that
 * this build knows, in a folder of cases, a folder of such folders, or one file; TAP. A case says by its own
 * name ("models/lenet5") what kind it is. tensor, spatial: networks are cut into parts. Cases of other kinds
 * are skipped with the reason. On a device optim/ is left out: it is the same arithmetic in train/. */
#include <dirent.h>
#include <sys/stat.h>

#include "base/thread.h"
#include "golden_heads.h"
#include "golden_train.h"
#include "golden_ops.h"
#include "golden_optim.h"
#include "golden_yolox.h"

static kolo_backend *backend;

static void check_inventory(const cJSON *json)
{
    const cJSON *entry;
    cJSON_ArrayForEach(entry, golden_at(json, "models"))
    {
        char name[64];
        const char *shortcut;
        golden_network(entry->string, name, &shortcut);
        kolo_model_config c = {.rows = 1,
                               .classes = (int64_t)golden_number(entry, "classes", 10),
                               .shortcut = shortcut,
                               .auxiliary = -1,
                               .mean = {.5f, .5f, .5f},
                               .std = {.5f, .5f, .5f}};
        kolo_graph *g = NULL;
        bool known = false;
        for (int i = 0; i < kolo_model_count; i++) known |= !strcmp(kolo_model_table[i].name, name);
        if (!known) {
            skip("models/inventory: this build lacks the network %s", name);
            continue;
        }
        if (kolo_model_graph(&g, name, &c) < 0)
            ok(0, "models/inventory %s: %s", entry->string, kolo_error_text());
        else
            ok((double)kolo_graph_parameters(g) == golden_number(entry, "parameters", 0),
               "models/inventory %s: %lld parameters", entry->string, (long long)kolo_graph_parameters(g));
        kolo_graph_destroy(&g);
    }
}

static bool starts(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

static void check_file(const char *path)
{
    cJSON *json = golden_read(path);
    const char *name = golden_text(json, "case", "");
    char label[400];
    snprintf(label, sizeof label, "%.300s", *name ? name : path);
    if (!json) ok(0, "%s: no JSON that can be read", path);
    else if (!strcmp(label, "models/inventory")) check_inventory(json);
    else if (starts(label, "models/yolox")) golden_heads_case(label, json, backend);
    else if (starts(label, "models/")) golden_model_case(label, json, backend);
    else if (starts(label, "train/")) golden_train_case(label, json, backend);
    else if (starts(label, "optim/") && !kolo_backend_is_host(backend)) skip("%s: not on a device", label);
    else if (!strcmp(label, "optim/adasum")) skip("%s: tests/unit/comm_adasum checks it", label);
    else if (!strcmp(label, "optim/schedules")) golden_schedules(label, json);
    else if (starts(label, "optim/")) golden_optim_case(label, json);
    else if (starts(label, "ops/"))
        golden_op_case(label, json, kolo_backend_is_host(backend) ? NULL : backend);
    else if (starts(label, "detect/")) golden_detect_case(label, json, backend);
    else if (!strcmp(label, "images/photos")) skip("%s: tests/unit/data_golden checks it", label);
    else if (!strcmp(label, "images/mixing")) skip("%s: tests/unit/data_mix checks it", label);
    else skip("%s: no check of this kind of case here", label);
    cJSON_Delete(json);
    golden_case_ends(label);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Files *.json of the folder and of the folders in it, in order of their names. */
static void check_path(const char *path, int depth)
{
    struct stat s;
    if (stat(path, &s) < 0) {
        ok(0, "%s: there is no such file or folder", path);
        return;
    }
    if (!S_ISDIR(s.st_mode)) {
        check_file(path);
        return;
    }
    char *found[4096];
    int n = 0;
    DIR *folder = opendir(path);
    struct dirent *entry;
    while (folder && n < 4096 && (entry = readdir(folder))) {
        if (entry->d_name[0] == '.') continue;
        size_t size = strlen(path) + strlen(entry->d_name) + 2;
        char *inside = malloc(size);
        snprintf(inside, size, "%s/%s", path, entry->d_name);
        bool wanted =
            stat(inside, &s) == 0 && (S_ISDIR(s.st_mode) ? depth < 3 : golden_ends(inside, ".json"));
        if (wanted) found[n++] = inside;
        else free(inside);
    }
    if (folder) closedir(folder);
    qsort(found, (size_t)n, sizeof *found, by_name);
    for (int i = 0; i < n; i++) {
        check_path(found[i], depth + 1);
        free(found[i]);
    }
}

int main(int count, char **words)
{
    kolo_backend_config config = {.threads = kolo_cpu_count(), .direct = true, .deterministic = true};
    const char *device = count > 1 && starts(words[1], "device=") ? words[1] + 7 : NULL;
    int first = device ? 2 : 1;
    if (count > first && sscanf(words[first], "tensor=%d", &golden_channels) == 1) first++;
    if (count > first && sscanf(words[first], "spatial=%dx%d,%63[^:]:tensor=%d", &golden_parts[0],
                                &golden_parts[1], golden_late, &golden_late_parts) >= 2)
        first++;
    if (!golden_late_parts) golden_late_parts = golden_parts[0] * golden_parts[1];
    if (count <= first) {
        fprintf(stderr, "usage: golden [device=cuda] [tensor=N] [spatial=RxC[,MODULE:tensor]] PATH...   "
                        "folders or files of "
                        "golden cases\n");
        return 2;
    }
    if (kolo_backend_create(&backend, device ? device : "cpu", &config) < 0) {
        ok(0, "backend: %s", kolo_error_text());
        return done_testing();
    }
    for (int i = first; i < count; i++) check_path(words[i], 0);
    kolo_backend_destroy(&backend);
    golden_cases_end();
    return done_testing();
}
