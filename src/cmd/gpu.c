#include "cmd/gpu.h"

#include <cjson/cJSON.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "cmd/cmd.h"
#include "cmd/share_table.h"
#include "kolo/error.h"

/* What tests/gpu/run and `kolo bench` found on such a GPU. Caller frees; NULL: nothing. */
static char *find_measured(const char *name)
{
    const char *cache = getenv("KOLO_CACHE"), *home = getenv("HOME");
    char *path = cache && *cache ? kolo_format("%s/gpus/%s.yaml", cache, name)
                 : home && *home ? kolo_format("%s/.cache/kolo/gpus/%s.yaml", home, name)
                                 : NULL;
    if (path && kolo_file_exists(path)) return path;
    free(path);
    return NULL;
}

static int read_table(kolo_gpu_table *t, const char *path)
{
    kolo_rates_begin(&t->rates);
    KOLO_TRY(kolo_rates_read(&t->rates, path));
    KOLO_TRY(kolo_rates_check(&t->rates, path));
    t->name = kolo_table_name(path);
    if (!t->name) return KOLO_ENOMEM;
    char *measured = find_measured(t->name);
    int rc = measured ? kolo_rates_read(&t->rates, measured) : 0;
    t->where = measured ? kolo_format("%s (%s, measured: %s)", t->name, path, measured)
                        : kolo_format("%s (%s)", t->name, path);
    free(measured);
    return rc < 0 ? rc : t->where ? 0 : KOLO_ENOMEM;
}

/* A whole number above 0 of cuDNN's description. */
static int read_number(const cJSON *object, const char *path, const char *name, int *value)
{
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!cJSON_IsNumber(number) || !(number->valuedouble >= 1 && number->valuedouble < 1e9))
        return kolo_fail(KOLO_ECONFIG, "%s: %s is missing, or not a number above 0", path, name);
    *value = number->valueint;
    return 0;
}

static int parse_description(kolo_gpu *gpu, const cJSON *object, const char *path)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(object, "deviceName");
    if (!cJSON_IsString(name))
        return kolo_fail(KOLO_ECONFIG, "%s: deviceName is missing, or the file is not JSON", path);
    snprintf(gpu->device, sizeof gpu->device, "%s", name->valuestring);
    KOLO_TRY(read_number(object, path, "deviceVer", &gpu->capability));
    KOLO_TRY(read_number(object, path, "driverVer", &gpu->driver));
    KOLO_TRY(read_number(object, path, "multiProcessorCount", &gpu->processors));
    gpu->capability /= 10; /* 900 is 9.0 */
    return read_number(object, path, "maxSharedMemoryPerBlockOptin", &gpu->shared);
}

/* cuDNN's description lies beside the table. */
static int read_description(kolo_gpu_table *t, const char *path)
{
    const size_t length = strlen(path), end = strlen(".yaml");
    const bool suffixed = length > end && !strcmp(path + length - end, ".yaml");
    char *file = kolo_format("%.*s.json", (int)(length - (suffixed ? end : 0)), path);
    int rc = file ? 0 : KOLO_ENOMEM;
    const bool there = file && kolo_file_exists(file);
    if (there) rc = kolo_file_read(file, &t->json, NULL);
    t->gpu = (kolo_gpu){.name = t->name, .json = t->json, .memory = (size_t)t->rates.memory};
    if (there && rc == 0) {
        cJSON *object = cJSON_Parse(t->json);
        rc = parse_description(&t->gpu, object, file);
        cJSON_Delete(object);
    }
    free(file);
    return rc;
}

int kolo_gpu_open(kolo_gpu_table *t, const char *word)
{
    char *path = NULL;
    *t = (kolo_gpu_table){0};
    KOLO_TRY(kolo_table_find("gpus", "gpu", word, &path));
    int rc = read_table(t, path);
    if (rc == 0) rc = read_description(t, path);
    free(path);
    if (rc < 0) kolo_gpu_close(t);
    return rc;
}

int kolo_gpu_open_named(kolo_gpu_table *t, const char *device)
{
    glob_t found = {0};
    int rc = 1;
    *t = (kolo_gpu_table){0};
    KOLO_TRY(kolo_table_all("gpus", &found));
    for (size_t i = 0; i < found.gl_pathc && rc == 1; i++) {
        char *name = kolo_table_name(found.gl_pathv[i]);
        if (name && strcasestr(device, name)) rc = kolo_gpu_open(t, name);
        free(name);
    }
    globfree(&found);
    return rc;
}

void kolo_gpu_close(kolo_gpu_table *t)
{
    free(t->name);
    free(t->where);
    free(t->json);
    *t = (kolo_gpu_table){0};
}
