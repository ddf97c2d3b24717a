/* Every operation against PyTorch's figures, forward and backward, in every layout. */
#include <dirent.h>

#include "golden_ops.h"

static int json_only(const struct dirent *e) { return golden_ends(e->d_name, ".json"); }

int main(void)
{
    char folder[4096], path[8192];
    golden_folder(folder);
    snprintf(path, sizeof path, "%s/ops", folder);
    struct dirent **list = NULL;
    int n = scandir(path, &list, json_only, alphasort);
    if (n <= 0) skip_all("no golden figures in %s", path);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/ops/%s", folder, list[i]->d_name);
        cJSON *json = golden_read(path);
        if (json) golden_op_case(golden_text(json, "case", list[i]->d_name), json, NULL);
        else ok(0, "%s can be read", path);
        cJSON_Delete(json);
        free(list[i]);
    }
    free(list);
    return done_testing();
}
