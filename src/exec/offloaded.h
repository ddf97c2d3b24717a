/* Offloaded activations, copied to and from beside the step. On CPUs: by a thread, in a file without a name,
 * in a folder of the user's choice, in the order in which copies are asked for. On devices: on a lane of
 * their own, in page-locked host memory, as part of what is replayed. */
#ifndef KOLO_EXEC_OFFLOADED_H
#define KOLO_EXEC_OFFLOADED_H

#include <stddef.h>
#include <stdint.h>

#include "ops/backend.h"

typedef struct exec_offloaded exec_offloaded;

/* folder: of CPUs; exists and may be written to; "": /tmp. jobs: most that are asked for and not waited for.
 * KOLO_EIO: the folder has no room for `bytes`, or takes no files. */
int exec_offloaded_open(exec_offloaded **offloaded, kolo_backend *backend, const char *folder, size_t bytes,
                        int64_t jobs);
/* After the copies that were asked for; the backend has finished. */
void exec_offloaded_close(exec_offloaded **offloaded);

/* Begins a copy of `bytes` from memory to `offset`, or from there; *number: for wait. Until then the memory
 * stays as it is. */
int exec_offloaded_write(exec_offloaded *offloaded, void *memory, size_t offset, size_t bytes,
                         int64_t *number);
int exec_offloaded_read(exec_offloaded *offloaded, void *memory, size_t offset, size_t bytes,
                        int64_t *number);
/* What follows is done behind that copy and those before it. KOLO_EIO: one failed. */
int exec_offloaded_wait(exec_offloaded *offloaded, int64_t number);

#endif
