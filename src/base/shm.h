/* What programs of this kind put under names in /dev/shm: segments of the ranks of a node, caches of samples,
 * servers of batches, where the ranks of a node meet at their launch. A process that uses one holds a lock on
 * it, which the kernel takes back when it dies in whatever way; so what nobody has locked has been left by
 * killed ones. Names that can be guessed hold the user's number; another user may put something there all the
 * same, so an object is looked at (owner, kind, mode) before anything is waited for. */
#ifndef KOLO_BASE_SHM_H
#define KOLO_BASE_SHM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

enum kolo_shm_state { KOLO_SHM_REMOVED, KOLO_SHM_USED, KOLO_SHM_FOREIGN };

typedef struct kolo_shm_object {
    const char *name; /* in /dev/shm */
    enum kolo_shm_state state;
    uint64_t bytes;
    long holder;  /* of a used one: a process that has it locked, as far as the kernel says; else 0 */
    unsigned uid; /* owner */
} kolo_shm_object;

/* bit set of kinds */
enum {
    KOLO_SHM_RANKS = 1,
    KOLO_SHM_CACHES = 2,
    KOLO_SHM_SERVERS = 4,
    KOLO_SHM_LAUNCHES = 8,
    KOLO_SHM_ALL = 15
};

/* Removes what killed processes of this user have left, and tells (NULL: nobody) of every object of these
 * kinds that it finds; another user's only where it has a name that would be ours. Returns how many were
 * removed. */
int kolo_shm_sweep(int kinds, void (*report)(const kolo_shm_object *object, void *context), void *context);

/* Opens or makes /NAME, 0600, and looks whose it is: the descriptor; -1: something of another user, or no
 * private file, is in its place; KOLO_EIO: it cannot be opened. */
int kolo_shm_open_own(const char *name);
/* flock with a limit. 1: held, 0: somebody else held it all the time, negative: errno's KOLO_EIO. */
int kolo_shm_lock(int fd, int operation, double seconds);

#endif
