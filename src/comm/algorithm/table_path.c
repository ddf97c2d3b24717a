/* Where the table of this cluster lies when nobody names one: KOLO_CACHE (or ~/.cache/kolo),
 * comm-table-CLUSTER. The cluster is Slurm's name of it, else what the host's name has before its number, so
 * that all nodes of a cluster agree and two clusters with one home do not meet. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/algorithm/algorithm.h"
#include "kolo/error.h"

/* Letters, digits and - only; a host's name ends before its number or domain. */
static void cluster_name(char *name, size_t bytes)
{
    const char *slurm = getenv("SLURM_CLUSTER_NAME");
    char host[256] = "host";
    bool given = slurm && *slurm;
    if (!given) gethostname(host, sizeof host - 1);
    snprintf(name, bytes, "%s", given ? slurm : host);
    size_t n = 0;
    for (char *c = name; *c && (given || *c != '.'); c++, n++)
        if (!isalnum((unsigned char)*c)) *c = '-';
    while (!given && n > 0 && (isdigit((unsigned char)name[n - 1]) || name[n - 1] == '-')) n--;
    if (n) name[n] = 0;
}

char *comm_table_path(void)
{
    const char *cache = getenv("KOLO_CACHE"), *home = getenv("HOME");
    char name[256];
    cluster_name(name, sizeof name);
    if (cache && *cache) return kolo_format("%s/comm-table-%s", cache, name);
    return kolo_format("%s/.cache/kolo/comm-table-%s", home && *home ? home : ".", name);
}

int comm_table_open(comm_selector **selector, const char *table, const char *forced)
{
    char *usual = NULL;
    if (table && strcmp(table, "none") == 0) return comm_selector_open(selector, NULL, forced);
    if (!table || !*table) {
        if (!(usual = comm_table_path())) return KOLO_ENOMEM;
        table = access(usual, R_OK) == 0 ? usual : NULL;
    }
    int rc = comm_selector_open(selector, table, forced);
    free(usual);
    return rc;
}

int comm_allreduce_open(comm_selector **selector, const char *table, const char *forced)
{
    KOLO_TRY(comm_table_open(selector, table, forced));
    const bool any = !forced || !*forced || strcmp(forced, "auto") == 0;
    /* no line of a table is of -1 members */
    if (any || comm_selector_asks(*selector, KOLO_ALLREDUCE, -1, 0)) return 0;
    comm_selector_close(selector);
    return kolo_fail(KOLO_ECONFIG,
                     "comm: algorithm %s is none of allreduce; `kolo bench --algorithms` lists them", forced);
}
