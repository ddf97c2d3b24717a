#include "base/cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

/* The first line of root/mount/group/file, without its newline. */
static bool read_line(const char *root, const char *mount, const char *group, const char *file, char *line,
                      int bytes)
{
    char path[3 * PATH_BYTES];
    snprintf(path, sizeof path, "%s/sys/fs/cgroup%s%s/%s", root, mount, group, file);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool got = fgets(line, bytes, f) != NULL;
    fclose(f);
    if (got) line[strcspn(line, "\n")] = 0;
    return got;
}

/* "N:controllers:group" -> group, if the controllers hold `controller` ("" is cgroup v2). */
static bool line_is_of(char *line, const char *controller, char *group)
{
    char *names = strchr(line, ':');
    char *path = names ? strchr(names + 1, ':') : NULL;
    if (!path) return false;
    *path++ = 0;
    names++;
    path[strcspn(path, "\n")] = 0;
    snprintf(group, PATH_BYTES, "%s", strcmp(path, "/") ? path : "");
    if (!*controller) return !*names;
    size_t n = strlen(controller);
    for (const char *p = names; *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && !strncmp(p, controller, n)) return true;
    return false;
}

/* The group of this process for a v1 controller, or for v2 (controller ""). */
static bool find_group(const char *root, const char *controller, char *group)
{
    char path[PATH_BYTES], line[2 * PATH_BYTES];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) found = line_is_of(line, controller, group);
    fclose(f);
    return found;
}

/* Calls `visit` for the group and every ancestor. In a container the group's own path may not be visible:
 * then only the ancestors that exist answer, and the container's root among them carries its limit. */
static void walk(const char *root, const char *controller, const char *mount,
                 void (*visit)(const char *root, const char *mount, const char *group, void *context),
                 void *context)
{
    char group[PATH_BYTES];
    if (!find_group(root, controller, group)) return;
    for (;;) {
        visit(root, mount, group, context);
        char *slash = strrchr(group, '/');
        if (!slash) return;
        *slash = 0;
    }
}

static void lower_memory(const char *root, const char *mount, const char *group, const char *file,
                         int64_t *limit)
{
    char line[64], *end;
    if (!read_line(root, mount, group, file, line, sizeof line)) return;
    long long bytes = strtoll(line, &end, 10);
    if (end == line || *end || bytes < 0) return; /* "max" */
    if (bytes < *limit) *limit = bytes;
}

static void visit_memory_v1(const char *root, const char *mount, const char *group, void *context)
{
    lower_memory(root, mount, group, "memory.limit_in_bytes", context);
}

static void visit_memory_v2(const char *root, const char *mount, const char *group, void *context)
{
    lower_memory(root, mount, group, "memory.max", context);
}

int64_t kolo_cgroup_memory(const char *root)
{
    int64_t limit = INT64_MAX;
    walk(root, "memory", "/memory", visit_memory_v1, &limit);
    walk(root, "", "", visit_memory_v2, &limit);
    walk(root, "", "/unified", visit_memory_v2, &limit);
    return limit >= INT64_MAX / 2 ? INT64_MAX : limit; /* v1 writes "no limit" as LONG_MAX rounded to pages */
}

/* A job's group counts the kills of all below it, with v2; so the largest of this group's and its job's. */
static void count_kills(const char *root, const char *mount, const char *group, const char *file,
                        int64_t *kills)
{
    char path[3 * PATH_BYTES], line[128];
    long long count;
    const char *last = strrchr(group, '/');
    if (*kills >= 0 && !(last && !strncmp(last, "/job_", 5))) return;
    snprintf(path, sizeof path, "%s/sys/fs/cgroup%s%s/%s", root, mount, group, file);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "oom_kill %lld", &count) == 1 && count > *kills) *kills = count;
    if (f) fclose(f);
}

static void visit_kills_v1(const char *root, const char *mount, const char *group, void *context)
{
    count_kills(root, mount, group, "memory.oom_control", context);
}

static void visit_kills_v2(const char *root, const char *mount, const char *group, void *context)
{
    count_kills(root, mount, group, "memory.events", context);
}

int64_t kolo_cgroup_kills(const char *root)
{
    int64_t kills = -1;
    walk(root, "memory", "/memory", visit_kills_v1, &kills);
    walk(root, "", "", visit_kills_v2, &kills);
    return kills;
}

static void lower_cpus(double quota, double period, double *cpus)
{
    if (quota <= 0 || period <= 0) return;
    if (*cpus == 0 || quota / period < *cpus) *cpus = quota / period;
}

static void visit_cpus_v1(const char *root, const char *mount, const char *group, void *context)
{
    char quota[64], period[64];
    if (read_line(root, mount, group, "cpu.cfs_quota_us", quota, sizeof quota) &&
        read_line(root, mount, group, "cpu.cfs_period_us", period, sizeof period))
        lower_cpus(strtod(quota, NULL), strtod(period, NULL), context);
}

static void visit_cpus_v2(const char *root, const char *mount, const char *group, void *context)
{
    char line[64], *end;
    if (!read_line(root, mount, group, "cpu.max", line, sizeof line)) return;
    double quota = strtod(line, &end);
    if (end != line) lower_cpus(quota, strtod(end, NULL), context); /* "max 100000": no number first */
}

double kolo_cgroup_cpus(const char *root)
{
    double cpus = 0;
    walk(root, "cpu", "/cpu", visit_cpus_v1, &cpus);
    walk(root, "cpu", "/cpu,cpuacct", visit_cpus_v1, &cpus);
    walk(root, "", "", visit_cpus_v2, &cpus);
    walk(root, "", "/unified", visit_cpus_v2, &cpus);
    return cpus;
}
