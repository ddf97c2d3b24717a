/* Stores past the caches, for large results that nothing reads soon: a plain store first reads the
 * line that it overwrites. */
#ifndef KOLO_OPS_CPU_STREAM_H
#define KOLO_OPS_CPU_STREAM_H

#include <stddef.h>

/* Tensors of fewer bytes stay in the caches until they are read. */
#define KOLO_STREAM_BYTES ((size_t)8 << 20)

void kolo_stream_copy(void *to, const void *from, size_t bytes);
void kolo_stream_end(void); /* after the last copy of a thread */

#endif
