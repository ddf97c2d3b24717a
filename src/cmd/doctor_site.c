/* kolo doctor --site FILE: a file of options for KOLO_SITE, with what was found and why. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/thread.h"
#include "cmd/doctor.h"
#include "kolo/error.h"

static void write_head(FILE *f, const doctor *d)
{
    char day[16];
    time_t now = time(NULL);
    struct tm tm;
    strftime(day, sizeof day, "%Y-%m-%d", localtime_r(&now, &tm));
    fprintf(f,
            "# Options of this site, for every user: export KOLO_SITE=THIS FILE (in the module).\n"
            "# They win over recipes and yield to the environment and the command line.\n"
            "# Written by kolo doctor %s on %s, %s: %d ranks on %d nodes. Lines with # are proposals.\n\n",
            KOLO_VERSION, d->launch->host, day, d->launch->size, d->launch->nodes);
}

static void write_data(FILE *f, const doctor *d)
{
    if (*d->data_type)
        fprintf(f, "# The data lies on %s, which %s; a thread reads %.0f MB/s of it.\n", d->data_type,
                d->data_shared ? "nodes share" : "belongs to the node", d->figures.read);
    else fprintf(f, "# Data: none was named (kolo doctor data=DIR says where it lies and how fast it is).\n");
    fprintf(f,
            "# auto: a copy on the disk of each node (TMPDIR), made once, where they share the original.\n"
            "%sstaging: auto\n"
            "# ram: all samples in memory, one copy a node.\n"
            "#data_cache: ram\n"
            "# Reader threads a rank; 0: chosen.\n"
            "#readers: 0\n\n",
            d->data_shared ? "" : "#");
}

static void write_ranks(FILE *f)
{
    fprintf(f,
            "# Compute threads a rank; 0: the processors it may use (here %d) divided among the ranks that "
            "share them.\n"
            "#threads: 0\n\n"
            "# Seconds without a heartbeat after which a rank counts as stopped: more where nodes pause.\n"
            "#heartbeat_timeout: 8\n"
            "# Seconds without progress of a rank that lives.\n"
            "#comm_timeout: 300\n"
            "# Costs of messages, measured once on this cluster: kolo bench --tune path=FILE\n"
            "#comm_table: /shared/kolo-costs.json\n"
            "# How gradients of GPUs travel: nccl, or staged through host memory.\n"
            "#reducer: auto\n",
            kolo_cpu_count());
}

int doctor_write_site(const doctor *d, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    if (d->launch->rank != 0) return 0;
    if (kolo_file_exists(path))
        return kolo_fail(KOLO_ECONFIG, "--site %s is there already: name another file, or remove it", path);
    FILE *f = open_memstream(&text, &bytes);
    if (!f) return kolo_fail(KOLO_ENOMEM, "out of memory");
    write_head(f, d);
    write_data(f, d);
    write_ranks(f);
    int rc = fclose(f) == 0 ? kolo_file_write_atomic(path, text, bytes) : kolo_file_fail("write", path);
    free(text);
    return rc;
}
