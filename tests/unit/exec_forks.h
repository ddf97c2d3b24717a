/* Ranks of one node, a process each, for tests of the executor. */
#ifndef TESTS_UNIT_EXEC_FORKS_H
#define TESTS_UNIT_EXEC_FORKS_H

#include <unistd.h>

#include "comm_world.h"

/* In each of `ranks` new processes its rank, with *w its part in a job of this name; in this one -1, with
 * child[ranks] their ids. They end after two minutes, whatever they do. */
static int exec_fork(pid_t *child, int ranks, const char *name, world *w)
{
    char job[64];
    snprintf(job, sizeof job, "%s-%d", name, (int)getpid());
    fflush(stdout);
    for (int r = 0; r < ranks; r++) {
        child[r] = fork();
        if (child[r]) continue;
        alarm(120);
        world_fill(w, r, ranks, NULL, job);
        return r;
    }
    return -1;
}

#endif
