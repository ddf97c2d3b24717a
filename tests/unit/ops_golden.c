/* Every operation against PyTorch's figures, forward and backward, in every layout. */
#include <dirent.h>

#include "golden_ops.h"

static int json_only(const struct dirent *e) { return golden_ends(e->d_name, ".json"); }

int main(void)
{
    char path[512];
    struct dirent **list = NULL;
    int n = scandir(GOLDEN_FOLDER "/ops", &list, json_only, alphasort);
    ok(n > 0, "figures are in " GOLDEN_FOLDER "/ops");
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, GOLDEN_FOLDER "/ops/%s", list[i]->d_name);
        cJSON *json = golden_read(path);
        if (json) golden_op_case(golden_text(json, "case", list[i]->d_name), json, NULL);
        else ok(0, "%s can be read", path);
        cJSON_Delete(json);
        free(list[i]);
    }
    free(list);
    return done_testing();
}
