/* The lock of a run folder: RUN/lock says who owns it. Two guards, because neither is enough alone: flock, which the kernel
 * releases with a dying process but which some network file systems keep to one host; and the content, which every
 * host can read but which outlives a killed process, so that its owner must be looked up. */
#ifndef KOLO_CKPT_LOCK_H
#define KOLO_CKPT_LOCK_H

typedef struct run_lock {
    int fd;     /* -1: not held */
    char *path; /* owned */
} run_lock;

/* KOLO_ECONFIG: held by another job or process, or that cannot be told from here (the text names it and the cure); KOLO_EIO. */
int kolo_lock_take(run_lock *lock, const char *folder);
void kolo_lock_release(run_lock *lock);

#endif
