/* The words of MPICH's PMI-1 wire protocol, answered for one rank; apart from sockets and PMIx so
 * that it can be tested alone. A line in, at most one line out. Values may hold spaces: they run to
 * the end of their line. */
#ifndef KOLO_LAUNCH_PMI_STORE_H
#define KOLO_LAUNCH_PMI_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KOLO_PMI_LINE = 2048, KOLO_PMI_VALUE = 800 }; /* MPICH's client has lines of 1024 bytes */

/* What lies below. A barrier publishes "key=value\n..." of this rank under an epoch 0, 1, ... and waits
 * for all ranks; fetch gives what another rank published there (caller frees). 0 or negative status.
 * abort does not return. */
typedef struct kolo_pmi_below {
    void *context;
    int (*fence)(void *context, uint32_t epoch, const char *lines, size_t bytes);
    int (*fetch)(void *context, uint32_t epoch, int rank, char **lines, size_t *bytes);
    void (*abort)(void *context, int exit_status);
} kolo_pmi_below;

typedef struct kolo_pmi_store {
    int rank, size;
    kolo_pmi_below below;
    char **entries; /* "key=value", open addressing; NULL: free */
    int64_t slots, used;
    char *put; /* of this rank since the last barrier */
    int64_t put_bytes, put_capacity;
    uint32_t epoch, merged; /* barriers made; barriers whose entries are in the table */
    bool spawning;          /* inside mcmd=spawn ... endcmd */
    bool started, ended;    /* init, finalize seen */
} kolo_pmi_store;

int kolo_pmi_store_make(kolo_pmi_store *store, int rank, int size, const char *mapping, kolo_pmi_below below);
void kolo_pmi_store_free(kolo_pmi_store *store);

/* line: without its newline. reply: KOLO_PMI_LINE bytes, becomes a line with newline, or empty where none is
 * due. Negative: out of memory, or a failure below; the reply then says so in the protocol's own words. */
int kolo_pmi_answer(kolo_pmi_store *store, const char *line, char *reply);

/* Value of `field` in "cmd=x a=1 b=2", its length in *length; `value` runs to the end of the
 * line. NULL: not there. */
const char *kolo_pmi_field(const char *line, const char *field, size_t *length);

#endif
