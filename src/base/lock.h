/* One process at a time works in a folder: its lock file says which. Two guards, because neither is enough
 * alone: flock, which the kernel releases with a dying process but which some network file systems keep to
 * one host; and the content, which every host can read but which outlives a killed process, so that its
 * owner must be looked up. */
#ifndef KOLO_BASE_LOCK_H
#define KOLO_BASE_LOCK_H

typedef struct run_lock {
    int fd;     /* -1: not held */
    char *path; /* owned */
    const char *what;
} run_lock;

/* file: name of the lock file in `folder`; what: the folder's name in messages, as "run= folder".
 * KOLO_ECONFIG: held by another job or process, or that cannot be checked from here (the text names it and
 * the cure); KOLO_EIO. */
int kolo_lock_take(run_lock *lock, const char *folder, const char *file, const char *what);
void kolo_lock_release(run_lock *lock);

#endif
