/* Who owns a locked folder (base/lock.h), as its lock file names it, and whether that process still runs. */
#ifndef KOLO_BASE_OWNER_H
#define KOLO_BASE_OWNER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct owner {
    char host[256], boot[64]; /* boot: a machine's name for its present uptime */
    long pid;
    unsigned long long start;            /* of the process, clock ticks since boot */
    char job[32], restart[16], step[32]; /* Slurm's; "" outside */
    char since[32];
} owner;

enum owner_state {
    OWNER_GONE, /* its process has ended: the lock is stale */
    OWNER_SELF, /* an earlier start of this very job */
    OWNER_ALIVE,
    OWNER_UNKNOWN, /* on another machine, and nobody here can say */
};

void kolo_owner_self(owner *me);
char *kolo_owner_write(const owner *o);           /* JSON text; caller frees */
bool kolo_owner_read(owner *o, const char *text); /* false: not a lock's text */
bool kolo_owner_equal(const owner *a, const owner *b);
/* Looks the process up; state (may be NULL, size bytes): Slurm's word for its job ("RUNNING"), or "". */
enum owner_state kolo_owner_look(const owner *o, const owner *me, char *state, size_t size);
/* o is of this machine; false while it is exiting */
bool kolo_owner_process_runs(const owner *o);
void kolo_owner_text(const owner *o, char *text, size_t size); /* "job 12, process 345 on node7, since ..." */

#endif
