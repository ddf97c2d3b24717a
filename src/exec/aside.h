/* Activations aside: a file without a name, in a folder of the user's choice, that a thread copies to and
 * from beside the step. Copies are done in the order in which they are asked for. */
#ifndef KOLO_EXEC_ASIDE_H
#define KOLO_EXEC_ASIDE_H

#include <stddef.h>
#include <stdint.h>

typedef struct exec_aside exec_aside;

/* folder: exists and may be written to; "": /tmp. jobs: most that are asked for and not
 * waited for. KOLO_EIO: the folder has no room for `bytes`, or takes no files. */
int exec_aside_open(exec_aside **aside, const char *folder, size_t bytes, int64_t jobs);
/* After the copies that were asked for. */
void exec_aside_close(exec_aside **aside);

/* Begins a copy of `bytes` from memory to `offset`, or from there; *number: for wait. Until then the memory
 * stays as it is. */
int exec_aside_write(exec_aside *aside, void *memory, size_t offset, size_t bytes, int64_t *number);
int exec_aside_read(exec_aside *aside, void *memory, size_t offset, size_t bytes, int64_t *number);
/* Until that copy and those before it are done. KOLO_EIO: one failed. */
int exec_aside_wait(exec_aside *aside, int64_t number);

#endif
