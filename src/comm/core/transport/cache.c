/* Which CPUs share a cache, as the kernel describes it in /sys. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm/core/transport/inside.h"

/* A list as "0-7,16-23"; the lowest CPU, and whether every CPU of `wanted` is in it. */
static bool covers(const char *list, const cpu_set_t *wanted, int *lowest)
{
    int found = 0;
    *lowest = (int)strtol(list, NULL, 10);
    for (const char *at = list; *at >= '0' && *at <= '9'; at += *at == ',') {
        char *end;
        const long from = strtol(at, &end, 10), to = *end == '-' ? strtol(end + 1, &end, 10) : from;
        for (long cpu = from; cpu <= to && cpu < CPU_SETSIZE; cpu++) found += CPU_ISSET(cpu, wanted) != 0;
        at = end;
    }
    return found == CPU_COUNT(wanted);
}

uint32_t router_cache(void)
{
    enum { LEVELS = 8 };
    cpu_set_t mine;
    char path[96], list[4096];
    int cpu = 0, lowest = -1;
    if (sched_getaffinity(0, sizeof mine, &mine) != 0) return 0;
    while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &mine)) cpu++;
    for (int index = LEVELS - 1; index >= 0 && lowest < 0; index--) { /* the largest cache is listed last */
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cpu,
                 index);
        FILE *file = fopen(path, "re");
        if (!file) continue;
        if (!fgets(list, sizeof list, file) || !covers(list, &mine, &lowest)) lowest = -1, index = 0;
        fclose(file);
    }
    return (uint32_t)(lowest + 1);
}
